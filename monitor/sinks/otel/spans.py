"""The places, names, times and parents that every span of a run needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, Tracer

from monitor import events
from monitor.chunks import Usage
from monitor.events import RunIdentity
from monitor.sinks.otel import content, names
from monitor.sinks.otel.exports import Exports, Metrics, Note, Records

_NS: Final = 1_000_000_000
DETAIL_CHARS: Final = 500
"""Characters of the description of a status."""


# --------------------------------------------------------------------------------------------------
# Where the spans of a run stand, and which of them somebody else makes already.
#
# A program may have an instrumentor of the model's SDK, or a framework that traces its own agent.
# Their spans of model calls and tools have the same tokens and times as ours would have.

_CALL_OPERATIONS: Final = frozenset({names.CHAT, names.GENERATE, "text_completion"})


@dataclass(slots=True, frozen=True)
class SpanPlace:
    """The place of a run's spans among those of others."""

    parent: Context
    joined: Span | None = None
    """The span of somebody's agent, inside which the run began: it takes the run's data, and the
    run has no span of its own.
    """
    inside: bool = False
    """A framework traces the run's model calls. It began its own trace after the run had begun, so
    the run's span stands in that trace and is no agent's.
    """
    calls_made: bool = True
    """Model calls get spans of ours, and count in the metrics of the conventions."""
    tools_made: bool = True
    """Tool calls get spans of ours, and count in the metrics of the conventions."""
    agent_made: bool = True
    """The run gets a span of ours as an agent, and counts in the metrics of the conventions."""


def place_of_run(parent: Context, turns: str, provider: str | None) -> tuple[SpanPlace, bool]:
    """The place of a run that begins below `parent`, and whether it is final. If not, the first
    model call decides: a framework may begin its trace between the two.
    """
    outside = trace.get_current_span(parent)
    if turns != "auto":
        return SpanPlace(parent, calls_made=turns == "on"), True
    if _of_agent(outside) or is_of_call(outside):
        return SpanPlace(parent, outside, calls_made=False, tools_made=False, agent_made=False), True
    return SpanPlace(parent, calls_made=not instrumented(provider)), False


def place_of_first_call(before: SpanPlace) -> SpanPlace:
    """The place of a run whose first model call begins now."""
    current = trace.get_current_span()
    agent = _of_agent(current)
    if not (agent or is_of_call(current) or _of_step(current)):
        return before
    above: SpanContext | None = None if agent else getattr(current, "parent", None)
    beside = trace.NonRecordingSpan(above) if above is not None else current
    parent = trace.set_span_in_context(beside, Context())
    return SpanPlace(parent, inside=True, calls_made=False, tools_made=False, agent_made=False)


def is_of_call(span: Span) -> bool:
    """Whether `span` is one that somebody makes of a model call."""
    operation, kind = _operation_and_kind(span)
    return span.is_recording() and (operation in _CALL_OPERATIONS or kind == "LLM")


def _of_agent(span: Span) -> bool:
    operation, kind = _operation_and_kind(span)
    return span.is_recording() and (operation == names.INVOKE or kind == "AGENT")


def _of_step(span: Span) -> bool:
    """Whether an instrumentor of a framework makes `span` of a step of the framework's loop. A span
    of the same kind may be the program's own, which knows nothing of model calls.
    """
    scope = getattr(getattr(span, "instrumentation_scope", None), "name", "")
    return span.is_recording() and scope.startswith(names.FRAMEWORK_SCOPES)


def _operation_and_kind(span: Span) -> tuple[object, object]:
    given: Mapping[str, Any] = getattr(span, "attributes", None) or {}
    return given.get("gen_ai.operation.name"), given.get("openinference.span.kind")


def instrumented(provider: str | None) -> bool:
    """Whether an instrumentor of the provider's SDK is loaded, and not switched off."""
    modules = (sys.modules.get(name) for name in names.INSTRUMENTORS.get(provider or "", ()))
    return any(_is_on(module) for module in modules if module is not None)


