"""A call as rules see it: its texts, its line for a shell, and the place of its effect."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from monitor.tools.approvals.known_commands import in_directories, is_harmless, names_of_glob
from monitor.tools.approvals.path_patterns import is_path
from monitor.tools.approvals.plain_words import PlainCommand, plain_line
from monitor.tools.approvals.started_commands import StartedCommands, started_by
from monitor.tools.base import CallPlace, ToolKind
from monitor.tools.masking import masked
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
    """A call of a tool of which nothing is known but its name, as if a sandbox confined it."""
    command = COMMAND if COMMAND in arguments else None
    place = replace(_place(arguments), boxed=True)
    return JudgedCall(tool, arguments, "other", command, place, frozenset(arguments))


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


# --------------------------------------------------------------------------------------------------
# The files that a call names: the script that runs, the file that a write replaces. An answer holds
# for their content, so their hashes are a part of the question.

MISSING: Final = "missing"
"""Stands for the hash of a file that is not there."""
_MOST_BYTES: Final = 1024 * 1024
"""Of a larger file, its size, inode and time of the last change stand for the content."""
_MOST_FILES: Final = 100
_PIECES: Final = re.compile(r"[^\s'\"`$();&|<>={}:@,]+")
"""The parts of a line, any of which may name a file."""


def deciding_files(call: JudgedCall) -> dict[str, str]:
    """The hash of each file that the call names and whose content decides what it does, by its
    path: within the workspace relative to it. A file that would be made has the hash `MISSING`.
    """
    if call.kind == "read":
        return {}
    hashes: dict[str, str] = {}
    for path in _of_line(call) if call.line is not None else _of_texts(call):
        real = Path(os.path.realpath(path))
        name = str(real.relative_to(call.place.root)) if real.is_relative_to(call.place.root) else str(real)
        if name not in hashes and len(hashes) < _MOST_FILES and (digest := hash_of(real)) is not None:
            hashes[name] = digest
    return hashes


def hash_of(path: Path) -> str | None:
    """32 hexadecimal digits of the content of a file, or `MISSING`. `None`: it is no file. Only a
    regular file is read, and none waits for another program.
    """
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return None
            if status.st_size > _MOST_BYTES:
                return f"{status.st_size:x}-{status.st_ino:x}-{status.st_mtime_ns:x}"
            return hashlib.sha256(file.read(_MOST_BYTES + 1)).hexdigest()[:32]
    except FileNotFoundError:
        return MISSING if path.parent.is_dir() else None
    except IsADirectoryError:
        return None
    except (OSError, ValueError):
        return "unreadable"


def _of_texts(call: JudgedCall) -> Iterator[Path]:
    """The places that the texts of a call name. Which of them are paths is not known, so only those
    are bound that are files, or that look like one.
    """
    for text in (*texts_in(masked(call.arguments)), *call.place.changes):
        if is_path(text):
            path = call.place.root / text
            if os.path.lexists(path) or (text.isprintable() and not re.search(r"\s", text)):
                yield path


def _of_line(call: JudgedCall) -> Iterator[Path]:
    """The files that a line names, beside those that its harmless commands read."""
    start = call.place.directory
    named = [(text, start) for text in _PIECES.findall(call.line or "") if call.plain is None]
    for command, directories in in_directories(call.plain or (), start):
        known = [one for one in directories if one is not None]
        for redirection in command.redirections:
            if redirection.writes:
                yield from (one / redirection.path.text for one in known if is_path(redirection.path.text))
        for word in command.words if not is_harmless(command, call.place) else ():
            for one in known:
                globbed = names_of_glob(word.text, one) if word.glob else None
                named += [(text, one) for text in (word.text, *_PIECES.findall(word.text), *(globbed or ()))]
    yield from (one / text for text, one in named if is_path(text) and (one / text).is_file())
