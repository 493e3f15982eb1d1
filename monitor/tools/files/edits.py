"""Edits of a text: the new text, the difference, and the reason if an edit cannot be made."""

from __future__ import annotations

import difflib
import itertools
from typing import Final

from monitor._util.arguments import shown
from monitor.errors import ToolError
from monitor.reasons import ToolErrorKind

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
