"""A call as rules see it: its texts, its line for a shell, and the place of its effect."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from monitor.tools.approvals.plain_words import PlainCommand, plain_line
from monitor.tools.approvals.started.launchers import StartedCommands, started_by
from monitor.tools.base import CallPlace, ToolKind
from monitor.tools.registry import ToolEntry

COMMAND: Final = "command"
"""The argument that holds a line for a shell, if its tool does not name another one."""
DIRECTORY: Final = "directory"
"""The argument that says where a line runs, if its tool does not say so by `place`."""
_DEPTH: Final = 8
"""How deep texts in lists and mappings are looked for."""


@dataclass(frozen=True)
class JudgedCall:
    """A call, before it is made."""

    tool: str
    arguments: Mapping[str, Any]
    kind: ToolKind
    command: str | None
    """The argument that holds a line for a shell. `None`: no argument is known to be one."""
    place: CallPlace
    parameters: frozenset[str] = frozenset()
    """The names that arguments of the tool may have."""
    writes_to: str = ""
    """The call writes to programs that this tool has started. It is not known which program reads
    the text, nor what it has read before.
    """
    placed: bool = True
    """False: the tool cannot say where the call takes effect."""

    @cached_property
    def line(self) -> str | None:
        """The line for a shell."""
        return None if self.command is None else str(self.arguments[self.command])

    @cached_property
    def plain(self) -> tuple[PlainCommand, ...] | None:
        """The commands of the line. `None`: there is no line, or it is not plain."""
        return None if self.line is None or self.writes_to else plain_line(self.line)

    @cached_property
    def started(self) -> StartedCommands | None:
        """All that the line starts. Of a tool that executes something, and does not say which
        argument is a line, all texts are read as lines. `None`: the call starts no command.
        """
        if self.line is not None:
            started = started_by(self.line)
            return StartedCommands(started.commands, certain=False) if self.writes_to else started
        if self.kind != "execute":
            return None
        found = [started_by(text) for text in texts_in(self.arguments)]
        return StartedCommands([words for one in found for words in one.commands], all(one.certain for one in found))

    @cached_property
    def other_texts(self) -> tuple[str, ...]:
        """The names of the arguments besides the line and its folder that are no numbers."""
        return tuple(
            name
            for name, value in self.arguments.items()
            if name not in {self.command, DIRECTORY}
            and value is not None
            and (isinstance(value, bool) or not isinstance(value, int | float))
        )


def judged(entry: ToolEntry, arguments: Mapping[str, Any]) -> JudgedCall:
    """A call of a tool."""
    traits = entry.traits
    command = traits.command_argument
    if command is None and traits.kind in {"execute", "other"}:
        command = COMMAND
    properties = entry.spec.parameters.get("properties")
    place = _stated_place(entry.tool, arguments)
    return JudgedCall(
        tool=entry.spec.name,
        arguments=arguments,
        kind=traits.kind,
        command=command if command in arguments else None,
        place=place or _place(arguments),
        parameters=frozenset(properties) if isinstance(properties, Mapping) else frozenset(),
        writes_to=getattr(entry.tool, "writes_to", ""),
        placed=place is not None or not callable(getattr(entry.tool, "place", None)),
    )


def bare_call(tool: str, arguments: Mapping[str, Any]) -> JudgedCall:
    """A call of a tool of which nothing is known but its name."""
    command = COMMAND if COMMAND in arguments else None
    return JudgedCall(tool, arguments, "other", command, _place(arguments), frozenset(arguments))


def _stated_place(tool: object, arguments: Mapping[str, Any]) -> CallPlace | None:
    place = getattr(tool, "place", None)
    if callable(place):
        with suppress(Exception):  # a folder outside of the workspace: the call will say so
            stated = place(arguments)
            return stated if isinstance(stated, CallPlace) else None
    return None


def _place(arguments: Mapping[str, Any]) -> CallPlace:
    root = Path(os.path.realpath("."))
    within = arguments.get(DIRECTORY)
    try:
        return CallPlace(root, Path(os.path.realpath(root / within)) if isinstance(within, str) else root)
    except ValueError:
        return CallPlace(root, root)


def texts_in(value: object, depth: int = _DEPTH) -> Iterator[str]:
    """The texts in a value, within lists and mappings too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping) and depth:
        for one in value.values():
            yield from texts_in(one, depth - 1)
    elif isinstance(value, list | tuple | set | frozenset) and depth:
        for one in value:
            yield from texts_in(one, depth - 1)
