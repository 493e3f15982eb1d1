"""What a sandbox allows besides its workspace: a small value for `ShellTools` and `McpServer`."""

from __future__ import annotations

import os
import pwd
import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from monitor._util.argument_checks import is_whole
from monitor.errors import ConfigError


@dataclass(slots=True, frozen=True, kw_only=True)
class Sandbox:
    """What confined commands may use besides their workspace.

    Without options they read the system. They write the workspace, and temporary files of their
    own. The home is empty, and there is no network. The workspace's `.git`, its
    `agent-monitor.toml`, and the folders in which coding agents and editors keep hooks, are
    read-only. What the box is, is decided before the first command: nothing in the workspace widens
    it.
    """

    network: bool = False
    """Whether they reach the network, and the servers of this machine by it."""
    write: Collection[str | os.PathLike[str]] = ()
    """Paths that they may write too. `".git"` lets them commit. Relative paths begin in the
    workspace, `~` is the home.
    """
    read: Collection[str | os.PathLike[str]] = ()
    """Paths that they may read too, such as `~/.gitconfig`: the home is hidden. A worktree needs
    the repository that it belongs to.
    """
    env: Collection[str] = ()
    """Names of variables of this process that they get besides the usual ones."""
    memory_bytes: int | None = None
    """The most memory of each process for its data. `None`: half of this machine's, as the kernel
    has it for folders in memory.
    """
    file_bytes: int = 8 * 1024**3
    """The most bytes of each file that they write: twice the largest layer of usual images."""
    processes: int = 4096
    """The most processes and threads of the user in it. The kernel does not hold root to this."""
    required: bool = False
    """Whether it is an error if this machine cannot confine files, network and processes. False:
    commands run with what there is, and the run says so in a `SandboxWarning`.
    """

    def __post_init__(self) -> None:
        for name in ("write", "read", "env"):
            if isinstance(getattr(self, name), str | os.PathLike):
                raise ConfigError(
                    f"Sandbox({name}={getattr(self, name)!r}): give a list: Sandbox({name}=[{getattr(self, name)!r}])"
                )
        if {type(self.network), type(self.required)} != {bool}:
            raise ConfigError("Sandbox: network and required are True or False, such as Sandbox(network=True)")
        for name, number in {
            "memory_bytes": self.memory_bytes,
            "file_bytes": self.file_bytes,
            "processes": self.processes,
        }.items():
            if number is not None and not (is_whole(number) and number > 0):
                raise ConfigError(f"Sandbox({name}={number!r}): give a whole number above 0")


SandboxOption: TypeAlias = Sandbox | Literal["required", "auto"] | None
"""`"auto"`: a sandbox where this machine has one. `"required"`: an error where it has none. `None`:
no sandbox.
"""
NAMES: Final = ("auto", "required")


def sandbox_of(option: SandboxOption, *, network: bool = False) -> Sandbox | None:
    """The sandbox that `option` asks for. `network`: of a sandbox that is asked for by name. Raises
    `ConfigError` for any other value.
    """
    if option is None or isinstance(option, Sandbox):
        return option
    if option not in NAMES:
        raise ConfigError(
            f"sandbox={option!r}: give 'auto', 'required', None, or monitor.tools.Sandbox(...): write sandbox='auto'"
        )
    return Sandbox(network=network, required=option == "required")


# --------------------------------------------------------------------------------------------------
# Finds the folders that a confined command can see, those that it may write, and those that it
# may not change. Every kind of sandbox uses them.

PROTECTED: Final = (
    *(".git", "agent-monitor.toml", ".claude", ".codex", ".gemini", ".cursor", ".vscode", ".idea"),
    *(".mcp.json", ".envrc", ".husky", ".githooks", ".pre-commit-config.yaml"),
)
"""What stands in a workspace and runs programs outside of the sandbox: of git, of agent-monitor, of
coding agents, editors and shells. Source: the lists of Codex and Claude Code, and git's hooks.
"""
COMPANIONS: Final = (
    *(".pyenv", ".nvm", ".rustup", ".volta", ".asdf", ".sdkman", ".bun", ".deno", "go/bin", ".nix-profile"),
    *(".local/bin", ".local/share/uv", ".local/share/pipx", ".local/share/mise", ".cargo/bin"),
)
"""Where version managers keep programs in a home. None of these holds keys."""
PROGRAMS: Final = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "NVM_DIR", "JAVA_HOME", "GOROOT", "RUSTUP_HOME")
"""Variables that name a folder of programs."""
NESTED_DEPTH: Final = 3
NESTED_FOLDERS: Final = 500
"""How deep, and in how many folders, repositories within the workspace are looked for."""
TEMPORARY: Final = ("/tmp", "/var/tmp", "/run")  # noqa: S108 - hidden, not used
"""Folders with sockets and files of other programs."""


@dataclass(slots=True, frozen=True, kw_only=True)
class SandboxPlaces:
    """The folders of one sandbox. All paths are real ones."""

    workspace: Path
    home: Path | None
    """The home, which is seen empty. `None`: there is none, or the workspace holds it."""
    open_homes: tuple[Path, ...] = ()
    """Homes that the workspace holds, so that they are not hidden."""
    hidden: tuple[Path, ...]
    """Other homes, and folders of temporary files, which are not seen either."""
    read: tuple[Path, ...]
    """The parts of hidden folders that are seen."""
    write: tuple[Path, ...]
    protected: tuple[Path, ...]
    """What stands in the workspace and is read-only."""
    watched: tuple[Path, ...]
    """The places of all that would be protected, also of what is not there."""

    @property
    def writable(self) -> list[Path]:
        """The folders that can be written, each outer one before the inner ones. Those between two
        of them are among them: each is a mount, and a mount cannot be moved away.
        """
        named = {self.workspace, *(path for path in self.write if not _within(path, self.workspace))}
        between = {above for path in named for above in path.parents if any(_within(above, one) for one in named)}
        inner = {above for path in self.protected for above in path.parents if self.workspace in above.parents}
        return sorted(named | between | inner, key=lambda path: len(path.parts))

    def state(self) -> dict[Path, tuple[int, ...] | None]:
        """What stands in the watched places now. A folder is known by its identity, a file by its
        content's time too. `None`: nothing.
        """
        return {path: _state(path) for path in self.watched}


