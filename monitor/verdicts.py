"""Findings (facts with evidence) and verdicts (what to do about them). Three things, kept apart:

a `Detection` or a `Stop` is a fact; the policy turns facts into a `Verdict`; guard and supervisor
perform it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from monitor._util.codec import Codec
from monitor.reasons import TerminateReason

__all__ = [
    "Channel",
    "Compact",
    "Continue",
    "Detection",
    "Evidence",
    "Fact",
    "Judgement",
    "LastTurn",
    "Level",
    "Met",
    "Nudge",
    "Stop",
    "Verdict",
    "WithdrawTool",
    "detection_codec",
    "verdict_codec",
]

Fact: TypeAlias = Literal["loop", "done"]
"""What a judge's answer is about: the run is stuck, or the task is complete."""


@dataclass(slots=True, frozen=True)
class Judgement:
    """What a judge answered."""

    analysis: str
    """Its reasons, in its own words."""
    confidence: float
    """How sure it is of what it was asked for, 0 to 1: that the run is stuck, or that the task is
    done.
    """
    found: bool
    """Sure enough, by the judge's own threshold and its second opinion."""
    judged_by: str
    """The model whose word counted."""


Channel: TypeAlias = Literal["text", "reasoning", "arguments", "tools", "messages"]
"""Where a detector looked."""
Level: TypeAlias = Literal["suspect", "loop"]
"""How sure a detection is: `suspect` may be chance, `loop` is not."""

VETO = "[agent-monitor]"
"""How a text of ours begins that stands where somebody else would speak: for the model, and for
people. Nothing is decided by it; what the monitor said is known by a field (`ToolResult.vetoed`,
`UserMessage.synthetic`).
"""


@dataclass(slots=True, frozen=True)
class Evidence:
    """What was repeated: enough to recognise it, small enough to log."""

    excerpt: str
    """The repeated thing, cut to 200 characters. For calls it begins `name(`, with the tool that is
    called.
    """
    xxhash: str
    """xxh3-64 of the whole repeated thing, 16 hexadecimal digits: its identity across runs and
    processes.
    """
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
    """Where the first counted repetition starts: code points in the channel since the run began;
    call index for tools.
    """
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
    """A condition and whether it was true; for a composition, with its parts. The tree of a
    `Stop`.
    """

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

    if TYPE_CHECKING:  # the reason may be given as a text

        def __init__(  # noqa: PLR0917 - the fields, in their order
            self,
            reason: TerminateReason | str,
            detail: str,
            source: str,
            limit: float | str | None = None,
            value: float | str | None = None,
            evidence: Detection | Met | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        # a condition of the caller's may say "timeout"
        object.__setattr__(self, "reason", TerminateReason(self.reason))


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


WORTH_A_LAST_TURN = (
    TerminateReason.MAX_TURNS,
    TerminateReason.TIMEOUT,
    TerminateReason.MODEL_CALL_LIMIT,
    TerminateReason.TOOL_CALL_LIMIT,
    TerminateReason.MISSING_OUTPUTS,
)
"""Endings after which a model may still say what it has. Spent money is spent, an abort is an
abort, and a provider that is silent will be silent again.
"""


@dataclass(slots=True, frozen=True, init=False)
class LastTurn:
    """One more turn, with `text` as the user message and only `tools` offered.

    As an option, `LastTurn(60)`: what a run gets that is about to end without its goal, with its
    own time in seconds.
    """

    text: str
    tools: tuple[str, ...]
    """Names; empty: the run's own tools."""
    seconds: float
    after: tuple[TerminateReason, ...]
    """The endings that get one; only of the option."""

    def __init__(
        self,
        text: str | float = "",
        tools: Sequence[str] = (),
        *,
        seconds: float = 60.0,
        after: Sequence[TerminateReason | str] = WORTH_A_LAST_TURN,
    ) -> None:
        """A number in the place of the text is `seconds`; 60 is Gemini CLI's."""
        object.__setattr__(self, "text", text if isinstance(text, str) else "")
        object.__setattr__(self, "tools", tuple(tools))
        object.__setattr__(self, "seconds", seconds if isinstance(text, str) else text)
        object.__setattr__(self, "after", tuple(TerminateReason(reason) for reason in after))


Verdict: TypeAlias = Continue | Nudge | WithdrawTool | Compact | LastTurn | Stop
"""What the policy answers to what was found: the run goes on, is helped, or ends."""

detection_codec: Codec[Detection] = Codec(Detection)
"""JSON form of a detection."""
verdict_codec: Codec[Verdict] = Codec(Continue, Nudge, WithdrawTool, Compact, LastTurn, Stop)
"""JSON form of a verdict."""
