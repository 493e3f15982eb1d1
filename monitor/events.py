"""What happens in a run, as data for sinks: one tagged union with a JSON form.

Events mark transitions; a chunk by itself is none. `at_s` is seconds since the run began.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from monitor._util.codec import Codec
from monitor.chunks import Chunk, ToolCall, ToolResult
from monitor.messages import Repair
from monitor.models import ModelError
from monitor.outcome import Outcome, Turn
from monitor.reasons import CompactionFailure, CompactionReason, TerminateReason
from monitor.usage import AskCost
from monitor.verdicts import Detection, Fact, Judgement, Stop

__all__ = [
    "EVENT_TYPES",
    "AbortRequested",
    "AttemptRetried",
    "ChunkReceived",
    "CompactionFailed",
    "CompactionFinished",
    "CompactionProgressed",
    "CompactionSkipped",
    "CompactionStarted",
    "ContextFull",
    "ContextNearlyFull",
    "DetectionRaised",
    "Event",
    "FirstChunk",
    "HistoryReduced",
    "HistoryRepaired",
    "JudgeAnswered",
    "JudgeAsked",
    "JudgeFailed",
    "LastTurnStarted",
    "LimitWarning",
    "Nudged",
    "OutputEmitted",
    "Paused",
    "PlanUpdated",
    "ResultUnmatched",
    "Resumed",
    "RetryScheduled",
    "RunStarted",
    "RunTerminated",
    "SinkFailed",
    "StopDecided",
    "StreamClosed",
    "StreamContinued",
    "StreamFailed",
    "ToolFinished",
    "ToolStarted",
    "ToolWithdrawn",
    "TurnEnded",
    "TurnStarted",
    "WindowWarning",
    "event_codec",
]


@dataclass(slots=True, frozen=True)
class RunStarted:
    """The first event of every run."""

    at_s: float
    detectors: tuple[str, ...]
    stop_when: str | None
    """The conditions, by name."""


@dataclass(slots=True, frozen=True)
class TurnStarted:
    """A model call is about to be made."""

    at_s: float
    turn: int
    model_call: int


@dataclass(slots=True, frozen=True)
class FirstChunk:
    """The provider has begun to answer."""

    at_s: float
    turn: int
    after_s: float
    """Since the call was made."""


@dataclass(slots=True, frozen=True)
class AttemptRetried:
    """The attempt so far is void: the SDK, or the caller, starts the same turn again."""

    at_s: float
    turn: int
    why: str


@dataclass(slots=True, frozen=True)
class StreamContinued:
    """The SDK has made another model call inside the running stream, by itself. It counts as
    one.
    """

    at_s: float
    turn: int
    model_call: int


@dataclass(slots=True, frozen=True)
class ResultUnmatched:
    """A tool result came for a call that the present turn does not have, or that has its result
    already.
    """

    at_s: float
    call: str | None
    """The id that was given; `None`: none was, and no call was open."""


@dataclass(slots=True, frozen=True)
class DetectionRaised:
    """A detector saw something repeat. What follows from it is the policy's business."""

    at_s: float
    turn: int
    detection: Detection


@dataclass(slots=True, frozen=True)
class StreamFailed:
    """The model call failed."""

    at_s: float
    turn: int
    error: ModelError


@dataclass(slots=True, frozen=True)
class ChunkReceived:
    """A piece of the model's answer. Only `Supervisor.stream` yields these; sinks are spared
    them.
    """

    at_s: float
    turn: int
    chunk: Chunk


@dataclass(slots=True, frozen=True, kw_only=True)
class RetryScheduled:
    """The model call failed, and will be made again."""

    at_s: float
    turn: int
    attempt: int
    """Which attempt that will be; the first retry is 2."""
    after_s: float
    why: str


@dataclass(slots=True, frozen=True)
class ToolStarted:
    """A call of the model is being carried out."""

    at_s: float
    turn: int
    call: ToolCall


@dataclass(slots=True, frozen=True)
class ToolFinished:
    """It has its result. A call that the run itself answers, such as `emit_value`, has this event
    only where it was refused.
    """

    at_s: float
    turn: int
    result: ToolResult
    after_s: float
    """Since it was started."""


@dataclass(slots=True, frozen=True, kw_only=True)
class OutputEmitted:
    """The model has emitted a declared output."""

    at_s: float
    turn: int
    name: str
    value: Any
    """As JSON data."""
    overwritten: bool
    """It was there before, with this or another value."""


