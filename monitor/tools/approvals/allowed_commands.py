"""Whether a plain command is proven to do no more than the rule that allows it says."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from monitor.tools.approvals.command_options import ANY, known_options
from monitor.tools.approvals.known_commands import table_of
from monitor.tools.approvals.plain_words import PlainCommand, PlainWord
from monitor.tools.approvals.repositories import holds_repository, unproven_repository
from monitor.tools.base import CallPlace

BUILTINS: Final = frozenset({"cd", "echo", "printf", "test", "pwd", "true", "false", ":", "type", "command"})
"""Commands that bash carries out itself."""
Directories = tuple[Path | None, ...]
"""The folders in which a command may begin. `None`: one that is not known."""
_MOST_DIRECTORIES: Final = 64
_MOST_NAMES: Final = 1_000
"""The most names that a glob is compared with."""


def unproven(
    command: PlainCommand, prefix: Sequence[str], options: Sequence[str], place: CallPlace, directories: Directories
) -> str | None:
    """Why a command that begins with `prefix` may do more than that says. `None`: it is proven.

    `options`: the options that the rule names itself.
    """
    words = command.words
    if ANY in options:
        return None if all(word.known for word in words) else "a word is only known when the command runs"
    found = table_of(words)
    if found is None and not options:
        if len(words) == len(prefix) and all(word.literal for word in words):
            return None
        return f"of {words[0].text} no options are known, so the rule allows its exact words: name others in options"
    count, table = found if found is not None else (len(prefix), known_options(""))
    table = table.with_options(options)
    rest = words[count:]
    why = table.unproven(rest)
    if why is not None and len(prefix) > count:
        rest = words[len(prefix) :]  # the author of the rule has written the words before
        why = table.unproven(rest)
    if why is not None:
        return why
    if (table.inside or table.repository) and not all(directories):
        return "the folder in which it runs is not known"
    known = [directory for directory in directories if directory is not None]
    if table.inside and (outer := _outside(table.operands(rest), place.root, known)) is not None:
        return f"{outer} is outside of the workspace"
    if table.repository:
        for directory in known:
            if (why := unproven_repository(directory, table.repository)) is not None:
                return why
    if table.adds:
        added = [word for word in rest if not _is_file(word, known)]
        for directory in known if added else ():
            if holds_repository(directory):
                return "the settings of a repository that it adds may run a program"
    return None if table.runs or words[0].text in BUILTINS else _program(words[0], place)


def in_directories(commands: Sequence[PlainCommand], start: Path) -> list[tuple[PlainCommand, Directories]]:
    """Each command with the folders in which it may begin: `cd` moves the commands after it."""
    made: list[tuple[PlainCommand, Directories]] = []
    now: Directories = (start,)
    seen: Directories = (start,)
    for command in commands:
        if command.after != "&&":
            now = seen  # a cd before it may have failed
        made.append((command, now))
        if not command.piped and command.texts[0] in {"cd", "pushd", "popd"}:
            now = _moved(command, now)
            seen = tuple(dict.fromkeys((*seen, *now)))
    return made


def _moved(command: PlainCommand, now: Directories) -> Directories:
    operands = [word for word in command.words[1:] if word.text not in {"--", "-L", "-P"}]
    if command.texts[0] != "cd" or len(operands) != 1 or operands[0].glob or operands[0].text.startswith("-"):
        return (None,)
    text = os.path.expanduser(operands[0].text) if operands[0].home else operands[0].text  # noqa: PTH111 - of a text
    if not text:
        return now
    if None in now:
        return (None,)
    spelt = [os.path.normpath(one / text) for one in now if one is not None]  # bash goes up the path as it is spelt
    real = [os.path.realpath(one / text) for one in now if one is not None]
    moved = dict.fromkeys((*spelt, *real))
    return tuple(Path(one) for one in moved) if len(moved) <= _MOST_DIRECTORIES else (None,)


def _outside(operands: Sequence[PlainWord], root: Path, directories: Sequence[Path]) -> str | None:
    """The first operand, or the folder, that lies outside of `root`."""
    for directory in directories:
        for word in (PlainWord("."), *operands):
            for text in _names(word, directory):
                if not Path(os.path.realpath(directory / text.partition("::")[0])).is_relative_to(root):
                    return word.text if word.text != "." else str(directory)
    return next((word.text for word in operands if word.home), None)


def _names(word: PlainWord, directory: Path) -> Iterator[str]:
    """What bash may make of a word: itself, or the names that fit its glob. Of more than
    `_MOST_NAMES` it is the root, which is outside of every workspace.
    """
    yield word.text
    if word.glob:
        wide = "/".join(f"{part.partition('[')[0]}*" if "[" in part else part for part in word.text.split("/"))
        found = list(islice(glob.iglob(wide, root_dir=directory, include_hidden=True), _MOST_NAMES + 1))  # noqa: PTH207 - with hidden names
        yield from found if len(found) <= _MOST_NAMES else ("/",)


def _is_file(word: PlainWord, directories: Sequence[Path]) -> bool:
    """Whether the word names a file that is no folder, wherever the command begins."""
    return word.literal and all((directory / word.text).is_file() for directory in directories)


def _program(name: PlainWord, place: CallPlace) -> str | None:
    """Why the program of this name is perhaps another one than that of the system."""
    if "/" in name.text:
        return None  # the rule names this very program
    path = place.search_path if place.search_path is not None else os.environ.get("PATH", "")
    if any(not folder.startswith("/") for folder in path.split(os.pathsep)):
        return "PATH has a folder that is not absolute"
    program = shutil.which(name.text, path=path)
    if program is not None and Path(program).is_relative_to(place.root):
        return f"{program} lies in the workspace"
    return None
