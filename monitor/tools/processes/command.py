"""One command in a process group of its own: started, read, waited for, ended.

- **A command ends when its first process ends**, not when its pipe closes: a background child may
  hold the pipe for hours. A thread reads the pipe, so that such a child can go on writing, and no
  event loop has to keep a task for it.
- **Ending** is TERM to all members, a grace and KILL; see `monitor.tools.processes.descendants`.
- Output is one stream, as a terminal shows it: stdout and stderr in the order of writing.
"""

from __future__ import annotations

import math
import os
import secrets
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Protocol

import anyio

from monitor.errors import ConfigError
from monitor.tools.processes.descendants import MarkedDescendants, NamespaceDescendants
from monitor.tools.processes.process_table import MARKER, ProcessInfo, RecentProcesses, marked, owner_token

READ_BYTES: Final = 65_536
PIPE_BYTES: Final = 4_096
"""The most bytes of one write. A pipe that can be written takes them without waiting (POSIX)."""
READERS_S: Final = 0.1
"""How long the pipe is read on after the first process has ended."""
POLL_S: Final = 0.02
"""Seconds between two looks whether processes have ended, if the system does not say so itself."""
REAP_S: Final = 2.0
"""The seconds to wait until a killed process has ended. One that waits for a disk may take longer.
"""


def check_platform() -> None:
    """Raise `ConfigError` on a system without process groups or pipes that can be polled."""
    if sys.platform == "win32" or not hasattr(select, "poll"):
        raise ConfigError("commands need process groups, which this system does not have; run under Linux or macOS")


