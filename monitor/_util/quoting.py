"""Quotes foreign text as data: on one line, as JSON, in printable characters and without angle
brackets. If its lines matter, each line gets a mark instead.

Quoted text cannot end its quotation, begin a line, look like one of the marks around it, or hide
anything. Invisible characters (some can hide whole sentences), controls and lone surrogates are
escaped.
"""

from __future__ import annotations

import json
import re

from monitor._util.hashing import canonical_json
from monitor.verdicts import VETO

OPENING_CHARS, ENDING_CHARS = 160, 80
"""How much of a longer text is quoted: its opening, which shows the subject, and its end, where the
error of a traceback stands.
"""

_BRACKETS = frozenset("<>\uff1c\uff1e\ufe64\ufe65\u2039\u203a")
"""Angle brackets, and characters that look like them."""
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U0001d159\U000e0100-\U000e01ef]"
)
"""Characters that Python calls printable and that are shown as nothing, or as a blank: fillers,
selectors of variants, the empty Braille pattern.
"""


def quoted(text: str, opening: int = OPENING_CHARS, ending: int = ENDING_CHARS) -> str:
    """`text` as a JSON string. Of a long text, the opening, the end and the length."""
    if len(text) <= opening + ending:
        return _readable(json.dumps(text, ensure_ascii=False))
    begins, ends = (
        _readable(json.dumps(part, ensure_ascii=False)) for part in (text[:opening], text[len(text) - ending :])
    )
    return f"{begins} ... {ends} ({len(text):,} characters)"


def quoted_data(value: object) -> str:
    """`value` as JSON; if that is long, as a quoted text."""
    canonical = canonical_json(value)
    room = OPENING_CHARS + ENDING_CHARS
    if len(canonical) > 6 * room:  # six times, because it is ASCII
        return quoted(canonical)
    text = json.dumps(json.loads(canonical), ensure_ascii=False)
    return _readable(text) if len(text) <= room else quoted(text)


_MARK = re.compile(re.escape(VETO), re.IGNORECASE)
_ESCAPED_MARK = re.compile(rf"\\({re.escape(VETO)})", re.IGNORECASE)


def foreign(text: str) -> str:
    """Foreign `text` for the model, with a backslash before each mark of the monitor. A second call
    changes nothing.

    So text of a tool, a page or a model is never read as the monitor's.
    """
    return _MARK.sub(
        lambda found: found[0] if text[found.start() - 1 : found.start()] == "\\" else f"\\{found[0]}", text
    )


def escaped(text: str) -> str:
    """Escape `text` like `foreign`, but so that `unescaped` restores it: every mark gets a
    backslash, also if it has one already.
    """
    return _MARK.sub(lambda found: f"\\{found[0]}", text)


def unescaped(text: str) -> str:
    """The inverse of `escaped`."""
    return _ESCAPED_MARK.sub(r"\1", text)


LINE_MARK = "| "
"""Stands before each line of a text that is quoted by lines, so that no line looks like one outside
the quotation.
"""


def quoted_lines(text: str) -> str:
    """`text` line by line, each after `LINE_MARK`. Unprintable characters are escaped, so that
    nothing is hidden or begins a further line.
    """
    return "\n".join(LINE_MARK + printable(line) for line in text.splitlines()) or LINE_MARK.rstrip()


def printable(text: str) -> str:
    """`text` on one line, with characters escaped that do not print or look blank; tabs stay."""
    if text.isprintable() and not _BLANK.search(text):
        return text
    return "".join(char if char == "\t" or _is_visible(char) else _escaped(char) for char in text)


def _is_visible(char: str) -> bool:
    return char.isprintable() and not _BLANK.match(char)


def _readable(text: str) -> str:
    """The JSON `text` with its ambiguous characters escaped."""
    if text.isprintable() and _BRACKETS.isdisjoint(text) and not _BLANK.search(text):
        return text
    return "".join(char if _is_visible(char) and char not in _BRACKETS else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return f"\\u{ord(char):04x}" if char in _BRACKETS else json.dumps(char)[1:-1]