@dataclass(slots=True, frozen=True)
class PlanUpdated:
    """The model has changed its plan, or the state of a step."""

    at_s: float
    turn: int
    plan: str
    """The plan with the states of its steps, as the model reads it."""


@dataclass(slots=True, frozen=True)
class Nudged:
    """The model has been told something: what it repeats, or what is missing."""

    at_s: float
    turn: int
    text: str


@dataclass(slots=True, frozen=True)
class ToolWithdrawn:
    """A tool is not offered any more."""

    at_s: float
    turn: int
    tool: str
    text: str
    """What the model was told."""


@dataclass(slots=True, frozen=True)
class LastTurnStarted:
    """The run was about to end, and gets one more turn."""

    at_s: float
    reason: TerminateReason
    """How it ends if that turn does not reach the goal."""
    seconds: float
    """The time it has."""


@dataclass(slots=True, frozen=True)
class JudgeAsked:
    """A judge is looking at the run, beside it."""

    at_s: float
    turn: int
    judge: str


@dataclass(slots=True, frozen=True, kw_only=True)
class JudgeAnswered:
    """What it answered. If it found the run stuck, a `DetectionRaised` follows."""

    at_s: float
    turn: int
    """The turn that it was asked about."""
    judge: str
    fact: Fact
    judgement: Judgement
    cost: AskCost = field(default_factory=AskCost)


@dataclass(slots=True, frozen=True, kw_only=True)
class JudgeFailed:
    """It gave no answer. The run goes on, and the judge is asked less often; or the run ended
    first.
    """

    at_s: float
    turn: int
    judge: str
    why: str
    cost: AskCost = field(default_factory=AskCost)


@dataclass(slots=True, frozen=True)
class Paused:
    """A person is being asked; deadlines stand still."""

    at_s: float


@dataclass(slots=True, frozen=True)
class Resumed:
    """The person has answered; deadlines go on."""

    at_s: float


@dataclass(slots=True, frozen=True)
class LimitWarning:
    """A limit is nearly used up. Told once a run for each limit, when the run is next looked at."""

    at_s: float
    source: str
    """The condition by name, or `Budget`; with the kind where there are several:
    `token_limit.output_tokens`, `Budget.usd`.
    """
    value: float | int
    """What is used, in the unit of the limit."""
    limit: float | int


@dataclass(slots=True, frozen=True)
class WindowWarning:
    """The model's window is small for an agent, or is not known though a compaction was asked for.
    Told once, before the first model call.

    A window that is smaller still is refused.
    """

    at_s: float
    tokens: int | None
    """`None`: it is not known."""
    detail: str
    """Where the number is from and what to do, for people."""


@dataclass(slots=True, frozen=True, kw_only=True)
class ContextFull:
    """The context has come to what may be used of the model's window. Told once, until it has been
    made smaller.
    """

    at_s: float
    turn: int
    tokens: int
    usable_tokens: int
    detail: str
    """How that is known: by an estimate before a call, by the provider's count after it, by an
    answer that was cut off.
    """


@dataclass(slots=True, frozen=True)
class ContextNearlyFull:
    """The context will soon be at the mark where it is compacted. Told once, until it has been made
    smaller.
    """

    at_s: float
    turn: int
    tokens: int
    limit_tokens: int
    """The mark."""


@dataclass(slots=True, frozen=True, kw_only=True)
class HistoryReduced:
    """Old results, arguments or media are shown in short from now on. No model was asked; the
    originals are kept.
    """

    at_s: float
    turn: int
    kind: str
    """What was taken out: `prune`, `truncate`, `media`, joined by `+`."""
    saved_tokens: int
    """Estimated; every later request is smaller by so many."""
    reread_tokens: int
    """Estimated: what the provider had cached, and reads anew once."""
    messages: int
    """How many were shortened."""


@dataclass(slots=True, frozen=True, kw_only=True)
class CompactionStarted:
    """A summary is being made of old messages. One of `CompactionFinished` and `CompactionFailed`
    follows.
    """

    at_s: float
    turn: int
    compaction: int
    """Which one of the run, from 1."""
    reason: CompactionReason
    preset: str
    tokens: int
    """Of the whole next request, as it is now."""
    background: bool
    """The run goes on meanwhile; else it waits."""
    refill: str | None = None
    """What filled the context again so soon after the last one, for people; `None`: nothing did."""


@dataclass(slots=True, frozen=True, kw_only=True)
class CompactionProgressed:
    """A part of the old messages is in the summary."""

    at_s: float
    turn: int
    compaction: int
    done_messages: int
    of_messages: int


