"""Cuts a long tool result for the model. The functions are pure and take linear time.

Failure answered: an error stands in the middle of a long log, where a cut hides it. So the model
takes a failed build for a passed one. A cut result has, in this order:

1. one status line, never cut: the status that the tool gives (exit code, duration), and the size;
2. the part that is shown, by `keep`. `ends`: the beginning, lines of the middle that look like
   errors, and the end. `head`: the beginning, for files. `tail`: the end. `matches`: lines from the
   beginning, each cut, for searches;
3. a last line that says how much is shown, and where the rest is.

`monitor.context.clip` cuts again later, by tokens, if a text is too long for a window or a summary.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Final

from monitor._util.text import cut_after, cut_before, printable
from monitor.tools.base import Bound, Keep

HEAD_SHARE: Final = 0.25
"""If both ends are shown, the share of the beginning. The end has more, because errors are there.
Gemini CLI has 0.2.
"""
ERROR_SHARE: Final = 0.1
"""The share that lines of the middle may have."""
MOST_ERRORS: Final = 10
"""The most lines of the middle that are shown."""
ERROR_CHARS: Final = 300
"""The most characters that are shown of one line of the middle."""
MATCH_CHARS: Final = 500
"""The most characters that are shown of one line of a search."""
NOT_KEPT: Final = "the rest was not kept"
_LINE_SHARE: Final = 0.5
"""A cut moves to the end of a line if at least this share of the allowed text then remains."""

_SIGNS: Final = (
    *("error", "exception", "traceback", "fail", "fatal", "panic", "segmentation fault", "core dumped", "assert"),
    *("undefined reference", "undefined symbol", "permission denied", "no such file", "not found", "err!"),
    *("cannot ", "could not ", "unable to ", "\u2717", "\u2716", "\u2718"),
)
"""Words that make a line look like an error, in small letters."""
_AS_WORD: Final = re.compile(r"fail(?:ed|ures?|s)?\b|assert(?:ion)?(?:\b|error)|(?!fail|assert).", re.DOTALL)
"""Two of these words are also parts of harmless words: this matches them only as words."""
_MOST_LOOKS: Final = 200_000
"""The most such words in one text that are looked at, so that no text takes long."""
_SMALL: Final = {capital: capital + 32 for capital in range(ord("A"), ord("Z") + 1)}
_NO_ERROR: Final = re.compile(
    r"\b(?:no|0|without) (?:errors?|failures?|failed|exceptions?)|\b(?:errors?|failures?|failed)\s?[:=]\s?0\b",
    re.IGNORECASE,
)
_DIGITS: Final = re.compile(r"[0-9]+")


@dataclass(slots=True, frozen=True)
class TruncatedText:
    """The part of a result that a model reads."""

    text: str
    _: KW_ONLY
    truncated: bool = False
    next_line: int | None = None
    """For `head`: the number of the line at which to continue."""


def shown(
    text: str,
    *,
    keep: Keep = "ends",
    bound: Bound | None = None,
    status: str | None = None,
    more: str | None = None,
    first_line: int = 1,
) -> TruncatedText:
    """`text` as the model reads it: whole if it is within `bound`, else cut as `keep` says.

    `status`: the status of the tool, on one line before the text, never cut. `more`: says how the
    model gets the rest; it ends the last line. `first_line`: the number of the first line of
    `text`, if that is a part of a file. The result may exceed `bound` by the status line and the
    last line, and by nothing else.
    """
    bound = bound or Bound()
    said = printable(status.strip()) if status else ""
    if bound.holds(text):
        return TruncatedText(f"{said}\n{text}" if said else text)
    body, next_line = _head(text, bound, first_line) if keep == "head" else (_CUTS[keep](text, bound), None)
    rest = more or NOT_KEPT
    if next_line is not None:
        rest = f"continue at line {next_line}" + (f"; {more}" if more else "")
    last = f"[this result was cut when it came; {rest}]"
    return TruncatedText(f"{_first_line(text, said)}\n{body}\n{last}", truncated=True, next_line=next_line)


def summarised(
    text: str, summary: object, *, bound: Bound | None = None, status: str | None = None, more: str | None = None
) -> str:
    """`summary` in the place of `text`, for the model: between a status line and a line that says
    how to get the whole text. Raises `ValueError` for a summary that says nothing.
    """
    if not isinstance(summary, str) or not summary.strip():
        raise ValueError("the summary is empty" if isinstance(summary, str) else f"it is no text: {type(summary)}")
    said = shown(summary.strip(), bound=bound).text
    first = _first_line(text, printable(status.strip()) if status else "")
    return f"{first}\n{said}\n[this is a summary of the result; {more or NOT_KEPT}]"


def _first_line(text: str, status: str) -> str:
    lines = text.count("\n") + (not text.endswith("\n"))
    size = f"{lines:,} {'line' if lines == 1 else 'lines'}, {len(text):,} characters"
    return f"[{status}; {size}]" if status else f"[{size}]"


# --- the kinds of cuts


def _head(text: str, bound: Bound, first_line: int) -> tuple[str, int | None]:
    """The text to show, and the number of the line to continue at."""
    end = _end_of_head(text, bound.max_chars, bound.max_lines)
    line = first_line + text.count("\n", 0, end)
    if text[:end].endswith("\n"):
        return _without_newline(text[:end]), line
    newline = text.find("\n", end)
    stop = len(text) if newline < 0 else newline
    note = f"[line {line} goes on for {stop - end:,} characters]"
    return f"{text[:end]}\n{note}", line + 1 if stop < len(text) else None


def _tail(text: str, bound: Bound) -> str:
    start = _start_of_tail(text, bound.max_chars, bound.max_lines)
    return f"{_left_out(text, 0, start)}\n{_without_newline(text[start:])}"


def _ends(text: str, bound: Bound) -> str:
    end, start = _middle(text, bound, ERROR_SHARE)
    errors = _errors(text, end, start, int(bound.max_chars * ERROR_SHARE))
    if not errors:
        end, start = _middle(text, bound, 0.0)
    left_out = _left_out(text, end, start)
    if errors:
        left_out = "\n".join([f"{left_out[:-1]}; lines of them that look like errors:]", *errors, "[the end:]"])
    return f"{_without_newline(text[:end])}\n{left_out}\n{_without_newline(text[start:])}"


def _middle(text: str, bound: Bound, share: float) -> tuple[int, int]:
    """Begin and end of the part that is left out. `share`: the room that its own lines may get."""
    chars, lines = int(bound.max_chars * (1 - share)), bound.max_lines - (MOST_ERRORS if share else 0)
    head_chars, head_lines = int(chars * HEAD_SHARE), max(int(lines * HEAD_SHARE), 1)
    end = _end_of_head(text, head_chars, head_lines)
    return end, max(_start_of_tail(text, chars - head_chars, max(lines - head_lines, 1)), end)


def _matches(text: str, bound: Bound) -> str:
    kept: list[str] = []
    room = bound.max_chars
    whole = _without_newline(text)
    total = whole.count("\n") + 1
    for start, end in _lines_of(whole, 0, len(whole)):
        line = _around(whole[start:end], 0, MATCH_CHARS)
        room -= len(line) + 1
        if kept and (room < 0 or len(kept) == bound.max_lines):
            break
        kept.append(line[: bound.max_chars])
    left_out = total - len(kept)
    note = [f"[{left_out:,} of {total:,} lines left out; search for less]"] if left_out else []
    return "\n".join([*kept, *note])


_CUTS: Final[dict[Keep, Callable[[str, Bound], str]]] = {
    "ends": _ends,
    "tail": _tail,
    "matches": _matches,
}


# --- where to cut


def _end_of_head(text: str, chars: int, lines: int) -> int:
    """The end of the first `lines` lines, at most `chars` characters. It is the end of a line, if
    that leaves enough.
    """
    end = 0
    for _ in range(lines):
        newline = text.find("\n", end, chars)
        if newline < 0:
            break
        end = newline + 1
    else:
        return end
    return end if end >= chars * _LINE_SHARE else cut_before(text, chars)


def _start_of_tail(text: str, chars: int, lines: int) -> int:
    """The beginning of the last `lines` lines, at most `chars` characters before the end."""
    first = max(len(text) - chars, 0)
    start = len(text) - text.endswith("\n")
    found = len(text)
    for _ in range(lines):
        newline = text.rfind("\n", first, start)
        if newline < 0:
            break
        start, found = newline, newline + 1
    else:
        return found
    if first == 0:
        return 0
    return found if len(text) - found >= chars * _LINE_SHARE else cut_after(text, first)


def _without_newline(text: str) -> str:
    return text.removesuffix("\n")


def _left_out(text: str, start: int, end: int) -> str:
    """The line that stands for `text[start:end]`."""
    lines = text.count("\n", start, end)
    where = f" (from line {text.count(chr(10), 0, start) + 1:,})" if start else ""
    return f"[{lines:,} lines, {end - start:,} characters left out here{where}]"


def _lines_of(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each line of `text[start:end]`."""
    while start < end:
        newline = text.find("\n", start, end)
        stop = end if newline < 0 else newline
        yield start, stop
        start = stop + 1


