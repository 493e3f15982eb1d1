"""The meanings of "always" in an answer to a question: a tool, or the beginnings of commands."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from monitor.calls import bound_hash
from monitor.tools.approvals.command_line import read_line
from monitor.tools.approvals.rules import COMMAND
from monitor.tools.registry import ToolEntry

ARITY: Final[Mapping[str, int]] = {
    **dict.fromkeys(("git", "npm", "pnpm", "yarn", "pip", "pip3", "uv", "poetry", "cargo", "go", "gh", "brew"), 2),
    **dict.fromkeys(("apt", "apt-get", "kubectl", "docker", "podman", "systemctl", "terraform", "helm", "make"), 2),
    **dict.fromkeys(("aws", "gcloud", "az"), 3),
}
"""For each command, how many of its first words say what it does. For any other command it is one.
"""
ANYTHING: Final = frozenset(
    {
        *("python", "python3", "node", "deno", "bun", "ruby", "perl", "php", "lua", "awk", "gawk", "sed", "osascript"),
        *("bash", "sh", "dash", "zsh", "ksh", "ash", "eval", "source", ".", "trap", "alias", "exec", "command"),
        *("env", "sudo", "doas", "su", "xargs", "npx", "find", "parallel", "ssh", "nohup", "timeout", "time", "watch"),
        *("rm", "rmdir", "mv", "dd", "ln", "tee", "shred", "truncate", "chmod", "chown", "kill", "pkill", "killall"),
        *("curl", "wget", "nc", "scp", "rsync", "test", "let", "printf", "read"),
    }
)
"""Commands that can do anything, or whose words all matter. "Always" holds for the very same words.
"""


@dataclass(slots=True, frozen=True)
class _Beginning:
    """The first words of commands that a person has allowed."""

    words: tuple[str, ...]
    exact: bool
    """The words are the whole command."""

    def covers(self, words: Sequence[str]) -> bool:
        return tuple(words if self.exact else words[: len(self.words)]) == self.words


class Grants:
    """The calls that a person has allowed for the rest of a run. A tool whose description or schema
    has changed is another tool.
    """

    def __init__(self) -> None:
        self._tools: set[str] = set()
        """Hashes of the tools that are allowed as a whole."""
        self._beginnings: dict[str, list[_Beginning]] = {}
        """The allowed beginnings of commands, by the hash of their tool."""

    def add(self, entry: ToolEntry, arguments: Mapping[str, Any], scope: str) -> None:
        """Allow `scope`, one of `scopes_of` the call that was shown."""
        if scope not in scopes_of(entry, arguments):
            return
        if _is_shell(entry, arguments):  # also if a command has the name of the tool
            self._beginnings.setdefault(schema_hash(entry), []).extend(_beginnings_of(arguments) or ())
        else:
            self._tools.add(schema_hash(entry))

    def cover(self, entry: ToolEntry, arguments: Mapping[str, Any]) -> bool:
        """Whether this very call was allowed."""
        if not self._tools and not self._beginnings:
            return False
        if schema_hash(entry) in self._tools:
            return True
        allowed = self.commands(entry)
        if allowed is None or COMMAND not in arguments:
            return False
        line = read_line(str(arguments[COMMAND]))
        return line is not None and not line.writes and bool(line.commands) and all(map(allowed, line.commands))

    def commands(self, entry: ToolEntry) -> Callable[[Sequence[str]], bool] | None:
        """Whether a command of this tool was allowed. `None`: no command was."""
        beginnings = self._beginnings.get(schema_hash(entry)) if self._beginnings else None
        if not beginnings:
            return None
        return lambda words: any(one.covers(words) for one in beginnings)


def scopes_of(entry: ToolEntry, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The choices for "always": the beginnings of the commands of this call, or its tool. A tool
    that runs lines for a shell is never allowed as a whole.
    """
    if not _is_shell(entry, arguments):
        return (entry.spec.name,)
    beginnings = _beginnings_of(arguments)
    return (" ; ".join(dict.fromkeys(shlex.join(one.words) for one in beginnings)),) if beginnings else ()


def _is_shell(entry: ToolEntry, arguments: Mapping[str, Any]) -> bool:
    return COMMAND in arguments and entry.traits.kind == "execute"


def schema_hash(entry: ToolEntry) -> str:
    """Names a tool as it was described to the model."""
    return bound_hash(entry.spec.name, entry.spec.description, entry.spec.parameters)


def _beginnings_of(arguments: Mapping[str, Any]) -> list[_Beginning] | None:
    """The beginnings of the commands of a line. `None`: the line may be allowed this once only."""
    line = read_line(str(arguments[COMMAND]))
    if line is None or line.writes or not line.commands:
        return None
    made: list[_Beginning] = []
    for words, fixed in zip(line.commands, line.fixed, strict=True):
        name = words[0].rpartition("/")[2]
        first = words[: ARITY.get(name, 1)]
        # of `git -c x=y log`, the second word does not say what it does
        exact = name in ANYTHING or "=" in words[0] or any(word.startswith("-") for word in first[1:])
        if fixed < len(words if exact else first):
            return None
        made.append(_Beginning(words if exact else first, exact))
    return made
