"""What a rule of text hands to its detector: a finding without the names of detector and
channel.
"""

from __future__ import annotations

from dataclasses import dataclass

from monitor.verdicts import Level


@dataclass(slots=True, frozen=True, kw_only=True)
class Hit:
    """Offsets are code points in the channel since the run began."""

    kind: str
    level: Level = "loop"
    """A suspicion leaves the evidence standing: its rule goes on until it is sure or the repetition
    ends.
    """
    again: bool = False
    """A suspicion that its rule has had before."""
    unit: str
    count: int
    threshold: int
    start: int
    end: int
    offsets: tuple[int, ...]
    message: str = ""
    """A sentence for the report, where "`count` times the unit" would be wrong."""
