"""Events in words: one line each, for people."""

from __future__ import annotations

from monitor._util.quoting import printable
from monitor.events import Event
from monitor.sinks.descriptions import DESCRIPTIONS

LINE_CHARS = 200
"""A line for people has at most this many characters; the event has the whole text."""


def line_of(event: Event, *, chars: int | None = LINE_CHARS) -> str:
    """`event` as one line of at most `chars` characters (`None`: no limit). It has no times, so
    equal runs have equal lines. Characters that a terminal would obey are escaped.
    """
    line = printable(" ".join(DESCRIPTIONS[type(event)].words(event).split()))
    return line if chars is None or len(line) <= chars else f"{line[: chars - 1]}…"
