"""The events of a run, as data for sinks: one tagged union with a JSON form.

Events mark transitions; a single chunk is not an event. `at_s` is seconds since the run began. An
`Envelope` says whose event it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

from monitor._util.checked_words import checked
from monitor._util.codec import Codec
from monitor.chunks import AskCost, Chunk, ToolCall, ToolResult
from monitor.errors import CompactionFailure, CompactionReason, TerminateReason
from monitor.messages import ApprovalAnswer, ApprovalRequest, CallRecord, Repair, SteerMessage
from monitor.models import ModelError
from monitor.outcome import Outcome, Turn
from monitor.verdicts import Detection, Fact, FleetFinding, Judgement, Stop

__all__ = [
    "EVENT_TYPES",
    "AbortRequested",
    "ApprovalAnswered",
    "ApprovalRequested",
    "AttemptRetried",
    "BudgetAwaited",
    "BudgetLost",
    "ChunkReceived",
    "CompactionFailed",
    "CompactionFinished",
    "CompactionProgressed",
    "CompactionSkipped",
    "CompactionStarted",
    "ContextFull",
    "ContextNearlyFull",
    "DetectionRaised",
    "Envelope",
    "Event",
    "FirstChunk",
    "HistoryReduced",
    "HistoryRepaired",
    "JudgeAnswered",
    "JudgeAsked",
    "JudgeFailed",
    "LastTurnStarted",
    "Limit",
    "LimitWarning",
    "Nudged",
    "OutageEnded",
    "OutageFound",
    "OutagesLost",
    "OutputEmitted",
    "Paused",
    "PlanUpdated",
    "ResultUnmatched",
    "Resumed",
    "RetryScheduled",
    "RunHeld",
    "RunIdentity",
    "RunReleased",
    "RunStarted",
    "RunTerminated",
    "SandboxDecided",
    "SandboxWarning",
    "SinkFailed",
    "SteerAccepted",
    "SteerDelivered",
    "SteerReturned",
    "StopDecided",
    "StreamClosed",
    "StreamContinued",
    "StreamFailed",
    "ToolCallChanged",
    "ToolFinished",
    "ToolOutput",
    "ToolProgressed",
    "ToolResultDropped",
    "ToolStarted",
    "ToolWithdrawn",
    "TurnEnded",
    "TurnStarted",
    "WindowWarning",
    "envelope_codec",
    "event_codec",
]
__dir__ = __all__.copy


@dataclass(slots=True, frozen=True)
class Limit:
    """A limit of a run, by the name that `LimitWarning.source` has."""

    source: str
    limit: float | int


@dataclass(slots=True, frozen=True)
class RunStarted:
    """The first event of every run."""

    at_s: float
    detectors: tuple[str, ...]
    stop_when: str | None
    """The name of the condition. `None`: the run has none."""
    limits: tuple[Limit, ...] = ()
    """The limits that can be used up, of the condition and of the budgets. Empty in logs of older
    versions.
    """


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
    """Seconds since the call was made."""


@dataclass(slots=True, frozen=True)
class AttemptRetried:
    """The attempt so far is void: the SDK, or the caller, starts the same turn again."""

    at_s: float
    turn: int
    why: str


@dataclass(slots=True, frozen=True)
class StreamContinued:
    """The SDK has made another model call inside the running stream, by itself. It counts as a
    model call.
    """

    at_s: float
    turn: int
    model_call: int


@dataclass(slots=True, frozen=True)
class ResultUnmatched:
    """A tool result came for a call that the present turn does not have, or that already has its
    result.
    """

    at_s: float
    call: str | None
    """The id that was given. `None`: no id was given, and no call was open."""


@dataclass(slots=True, frozen=True)
class DetectionRaised:
    """A detector saw something repeat. The policy decides what follows."""

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
    """A piece of the model's answer. Only `Supervisor.stream` yields these events; sinks do not get
    them.
    """

    at_s: float
    turn: int
    chunk: Chunk


@dataclass(slots=True, frozen=True, kw_only=True)
class RetryScheduled:
    """The model call failed, and will be repeated."""

    at_s: float
    turn: int
    attempt: int
    """Number of the next attempt; the first retry is 2."""
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
    """A call has its result. A call that the run itself answers, such as `emit_value`, has this
    event only if it was refused.
    """

    at_s: float
    turn: int
    result: ToolResult
    after_s: float
    """Seconds since the tool was started."""


@dataclass(slots=True, frozen=True)
class ToolCallChanged:
    """A call of a tool has taken a step: `record.state` says which. Secrets in the arguments are
    masked.
    """

    at_s: float
    turn: int
    record: CallRecord


@dataclass(slots=True, frozen=True)
class ToolOutput:
    """A tool that is running has written something."""

    at_s: float
    turn: int
    call_id: str
    stream: str
    """`stdout`, `stderr`, or a name of the tool's own."""
    text: str


