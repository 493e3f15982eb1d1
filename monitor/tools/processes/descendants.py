"""All processes of one command: found by a marker, or as those of a namespace of their own."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from monitor.tools.processes import keeper
from monitor.tools.processes.process_table import (
    HAS_TABLE,
    ProcessInfo,
    RecentProcesses,
    below,
    members,
    send,
    start_of,
    sweep,
)

STATUS_S: Final = 5.0
"""How long a sandbox may take to say which process is its first one."""
_unreaped: set[int] = set()


class MarkedDescendants:
    """Processes that have a marker in their environment, are in the command's session, or were
    started by one of these.
    """

    def __init__(self, process: subprocess.Popen[bytes], token: str, recent: RecentProcesses) -> None:
        self._process = process
        self._token = token
        self._recent = recent
        self._known: set[tuple[int, int]] = set()

    def members(self) -> list[ProcessInfo]:
        """The living processes, as far as the process table shows them. They are remembered."""
        # The first process is a zombie until it is reaped, so until then nobody else gets its id.
        session = self._process.pid if self._process.returncode is None else None
        found = members(self._token, session, self._known, self._recent)
        self._known |= {(entry.pid, entry.started) for entry in found if entry.pid != self._process.pid}
        return found

    def all_found(self) -> bool:
        """Whether `members` knows all. Without a process table, whether the group is empty."""
        return HAS_TABLE or not self._group_lives()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the group of the command, and to those that have left it."""
        # Found before the signal: a child cannot be found by its parent when that has ended.
        found = self.members()
        as_group = self._process.returncode is None or not HAS_TABLE
        if as_group:
            with suppress(OSError):
                os.killpg(self._process.pid, number)
        for entry in found:
            if not as_group or entry.group != self._process.pid:
                send(entry, number)

    def kill(self) -> None:
        """Kill them all, again and again until none is found."""
        self.signal(signal.SIGKILL)
        sweep(self.members)

    def close(self) -> None:
        """Nothing is held."""

    def _group_lives(self) -> bool:
        try:
            os.killpg(self._process.pid, 0)
        except OSError:
            return False
        return True


class NamespaceDescendants:
    """Processes of a namespace that bubblewrap has made for one command. Nothing leaves it, and it
    ends with its first process.

    `status`: the pipe on which bubblewrap says which process that is, and how the command ended.
    """

    def __init__(self, process: subprocess.Popen[bytes], status: int) -> None:
        self._process = process
        self.status = status
        """The pipe, or -1 after `close`."""
        self._said = bytearray()
        self._lock = threading.Lock()
        self._first = -1
        self._first_started = 0
        self._descriptor = -1
        self._sent: set[int] = set()

    @property
    def made(self) -> bool:
        """Whether the sandbox was there, and the command has begun in it, once it has ended."""
        return b'"exit-code"' in self._said

    def exit_code(self, code: int) -> int:
        """The code of the command: bubblewrap says 128 and more for a signal, and for one that was
        sent from here it is known which one it was.
        """
        return 128 - code if code - 128 in self._sent else code

    def read_status(self, *, all_of_it: bool = False) -> bool:
        """Read what bubblewrap has said: a piece, or all that is there. False: it will say nothing
        more.
        """
        with self._lock:
            while self.status >= 0:
                try:
                    piece = os.read(self.status, 4096)
                except BlockingIOError:
                    return True
                self._said += piece
                if self._descriptor < 0 and b"}" in self._said:
                    self._learn()
                if not piece or not all_of_it:
                    return bool(piece)
            return False

    def members(self) -> list[ProcessInfo]:
        """The living processes, without the first of the namespace: that one is bubblewrap's."""
        self._learned()
        return below(self._first) if self._descriptor >= 0 else []

    def all_found(self) -> bool:
        """Whether `members` knows all: nothing leaves a namespace."""
        return True

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all but the first process of the namespace: with it all would end."""
        self._sent.add(number)
        for entry in self.members():
            send(entry, number)

    def kill(self) -> None:
        """Kill the first process, and the system kills all others."""
        self._sent.add(signal.SIGKILL)
        self._learned()
        if self._descriptor >= 0:
            with suppress(OSError):
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
        elif self._process.poll() is None:  # it has made no namespace
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the namespace, and give back what is held."""
        self.kill()
        if self._descriptor >= 0:
            keeper.forget(self._first, self._first_started)
            _unreaped.add(self._first)
            os.close(self._descriptor)
            self._descriptor = -1
        with self._lock:
            if self.status >= 0:
                os.close(self.status)
                self.status = -1
        _reap()

    def _learned(self) -> None:
        """Wait until it is known which process is the first one: bubblewrap says so at once."""
        if self._descriptor >= 0 or self.status < 0:
            return
        poll = select.poll()
        poll.register(self.status, select.POLLIN)
        while self._descriptor < 0 and poll.poll(STATUS_S * 1000) and self.read_status():
            pass

    def _learn(self) -> None:
        try:
            told = json.loads(self._said[: self._said.index(b"}") + 1])
            pid, namespace = int(told["child-pid"]), int(told["pid-namespace"])
            descriptor = os.pidfd_open(pid)
        except (ValueError, KeyError, OSError):  # it has ended already
            return
        try:
            found, started = Path(f"/proc/{pid}/ns/pid").stat().st_ino, start_of(pid)
        except OSError:
            found, started = 0, 0
        if found != namespace:  # another process has the id now
            os.close(descriptor)
            return
        self._first, self._first_started, self._descriptor = pid, started, descriptor
        keeper.watch_over(pid, started)


def inner_id(pid: int) -> int | None:
    """The id that the process has in its own namespace, as a command in it sees it."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return None


def _reap() -> None:
    """Reap first processes of namespaces. They are orphans, and so children of process 1: in a
    container that may be this program.
    """
    for pid in list(_unreaped):
        try:
            done, _ = os.waitpid(pid, os.WNOHANG)
        except OSError:
            done = pid
        if done:
            _unreaped.discard(pid)
