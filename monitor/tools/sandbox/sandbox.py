"""What a sandbox allows besides its workspace: a small value for `ShellTools` and `McpServer`."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
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
