"""The output of a program as a person would see it on a screen, for a model to read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_ESCAPES: Final = re.compile(
    r"\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # CSI: colours, movements of the cursor
    r"|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # OSC, DCS, SOS, PM, APC: titles, links
    r"|[ -/]*[0-~])?"  # the short ones; an escape by itself
)
_CONTROLS: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f\x80-\x9f]+")
PIECE_CHARS: Final = 200_000
"""A piece of this length takes less than 0.1 s, whatever it holds."""


def screen_text(text: str) -> str:
    """`text` without escape sequences and controls. If a program wrote a line over and over, as
    progress bars do, only the last version of the line stays.
    """
    return "".join(screen_pieces(text))


def screen_pieces(text: str) -> Iterator[str]:
    """`screen_text` in pieces: between two pieces of a long text, other tasks of an event loop may
    run.
    """
    start = 0
    while start < len(text):
        end = start + PIECE_CHARS
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        yield _screened(text[start:end])
        start = end


def _screened(text: str) -> str:
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    text = _CONTROLS.sub("", text).replace("\r\n", "\n")
    if "\r" not in text:
        return text
    return "\n".join(_last_version(line) if "\r" in line else line for line in text.split("\n"))


def _last_version(line: str) -> str:
    return next((version for version in reversed(line.split("\r")) if version), "")
