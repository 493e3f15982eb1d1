"""Edits of a text: the new text, the difference, and the reason if an edit cannot be made."""

from __future__ import annotations

import difflib
import hashlib
import itertools
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from monitor._util.arguments import shown
from monitor.errors import ToolError, ToolErrorKind
from monitor.tools.base import CallingRun, excerpt
from monitor.tools.workspace import Encoding, FileContent, Workspace, WorkspacePath, decoded

CONTEXT: Final = 3
"""Unchanged lines around a change, as `diff -u` shows them."""
DIFF_LINES: Final = 200
"""The most lines of a difference that are shown."""
COMPARED_LINES: Final = 3_000
"""If a text has more lines, only the beginning is compared, line by line."""
COMPARED_CHARS: Final = 200
LEAST_ALIKE: Final = 0.6
"""A line less alike than this is not worth naming. The default of `difflib.get_close_matches`."""
PLACES_SHOWN: Final = 10


def replaced(text: str, old: str, new: str, *, every: bool) -> str:
    """`text` with `new` in the place of `old`. Raises `ToolError` if `old` is not in it, or more
    than once while `every` is False. The message says what to do instead.
    """
    if not old:
        raise _wrong("old is empty; to make a new file or replace a whole one, use write_file")
    if old == new:
        raise _wrong("old and new are the same: nothing would change")
    count = text.count(old)
    if count == 0:
        raise ToolError(_not_there(text, old), kind=ToolErrorKind.NOT_FOUND)
    if count > 1 and not every:
        lines = _line_numbers(text, old)
        raise _wrong(
            f"old is there {count} times, at the lines {lines}. Give more of the lines around it, so that it is there"
            " once; or set replace_all"
        )
    return text.replace(old, new)


def difference(path: str, before: str, after: str) -> str:
    """The difference, as `diff -u` shows it. A long one is cut after its beginning."""
    return compared(path, before, after)[0]


def compared(path: str, before: str, after: str) -> tuple[str, bool]:
    """`difference`, and whether all of it is shown."""
    old, new = _lines(before), _lines(after)
    # difflib takes time with the square of what it compares: equal beginnings and ends are cut off
    start = _equal(old, new)
    end = _equal(old[start:][::-1], new[start:][::-1])
    first = max(0, start - CONTEXT)
    last = max(0, end - CONTEXT)
    old_part, new_part = old[first : len(old) - last], new[first : len(new) - last]
    if len(old_part) + len(new_part) > COMPARED_LINES:
        return f"--- {path}\n+++ {path}\n{len(old_part):,} lines are replaced by {len(new_part):,} lines\n", False
    head = [""] * first  # so that the numbers of lines are right
    lines = difflib.unified_diff(head + old_part, head + new_part, path, path, n=CONTEXT)
    shown_lines = [_ended(line) for line in itertools.islice(lines, DIFF_LINES + 1)]
    whole = len(shown_lines) <= DIFF_LINES
    if not whole:
        shown_lines[DIFF_LINES:] = ["... the rest of this difference is not shown\n"]
    return "".join(shown_lines), whole


def _lines(text: str) -> list[str]:
    *lines, last = text.split("\n")
    return [*(f"{line}\n" for line in lines), *([last] if last else ())]


def _equal(old: list[str], new: list[str]) -> int:
    """The number of lines that are equal from the beginning."""
    return next(
        (at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), min(len(old), len(new))
    )


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ no newline at the end\n"


def _line_numbers(text: str, old: str) -> str:
    numbers: list[str] = []
    at, line, counted = text.find(old), 1, 0
    while at >= 0 and len(numbers) < PLACES_SHOWN:
        line += text.count("\n", counted, at)
        counted = at
        numbers.append(str(line))
        at = text.find(old, at + len(old))
    return ", ".join(numbers) + (" ..." if at >= 0 else "")


def _not_there(text: str, old: str) -> str:
    """Why `old` is not in `text`: other white space, or another text; and the nearest line."""
    lines = text.split("\n")
    wanted = [" ".join(line.split()) for line in old.strip().split("\n")]
    bare = [" ".join(line.split()) for line in lines[:COMPARED_LINES]]
    for at in range(len(bare) - len(wanted) + 1):
        if bare[at] == wanted[0] and bare[at : at + len(wanted)] == wanted:
            where = f"line {at + 1}" if len(wanted) == 1 else f"the lines {at + 1} to {at + len(wanted)}"
            return (
                f"old is not there exactly: {where} differ{'s' if len(wanted) == 1 else ''} from it in spaces, tabs or"
                f" line ends only. There is {_said(lines, at)}"
            )
    near = _nearest(bare, next((line for line in wanted if line), ""))
    if near is None:
        return "old is not there, and no line is like its first one. Read the file again"
    return f"old is not there. Nearest to its first line is {_said(lines, near)}"


def _nearest(lines: list[str], wanted: str) -> int | None:
    best, found = LEAST_ALIKE, None
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted[:COMPARED_CHARS])
    for at, line in enumerate(lines):
        matcher.set_seq1(line[:COMPARED_CHARS])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, found = ratio, at
    return found


def _said(lines: list[str], at: int) -> str:
    return f"line {at + 1}, {shown(lines[at])}"


