"""A form is a pattern that is matched only where it can be found.

Failure answered: a scan of a disk reads every result of every tool. A pattern takes 10 to 80 ns a
character, and mostly finds nothing. Two letters in a row are found in less than 1 ns a character.

Rules:

- The outline of a text has one character for each: ASCII in lower case, each digit as `0`, and any
  character beyond Latin-1 as `?`. So `0:00` stands for each time of the day.
- Wherever the pattern matches a text, its signs stand in the outline. The other way round need not
  hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_LOWER_AND_0 = bytes.maketrans(b"123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"0" * 9 + b"abcdefghijklmnopqrstuvwxyz")
_latest: tuple[str, str] = "", ""
"""The latest text, and its outline: several forms are looked for in the same text."""


def outline(text: str) -> str:
    """`text` in lower case, with each digit as `0`."""
    global _latest  # noqa: PLW0603 - one tuple, put in its place whole
    known, found = _latest
    if known is text:
        return found
    found = text.encode("latin-1", "replace").translate(_LOWER_AND_0).decode("latin-1")
    _latest = text, found
    return found


@dataclass(slots=True, frozen=True)
class FilteredPattern:
    """A pattern, and what the outline of each text has that it matches: one of `signs`, and a place
    where `around` is true.
    """

    pattern: re.Pattern[str]
    signs: tuple[str, ...] = ()
    around: Callable[[str], object] | None = None

    def may_be_in(self, outline: str) -> bool:
        """False: the pattern matches nowhere in the text with this outline."""
        for sign in self.signs:
            if sign in outline:
                break
        else:
            if self.signs:
                return False
        return self.around is None or bool(self.around(outline))

    def is_in(self, text: str) -> bool:
        """Whether the pattern matches somewhere."""
        return self.may_be_in(outline(text)) and self.pattern.search(text) is not None

    def replaced(self, text: str, put: str | Callable[[re.Match[str]], str] = "") -> str:
        """`text` with something, or nothing, in place of each match."""
        return self.pattern.sub(put, text) if self.may_be_in(outline(text)) else text

    def counted(self, text: str) -> tuple[str, int]:
        """`text` without the matches, and how many there were."""
        return self.pattern.subn("", text) if self.may_be_in(outline(text)) else (text, 0)
