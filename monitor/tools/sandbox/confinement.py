"""The sandbox that this machine has, and commands started in it."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from monitor._util.checked_words import checked
from monitor.errors import ConfigError
from monitor.tools.sandbox import box_program, bubblewrap, seatbelt
from monitor.tools.sandbox.box_program import NETWORK, SCOPES_SINCE, UNIX, BoxRules, filter_pipe, version
from monitor.tools.sandbox.landlock import ConfinedThread, landlock_rules
from monitor.tools.sandbox.sandbox_places import Sandbox, SandboxOption, SandboxPlaces, changed, places_of, sandbox_of

SandboxKind: TypeAlias = Literal["bubblewrap", "landlock", "sandbox-exec", "none"]

OPEN: Final = (
    "commands read and write all that this user may, reach the network, and can read the environment of this program"
)
_NOT_BELOW: Final = "modes and times of files outside can be changed, and .git can be written"
_LIMITS: Final = (
    "{{ ulimit -c 0; ulimit -d {memory}; ulimit -f {file}; ulimit -u {processes} || ulimit -p {processes}; }}"
    ' 2> /dev/null; exec "$@"'
)
"""Sets the limits in units of 1024 and 512 bytes (POSIX). Dash has `-p` for what others call
`-u`.
"""
_UNSAFE: Final = ("XDG_RUNTIME_DIR", "TMPDIR")
"""Variables that name a folder which is not there in a sandbox."""


@dataclass(slots=True, frozen=True)
@checked
class SandboxFound:
    """The best sandbox of this machine."""

    kind: SandboxKind
    detail: str
    """What it does not confine, and why there is no better one; empty for a full sandbox."""
    opened: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """The places that are open to commands, such as `write /srv/app`; for people."""

    @property
    def holds(self) -> bool:
        """Whether it confines files, network and processes."""
        return self.kind in {"bubblewrap", "sandbox-exec"}


def find_sandbox(workspace: Path | None = None) -> SandboxFound:
    """The best sandbox that works here. Each program is tried once; a `bwrap` in `workspace` is not
    used.
    """
    if sys.platform == "darwin":
        if Path(seatbelt.PROGRAM).exists():
            return SandboxFound("sandbox-exec", "processes that leave their group outlive their command")
        return SandboxFound("none", f"{seatbelt.PROGRAM} is not there; {OPEN}")
    program = bubblewrap.program(workspace)
    why = bubblewrap.failure(program) if program else "bubblewrap is not installed (the package bubblewrap has bwrap)"
    if not why:
        return SandboxFound("bubblewrap", "")
    if (found := version()) and os.geteuid() == 0:
        return SandboxFound("none", f"{why}; Landlock does not hold root, who makes devices and loads modules; {OPEN}")
    if found:
        return SandboxFound("landlock", f"{why}; Landlock {found} confines the file system, but {_NOT_BELOW}")
    return SandboxFound("none", f"{why}; the kernel has no Landlock; {OPEN}")


class Confinement:
    """Starts commands in a sandbox for the workspace. Made by `confine`.

    `scratch` holds what commands find as `/tmp` and home. It lives as long as this object.
    """

    def __init__(self, found: SandboxFound, places: SandboxPlaces, sandbox: Sandbox) -> None:
        self.found = found
        self._places = places
        self._network = sandbox.network
        self._scratch = Path(tempfile.mkdtemp(prefix="agent-monitor-")).resolve()
        for name in (bubblewrap.TMP, bubblewrap.HOME, bubblewrap.SHM):
            (self._scratch / name).mkdir()
        self._end = weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        self._bwrap = bubblewrap.program(places.workspace) or "bwrap"
        half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        self._limits = _LIMITS.format(
            memory=(sandbox.memory_bytes or half) // 1024 or 1,
            file=sandbox.file_bytes // 512 or 1,
            processes=sandbox.processes,
        )
        self._rules = self._box_rules()
        self._thread: ConfinedThread | None = None
        if self._rules is not None and (self._rules.files or self._rules.scoped):
            self._thread = ConfinedThread(self._rules)
            weakref.finalize(self, self._thread.close)

    def _box_rules(self) -> BoxRules | None:
        """What the starting thread, or the starting program, confines."""
        if self._is("landlock"):
            return landlock_rules(self._places, self._scratch, network=self._network)
        if not self._is("bubblewrap"):
            return None
        # A program with the rights of root would lose them. Without a network namespace, abstract
        # sockets of others are out of reach only if there are no sockets of that family.
        scoped = self._network and version() >= SCOPES_SINCE and not Path(self._bwrap).stat().st_mode & stat.S_ISUID
        own = (UNIX,) if scoped or not self._network else ()
        return BoxRules(files=False, families=(*NETWORK, *own), scoped=scoped)

    @property
    def namespaced(self) -> bool:
        """Whether each command has its own namespace of processes, which end together."""
        return self._is("bubblewrap")

    @property
    def rules(self) -> str:
        """What the model has to know, in one line."""
        written = ", ".join(str(path) for path in self._places.write)
        elsewhere = (self._places.workspace / ".git").is_file()
        return (
            f"in a sandbox ({self.found.kind}): {'the' if self._network else 'no'} network, an empty home;"
            f" only the workspace{f' and {written}' if written else ''} and temporary files can be written"
            + ("" if self._is("landlock") else ", and not .git or settings of hooks")
            + ("; .git is a file: the user has to name the repository, Sandbox(read=[...])" if elsewhere else "")
        )

    def argv(
        self,
        command: Sequence[str],
        directory: Path,
        *,
        status: int | None = None,
        started_elsewhere: bool = False,
    ) -> list[str]:
        """The command line that runs `command` in `directory`, confined. `status`: a descriptor to
        which bubblewrap writes its first process and its end. `started_elsewhere`: not by `start`.
        The command then ends with the process that was started, or with the starting thread.
        """
        made = ["/bin/sh", "-c", self._limits, "sh", *command]
        if self._is("sandbox-exec"):
            rules = seatbelt.profile(self._places, self._scratch, network=self._network)
            return [seatbelt.PROGRAM, "-p", rules, *made]
        if self._is("bubblewrap"):
            options = bubblewrap.arguments(
                self._places,
                network=self._network,
                scratch=self._scratch,
                directory=directory,
                dies_with_starter=started_elsewhere,
            )
            told = [] if status is None else ["--json-status-fd", str(status)]
            made = [self._bwrap, *options, *told, "--", *made]
        if started_elsewhere:
            return [sys.executable, "-I", "-S", box_program.__file__, json.dumps(self._rules), *made]
        return made

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """`given` for a command in the sandbox: without folders that are not there."""
        kept = {name: value for name, value in given.items() if name not in _UNSAFE}
        if not self._is("bubblewrap"):
            kept |= {"TMPDIR": f"{self._scratch}/{bubblewrap.TMP}", "HOME": f"{self._scratch}/{bubblewrap.HOME}"}
        return kept

    def start(
        self, command: Sequence[str], /, *, directory: Path, status: int | None, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start `command` as `subprocess.Popen` does, confined."""
        argv = self.argv(command, directory, status=status)
        options["env"] = self.environment(options["env"])
        options["cwd"] = directory
        filters = list(filter_pipe(self._rules.families)) if self._rules and not self._rules.files else []
        for one in filters:
            argv[1:1] = ["--seccomp", str(one)]
            options["pass_fds"] = (*options.get("pass_fds", ()), one)
        try:
            if self._thread is not None:
                return self._thread.start(argv, options)
            return subprocess.Popen[bytes](argv, **options)
        finally:
            for one in filters:
                os.close(one)

    def state(self) -> Mapping[Path, object]:
        """What stands now where programs outside would run it; see `replaced_since`."""
        return self._places.state()

    def replaced_since(self, before: Mapping[Path, object]) -> list[str]:
        """The paths, relative to the workspace, at which something appeared, vanished or was
        replaced that would run programs outside of the sandbox.
        """
        return [os.path.relpath(path, self._places.workspace) for path in changed(before, self._places.state())]

    def close(self) -> None:
        """Remove the temporary files. Commands that run lose theirs."""
        self._end()

    def _is(self, kind: SandboxKind) -> bool:
        return self.found.kind == kind


