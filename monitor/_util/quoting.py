"""Other people's text as data: on one line, as JSON, in printable characters and without angle
brackets; or, where its lines matter, with a mark before each of them.

What is quoted so cannot end its quotation, begin a line, look like one of the marks around it, or
hide anything from a reader: invisible characters (among them those in which whole sentences can be
hidden), controls and lone surrogates are escaped.
"""

from __future__ import annotations

import json
import re

from monitor._util.hashing import canonical_json
from monitor.verdicts import VETO

OPENING_CHARS, ENDING_CHARS = 160, 80
"""Of a longer text its opening, which tells what it is about, and its end, where the error of a
traceback stands.
"""

_BRACKETS = frozenset("<>\uff1c\uff1e\ufe64\ufe65\u2039\u203a")
"""Angle brackets, and what looks like them."""


def quoted(text: str, opening: int = OPENING_CHARS, ending: int = ENDING_CHARS) -> str:
    """`text` as a JSON string; of a long one its opening and its end, and how long it is."""
    if len(text) <= opening + ending:
        return _readable(json.dumps(text, ensure_ascii=False))
    begins, ends = (
        _readable(json.dumps(part, ensure_ascii=False)) for part in (text[:opening], text[len(text) - ending :])
    )
    return f"{begins} ... {ends} ({len(text):,} characters)"


def quoted_data(value: object) -> str:
    """`value` as JSON; where that is long, as a quoted text."""
    canonical = canonical_json(value)
    room = OPENING_CHARS + ENDING_CHARS
    if len(canonical) > 6 * room:  # six times, because it is ASCII
        return quoted(canonical)
    text = json.dumps(json.loads(canonical), ensure_ascii=False)
    return _readable(text) if len(text) <= room else quoted(text)


_MARK = re.compile(re.escape(VETO), re.IGNORECASE)
_ESCAPED_MARK = re.compile(rf"\\({re.escape(VETO)})", re.IGNORECASE)


def foreign(text: str) -> str:
    """`text` of somebody else, for the model: where it has the monitor's mark, a backslash before
    it. Twice is as once.

    So nothing that a tool, a page or a model wrote is read as said by the monitor.
    """
    return _MARK.sub(
        lambda found: found[0] if text[found.start() - 1 : found.start()] == "\\" else f"\\{found[0]}", text
    )


def escaped(text: str) -> str:
    """The same, so that `unescaped` gives `text` back: with a backslash before each mark, also
    where there is one.
    """
    return _MARK.sub(lambda found: f"\\{found[0]}", text)


def unescaped(text: str) -> str:
    """The inverse of `escaped`."""
    return _ESCAPED_MARK.sub(r"\1", text)


LINE_MARK = "| "
"""Before each line of a text that is quoted by lines: no line of it can be taken for one that
stands outside.
"""


def quoted_lines(text: str) -> str:
    """`text` line by line, each behind `LINE_MARK`. What does not print is escaped, so that nothing
    hides or begins a line of its own.
    """
    return "\n".join(LINE_MARK + printable(line) for line in text.splitlines()) or LINE_MARK.rstrip()


def printable(text: str) -> str:
    """`text` on one line, with everything escaped that does not print; tabs stay."""
    if text.isprintable():
        return text
    return "".join(char if char == "\t" or char.isprintable() else _escaped(char) for char in text)


def _readable(text: str) -> str:
    """The same JSON with everything escaped that a reader could take for something else."""
    if text.isprintable() and _BRACKETS.isdisjoint(text):
        return text
    return "".join(char if char.isprintable() and char not in _BRACKETS else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return f"\\u{ord(char):04x}" if char in _BRACKETS else json.dumps(char)[1:-1]
