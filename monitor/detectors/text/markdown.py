"""Tells layout from prose.

Tables, lists and code repeat by nature, and a detector that counts them raises false alarms. The
usual remedy, to forget the evidence at every marker, misses any loop that contains a heading.

All of this is examined only where something already repeats, or where text is about to leave the
buffer:

- a line that starts with a letter is prose, a blank line is nothing. Every other line is layout:
  bullets, numbers, `#`, `>`, `|`, dividers, indentation, brackets, tags, fences;
- inside a code fence every line is layout;
- verse has short lines, as in poems and songs; code has signs that prose has not;
- drawings are made of blanks, punctuation, boxes and blocks. Everything else speaks;
- a fence opens with a line that starts with three backticks or tildes, after at most three blanks.
  It closes with a line that contains nothing else, as in CommonMark. A line longer than
  `FENCE_LINE_CHARS` is no fence.
"""

from __future__ import annotations

import re

FENCE_LINE_CHARS = 200
"""Marker and info string; keeps the decision about a line local, so that it cannot depend on how
much text has arrived.
"""

MAX_INDENT = 3
"""Blanks before a fence; four make an indented code block (CommonMark)."""

LEADERS = frozenset(" \t\n\r\u00a0.-_=*~\u00b7\u2022\u2026\u2500\u2501\u2550")
"""The characters with which people fill a line, as long as it takes: padding, leaders, rules. Other
characters make bars of up to 120 (comments).
"""

VERSE_BYTES = 64
"""The longest line of verse, in UTF-8: English verse has 20 to 50 characters, Chinese verse 5 to 12
of three bytes.
"""
CODE_SIGNS = (*"_=<>{}[]\\/@#$|", ";\n")
"""Signs of code and data. Of recorded loops in prose they are at most 0.5 %, of code and settings 2
to 20 %.
"""
CODE_PERCENT = 1
DENSE_PERCENT = 4
"""Prose has 12 to 20 blanks in a hundred characters."""
SIGNED_PERCENT = 90
"""Letters of a hundred characters, where hardly a blank stands between: signs part the values of
source maps and style sheets. A long cry has none.
"""

_MARKERS = ("```", "~~~")
_NO_DIGITS = str.maketrans("", "", "0123456789")
_WORD = re.compile(r"[^\W_]")
_NO_WORDS = re.compile(r"[\x00-\x1f!-@\[-`{-\x7f]+")
"""All of ASCII but letters and the blank."""
_SPEAKS = re.compile(
    r"[^\s!-/:-@\[-`{-~\u00a1-\u00bf\u2000-\u206f\u2190-\u25ff\u2b00-\u2bff\u3000-\u303f\ufe0f\uff01-\uff0f\U0001f7e0-\U0001f7eb]"
)
"""Anything but blanks, punctuation, arrows, boxes, blocks, squares and discs."""


def next_word(text: str, start: int, end: int) -> int:
    """Where the first letter or digit of any script stands in `text[start:end]`; `end` if none
    does.
    """
    word = _WORD.search(text, start, end)
    return word.start() if word else end


def speaks(text: str) -> bool:
    """Whether at least one character is not what drawings are made of: a letter, a digit, a
    smiley.
    """
    return _SPEAKS.search(text) is not None


def words_percent(text: str) -> int:
    """Letters, blanks and what is not ASCII, of a hundred characters; runs of blanks are one."""
    joined = " ".join(text.split())
    others = sum(map(len, _NO_WORDS.findall(joined)))
    return 100 - 100 * others // max(len(joined), 1)


def is_code(text: str) -> bool:
    """Whether more than one character of a hundred is a sign of code or data."""
    return 100 * sum(map(text.count, CODE_SIGNS)) > CODE_PERCENT * len(text)


def is_unbroken(text: str) -> bool:
    """Whether it is ASCII without any blank, and most of it letters and digits. No language that is
    written in ASCII is written so.
    """
    return text.isascii() and len(text.split()) == 1 and 2 * sum(map(str.isalnum, text)) > len(text)


def is_dense(text: str) -> bool:
    """Whether it is code or data with hardly a blank: paths, URLs, minified JSON, source maps."""
    most = DENSE_PERCENT * len(text)
    if 100 * text.count(" ") >= most:
        return False
    if is_code(text):
        return True
    return text.isascii() and 100 * text.count("\n") < most and words_percent(text) < SIGNED_PERCENT