def _is_on(module: ModuleType) -> bool:
    """Instrumentors are singletons that know whether they are switched on. A module without one
    works by being imported. Nothing is called: some constructors change the configuration.
    """
    classes = [
        one for name, one in vars(module).items() if name.endswith("Instrumentor") and name != "BaseInstrumentor"
    ]
    made = [getattr(one, "_instance", None) for one in classes]
    return not classes or any(getattr(one, "_is_instrumented_by_opentelemetry", False) for one in made)


# --------------------------------------------------------------------------------------------------
# What every span of a run needs.


@dataclass(slots=True, frozen=True, kw_only=True)
class TraceContext:
    """The parts that all runs of one sink share."""

    tracer: Tracer
    metrics: Metrics
    exports: Exports
    records: Records | None
    """`None`: nothing becomes a log record."""
    on_spans: bool
    """Whether moments of a run are shown on its spans."""
    dialect: names.Dialect
    turns: str
    content_chars: int
    """Size of an attribute of content. 0: content is off."""
    target: tuple[str, int]
    """The dialect, and what the spans go to: two sinks with the same target make the same spans."""
    now_ns: Callable[[], int] | None
    """The system's clock. `None`: the envelope of a run says when it began."""
    agent: str | None
    agent_id: str | None
    agent_version: str | None
    provider: str | None
    model: str | None


@dataclass(slots=True, eq=False)
class OpenCallSpan:
    """The span of a tool call that has not ended."""

    span: Span
    context: Context
    name: str
    ended: bool = False
    state: str | None = None
    approval: str | None = None
    asked: str | None = None
    """Id of the question that has no answer yet."""
    wait: Span | None = None
    waiting_since: float = 0.0
    waited_s: float = 0.0


CALLS: ContextVar[OpenCallSpan | None] = ContextVar("agent_monitor_call", default=None)
"""The call that is carried out in this task: the parent of a nested run. It is set in the task of
the call, when the tool is about to be entered, and is no OpenTelemetry context.
"""


@dataclass(slots=True, eq=False)
class OpenSpans:
    """The spans of a run that have not ended."""

    turn: Span | None = None
    borrowed: bool = False
    """The span of the turn is somebody else's: it gets our events, and is ended by its owner."""
    turn_since: float = 0.0
    first_chunk_s: float | None = None
    calls: dict[str, OpenCallSpan] = field(default_factory=dict)
    judges: dict[str, Span] = field(default_factory=dict)
    compactions: dict[int, tuple[Span, float]] = field(default_factory=dict)
    pause: Span | None = None
    retry: Span | None = None

    def all(self) -> list[Span]:
        """Every open span, children before their parents."""
        waits = [call.wait for call in self.calls.values()]
        spans = [*waits, self.pause, self.retry, *(call.span for call in self.calls.values())]
        spans += [*self.judges.values(), *(span for span, _ in self.compactions.values())]
        spans.append(None if self.borrowed else self.turn)
        return [span for span in spans if span is not None]


