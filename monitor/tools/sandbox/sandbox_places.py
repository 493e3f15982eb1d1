"""What a sandbox allows besides its workspace: a small value for `ShellTools` and `McpServer`."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from monitor.errors import ConfigError


@dataclass(slots=True, frozen=True, kw_only=True)
class Sandbox:
    """What confined commands may use besides their workspace.

    Without options they read the system. They write the workspace, and temporary files of their
    own. The home is empty, and there is no network. The workspace's `.git`, its
    `agent-monitor.toml`, and the folders in which coding agents and editors keep hooks, are
    read-only.
    """

    network: bool = False
    """Whether they reach the network."""
    write: Collection[str | os.PathLike[str]] = ()
    """Paths that they may write too. `".git"` lets them commit. Relative paths begin in the
    workspace, `~` is the home.
    """
    read: Collection[str | os.PathLike[str]] = ()
    """Paths that they may read too, such as `~/.gitconfig`: the home is hidden."""
    env: Collection[str] = ()
    """Names of variables of this process that they get besides the usual ones."""
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
MOST_ASKED: Final = 20
"""The most repositories that are asked where they keep their data."""
GIT_S: Final = 5.0
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
    repositories = list(_repositories(workspace))
    inside: list[Path] = [*(workspace / name for name in PROTECTED), *repositories]
    for repository in repositories[:MOST_ASKED]:
        for real in _of_git(repository):
            (inside if _within(real, workspace) else read).append(real)
    opened = [path for path in write if path != workspace and path not in workspace.parents]
    watched = _unique(path for path in inside if not any(_within(path, one) for one in opened))
    seen = _unique([*read, *(one for one in _programs(environment, homes) if any(_within(one, h) for h in hidden))])
    return SandboxPlaces(
        workspace=workspace,
        home=homes[0] if homes else None,
        open_homes=tuple(home for home in every if home not in homes),
        hidden=tuple(one for one in hidden if one not in homes[:1]),
        read=tuple(one for one in seen if one.exists() and not _within(one, workspace)),
        write=tuple(path for path in write if path.exists()),
        protected=tuple(path for path in watched if os.path.lexists(path)),
        watched=tuple(watched),
    )


def _given(path: str | os.PathLike[str], workspace: Path, option: str) -> Path:
    place = workspace / Path(path).expanduser()
    try:
        real = place.resolve()
        return real if _within(real, workspace) else place.resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"Sandbox({option}=[{str(path)!r}]): {error}; name a path that exists") from None


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


def _of_git(place: Path) -> Iterator[Path]:
    """Where git itself says that the repository of `place` keeps its data and its hooks."""
    with suppress(OSError):
        if place.is_symlink():
            yield place.resolve()
    git = shutil.which("git")
    if git is None:
        return
    asked = [git, "-C", str(place.parent), "rev-parse", "--absolute-git-dir", "--git-common-dir", "--git-path", "hooks"]
    with suppress(OSError, subprocess.SubprocessError, UnicodeDecodeError):
        said = subprocess.run(  # noqa: S603 - git itself
            asked, capture_output=True, timeout=GIT_S, check=False, stdin=subprocess.DEVNULL
        )
        for line in said.stdout.decode().splitlines() if said.returncode == 0 else ():
            real = (place.parent / line).resolve()
            if real.exists():
                yield real


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
