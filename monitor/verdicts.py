"""Findings (facts with evidence) and verdicts (what to do about them).

A `Detection` or a `Stop` is a fact; the policy turns facts into a `Verdict`; guard and supervisor
perform the verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias

from monitor._util.checked_words import checked
from monitor._util.codec import Codec
from monitor._util.explained_options import explained
from monitor.errors import ConfigError, TerminateReason

__all__ = [
    "Channel",
    "Compact",
    "Continue",
    "Detection",
    "Evidence",
    "Fact",
    "FleetFinding",
    "Hold",
    "Judgement",
    "LastTurn",
    "Level",
    "Met",
    "Nudge",
    "RefuseCall",
    "Stop",
    "Verdict",
    "WithdrawTool",
    "detection_codec",
    "verdict_codec",
]
__dir__ = __all__.copy

# --------------------------------------------------------------------------------------------------
# What a detector finds: a fact with its evidence. `monitor.verdicts` hands on the names.
#
# A hook is waited for, and needs nothing else of the verdicts.

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
@checked
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


Fact: TypeAlias = Literal["loop", "done"]
"""The subject of a judge's answer: the run is stuck, or the task is complete."""


@dataclass(slots=True, frozen=True)
class Judgement:
    """A judge's answer."""

    analysis: str
    """The judge's reasons, in its own words."""
    confidence: float
    """How sure the judge is that the run is stuck, or that the task is done: 0 to 1."""
    found: bool
    """Whether the judge is sure enough, by its threshold and its second model."""
    judged_by: str
    """The model whose answer counted."""
    repeats: str = ""
    """What comes again, in a few words. Empty: nothing, or the judge did not say."""
    advice: str = ""
    """A sentence for the agent: what to do in place of what repeats. Empty: there is none."""
    ask_person: bool = False
    """Whether only a person can help the agent on."""


VETO = "[agent-monitor]"
"""Prefix of the monitor's texts in places where others speak, for the model and for people. No
decision depends on the prefix: fields mark what the monitor said (`ToolResult.vetoed`,
`UserMessage.synthetic`).
"""


@dataclass(slots=True, frozen=True, kw_only=True)
class FleetFinding:
    """A finding over many runs: the same thing fails in all of them, which is one outage. Times are
    seconds by the clock of the store in which the runs are counted.
    """

    outage: str
    """The id of the outage."""
    what: str
    """The model, tool or call that fails, e.g. `model google:gemini-2.5-flash`, `tool search`,
    `call search({"q":"x"})`.
    """
    error: str
    """The error of the newest failure, cut to 200 characters."""
    runs: int
    """Different runs in which it has failed."""
    failures: int
    since_s: float
    """The time of the first failure, in seconds."""
    found_s: float
    ended_s: float | None = None
    """When a run succeeded again. `None`: the outage goes on."""

    @property
    def message(self) -> str:
        """One sentence for people."""
        if self.ended_s is not None:
            return f"{self.what} works again after {self.ended_s - self.since_s:.0f} s"
        took = f"within {self.found_s - self.since_s:.0f} s"
        return f"{self.what} failed in {self.runs} runs {took}: {self.error}"


@dataclass(slots=True, frozen=True)
class Met:
    """A condition and whether it was true, with its parts if it is composed: a node of the tree in
    a `Stop`.
    """

    condition: str
    met: bool
    value: float | int | str | None = None
    limit: float | int | str | None = None
    parts: tuple[Met, ...] = ()


@dataclass(slots=True, frozen=True)
@checked
class Stop:
    """The decision that the run must end, with its reason. Conditions return it; as a verdict it is
    the last step.
    """

    reason: TerminateReason
    """The reason with which the run ends."""
    detail: str
    """One sentence for people."""
    source: str
    """The condition, detector or judge by name."""
    limit: float | int | str | None = None
    """The limit that was reached, in the unit of `value`. `None`: there is none."""
    value: float | int | str | None = None
    """The number that has reached the limit."""
    evidence: Detection | Met | None = None
    """The detection that decided it. For a composed condition: which of its parts were true."""

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


@dataclass(slots=True, frozen=True)
class Continue:
    """The run goes on. It has no truth value: raises `ConfigError` in `if guard.check()`."""

    def __bool__(self) -> NoReturn:
        raise ConfigError(
            "a verdict is neither true nor false: write if isinstance(guard.check(), monitor.Stop): break"
        )


@dataclass(slots=True, frozen=True)
class Nudge:
    """Send `text` to the model as one user message, then go on."""

    text: str
    """The user message that the model gets."""


@dataclass(slots=True, frozen=True)
class RefuseCall:
    """Answer the call that repeats with `text`, and do not carry it out. `Guard.answer` and a
    supervisor do that while the call has no result. A loop that has carried it out sends `text` to
    the model as one user message.
    """

    call: str
    """The call, as the evidence shows it: `name(arguments)`."""
    text: str
    """What the model reads in the place of the result."""


@dataclass(slots=True, frozen=True)
class WithdrawTool:
    """Offer tool `name` no longer, and send `text` to the model."""

    name: str
    """The name of the tool."""
    text: str
    """The user message that the model gets."""
    otherwise: str = ""
    """Sent in the place of `text` if the run has no other tool: then `name` stays."""


@dataclass(slots=True, frozen=True)
class Hold:
    """Freeze the run and ask a person: show `detection`, then go on, nudge or stop, as they say."""

    detection: Detection


@dataclass(slots=True, frozen=True)
class Compact:
    """Compact the history before the next model call."""

    why: str
    """One sentence for people."""


WORTH_A_LAST_TURN = (
    TerminateReason.MAX_TURNS,
    TerminateReason.TIMEOUT,
    TerminateReason.MODEL_CALL_LIMIT,
    TerminateReason.TOOL_CALL_LIMIT,
    TerminateReason.MISSING_OUTPUTS,
)
"""Endings after which the model may get a last turn. Not among them: spent tokens or money, an
abort, a silent provider.
"""


@explained(example="monitor.LastTurn(60)")
@dataclass(slots=True, frozen=True, init=False)
class LastTurn:
    """One more turn, with `text` as the user message and only `tools` offered.

    As an option, e.g. `LastTurn(60)`: a run that is about to end without its goal gets a last turn
    of that many seconds.
    """

    text: str
    """The user message that the model gets. Empty: the run writes its own."""
    tools: tuple[str, ...]
    """Names of the tools. Empty: all tools of the run."""
    seconds: float
    """The time limit of the turn, in seconds."""
    after: tuple[TerminateReason, ...]
    """The endings that get a last turn. Used only by the option."""

    def __init__(
        self,
        text: str | float = "",
        tools: Sequence[str] = (),
        *,
        seconds: float = 60.0,
        after: Sequence[TerminateReason | str] = WORTH_A_LAST_TURN,
    ) -> None:
        """A number as `text` means `seconds`. The default of 60 is Gemini CLI's."""
        object.__setattr__(self, "text", text if isinstance(text, str) else "")
        object.__setattr__(self, "tools", tuple(tools))
        object.__setattr__(self, "seconds", seconds if isinstance(text, str) else text)
        object.__setattr__(self, "after", tuple(TerminateReason(reason) for reason in after))


Verdict: TypeAlias = Continue | Nudge | RefuseCall | WithdrawTool | Hold | Compact | LastTurn | Stop
"""The policy's answer to a finding: the run goes on, gets a hint or a restriction, waits for a
person, or ends.
"""

verdict_codec: Codec[Verdict] = Codec(Continue, Nudge, RefuseCall, WithdrawTool, Hold, Compact, LastTurn, Stop)
"""The JSON form of a verdict."""