class Launcher(Protocol):
    """Starts the first process of a command, in a sandbox for example."""

    @property
    def namespaced(self) -> bool:
        """Whether the command has its own namespace of processes, made by bubblewrap."""
        ...

    def start(
        self, argv: Sequence[str], /, *, directory: Path, status: int | None, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start it as `subprocess.Popen` does. `status`: the descriptor for bubblewrap's status."""
        ...


class _PlainLauncher:
    """Starts commands as they are."""

    namespaced = False

    def start(
        self, argv: Sequence[str], /, *, directory: Path, status: int | None, **options: Any
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen[bytes](argv, cwd=directory, **options)


_PLAIN: Final[Launcher] = _PlainLauncher()


class Command:
    """A running command and its output.

    `launcher`: starts it. `None`: it is started as it is. `has_input`: its input is open for
    `write`; else it is empty.

    `bound`: the most bytes that it may write. A command that writes more is no longer read, and
    `overflowed` is set. After `detach` it may write on: the oldest output is dropped. Raises
    `OSError` or `ValueError` if the command cannot be started.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        directory: Path,
        environment: Mapping[str, str],
        bound: int,
        launcher: Launcher | None = None,
        has_input: bool = False,
    ) -> None:
        launcher = launcher or _PLAIN
        token = owner_token(secrets.token_hex(8))
        self._output = _Output(bound)
        self.started_s = time.monotonic()
        with ExitStack() as undo, ExitStack() as given:
            reading, writing = os.pipe()
            undo.callback(os.close, reading)
            given.callback(os.close, writing)
            self._input: int | None = None
            stdin = subprocess.DEVNULL
            if has_input:
                stdin, self._input = os.pipe()
                undo.callback(os.close, self._input)
                given.callback(os.close, stdin)
                os.set_blocking(self._input, False)
            options: dict[str, Any] = {
                "env": {**environment, MARKER: marked(token)},
                "stdin": stdin,
                "stdout": writing,
                "stderr": writing,
                "start_new_session": True,
            }
            self._descendants: MarkedDescendants | NamespaceDescendants
            if launcher.namespaced:
                status, told = os.pipe()
                undo.callback(os.close, status)
                given.callback(os.close, told)
                os.set_blocking(status, False)
                options["pass_fds"] = (told,)
                self._process = launcher.start(argv, directory=directory, status=told, **options)
                self._descendants = NamespaceDescendants(self._process, status)
            else:
                self._process = launcher.start(argv, directory=directory, status=None, **options)
                self._descendants = MarkedDescendants(self._process, token, RecentProcesses(self._process.pid))
            undo.pop_all()
        self.pid = self._process.pid
        self.ended_s: float | None = None
        self._reader = _OutputReader(reading, self._process, self._output, self._descendants)

    @property
    def returncode(self) -> int | None:
        """The exit code, as `subprocess` has it: a number below 0 is a signal. `None`: the first
        process still runs.
        """
        code = self._process.returncode
        if code is None or not isinstance(self._descendants, NamespaceDescendants):
            return code
        return self._descendants.exit_code(code)

    @property
    def never_began(self) -> bool:
        """Whether it has ended before it began, because its sandbox could not be made. The output
        says why.
        """
        return (
            isinstance(self._descendants, NamespaceDescendants)
            and self._reader.ended
            and not self._descendants.made
            and (self._process.poll() or 0) > 0
        )

    @property
    def overflowed(self) -> bool:
        """Whether it has written more than `bound`, and is not read any more."""
        return self._output.overflowed

    @property
    def dropped_bytes(self) -> int:
        """The number of bytes that were dropped unread."""
        return self._output.dropped

    @property
    def elapsed_s(self) -> float:
        """Seconds from its start to its end, or until now."""
        return (self.ended_s or time.monotonic()) - self.started_s

    def take(self) -> bytes:
        """The output since the last call of `take`."""
        return self._output.take()

    def detach(self, bound: int) -> None:
        """From now on nobody reads regularly: keep only the newest `bound` bytes of output."""
        self._output.detach(bound)

    def others(self) -> list[ProcessInfo]:
        """The living processes of the command without the first one, which is reaped."""
        ended = self._reader.ended
        found = [entry for entry in self._descendants.members() if entry.pid != self.pid]
        if ended and self._process.poll() is not None:
            if self.ended_s is None:
                self.ended_s = self._reader.ended_s or time.monotonic()
            if self._process.returncode < 0 and isinstance(self._descendants, NamespaceDescendants):
                self._descendants.kill()  # somebody has ended the sandbox from outside
                return []
        return found

    @property
    def takes_input(self) -> bool:
        """Whether its input is open."""
        return self._input is not None

    async def write(self, data: bytes, seconds: float) -> int:
        """Write to its input, for at most `seconds`. Returns the number of bytes that it has taken;
        fewer than `data` has if it does not read. Raises `OSError` if it has closed its input.
        """
        written = 0
        with anyio.move_on_after(seconds):
            while self._input is not None and written < len(data):
                await anyio.wait_writable(self._input)
                with suppress(BlockingIOError):
                    written += os.write(self._input, data[written : written + PIPE_BYTES])
        return written

    def close_input(self) -> None:
        """End its input: it reads the end of the file."""
        if self._input is not None:
            os.close(self._input)
            self._input = None

    async def changed(self, seconds: float) -> bool:
        """Wait until there is new output or the first process has ended. False: `seconds` have
        passed.
        """
        with anyio.move_on_after(seconds):
            await anyio.wait_readable(self._reader.notices)
            self._reader.notices_read()
            return True
        return False

    @property
    def first_ended(self) -> bool:
        """Whether the first process has ended. It may not be reaped yet."""
        return self._reader.ended

    @property
    def closed_by_all(self) -> bool:
        """Whether no process holds the pipe any more. Then all output is there."""
        return self._reader.at_end

    async def last_output(self) -> None:
        """After the first process has ended: wait `READERS_S` for output that is in the pipe."""
        with anyio.move_on_after(READERS_S):
            while not self.closed_by_all and not self.overflowed:
                await self.changed(READERS_S)

    async def end(self, grace_s: float) -> None:
        """End all of its processes: TERM, `grace_s` seconds, KILL. It takes bounded time, and a
        cancellation does not interrupt it. If an asyncio task is cancelled a second time, KILL is
        sent at once.
        """
        with anyio.CancelScope(shield=True):
            if self._all_gone():
                return
            try:
                self._descendants.signal(signal.SIGTERM)
                await self._gone(grace_s)
            finally:
                self.kill()
            await self._gone(REAP_S)
            await self.last_output()

    def kill(self) -> None:
        """Kill all of its processes now, without waiting."""
        self._descendants.kill()

    def close(self) -> None:
        """Stop reading. Call this when no process of the command is left, or its output is not
        needed.
        """
        self.close_input()
        self._reader.stop()
        self._descendants.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(0 if self._reader.ended else REAP_S)
        if self.ended_s is None:
            self.ended_s = time.monotonic()

    async def _gone(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self._all_gone():
                return
            await anyio.sleep(POLL_S)

    def _all_gone(self) -> bool:
        return self._reader.ended and not self.others() and self._descendants.all_found()


class _Output:
    """Bytes that were read and not taken yet. Shared by the reading thread and the event loop."""

    def __init__(self, bound: int) -> None:
        self._lock = threading.Lock()
        self._held = bytearray()
        self._bound = bound
        self._total = 0
        self._attached = True
        self.overflowed = False
        self.dropped = 0

    def add(self, piece: bytes) -> None:
        with self._lock:
            if self._attached:
                kept = piece[: self._bound - self._total]
                self._total += len(kept)
                self.overflowed = len(kept) < len(piece)
                self._held += kept
                return
            self._held += piece
            excess = len(self._held) - self._bound
            if excess > 0:
                del self._held[:excess]
                self.dropped += excess

    def take(self) -> bytes:
        with self._lock:
            taken = bytes(self._held)
            self._held.clear()
            return taken

    def detach(self, bound: int) -> None:
        with self._lock:
            self._attached = False
            self._bound = bound


class _OutputReader:
    """The thread that reads the pipe of a command and sees its first process end."""

    def __init__(
        self,
        pipe: int,
        process: subprocess.Popen[bytes],
        output: _Output,
        descendants: MarkedDescendants | NamespaceDescendants,
    ) -> None:
        self._namespace = descendants if isinstance(descendants, NamespaceDescendants) else None
        self._pipe = pipe
        self._process = process
        self._output = output
        self.ended = False
        self.ended_s: float | None = None
        self.at_end = False
        self.notices, self._notify = os.pipe()
        self._wake_read, self._wake = os.pipe()
        for descriptor in (self.notices, self._notify, pipe):
            os.set_blocking(descriptor, False)
        self._death = _pidfd(process.pid)
        self._thread = threading.Thread(target=self._run, name=f"output of {process.pid}", daemon=True)
        self._thread.start()

    def notices_read(self) -> None:
        """Reset the notice, because the caller looks at the command now."""
        with suppress(BlockingIOError):
            os.read(self.notices, READ_BYTES)

    def stop(self) -> None:
        """End the thread and close what it uses."""
        if self._wake < 0:
            return
        os.write(self._wake, b"x")
        self._thread.join()
        for descriptor in (self._pipe, self.notices, self._notify, self._wake_read, self._wake, self._death):
            if descriptor >= 0:
                os.close(descriptor)
        self._wake = -1

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        poll.register(self._pipe, select.POLLIN)
        if self._death >= 0:
            poll.register(self._death, select.POLLIN)
        status = self._namespace.status if self._namespace is not None else -1
        if status >= 0:
            poll.register(status, select.POLLIN)
        while True:
            waits_s = POLL_S if self._death < 0 and not self.ended else math.inf
            ready = {descriptor for descriptor, _ in poll.poll(None if waits_s == math.inf else waits_s * 1000)}
            if self._wake_read in ready:
                return
            if self._pipe in ready and not self._read():
                poll.unregister(self._pipe)
            if self._namespace is not None and status in ready:
                ready.discard(status)
                if not self._namespace.read_status():
                    poll.unregister(status)
            if not self.ended and self._has_ended(ready):
                if self._death >= 0:
                    poll.unregister(self._death)
                if self._namespace is not None:
                    self._namespace.read_status(all_of_it=True)
                self.ended_s = time.monotonic()
                self.ended = True
            if ready or self.ended:
                self._notice()

    def _read(self) -> bool:
        """Read once. True: the pipe has to be read again."""
        try:
            piece = os.read(self._pipe, READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            piece = b""
        if not piece:
            self.at_end = True
            return False
        self._output.add(piece)
        return not self._output.overflowed

    def _has_ended(self, ready: set[int]) -> bool:
        return self._death in ready if self._death >= 0 else self._process.poll() is not None

    def _notice(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._notify, b"x")


def _pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


# --------------------------------------------------------------------------------------------------
# The environment of a command: variables from this process, and variables with fixed values.

PASSED: Final = frozenset(
    {
        *("PATH", "HOME", "USER", "USERNAME", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LANGUAGE"),
        *("VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "NVM_DIR", "JAVA_HOME", "GOPATH", "GOROOT", "GOFLAGS"),
        *("CARGO_HOME", "RUSTUP_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    }
)
"""Variables that are passed on beside `LC_*`. They say where programs, settings and certificates
are. Keys of services stand in other variables, which a command does not get.
"""
FIXED: Final[Mapping[str, str]] = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "PYTHONUNBUFFERED": "1",
}
"""Nobody sits at a terminal: no pager, no colours, no questions. Output comes at once."""

_GIT_SETTINGS: Final = {
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.pager": "cat",
    "core.sshCommand": "false",
    "core.askPass": "false",
    "core.alternateRefsCommand": "false",
    "credential.helper": "",
    "diff.external": "",
    **{f"gpg.{form}program": "false" for form in ("", "openpgp.", "ssh.", "x509.")},
    "log.showSignature": "false",
    "format.pretty": "medium",
    "submodule.recurse": "false",
    "safe.bareRepository": "explicit",
    "protocol.allow": "never",
}
OVERRULING: Final[Mapping[str, str]] = {
    **{f"GIT_CONFIG_KEY_{number}": name for number, name in enumerate(_GIT_SETTINGS)},
    **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(_GIT_SETTINGS.values())},
    "GIT_CONFIG_COUNT": str(len(_GIT_SETTINGS)),
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_ASKPASS": "false",
    "GIT_EXTERNAL_DIFF": "",
    "GIT_SSH_COMMAND": "false",
    "RIPGREP_CONFIG_PATH": "",
    "BASH_ENV": "",
    "LESSOPEN": "",
}
"""Variables of a command that nobody is asked about. No file then names a program that git or
another harmless command starts. Git reads these settings last, so they count. Filters of a
repository have names of their own, and cannot be overruled.
"""

COLOURED: Final[Mapping[str, str]] = {"TERM": "xterm-256color", "CLICOLOR_FORCE": "1", "FORCE_COLOR": "1"}
"""Programs are asked for colours, though they write into a pipe."""


def environment(
    own: Mapping[str, str] | None = None,
    *,
    passed: Collection[str] = (),
    columns: int = 120,
    lines: int = 50,
    colours: bool = False,
) -> dict[str, str]:
    """The environment of a command. `own`: variables to set; they replace others of the same name.
    `passed`: names of further variables of this process that are passed on. `columns`, `lines`: the
    size of the terminal. `colours`: programs are asked to write colours.
    """
    names = PASSED.union(passed)
    kept = {name: value for name, value in os.environ.items() if name in names or name.startswith("LC_")}
    fixed = (
        FIXED if not colours else {name: value for name, value in FIXED.items() if name != "NO_COLOR"} | dict(COLOURED)
    )
    return {**kept, **fixed, "COLUMNS": str(columns), "LINES": str(lines), **(own or {})}