# --- lines of the middle


def _errors(text: str, start: int, end: int, chars: int) -> list[str]:
    """Lines of `text[start:end]` that look like errors, with their numbers. If lines differ only in
    their digits, the first of them is shown.
    """
    found: list[str] = []
    seen: set[str] = set()
    number, counted = text.count("\n", 0, start) + 1, start
    for begin, stop, at in _suspects(text, start, end):
        line = text[begin:stop]
        kind = _DIGITS.sub("0", line[:ERROR_CHARS])
        if kind in seen or _NO_ERROR.search(line):
            continue
        seen.add(kind)
        number, counted = number + text.count("\n", counted, begin), begin
        part = f"line {number}: {_around(line, at - begin, ERROR_CHARS)}"
        chars -= len(part) + 1
        if chars < 0:
            break
        found.append(part)
        if len(found) == MOST_ERRORS:
            break
    return found


def _suspects(text: str, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The lines that look like errors: begin, end, and the place of the word. Each word is searched
    once, with the speed of `str.find`.
    """
    small = text.lower()
    if len(small) != len(text):  # the small form of a few letters is two characters
        small = text.translate(_SMALL)
    following = [(at, sign) for sign in _SIGNS if (at := small.find(sign, start, end)) >= 0]
    heapq.heapify(following)
    done = start
    for _ in range(_MOST_LOOKS):
        if not following:
            return
        at, sign = following[0]
        if at >= done and _AS_WORD.match(small, at):
            newline = text.find("\n", at, end)
            stop = end if newline < 0 else newline
            yield max(text.rfind("\n", done, at) + 1, done), stop, at
            done = stop
        again = small.find(sign, max(at + len(sign), done), end)
        if again >= 0:
            heapq.heapreplace(following, (again, sign))
        else:
            heapq.heappop(following)


def _around(line: str, at: int, chars: int) -> str:
    """About `chars` characters of `line` around the place `at`."""
    if len(line) <= chars:
        return line.removesuffix("\r")
    start = cut_after(line, max(min(at - chars // 4, len(line) - chars), 0))
    end = cut_before(line, start + chars)
    before = f"[{start:,} characters] " if start else ""
    after = f" [{len(line) - end:,} characters]" if end < len(line) else ""
    return f"{before}{line[start:end]}{after}"