def has_short_lines(text: str) -> bool:
    """Whether all lines are as short as those of verse."""
    return all(
        len(line) <= VERSE_BYTES and len(line.encode("utf-8", "surrogatepass")) <= VERSE_BYTES
        for line in text.split("\n")
    )


def last_layout(text: str, start: int, end: int, *, fenced: bool) -> int:
    """Where the last layout line that starts behind a line break in `text[start:end]` starts; -1 if
    none does.
    """
    line = text.rfind("\n", start, end - 1) + 1
    while line > 0:
        if fenced or is_layout(text[line]):
            return line
        line = text.rfind("\n", start, line - 1) + 1
    return -1


def only_counts(one: str, other: str) -> bool:
    """Whether nothing but digits differs."""
    return one.translate(_NO_DIGITS) == other.translate(_NO_DIGITS)


def only_layout(text: str, start: int, end: int, *, fenced: bool) -> bool:
    """Whether lines start in `text[start:end]` and all of them are layout. `fenced` is the state at
    `end`.
    """
    some = False
    line = text.rfind("\n", start, end - 1) + 1
    while line > 0:
        if text[line : min(line + MAX_INDENT + 3, end)].lstrip(" ").startswith(_MARKERS):
            fenced = not fenced
        elif not fenced and text[line].isalpha():
            return False
        some = True
        line = text.rfind("\n", start, line - 1) + 1
    return some


def is_layout(first: str) -> bool:
    """Whether a line that starts with this character is layout, outside a fence."""
    return not first.isalpha() and first not in "\r\n"


class Fences:
    """Whether the text is inside a code fence, followed on demand. Positions are offsets in the
    channel.
    """

    __slots__ = ("marker", "origin", "seen")

    def __init__(self, origin: int = 0) -> None:
        self.restart(origin)

    def restart(self, origin: int) -> None:
        """A new piece of text begins at `origin`, outside any fence."""
        self.marker = ""
        self.origin = self.seen = origin

    def inside(self, text: str, base: int, end: int) -> bool:
        """The state at `end`, never before an earlier `end`. `text` starts at `base` and reaches
        back to what was seen.
        """
        stop = end - base
        at = self.seen - base
        while (found := _next_marker(text, at, stop)) >= 0:
            line_end = text.find("\n", found, min(stop, found + FENCE_LINE_CHARS))
            if line_end < 0 and stop < found + FENCE_LINE_CHARS:
                at = found
                break
            if line_end >= 0 and self._starts_line(text, base, found):
                self._line(text[found:line_end].rstrip())
            at = line_end if line_end >= 0 else _end_of_run(text, found, stop)
        else:
            at = max(at, stop - len(_MARKERS[0]) + 1)
        self.seen = base + at
        return bool(self.marker)

    def _starts_line(self, text: str, base: int, found: int) -> bool:
        line = text.rfind("\n", max(found - MAX_INDENT - 1, 0), found) + 1
        if line == 0:
            line = self.origin - base
            if found - line > MAX_INDENT:
                return False
        return not text[max(line, 0) : found].strip(" ")

    def _line(self, line: str) -> None:
        if not self.marker:
            if "`" not in line.lstrip("`"):
                self.marker = line[: len(line) - len(line.lstrip(line[0]))]
        elif line.startswith(self.marker) and not line.strip(self.marker[0]):
            self.marker = ""


def _end_of_run(text: str, at: int, stop: int) -> int:
    """Where the run of the character at `at` ends: what is left of it can begin no line."""
    end = at
    while end < stop and text[end] == text[at]:
        end += 1
    return end


def _next_marker(text: str, start: int, stop: int) -> int:
    ticks = _next(_MARKERS[0], text, start, stop)
    tildes = _next(_MARKERS[1], text, start, ticks if ticks >= 0 else stop)
    return tildes if tildes >= 0 else ticks


def _next(marker: str, text: str, start: int, stop: int) -> int:
    """Return what `str.find` does; an absent first character is known forty times as soon."""
    first = text.find(marker[0], start, stop)
    return text.find(marker, first, stop) if first >= 0 else -1