def changed(before: Mapping[Path, object], after: Mapping[Path, object]) -> list[Path]:
    """The watched places in which something appeared, vanished or was replaced."""
    return [path for path, state in after.items() if state != before.get(path)]


def places_of(workspace: Path, sandbox: Sandbox, environment: Mapping[str, str]) -> SandboxPlaces:
    """The folders for commands in `workspace`. `environment`: of the commands; it says where
    programs are. Raises `ConfigError` for a path of `sandbox` that is outside of the workspace and
    does not exist.
    """
    workspace = workspace.resolve()
    every = list(_homes())
    homes = [home for home in every if not _within(home, workspace)]
    hidden = [*homes, *(Path(one) for one in TEMPORARY if Path(one).is_dir() and not Path(one).is_symlink())]
    write = [_given(path, workspace, "write") for path in sandbox.write]
    read = [_given(path, workspace, "read") for path in sandbox.read]
    inside = [*(workspace / name for name in PROTECTED), *_repositories(workspace)]
    opened = [path for path in write if path != workspace and path not in workspace.parents]
    watched = _unique(path for path in inside if not any(_within(path, one) for one in opened))
    seen = _unique([*read, *(one for one in _programs(environment, homes) if any(_within(one, h) for h in hidden))])
    return SandboxPlaces(
        workspace=workspace,
        home=homes[0] if homes else None,
        open_homes=tuple(home for home in every if home not in homes),
        hidden=tuple(one for one in hidden if one not in homes[:1]),
        read=tuple(one for one in seen if one.exists() and not any(_within(one, path) for path in (workspace, *write))),
        write=tuple(path for path in write if path.exists()),
        protected=tuple(path for path in watched if is_itself(path)),
        watched=tuple(watched),
    )


def _given(path: str | os.PathLike[str], workspace: Path, option: str) -> Path:
    place = Path(os.path.normpath(workspace / Path(path).expanduser()))
    if (real := within_itself(place, workspace)) is None:
        raise ConfigError(
            f"Sandbox({option}=[{str(path)!r}]): a link leads out of the workspace, and what is confined could have"
            f" made it; if you mean its target, write Sandbox({option}=[{str(place.resolve())!r}])"
        )
    if not _within(real, workspace) and not real.exists():
        raise ConfigError(f"Sandbox({option}=[{str(path)!r}]): there is no {real}; name a path that exists")
    return real


def within_itself(place: Path, workspace: Path) -> Path | None:
    """The real path of `place`. `None`: it is named in the workspace, and a link leads out of it.
    Raises `ConfigError` for what is no path.
    """
    try:
        real = place.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"{str(place)!r} is no path: {error}") from None
    return None if _within(place, workspace) and not _within(real, workspace) else real


def is_itself(path: Path) -> bool:
    """Whether something stands at `path`, and no link leads to it."""
    return os.path.lexists(path) and os.path.realpath(path) == str(path)


def _homes() -> Iterator[Path]:
    """The homes that are hidden, the one of `HOME` first."""
    named = [os.path.expanduser("~")]  # noqa: PTH111 - `Path.home` raises where there is none
    with suppress(KeyError):
        named.append(pwd.getpwuid(os.getuid()).pw_dir)
    if os.getuid() == 0:  # others are kept out by their permissions
        named += ["/root", "/home"]
    seen: set[Path] = set()
    for name in named:
        home = Path(name).resolve()
        if home.is_dir() and home != Path("/") and not any(_within(home, other) for other in seen):
            seen.add(home)
            yield home


def _repositories(workspace: Path) -> Iterator[Path]:
    """The `.git` of the workspace and of repositories within it."""
    waiting = deque([(workspace, 0)])
    looked = 0
    while waiting and looked < NESTED_FOLDERS:
        folder, depth = waiting.popleft()
        looked += 1
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name == ".git":
                    yield Path(entry.path)
                elif depth < NESTED_DEPTH and entry.is_dir(follow_symlinks=False) and entry.name != "node_modules":
                    waiting.append((Path(entry.path), depth + 1))


def _programs(environment: Mapping[str, str], homes: Iterable[Path]) -> Iterator[Path]:
    """Folders of programs, which may stand in a hidden folder."""
    for entry in environment.get("PATH", "").split(os.pathsep):
        if entry.startswith("/"):
            yield Path(entry)
    for name in PROGRAMS:
        if environment.get(name, "").startswith("/"):
            yield Path(environment[name])
    yield Path(sys.prefix)
    yield Path(sys.base_prefix)
    for home in homes:
        for companion in COMPANIONS:
            yield home / companion


def _unique(paths: Iterable[Path]) -> list[Path]:
    return [path for path in dict.fromkeys(paths) if path.is_absolute()]


def _within(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents


def _state(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    identity = (found.st_dev, found.st_ino, found.st_mode)
    return identity if path.is_dir() else (*identity, found.st_mtime_ns, found.st_size)