@dataclass(slots=True, frozen=True, kw_only=True)
class ToolProgressed:
    """A tool that is running has come further, which extends its deadline; or it has started a
    process.
    """

    at_s: float
    turn: int
    call_id: str
    done: float | None = None
    """How much is done, in a unit of the tool's own."""
    total: float | None = None
    note: str = ""
    pid: int | None = None
    """The process that the tool has started now."""


@dataclass(slots=True, frozen=True)
class ToolResultDropped:
    """A tool answered after its call had got another result: after a timeout, a cancellation, or
    the end of the run. Nobody reads that answer.
    """

    at_s: float
    turn: int
    call_id: str
    tool: str
    why: str
    """How the call had ended."""


@dataclass(slots=True, frozen=True)
class ApprovalRequested:
    """A person is asked whether a call may be made, or whether the run may go on."""

    at_s: float
    turn: int
    request: ApprovalRequest


@dataclass(slots=True, frozen=True)
class ApprovalAnswered:
    """The question has its answer; a rule that answers by itself asks no question."""

    at_s: float
    turn: int
    answer: ApprovalAnswer


@dataclass(slots=True, frozen=True, kw_only=True)
class OutputEmitted:
    """The model has emitted a declared output."""

    at_s: float
    turn: int
    name: str
    value: Any
    """The value as JSON data."""
    overwritten: bool
    """The output had been emitted before, with the same or another value."""


@dataclass(slots=True, frozen=True)
class PlanUpdated:
    """The model has changed its plan, or the state of a step."""

    at_s: float
    turn: int
    plan: str
    """The plan with the states of its steps, as the model reads it."""


@dataclass(slots=True, frozen=True)
class Nudged:
    """The model got a message from the monitor: what it repeats, or what is missing."""

    at_s: float
    turn: int
    text: str


@dataclass(slots=True, frozen=True)
class SteerAccepted:
    """A person, or a program, has said something to the run, and the message waits."""

    at_s: float
    turn: int
    message: SteerMessage


@dataclass(slots=True, frozen=True)
class SteerDelivered:
    """A message to the run stands in the history now: the next request has it."""

    at_s: float
    turn: int
    message: SteerMessage


@dataclass(slots=True, frozen=True)
class SteerReturned:
    """The run has ended before a message to it was delivered."""

    at_s: float
    turn: int
    message: SteerMessage
    why: str
    """Why the run ended."""


@dataclass(slots=True, frozen=True)
class ToolWithdrawn:
    """A tool is not offered any more."""

    at_s: float
    turn: int
    tool: str
    text: str
    """The message to the model."""


@dataclass(slots=True, frozen=True)
@checked
class LastTurnStarted:
    """The run was about to end, and gets one more turn."""

    at_s: float
    reason: TerminateReason
    """The reason of the run if the last turn does not reach the goal."""
    seconds: float
    """Seconds that the last turn may take."""
    tools: tuple[str, ...] = ()
    """Names of the tools that are offered. Empty: those with which the run reaches its goal."""


@dataclass(slots=True, frozen=True)
class JudgeAsked:
    """A judge was asked about the run. The run goes on meanwhile."""

    at_s: float
    turn: int
    judge: str


@dataclass(slots=True, frozen=True, kw_only=True)
@checked
class JudgeAnswered:
    """A judge has answered. If it found the run stuck, a `DetectionRaised` follows."""

    at_s: float
    turn: int
    """The turn at which the judge was asked."""
    judge: str
    fact: Fact
    judgement: Judgement
    cost: AskCost = field(default_factory=AskCost)