def _wrong(text: str) -> ToolError:
    return ToolError(text, kind=ToolErrorKind.INVALID_ARGUMENTS)


# --------------------------------------------------------------------------------------------------
# A text file of a workspace: its text, and the bytes and the encoding behind it.


@dataclass(slots=True, frozen=True)
class TextFile:
    """A text file as it was read."""

    place: WorkspacePath
    content: FileContent
    text: str
    encoding: Encoding

    @property
    def whole(self) -> bool:
        """Whether `text` is all of the file, and not its beginning."""
        return self.content.size <= len(self.content.content)


def read_text(workspace: Workspace, path: str, most: int) -> TextFile:
    """The text of a file, or of its first `most` bytes. Raises `ToolError` if it is no text."""
    place, content, size = workspace.read(path, most)
    return as_text(path, place, FileContent(content, size))


def as_text(path: str, place: WorkspacePath, content: FileContent) -> TextFile:
    """The text in `content`. Raises `ToolError` if it is none."""
    found = decoded(content.content, whole=content.size <= len(content.content))
    if found is None:
        said = f"{excerpt(path)} is no text: a binary file of {content.size:,} bytes"
        raise ToolError(said, kind=ToolErrorKind.INVALID_ARGUMENTS)
    return TextFile(place, content, *found)


def encoded(text: str, encoding: Encoding) -> bytes:
    """The bytes of a file with this text. Raises `ToolError` if the encoding lacks a character."""
    try:
        return encoding.encode(text)
    except UnicodeEncodeError as error:
        wrong = error.object[error.start : error.start + 1]
        raise ToolError(
            f"{wrong!r} cannot be written in {encoding}; write the whole file, which makes it UTF-8"
            if encoding.name != "utf-8"
            else f"{wrong!r} is half of a character and cannot be written",
            kind=ToolErrorKind.INVALID_ARGUMENTS,
        ) from None


# --------------------------------------------------------------------------------------------------
# What each run knows of the files of a workspace: as it has read or written them last.
#
# A change of a file that the run has not read, or that has changed since, is refused. The answer
# says what has changed. So no run overwrites what it has never seen, and no change of another run
# is lost.

KEPT_CHARS: Final = 4_000_000
"""The most characters of texts that are kept for each run, to say what has changed. Of the others
only a hash is kept.
"""
MOST_FILES: Final = 10_000
"""The most files that are remembered for each run. The oldest are forgotten, and read again."""


@dataclass(slots=True)
class _Seen:
    digest: bytes
    text: str | None
    """`None`: too many texts have been read since."""


class _SeenByRun:
    """The files that one run has seen, the newest last."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, _Seen] = OrderedDict()
        self._chars = 0

    def get(self, place: str) -> _Seen | None:
        return self._files.get(place)

    def put(self, place: str, digest: bytes, text: str) -> None:
        self._forget_text(self._files.pop(place, None))
        self._files[place] = _Seen(digest, text)
        self._chars += len(text)
        if len(self._files) > MOST_FILES:
            self._forget_text(self._files.popitem(last=False)[1])
        for seen in self._files.values() if self._chars > KEPT_CHARS else ():
            self._forget_text(seen)
            if self._chars <= KEPT_CHARS:
                break

    def _forget_text(self, seen: _Seen | None) -> None:
        if seen is not None and seen.text is not None:
            self._chars -= len(seen.text)
            seen.text = None


class KnownFiles:
    """The files that each run has seen. Its methods may be called from any thread, but two calls
    about one file must not overlap.
    """

    def __init__(self) -> None:
        self._runs: WeakKeyDictionary[CallingRun, _SeenByRun] = WeakKeyDictionary()
        self._others = _SeenByRun()
        """For runs of other libraries that nothing can refer to weakly: they share it."""

    def saw(self, run: CallingRun, place: str, content: bytes, text: str) -> None:
        """The run has read, or written, the file at `place`."""
        self._of(run).put(place, _digest(content), text)

    def check(self, run: CallingRun, path: str, now: TextFile) -> None:
        """Raise `ToolError` (`stale`) if the run has not seen the file as it is now."""
        place = str(now.place)
        seen = self._of(run).get(place)
        if seen is None:
            said = f"{excerpt(path)} is there, and you have not read it since this run began or was resumed"
            raise ToolError(f"{said}; nothing was changed. Read it first", kind=ToolErrorKind.STALE)
        if seen.digest == _digest(now.content.content):
            return
        said = f"{excerpt(path)} has changed since you read it, so nothing was changed here."
        changes, whole = compared(place, seen.text, now.text) if seen.text is not None and now.whole else ("", False)
        if not whole:
            raise ToolError(f"{said} Read it again\n{changes}".rstrip("\n"), kind=ToolErrorKind.STALE)
        self.saw(run, place, now.content.content, now.text)
        said = f"{said} This has changed; make your change anew if it still fits:\n{changes}"
        raise ToolError(said.rstrip("\n"), kind=ToolErrorKind.STALE)

    def _of(self, run: CallingRun) -> _SeenByRun:
        try:
            return self._runs.setdefault(run, _SeenByRun())
        except TypeError:
            return self._others


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
