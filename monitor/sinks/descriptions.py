"""The table of events: what each type of event says to people, to logs and to traces.

A new event needs one row here. The lines of people, the log, the terminal and OpenTelemetry read
the same row.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias

from monitor import events
from monitor._util.codec import to_plain
from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta, ToolResult
from monitor.events import Event
from monitor.messages import SteerMessage

Severity: TypeAlias = Literal["detail", "note", "success", "retry", "warning", "error", "stop"]
Facts: TypeAlias = Callable[[Any], dict[str, Any]]


@dataclass(slots=True, frozen=True)
class Description:
    """How the events of one type are described."""

    words: str | Callable[[Any], str]
    """The event `e` in words, for people: a template, or what makes them of the event."""
    severity: Severity = "detail"
    """The mark of the event on a terminal, where a `detail` is shown only on request."""
    warns: bool = False
    """A log has the event as a warning."""
    facts: Facts | None = None
    """The attributes of the event in a trace. Their values are few: a repeated text is its hash and
    its length. `None`: a trace has the event as a span, or not at all."""
    name: str | None = None
    """The name of the event in a trace. `None`: the name of its type."""
    guardrail: bool = False
    """The monitor has found or done something."""

    def said(self, event: Event) -> str:
        """`event` in words, for people."""
        return self.words.format(e=event) if isinstance(self.words, str) else self.words(event)


def call_in_words(call: ToolCall) -> str:
    """`search(query="x", limit=3)`: the call as Python would write it."""
    given: Any = to_plain(call.arguments)
    arguments = (
        [f"{key}={_json(value)}" for key, value in given.items()] if isinstance(given, Mapping) else [_json(given)]
    )
    return f"{call.name}({', '.join(arguments)})"


def for_people(result: ToolResult) -> str:
    """A result as people read it: the text that its tool has for them, with the length of the one
    for the model, or else that one.
    """
    if result.display is None:
        return result.text
    chars = len(result.text) if result.full_chars is None else result.full_chars
    return f"{result.display} ({chars:,} characters for the model)"


def attempt_in_words(event: events.RetryScheduled) -> str:
    """`attempt 2 in 0.5 s`, without the reason."""
    return f"attempt {event.attempt} {f'in {event.after_s:g} s' if event.after_s else 'at once'}"


def _facts(*paths: str, **named: str) -> Facts:
    """The attributes of an event at `paths`, by the last name of each or by the name in `named`."""
    found = {path.rpartition(".")[2]: path for path in paths} | named
    getters = {f"monitor.{name}": attrgetter(path) for name, path in found.items()}
    return lambda event: {name: get(event) for name, get in getters.items()}


def _json(value: object) -> str:
    return json.dumps(to_plain(value), ensure_ascii=False)


def _chunk(chunk: Chunk) -> str:
    match chunk:
        case TextDelta(text=text) | ReasoningDelta(text=text) | ToolCallDelta(arguments_text=text):
            return f"{type(chunk).__name__} {_json(text)}"
        case ToolCall():
            return f"ToolCall {call_in_words(chunk)}"
    return type(chunk).__name__


def _closed(event: events.StreamClosed) -> str:
    dropped = f", {event.chunks_dropped} buffered chunks dropped" if event.chunks_dropped else ""
    return f"stream {'closed' if event.closed else 'left open'}{dropped}"


def _progress(event: events.ToolProgressed) -> str:
    if event.pid is not None:
        return f"{event.call_id} has started the process {event.pid}"
    total = f" of {event.total:g}" if event.total is not None else ""
    return f"progress of {event.call_id}: {'' if event.done is None else f'{event.done:g}{total} '}{event.note}"


def _answered(event: events.ApprovalAnswered) -> str:
    answer = event.answer
    return f"{answer.decision}{f' by {answer.by}' if answer.by else ''}: {answer.reason}".rstrip(": ")


def _compaction_started(event: events.CompactionStarted) -> str:
    how = "beside the run" if event.background else "the run waits"
    refill = f"; filled again by {event.refill}" if event.refill else ""
    return f"compaction begins ({event.reason.value}) at {event.tokens:,} tokens, {how}{refill}"


def _compacted(event: events.CompactionFinished) -> str:
    sizes = f"{event.tokens_before:,} -> {event.tokens_after:,} tokens"
    warnings = "".join(f"; {warning}" for warning in event.warnings)
    return f"compacted by {event.summarised_by}: {sizes}, {event.kept_messages} messages kept{warnings}"


def _repaired(event: events.HistoryRepaired) -> str:
    kinds = Counter(repair.kind for repair in event.repairs)
    told = ", ".join(f"{kind.value} {number}" for kind, number in kinds.items()) or "nothing"
    return "; ".join([f"history repaired: {told}", *(f"it may be refused: {problem}" for problem in event.problems)])


def _sender(message: SteerMessage) -> str:
    what = {"steer": "result" if message.data else "message", "follow_up": "follow-up"}[message.kind]
    return f"{what} of {message.by}" if message.by else what


_STEER: Final = _facts("turn", "message.id", "message.kind", "message.now", "message.data")
"""The attributes of an event that has a message to the run. Its text is no attribute."""
_OUTAGE: Final = _facts("finding.outage", "finding.runs", "finding.failures")
"""The attributes of an event that has a `FleetFinding`."""

DESCRIPTIONS: Final[Mapping[type[Event], Description]] = {
    # the run, its turns and its streams
    events.RunStarted: Description(
        lambda e: f"run started, until {e.stop_when or 'it ends'}, watched by {', '.join(e.detectors) or 'no detector'}"
    ),
    events.TurnStarted: Description("turn {e.turn}"),
    events.FirstChunk: Description("the first chunk came"),
    events.ChunkReceived: Description(lambda e: f"chunk: {_chunk(e.chunk)}"),
    events.AttemptRetried: Description("once more: {e.why}", facts=_facts("turn")),
    events.StreamContinued: Description(
        "model call {e.model_call} in the same stream", facts=_facts("turn", "model_call")
    ),
    events.ResultUnmatched: Description(lambda e: f"a result without a call: {e.call or 'no call was open'}"),
    events.StreamFailed: Description(
        "model call failed, {e.error.kind.value}: {e.error.message}",
        "stop",
        warns=True,
        facts=lambda e: {"monitor.turn": e.turn, "error.type": e.error.kind.value},
    ),
    events.RetryScheduled: Description(lambda e: f"{attempt_in_words(e)}: {e.why}", "retry"),
    events.StreamClosed: Description(_closed),
    events.TurnEnded: Description(lambda e: f"said: {e.turn.text}" if e.turn.text.strip() else "said nothing"),
    events.RunTerminated: Description("ended, {e.outcome.reason.value}: {e.outcome.detail}"),
    # calls, their results, and who allows them
    events.ToolStarted: Description(lambda e: f"call {call_in_words(e.call)}"),
    events.ToolFinished: Description(
        lambda e: f"{'error' if e.result.is_error else 'result'} of {e.result.name}: {for_people(e.result)}"
    ),
    events.ToolCallChanged: Description("call {e.record.call_id} of {e.record.tool}: {e.record.state.value}"),
    events.ToolOutput: Description("{e.stream} of {e.call_id}: {e.text}"),
    events.ToolProgressed: Description(_progress),
    events.ToolResultDropped: Description("a late answer of {e.tool} was dropped: {e.why}"),
    events.ApprovalRequested: Description(
        lambda e: f"may {e.request.tool or 'the run go on'}? {e.request.why}",
        facts=lambda e: {"monitor.approval": "asked", "monitor.approval.tool": e.request.tool},
        name="approval",
        guardrail=True,
    ),
    events.ApprovalAnswered: Description(
        _answered, facts=_facts(approval="answer.decision"), name="approval", guardrail=True
    ),
    events.OutputEmitted: Description(
        lambda e: f"output {e.name} = {_json(e.value)}{', in place of another' if e.overwritten else ''}",
        "success",
        facts=_facts(output="name"),
        name="output",
    ),
    events.PlanUpdated: Description(lambda e: e.plan),
    # findings, and what follows from them
    events.DetectionRaised: Description(
        "{e.detection.level}, {e.detection.detector}: {e.detection.message}",
        "warning",
        facts=_facts(
            "turn",
            *(f"detection.{name}" for name in ("detector", "kind", "channel", "level", "count", "threshold")),
            **{"evidence.hash": "detection.evidence.xxhash", "evidence.length": "detection.evidence.length"},
        ),
        name="detection",
        guardrail=True,
    ),
    events.Nudged: Description("nudge: {e.text}", "warning", facts=_facts("turn"), name="nudge", guardrail=True),
    events.SteerAccepted: Description(
        lambda e: f"{_sender(e.message)} (it waits): {e.message.text}", "note", facts=_STEER
    ),
    events.SteerDelivered: Description(lambda e: f"{_sender(e.message)}: {e.message.text}", "note", facts=_STEER),
    events.SteerReturned: Description(
        lambda e: f"{_sender(e.message)}, not delivered, because {e.why}: {e.message.text}", "warning", facts=_STEER
    ),
    events.ToolWithdrawn: Description(
        "{e.tool} is not offered any more", "warning", facts=_facts("turn", "tool"), guardrail=True
    ),
    events.LastTurnStarted: Description(
        "last turn after {e.reason.value}, {e.seconds:g} s",
        "warning",
        facts=_facts(reason="reason.value"),
        name="last_turn",
        guardrail=True,
    ),
    events.JudgeAsked: Description("{e.judge} looks at the run"),
    events.JudgeAnswered: Description(
        lambda e: f"{e.judge}, {e.fact}? {'yes' if e.judgement.found else 'no'}: {e.judgement.analysis}"
    ),
    events.JudgeFailed: Description("{e.judge} gave no answer: {e.why}"),
    events.Paused: Description("paused", "note"),
    events.Resumed: Description("resumed", "note"),
    events.LimitWarning: Description(
        "limit near, {e.source}: {e.value:g} of {e.limit:g}",
        "warning",
        warns=True,
        facts=_facts("source", "value", "limit"),
        guardrail=True,
    ),
    events.BudgetAwaited: Description(
        "shared budget {e.budget}: waiting {e.after_s:.3g} s: {e.detail}",
        "retry",
        facts=_facts("budget", "reason", "after_s"),
        guardrail=True,
    ),
    events.BudgetLost: Description(
        lambda e: f"shared budget {e.budget}: {e.detail}; {'going on without it' if e.goes_on else 'no further call'}",
        "warning",
        warns=True,
        facts=_facts("budget", "goes_on"),
        guardrail=True,
    ),
    events.AbortRequested: Description("abort: {e.why}", "stop", facts=_facts(), name="abort", guardrail=True),
    events.StopDecided: Description(
        "stop, {e.stop.reason.value}: {e.stop.detail}",
        warns=True,
        facts=_facts(reason="stop.reason.value", source="stop.source"),
        name="stop",
        guardrail=True,
    ),
    events.SinkFailed: Description("sink {e.sink} failed: {e.why}", "error", warns=True, facts=_facts("sink")),
    # what fails in many runs
    events.OutageFound: Description(
        "outage, {e.finding.message}", "warning", warns=True, facts=_OUTAGE, guardrail=True
    ),
    events.OutageEnded: Description(
        "outage, {e.finding.message}", "success", warns=True, facts=_OUTAGE, guardrail=True
    ),
    events.RunHeld: Description(
        "waiting for {e.finding.what}, which fails in {e.finding.runs} runs: {e.finding.error}",
        "warning",
        warns=True,
        facts=_OUTAGE,
        guardrail=True,
    ),
    events.RunReleased: Description(
        lambda e: f"waited {e.after_s:.0f} s for {e.what}: {e.why.replace('_', ' ')}",
        "note",
        facts=_facts("outage", "why", "after_s"),
        guardrail=True,
    ),
    events.OutagesLost: Description(
        "{e.detail}; going on without waiting for outages", "warning", warns=True, facts=_facts(), guardrail=True
    ),
    # the window, the history and compactions
    events.SandboxDecided: Description(
        lambda e: f"sandbox {e.sandbox}: {', '.join(e.opened)}", "note", facts=_facts("sandbox")
    ),
    events.SandboxWarning: Description(
        "sandbox {e.sandbox}: {e.detail}", "warning", warns=True, facts=_facts("sandbox")
    ),
    events.WindowWarning: Description(
        lambda e: e.detail, "warning", warns=True, facts=lambda e: {"monitor.tokens": e.tokens or 0}
    ),
    events.ContextFull: Description(
        "context full: {e.detail}", "warning", warns=True, facts=_facts("tokens", limit="usable_tokens")
    ),
    events.ContextNearlyFull: Description(
        "context nearly full: {e.tokens:,} tokens; it is compacted at {e.limit_tokens:,}",
        "warning",
        warns=True,
        facts=_facts("tokens", limit="limit_tokens"),
    ),
    events.HistoryReduced: Description(
        "history reduced: {e.kind} in {e.messages} messages, {e.saved_tokens:,} tokens less",
        "note",
        facts=_facts("turn", "kind", "saved_tokens"),
    ),
    events.CompactionStarted: Description(_compaction_started, "note"),
    events.CompactionProgressed: Description(
        "compaction: {e.done_messages} of {e.of_messages} messages are in the summary"
    ),
    events.CompactionFinished: Description(_compacted, "success"),
    events.CompactionSkipped: Description(
        "no compaction ({e.why.value}): {e.detail}",
        "note",
        facts=_facts(**{"compaction.reason": "reason.value", "compaction.status": "why.value"}),
    ),
    events.CompactionFailed: Description("compaction failed ({e.failure.value}): {e.detail}", "warning", warns=True),
    events.HistoryRepaired: Description(
        _repaired,
        "warning",
        warns=True,
        facts=lambda e: {"monitor.turn": e.turn, "monitor.repairs": sorted({one.kind.value for one in e.repairs})},
    ),
}
"""The description of each type of event."""