class SpanMaker:
    """Makes the spans of one run, below the run's own."""

    def __init__(
        self,
        shared: TraceContext,
        *,
        task: str | None,
        conversation: str | None,
        links: tuple[SpanContext, ...],
        resumed: bool,
    ) -> None:
        self.shared = shared
        self._names: Mapping[str, str] = names.NAMES[shared.dialect]
        self._openinference = shared.dialect == "openinference"
        self._conversation = conversation
        self._links = [Link(one) for one in links]
        self._resumed = resumed
        self._task = task
        self._said_so_far = content.MessageLog(shared.content_chars)
        if task is not None and shared.content_chars:
            self._said_so_far.add(content.user_message(task))
        self._span: Span | None = None
        self._context = Context()
        self._made: SpanContext | None = None
        self._begun = False
        self._pending: events.RunStarted | None = None
        """The run has begun, and its place is not final."""
        self._place = SpanPlace(Context())
        self._with_turns = self._with_tools = False
        self._anchor_ns = 0
        self._open = OpenSpans()
        self._calls = self._tool_calls = 0
        self._compacted = False
        self._run_id: str | None = None
        self._identity: RunIdentity | None = None
        self._agent = shared.agent
        self._agent_id = shared.agent_id
        self._agent_version = shared.agent_version
        self._provider, self._model = shared.provider, shared.model
        self._know_the_model()

    def _identify(self, identity: RunIdentity, *, nested: bool) -> None:
        """Say whose spans these are. `nested`: the sink also makes the spans of the caller, and
        its options name that one.
        """
        shared = self.shared
        self._identity = identity
        self._agent = identity.agent or None if nested else shared.agent or identity.agent or None
        if nested:
            self._agent_id = self._agent_version = None
        if identity.model is not None and (nested or shared.model is None):
            self._provider, self._model = names.provider_and_model(identity.model)
        self._know_the_model()

    def _know_the_model(self) -> None:
        self._operation = names.GENERATE if self._provider in names.GENERATES else names.CHAT
        said = {"operation": self._operation, "provider": self._provider, "model": self._model}
        self._measured = {names.NAMES["genai"][key]: value for key, value in said.items() if value is not None}

    def _ns(self, at_s: float) -> int:
        return self._anchor_ns + round(at_s * _NS)

    def _named(self, **values: object) -> dict[str, Any]:
        """Attributes of the dialect. Values that are `None`, and keys without a name, are left
        out.
        """
        known = self._names
        return {known[key]: value for key, value in values.items() if value is not None and key in known}

    def _start(
        self,
        name: str,
        at_s: float,
        parent: Context,
        attributes: dict[str, Any],
        *,
        client: bool = False,
        operation: str | None = None,
        links: list[Link] | None = None,
    ) -> Span:
        """Start a span with all that a sampler wants to know."""
        kind = SpanKind.CLIENT if client else SpanKind.INTERNAL
        common = self._named(operation=operation, provider=self._provider, conversation=self._conversation)
        return self.shared.tracer.start_span(
            name, context=parent, kind=kind, attributes=common | attributes, links=links, start_time=self._ns(at_s)
        )

    def _end(self, span: Span, at_s: float, attributes: Mapping[str, Any] | None = None) -> None:
        self.shared.exports.end(span, self._ns(at_s), attributes)

    def _note(self, note: Note, at_s: float) -> None:
        """Something that happened at one moment, told on the span that is open."""
        span = self._open.turn or self._span
        if span is not None:
            self._moment(span, note, at_s)

    def _moment(self, span: Span, note: Note, at_s: float) -> None:
        """An event of `span`, or a span of no length where viewers do not show events. The same as
        a log record, if those are wanted: also of a run whose spans nobody records.
        """
        records = self.shared.records
        if records is not None:
            records.write(note.name, note.attributes, self._ns(at_s), self._child(span), warns=note.guardrail)
        if not self.shared.on_spans or not span.is_recording():
            return
        if not self._openinference:
            span.add_event(note.name, note.attributes, timestamp=self._ns(at_s))
            return
        kind = self._named(kind="GUARDRAIL" if note.guardrail else "CHAIN")
        self._end(self._start(note.name, at_s, self._child(span), kind | note.attributes), at_s)

    def _child(self, span: Span) -> Context:
        return trace.set_span_in_context(span, Context())

    def _wait(self, what: str, at_s: float, parent: Context) -> Span:
        return self._start(f"monitor.wait {what}", at_s, parent, self._named(kind="CHAIN") | {"monitor.wait": what})


def own(**values: Any) -> dict[str, Any]:
    """Our own attributes, for which no convention has a name. Values that are `None` are left
    out.
    """
    return {f"monitor.{name}": value for name, value in values.items() if value is not None}


def counts(usage: Usage) -> dict[str, int]:
    """The tokens, by the keys of the table of names. Zeros are left out."""
    keys = ("input_tokens", "output_tokens", "total_tokens", "cached_tokens", "reasoning_tokens")
    return {key: count for key in keys if (count := getattr(usage, key))}


# --------------------------------------------------------------------------------------------------
# The spans of what happens beside the turns: judges, and compactions.