@dataclass(slots=True, frozen=True, kw_only=True)
class JudgeFailed:
    """A judge gave no answer, or the run ended first. The run goes on, and the judge is asked less
    often.
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
    """A limit is nearly used up. Emitted once a run for each limit, the next time the run is
    examined.
    """

    at_s: float
    source: str
    """The condition by name, or `Budget`. Where there are several kinds, with the kind:
    `token_limit.output_tokens`, `Budget.usd`.
    """
    value: float | int
    """How much is used, in the unit of the limit."""
    limit: float | int


@dataclass(slots=True, frozen=True)
class BudgetLost:
    """The store of the run's shared budget does not answer, and the run waits no longer. Emitted
    once in a run.
    """

    at_s: float
    budget: str
    detail: str
    goes_on: bool
    """The run goes on without the budget. False: it may use what it holds, and makes no further
    call.
    """


@dataclass(slots=True, frozen=True, kw_only=True)
@checked
class BudgetAwaited:
    """The run waits for its shared budget: the store does not answer, or other runs hold what is
    left. It asks again `after_s` seconds later.
    """

    at_s: float
    budget: str
    reason: TerminateReason
    """`budget_unreachable` or `budget_busy`: how the run ends if it has waited for too long."""
    after_s: float
    detail: str


@dataclass(slots=True, frozen=True)
class OutageFound:
    """A model or a tool fails in many runs, and with this run they are enough. Of all the runs that
    share their `Outages`, one has this event.
    """

    at_s: float
    turn: int
    finding: FleetFinding


@dataclass(slots=True, frozen=True)
class OutageEnded:
    """A model or a tool that had failed in many runs has worked in this one, so no run waits for it
    any more.
    """

    at_s: float
    turn: int
    finding: FleetFinding


@dataclass(slots=True, frozen=True)
class RunHeld:
    """The run waits, because what it is about to use has an outage. Its deadlines go on."""

    at_s: float
    turn: int
    finding: FleetFinding


@dataclass(slots=True, frozen=True, kw_only=True)
@checked
class RunReleased:
    """The run does not wait for an outage any more."""

    at_s: float
    turn: int
    outage: str
    """The id of the outage."""
    what: str
    why: Literal["recovered", "probe", "waited_long_enough", "run_ended", "outages_lost"]
    """`recovered`: the outage is over. `probe`: this run tries whether it is.
    `waited_long_enough`: it goes on in spite of the outage."""
    after_s: float
    """Seconds that the run has waited."""


@dataclass(slots=True, frozen=True)
class OutagesLost:
    """The store in which the run's outages are counted does not answer. The run goes on, and
    neither counts nor waits. Emitted once in a run.
    """

    at_s: float
    detail: str


@dataclass(slots=True, frozen=True)
class SandboxDecided:
    """The sandbox of the run's commands, or of one of its MCP servers, as it was decided before the
    first command. It does not change during the run.
    """

    at_s: float
    sandbox: str
    """`bubblewrap`, `landlock` or `sandbox-exec`."""
    opened: tuple[str, ...]
    """The places that are open to commands, such as `write /srv/app`, `read /opt` or `network`, and
    exceptions in them, such as `not write /srv/app/.git`.
    """


@dataclass(slots=True, frozen=True)
class SandboxWarning:
    """Commands of the run are not confined, or not in every way. Emitted once for each such
    sandbox, before the first model call.
    """

    at_s: float
    sandbox: str
    """`none`, or the sandbox that there is: `landlock`, `sandbox-exec`."""
    detail: str
    """For people: which limits are missing, and why."""


@dataclass(slots=True, frozen=True)
class WindowWarning:
    """The model's window is small for an agent, or unknown though a compaction was asked for.
    Emitted once, before the first model call.

    A window that is smaller still is refused.
    """

    at_s: float
    tokens: int | None
    """Size of the window. `None`: unknown."""
    detail: str
    """Where the number comes from and what to do, for people."""


@dataclass(slots=True, frozen=True, kw_only=True)
class ContextFull:
    """The context has reached what may be used of the model's window. Emitted once, until the
    context has been made smaller.
    """

    at_s: float
    turn: int
    tokens: int
    usable_tokens: int
    detail: str
    """How that is known: by an estimate before a call, by the provider's count after it, or by an
    answer that was cut off.
    """


@dataclass(slots=True, frozen=True)
class ContextNearlyFull:
    """The context will soon reach the fill level at which it is compacted. Emitted once, until the
    context has been made smaller.
    """

    at_s: float
    turn: int
    tokens: int
    limit_tokens: int
    """The fill level at which the context will be compacted."""


@dataclass(slots=True, frozen=True, kw_only=True)
class HistoryReduced:
    """Old results, arguments or media are sent in short form from now on. No model was asked; the
    originals are kept.
    """

    at_s: float
    turn: int
    kind: str
    """The kind of shortening: `prune`, `truncate`, `media`, joined by `+`."""
    saved_tokens: int
    """Estimate: how much smaller every later request is."""
    reread_tokens: int
    """Estimate: tokens that the provider had cached and must read again once."""
    messages: int
    """The number of messages that were shortened."""


@dataclass(slots=True, frozen=True, kw_only=True)
@checked
class CompactionStarted:
    """A summary of old messages is being made. A `CompactionFinished` or a `CompactionFailed`
    follows.
    """

    at_s: float
    turn: int
    compaction: int
    """Number of the compaction in the run, from 1."""
    reason: CompactionReason
    preset: str
    tokens: int
    """Size of the whole next request, as it is now."""
    background: bool
    """The run goes on meanwhile. False: it waits."""
    refill: str | None = None
    """The content that filled the context again soon after the last compaction, for people. `None`:
    that did not happen.
    """


@dataclass(slots=True, frozen=True, kw_only=True)
class CompactionProgressed:
    """A part of the old messages is in the summary."""

    at_s: float
    turn: int
    compaction: int
    done_messages: int
    of_messages: int


@dataclass(slots=True, frozen=True, kw_only=True)
@checked
class CompactionFinished:
    """The summary stands in the place of the old messages."""

    at_s: float
    turn: int
    compaction: int
    reason: CompactionReason
    tokens_before: int
    """Size of the whole next request before the compaction, measured as `estimator` says."""
    tokens_after: int
    """Size of the whole next request after it. Always an estimate: no provider has counted it yet.
    """
    estimator: Literal["reported", "estimated"]
    """`reported`: `tokens_before` is based on the provider's count."""
    kept_messages: int
    """The number of messages that stand unchanged behind the summary."""
    kept_tokens: int
    summarised_by: str
    """The model by name, `extractive`, or `cut`."""
    cost: AskCost
    """Tokens that the summary cost."""
    reread_tokens: int
    """Estimate: tokens that the provider had cached and must read again once."""
    replayed: int | None
    """Index of the message that is repeated at the end. `None`: no message is."""
    after_s: float
    """Seconds since the compaction began."""
    warnings: tuple[str, ...] = ()
    """Where the compaction differs from what was configured, for people."""


