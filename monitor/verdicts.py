"""Findings (facts with evidence) and verdicts (what to do about them). Three things, kept apart:

a `Detection` or a `Stop` is a fact; the policy turns facts into a `Verdict`; guard and supervisor perform it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from monitor._codec import Codec
from monitor.reasons import TerminateReason

Channel: TypeAlias = Literal["text", "reasoning", "arguments", "tools", "messages"]
Level: TypeAlias = Literal["suspect", "loop"]

VETO = "[agent-monitor]"
"""How every text of ours begins that stands where a tool's answer would stand. Such a text is no result: it must not look
like progress to the detectors.
"""


@dataclass(slots=True, frozen=True)
class Evidence:
    """What was repeated: enough to recognise it, small enough to log."""

    excerpt: str
    """The repeated thing, cut to 200 characters. For calls it begins `name(`, with the tool that is called."""
    xxhash: str
    """xxh3-64 of the whole repeated thing, 16 hexadecimal digits: its identity across runs and processes."""
    length: int
    """Code points of the repeated thing (for tools: of its canonical JSON)."""
    offsets: tuple[int, ...] = ()
    """Where each counted repetition starts, in the unit of `Detection.offset`."""


@dataclass(slots=True, frozen=True)
class Detection:
    """A detector saw something repeat."""

    detector: str
    kind: str
    """Which rule of the detector, e.g. `chant`, `identical_calls`."""
    channel: Channel
    level: Level
    """How sure it is, not what to do: "suspect" often recovers by itself, "loop" does not."""
    count: int
    """Repetitions counted."""
    threshold: int
    """Repetitions that made it a finding of this level."""
    start_offset: int
    """Where the first counted repetition starts: code points in the channel since the run began; call index for tools."""
    offset: int
    """Where the last one ends: one past its last code point; for tools the index of the call."""
    evidence: Evidence
    message: str
    """One sentence for people."""

    def to_dict(self) -> dict[str, object]:
        """Plain JSON data."""
        return detection_codec.to_dict(self)


@dataclass(slots=True, frozen=True)
class Met:
    """A condition and whether it was true; for a composition, with its parts. The tree of a `Stop`."""

    condition: str
    met: bool
    value: float | int | str | None = None
    limit: float | int | str | None = None
    parts: tuple[Met, ...] = ()


@dataclass(slots=True, frozen=True)
class Stop:
    """The run must end, and why. Conditions answer with it; as a verdict it is the last rung."""

    reason: TerminateReason
    detail: str
    """One sentence for people."""
    source: str
    """The condition, detector or judge by name."""
    limit: float | int | str | None = None
    value: float | int | str | None = None
    evidence: Detection | Met | None = None
    """The detection that decided it, or the tree of what was true."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", TerminateReason(self.reason))  # a condition of the caller's may say "timeout"


@dataclass(slots=True, frozen=True)
class Continue:
    """Go on."""


@dataclass(slots=True, frozen=True)
class Nudge:
    """Say `text` to the model as one user message, then go on."""

    text: str


@dataclass(slots=True, frozen=True)
class WithdrawTool:
    """Do not offer tool `name` any more, and say `text` to the model."""

    name: str
    text: str


@dataclass(slots=True, frozen=True)
class Compact:
    """Shrink the history before the next model call."""

    why: str


@dataclass(slots=True, frozen=True)
class LastTurn:
    """One more turn, with `text` as the user message and only `tools` offered."""

    text: str
    tools: tuple[str, ...] = ()


Verdict: TypeAlias = Continue | Nudge | WithdrawTool | Compact | LastTurn | Stop

detection_codec: Codec[Detection] = Codec(Detection)
verdict_codec: Codec[Verdict] = Codec(Continue, Nudge, WithdrawTool, Compact, LastTurn, Stop)
"""JSON form of a verdict."""
