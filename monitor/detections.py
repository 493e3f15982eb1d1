"""What a detector finds: a fact with its evidence. `monitor.verdicts` hands on the names.

A hook is waited for, and needs nothing else of the verdicts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from monitor._util.codec import Codec

__all__ = ["Channel", "Detection", "Evidence", "Level", "detection_codec"]
__dir__ = __all__.copy

Channel: TypeAlias = Literal["text", "reasoning", "arguments", "tools", "messages"]
"""The part of a run in which a detector looks."""
Level: TypeAlias = Literal["suspect", "loop"]
"""How sure a detection is: `suspect` may be chance, `loop` is not."""


@dataclass(slots=True, frozen=True)
class Evidence:
    """A repetition in short: enough to recognise it, small enough to log."""

    excerpt: str
    """The repeated thing, cut to 200 characters, of long copies to 64. For calls it begins `name(`,
    with the tool that is called.
    """
    xxhash: str
    """xxh3-64 of the whole repeated thing, 16 hexadecimal digits: its identity across runs and
    processes. For long copies, whose text is not kept, it is that of the excerpt.
    """
    length: int
    """Code points of the repeated thing (for tools: of its canonical JSON)."""
    offsets: tuple[int, ...] = ()
    """Where each counted repetition starts, in the unit of `Detection.offset`."""
    nats: float | None = None
    """The weight of the evidence of a loop, in nats. `None`: repetitions are only counted."""
    tools: tuple[str, ...] = ()
    """Where evidence is weighed: the tools whose calls add nothing, the most frequent first."""


@dataclass(slots=True, frozen=True)
class Detection:
    """A finding: a detector saw a repetition."""

    detector: str
    """The name of the detector."""
    kind: str
    """The rule of the detector, e.g. `chant`, `identical_calls`."""
    channel: Channel
    """The part of the run in which the repetition was seen."""
    level: Level
    """How sure the detector is, not what to do. A `suspect` often recovers by itself, a `loop` does
    not.
    """
    count: int
    """The number of repetitions that were counted."""
    threshold: int
    """The number of repetitions from which on it is a finding of this level."""
    start_offset: int
    """Where the first counted repetition starts, in code points of the channel since the run began.
    For tools: the index of the call.
    """
    offset: int
    """Where the last counted repetition ends: one past its last code point. For tools: the index of
    the call.
    """
    evidence: Evidence
    """The repeated thing, and where it stands."""
    message: str
    """One sentence for people."""

    def to_dict(self) -> dict[str, object]:
        """Plain JSON data."""
        return detection_codec.to_dict(self)


detection_codec: Codec[Detection] = Codec(Detection)
"""The JSON form of a detection."""