@dataclass(slots=True, frozen=True, kw_only=True)
@checked
class CompactionSkipped:
    """A compaction was due, or requested, and was not begun. The history is unchanged."""

    at_s: float
    turn: int
    reason: CompactionReason
    why: CompactionFailure
    detail: str
    """The cause, in a sentence for people."""


@dataclass(slots=True, frozen=True, kw_only=True)
@checked
class CompactionFailed:
    """A compaction failed. The history is unchanged."""

    at_s: float
    turn: int
    compaction: int
    failure: CompactionFailure
    retryable: bool
    """Another attempt may succeed without any change."""
    detail: str
    """The cause, in a sentence for people."""
    cost: AskCost
    """Tokens that the failed compaction cost."""
    after_s: float
    """Seconds since the compaction began."""


@dataclass(slots=True, frozen=True)
class HistoryRepaired:
    """A history broke the provider's rules and was repaired: the given one, one that an edit made,
    or the model's newest message.
    """

    at_s: float
    turn: int
    repairs: tuple[Repair, ...]
    """The changes, in the order of the messages. Messages are numbered as they stood before the
    repair.
    """
    problems: tuple[str, ...] = ()
    """Problems that the provider may still refuse, and that no repair can mend, for people."""


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
    """Seconds since the stop was decided."""
    chunks_dropped: int
    note: str | None = None
    """The error while the stream was closed, if there was one."""


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
    | ToolCallChanged
    | ToolOutput
    | ToolProgressed
    | ToolResultDropped
    | ApprovalRequested
    | ApprovalAnswered
    | OutputEmitted
    | PlanUpdated
    | Nudged
    | SteerAccepted
    | SteerDelivered
    | SteerReturned
    | ToolWithdrawn
    | LastTurnStarted
    | JudgeAsked
    | JudgeAnswered
    | JudgeFailed
    | Paused
    | Resumed
    | LimitWarning
    | SandboxDecided
    | SandboxWarning
    | WindowWarning
    | BudgetAwaited
    | BudgetLost
    | OutageFound
    | OutageEnded
    | RunHeld
    | RunReleased
    | OutagesLost
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
"""One event of a run. Sinks receive events, and iterating over a `Run` yields them."""

EVENT_TYPES: tuple[type[Event], ...] = get_args(Event)
"""The classes of `Event`."""

ENVELOPE: Final = "envelope"
"""The key of the identity in the JSON form of an envelope, beside the fields of the event."""


