"""Where a text may be cut: at no place that leaves half a character or half an escape sequence."""

from __future__ import annotations

import re
from typing import Final

ESCAPE_CHARS: Final = 256
"""A longer escape sequence is none: what terminals are sent is far shorter."""

_ESCAPE: Final = re.compile(
    r"\x1b(?:\[[0-?]{0,250}[ -/]{0,4}[@-~]|[\]PX^_][^\x07\x1b]{0,250}(?:\x07|\x1b\\)|[ -/]{0,4}[0-OQ-WYZ\\`-~])"
)
"""A sequence of a terminal: CSI, a string such as a title or a link, or a short one (ECMA-48)."""


def cut_before(text: str, at: int) -> int:
    """The last place up to `at` where `text` may be cut. For the end of what is kept."""
    at = max(min(at, len(text)), 0)
    inside = _escape_around(text, at)
    return inside[0] if inside is not None else at - _splits_a_pair(text, at)


def cut_after(text: str, at: int) -> int:
    """The first place from `at` on where `text` may be cut. For the beginning of what is kept."""
    at = max(min(at, len(text)), 0)
    inside = _escape_around(text, at)
    return inside[1] if inside is not None else at + _splits_a_pair(text, at)


def _splits_a_pair(text: str, at: int) -> bool:
    """Whether a cut at `at` parts two surrogates that are one character."""
    return 0 < at < len(text) and "\ud800" <= text[at - 1] <= "\udbff" and "\udc00" <= text[at] <= "\udfff"


def _escape_around(text: str, at: int) -> tuple[int, int] | None:
    """Where the escape sequence begins and ends that a cut at `at` would part."""
    first = text.rfind("\x1b", max(at - ESCAPE_CHARS, 0), at)
    # The terminator of a string is two characters and begins as a sequence does.
    starts = (text.rfind("\x1b", max(at - ESCAPE_CHARS, 0), first), first) if first > 0 else (first,)
    for start in starts:
        if start >= 0 and (found := _ESCAPE.match(text, start)) and found.end() > at:
            return start, found.end()
    return None
