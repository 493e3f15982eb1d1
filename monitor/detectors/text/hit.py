"""The finding that a rule of text hands to its detector: a finding without the names of detector
and channel.
"""

from __future__ import annotations

from dataclasses import dataclass

from monitor._util.hashing import identity
from monitor.verdicts import Channel, Detection, Evidence, Level

EXCERPT_CHARS = 200
"""The most characters of `Evidence.excerpt`."""
_NAMES = {"text": "the answer", "reasoning": "the thinking", "arguments": "the arguments of a tool call"}


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
    length: int = 0
    """Code points of the whole unit, where `unit` is only its beginning; 0: `unit` is all of it."""
    count: int
    threshold: int
    start: int
    end: int
    offsets: tuple[int, ...]
    message: str = ""
    """A sentence for the report, where "`count` times the unit" would be wrong."""

    def found_by(self, detector: str, channel: Channel) -> Detection:
        """The finding of `detector` in the text of `channel`."""
        what = self.message or f"{self.count} times the same {len(self.unit)} characters"
        return Detection(
            detector=detector,
            kind=self.kind,
            channel=channel,
            level=self.level,
            count=self.count,
            threshold=self.threshold,
            start_offset=self.start,
            offset=self.end,
            evidence=Evidence(
                excerpt=self.unit[:EXCERPT_CHARS],
                xxhash=identity(self.unit),
                length=self.length or len(self.unit),
                offsets=self.offsets,
            ),
            message=f"{what} within {self.end - self.start} in {_NAMES[channel]}",
        )
