"""What a rule of text hands to its detector: a finding without the names of detector and channel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True, kw_only=True)
class Hit:
    """Offsets are code points in the channel since the run began."""

    kind: str
    unit: str
    count: int
    threshold: int
    start: int
    end: int
    offsets: tuple[int, ...]