@dataclass(slots=True, frozen=True, kw_only=True)
class CompactionFinished:
    """The summary stands in the place of the old messages."""

    at_s: float
    turn: int
    compaction: int
    reason: CompactionReason
    tokens_before: int
    """Of the whole next request, as `estimator` says."""
    tokens_after: int
    """The same; always estimated, as no provider has counted it yet."""
    estimator: Literal["reported", "estimated"]
    """Whether `tokens_before` goes by what the provider counted."""
    kept_messages: int
    """How many stand behind the summary as they were."""
    kept_tokens: int
    summarised_by: str
    """The model by name, `extractive`, or `cut`."""
    cost: AskCost
    """What the summary took."""
    reread_tokens: int
    """Estimated: what the provider had cached, and reads anew once."""
    replayed: int | None
    """The message, by its index, that stands once more at the end; `None`: none."""
    after_s: float
    """Since it was started."""
    warnings: tuple[str, ...] = ()
    """What was done instead of what was wanted."""


@dataclass(slots=True, frozen=True, kw_only=True)
class CompactionSkipped:
    """A compaction was due, or asked for, and was not begun. The history is as it was."""

    at_s: float
    turn: int
    reason: CompactionReason
    why: CompactionFailure
    detail: str
    """For people."""


@dataclass(slots=True, frozen=True, kw_only=True)
class CompactionFailed:
    """A compaction that was begun came to nothing. The history is as it was."""

    at_s: float
    turn: int
    compaction: int
    failure: CompactionFailure
    retryable: bool
    """Another try may get past it as things stand."""
    detail: str
    """For people."""
    cost: AskCost
    """What it took all the same."""
    after_s: float
    """Since it was started."""


@dataclass(slots=True, frozen=True)
class HistoryRepaired:
    """The history was not as the provider takes it, and is now: what was given, what an edit left,
    or what the model said last.
    """

    at_s: float
    turn: int
    repairs: tuple[Repair, ...]
    """What was done, in the order of the messages, which are numbered as they stood before."""
    problems: tuple[str, ...] = ()
    """For people: what the provider may refuse it for all the same, and no repair knows."""


@dataclass(slots=True, frozen=True)
class AbortRequested:
    """Somebody called `abort()`."""

    at_s: float
    why: str


@dataclass(slots=True, frozen=True)
class StopDecided:
    """The run will end; the stream is being closed."""

    at_s: float
    stop: Stop


@dataclass(slots=True, frozen=True, kw_only=True)
class StreamClosed:
    """A source that had not ended by itself was closed."""

    at_s: float
    turn: int
    closed: bool
    after_s: float
    """Since it was decided."""
    chunks_dropped: int
    note: str | None = None
    """What went wrong while closing."""


@dataclass(slots=True, frozen=True)
class TurnEnded:
    """A model response is over, well or not."""

    at_s: float
    turn: Turn


@dataclass(slots=True, frozen=True)
class SinkFailed:
    """A sink raised; it gets no more events. The run goes on."""

    at_s: float
    sink: str
    why: str


@dataclass(slots=True, frozen=True)
class RunTerminated:
    """The last event of every run; there is exactly one."""

    at_s: float
    outcome: Outcome


Event: TypeAlias = (
    RunStarted
    | TurnStarted
    | FirstChunk
    | AttemptRetried
    | StreamContinued
    | ResultUnmatched
    | DetectionRaised
    | StreamFailed
    | ChunkReceived
    | RetryScheduled
    | ToolStarted
    | ToolFinished
    | OutputEmitted
    | PlanUpdated
    | Nudged
    | ToolWithdrawn
    | LastTurnStarted
    | JudgeAsked
    | JudgeAnswered
    | JudgeFailed
    | Paused
    | Resumed
    | LimitWarning
    | WindowWarning
    | ContextFull
    | ContextNearlyFull
    | HistoryReduced
    | CompactionStarted
    | CompactionProgressed
    | CompactionFinished
    | CompactionSkipped
    | CompactionFailed
    | HistoryRepaired
    | AbortRequested
    | StopDecided
    | StreamClosed
    | TurnEnded
    | SinkFailed
    | RunTerminated
)
"""What happened in a run: what sinks are given, and what iterating over a `Run` yields."""

EVENT_TYPES: tuple[type[Event], ...] = get_args(Event)
"""The classes of `Event`."""

event_codec: Codec[Event] = Codec(*EVENT_TYPES)
"""JSON form of an event: `event_codec.dumps(event)` is one line, the same bytes for the same
event.
"""