class SideSpans(SpanMaker):
    """Makes the spans of judges and compactions."""

    def judge_asked(self, event: events.JudgeAsked) -> None:
        """Open a span for the question to the judge."""
        if self._with_turns:
            attributes = self._named(kind="EVALUATOR", evaluation=event.judge) | {"monitor.judge": event.judge}
            self._open.judges[event.judge] = self._start(
                f"{names.CHAT} {event.judge}",
                event.at_s,
                self._context,
                attributes,
                client=True,
                operation=names.CHAT,
            )

    def judge_answered(self, event: events.JudgeAnswered) -> None:
        """Record the answer of the judge as an evaluation, and end its span."""
        judgement = event.judgement
        said = self._named(
            evaluation=event.judge,
            score=float(judgement.confidence),
            label=f"{event.fact}: {'yes' if judgement.found else 'no'}",
        )
        if self.shared.content_chars:
            said |= self._named(explanation=content.cut(judgement.analysis, self.shared.content_chars))
        span = self._open.judges.pop(event.judge, None)
        target = span or self._span
        if target is None:
            return
        if self._openinference:
            confidence = float(judgement.confidence)
            target.set_attributes({"monitor.judge.confidence": confidence, "monitor.judge.found": judgement.found})
        else:
            self._moment(target, Note("gen_ai.evaluation.result", said), event.at_s)
        if span is not None:
            provider, model = _model_of(judgement.judged_by)
            span.set_attributes(self._named(provider=provider, model=model, **counts(event.cost.usage)))
            self._end(span, event.at_s)

    def judge_failed(self, event: events.JudgeFailed) -> None:
        """End the span of the judge as an error."""
        span = self._open.judges.pop(event.judge, None)
        if span is not None:
            span.set_attributes(self._named(error="judge_failed", **counts(event.cost.usage)))
            span.set_status(Status(StatusCode.ERROR, content.cut(event.why, DETAIL_CHARS)))
            self._end(span, event.at_s)

    def compaction_started(self, event: events.CompactionStarted) -> None:
        """Open a span for the compaction."""
        if self._span is None or not self._span.is_recording() or not self._place.agent_made:
            return
        attributes = self._named(kind="CHAIN", agent="compact") | {
            "monitor.compaction.preset": event.preset,
            "monitor.compaction.reason": event.reason.value,
            "monitor.compaction.tokens_before": event.tokens,
            "monitor.compaction.background": event.background,
        }
        span = self._start(f"{names.INVOKE} compact", event.at_s, self._context, attributes, operation=names.INVOKE)
        self._open.compactions[event.compaction] = (span, event.at_s)

    def compaction_finished(self, event: events.CompactionFinished) -> None:
        """End the span of the compaction with its sizes."""
        self._compacted = True
        attributes = {
            "monitor.compaction.status": "finished",
            "monitor.compaction.tokens_before": event.tokens_before,
            "monitor.compaction.tokens_after": event.tokens_after,
            "monitor.compaction.summarised_by": event.summarised_by,
        }
        self._compaction_over(event, attributes, model=event.summarised_by)

    def compaction_failed(self, event: events.CompactionFailed) -> None:
        """End the span of the compaction as an error."""
        attributes = {
            "monitor.compaction.status": event.failure.value,
            **self._named(error=event.failure.value),
        }
        self._compaction_over(event, attributes, failed=event.detail)

    def _compaction_over(
        self,
        event: events.CompactionFinished | events.CompactionFailed,
        attributes: dict[str, Any],
        *,
        model: str | None = None,
        failed: str | None = None,
    ) -> None:
        at_s, usage = event.at_s, event.cost.usage
        span, since = self._open.compactions.pop(event.compaction, (None, 0.0))
        if span is None:
            return
        span.set_attributes(attributes)
        if failed is not None:
            span.set_status(Status(StatusCode.ERROR, content.cut(failed, DETAIL_CHARS)))
        if usage.total_tokens and self._with_turns:
            # One span for the calls of the summary: events have their tokens, not their times.
            provider, name = _model_of(model)
            inside = self._start(
                f"{names.CHAT} {name}" if name else names.CHAT,
                since,
                self._child(span),
                self._named(kind="LLM", provider=provider, model=name, **counts(usage)),
                client=True,
                operation=names.CHAT,
            )
            self._end(inside, at_s)
        self._end(span, at_s)


def _model_of(name: object) -> tuple[str | None, str | None]:
    """Provider and model of a name such as `google:gemini-2.5-flash`, if it is a name."""
    return names.provider_and_model(name if isinstance(name, str) else None)
