"""One reader a format. A transcript is recognised by its content, in the order of `READERS`."""

from __future__ import annotations

from typing import Final

from monitor.transcripts.readers.base import Reader
from monitor.transcripts.readers.claude_code import ClaudeCode
from monitor.transcripts.readers.codex import Codex
from monitor.transcripts.source import Source

READERS: Final[tuple[Reader, ...]] = (ClaudeCode(), Codex())
"""A new format is one line here. Formats with a sign of their own come before those without one."""


def reader_of(source: Source) -> Reader | None:
    """The reader of the format of `source`; `None`: nobody knows it."""
    return next((reader for reader in READERS if reader.fits(source)), None)