def without_envelope(data: Any) -> Any:
    """The JSON of an event alone."""
    if not isinstance(data, Mapping) or ENVELOPE not in data:
        return data
    return {key: value for key, value in data.items() if key != ENVELOPE}


class EventCodec(Codec[Event]):
    """JSON for events. It also reads the JSON of envelopes, of which it takes the event."""

    def from_dict(self, data: Mapping[str, Any]) -> Event:
        """The event of `data`, which may be the JSON of an envelope."""
        return super().from_dict(without_envelope(data))


event_codec: EventCodec = EventCodec(*EVENT_TYPES)
"""JSON form of an event: `event_codec.dumps(event)` is one line, the same bytes for the same
event.
"""


@dataclass(slots=True, frozen=True, kw_only=True)
class RunIdentity:
    """Tells a run from all others."""

    run: str
    """The id of the run."""
    root: str
    """The id of the outermost run: of the run itself, if no other run called it."""
    parent: str | None = None
    """The id of the run that called this one as a tool. `None`: no run did."""
    call: str | None = None
    """The id of that call, in the parent."""
    agent: str = ""
    """The name of the agent: `Supervisor(agent=)`, or else the name of the tool. Empty: unknown."""
    model: str | None = None
    """The name of the model. `None`: unknown, as in a guard."""
    began_s: float = 0.0
    """When the run began by the system's clock, in seconds since 1970. `at_s` counts from here."""


@dataclass(slots=True, frozen=True)
class Envelope:
    """An event, and whose it is."""

    identity: RunIdentity
    seq: int
    """Numbers the events of the run: 1, 2, 3 and so on. A `ChunkReceived` has the number of the
    event before it, because sinks do not get it.
    """
    event: Event

    @property
    def run(self) -> str:
        """The id of the run."""
        return self.identity.run

    @property
    def parent(self) -> str | None:
        """The id of the run that called this one as a tool. `None`: no run did."""
        return self.identity.parent

    @property
    def root(self) -> str:
        """The id of the outermost run."""
        return self.identity.root

    @property
    def agent(self) -> str:
        """The name of the agent. Empty: unknown."""
        return self.identity.agent

    @property
    def model(self) -> str | None:
        """The name of the model. `None`: unknown."""
        return self.identity.model

    @property
    def time_s(self) -> float:
        """When it happened, in seconds since 1970. The order of a run's events is the order of
        `seq`, also if the system's clock was set meanwhile.
        """
        return self.identity.began_s + self.event.at_s


class EnvelopeCodec:
    """JSON for envelopes: that of the event, with the identity and `seq` under one more key."""

    def to_dict(self, envelope: Envelope) -> dict[str, Any]:
        """`envelope` as plain JSON data."""
        told = asdict(envelope.identity) | {"seq": envelope.seq}
        return {**event_codec.to_dict(envelope.event), ENVELOPE: told}

    def from_dict(self, data: Mapping[str, Any]) -> Envelope:
        """The envelope that `to_dict` was given. `ValueError`: it is another object, or an event
        without an envelope.
        """
        told = identity_in(data)
        if told is None:
            raise ValueError("an event without an envelope: event_codec reads it")
        identity, seq = told
        return Envelope(identity, seq, event_codec.from_dict(data))

    def dumps(self, envelope: Envelope) -> str:
        """`envelope` as one line of JSON, the same bytes for the same envelope."""
        return json.dumps(self.to_dict(envelope), sort_keys=True, separators=(",", ":"))

    def loads(self, line: str) -> Envelope:
        """The inverse of `dumps`."""
        return self.from_dict(json.loads(line))


def identity_in(data: Mapping[str, Any]) -> tuple[RunIdentity, int] | None:
    """The identity and the number in the JSON of an envelope. `None`: `data` is the JSON of an
    event alone. Raises `ValueError` for anything else under that key.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"expected a JSON object, not {type(data).__name__}")
    if ENVELOPE not in data:
        return None
    told = data[ENVELOPE]
    fields = dict(told) if isinstance(told, Mapping) else {}
    seq = fields.pop("seq", None)
    if not isinstance(seq, int) or isinstance(seq, bool):
        raise ValueError(f"{ENVELOPE}.seq: expected a whole number, not {seq!r}")
    return _identity_codec.from_dict({"type": "run_identity", **fields}), seq


_identity_codec: Codec[RunIdentity] = Codec(RunIdentity)
envelope_codec: EnvelopeCodec = EnvelopeCodec()
"""JSON form of an envelope: a line that `JsonlSink` writes."""