def confine(
    option: SandboxOption, workspace: Path, environment: Mapping[str, str], *, network: bool = False
) -> tuple[Confinement | None, SandboxFound | None]:
    """The confinement that `option` asks for, and what there is to say about it. `None`: none was
    asked for, or there is none.

    Raises `ConfigError` if one is required and there is no full one, or if a path does not exist.
    """
    sandbox = sandbox_of(option, network=network)
    if sandbox is None:
        return None, None
    found = find_sandbox(workspace)
    if workspace.resolve() == Path("/"):
        found = SandboxFound("none", f"the workspace / cannot be confined; {OPEN}")
    if sandbox.required and not found.holds:
        raise ConfigError(
            f"a sandbox for files, network and processes is required, and there is none here: {found.detail};"
            " or write sandbox='auto'"
        )
    places = places_of(workspace, sandbox, environment)  # a wrong path is said wherever the run is
    if found.kind == "none":
        return None, found
    try:
        program = Path(bubblewrap.program(workspace) or "/")
        if found.kind == "bubblewrap" and any(folder in program.parents for folder in places.writable):
            raise OSError(f"commands could write {program}")
        if places.open_homes:
            seen = f"the home is not hidden: the workspace {places.workspace} holds it"
            found = replace(found, detail="; ".join(filter(None, [found.detail, seen])))
        found = replace(found, opened=_opened(places, sandbox))
        return Confinement(found, places, sandbox), found
    except OSError as error:
        lost = SandboxFound("none", f"{found.kind} cannot be used: {error}; {OPEN}")
        if sandbox.required:
            raise ConfigError(f"a sandbox is required: {lost.detail}; or write sandbox='auto'") from None
        return None, lost


def _opened(places: SandboxPlaces, sandbox: Sandbox) -> tuple[str, ...]:
    return (
        *(f"write {path}" for path in (places.workspace, *places.write)),
        *(f"not write {path}" for path in places.protected),
        *(f"read {path}" for path in places.read),
        *(f"variable {name}" for name in sandbox.env),
        *(["network"] if sandbox.network else []),
    )
