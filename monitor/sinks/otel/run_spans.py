"""The spans of one run, made of its events."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final
from weakref import WeakValueDictionary

from opentelemetry import trace
from opentelemetry.context import Context, get_current
from opentelemetry.trace import Status, StatusCode

from monitor import events
from monitor.errors import without_keys
from monitor.events import Envelope, Event
from monitor.messages import CallState
from monitor.outcome import Outcome, Turn
from monitor.sinks.otel import content, names, spans
from monitor.sinks.otel.exports import note_of
from monitor.sinks.otel.spans import CALLS, DETAIL_CHARS, OpenCallSpan, OpenSpans, SideSpans

_NS: Final = 1_000_000_000
_FAILURES: Final = frozenset({"error", "tool_failure"})
"""Values of `gen_ai.agent.finish_reason` that are errors of the run. A stop by a limit, a loop or a
person is none: the run was ended on purpose.
"""


_RUNS: Final[WeakValueDictionary[tuple[str, tuple[str, int]], RunSpans]] = WeakValueDictionary()
"""The runs whose spans are made, by their ids and the targets of the spans."""


class RunSpans(SideSpans):
    """A sink for one run: makes its spans and metrics. `OtelSink.for_run` makes one."""

    @property
    def traceparent(self) -> str | None:
        """Names the span of the run in other processes, in the form of W3C. `None`: the run has not
        begun, or nobody records it.
        """
        if self._pending is not None:
            self._open_run(self._pending, self._pending.at_s)
        made = self._made
        if made is None or not made.is_valid:
            return None
        return f"00-{made.trace_id:032x}-{made.span_id:016x}-{int(made.trace_flags):02x}"

    def for_run(self) -> RunSpans:
        """A sink for a nested run, without the task and the links of this one."""
        return RunSpans(self.shared, task=None, conversation=self._conversation, links=(), resumed=False)

    def receive(self, envelope: Envelope) -> None:
        """The next event, and whose it is: a nested run stands below the call that is that run."""
        if isinstance(envelope.event, events.RunStarted):
            known = _RUNS.get((envelope.run, self.shared.target))
            if envelope.parent is not None and known is not None and known.shared is not self.shared:
                return  # the nested run has a sink of its own that makes the same spans
            above = _RUNS.get((envelope.parent or "", self.shared.target))
            self._identify(envelope.identity, nested=above is not None and above.shared is self.shared)
            _RUNS[envelope.run, self.shared.target] = self
        self.emit(envelope.event)

    def emit(self, event: Event) -> None:
        """The next event. Raises what a span processor has raised since the last event."""
        if (why := self.shared.exports.failure()) is not None:
            raise RuntimeError(f"a span processor raised {why}")
        if not self._begun and not isinstance(event, events.RunStarted):
            return
        if self._pending is not None and not isinstance(event, events.RunStarted):
            self._settle(self._pending, event)
        handle = self._HANDLERS.get(type(event))
        if handle is not None:
            handle(self, event)
        if self._span is not None and (note := note_of(event)) is not None:
            self._note(note, event.at_s)

    # ------------------------------------------------------------------ the run

    def _run_started(self, event: events.RunStarted) -> None:
        if self._begun:
            self._finish_open(event.at_s)
            self.shared.metrics.record("active", -1)
        self._begun = True
        shared = self.shared
        if shared.now_ns is None and self._identity is not None:
            self._anchor_ns = round(self._identity.began_s * _NS)
        else:
            self._anchor_ns = (shared.now_ns or time.time_ns)() - round(event.at_s * _NS)
        shared.metrics.record("active", 1)
        self._place, final = spans.place_of_run(self._parent(), shared.turns, self._provider)
        self._pending = event
        if final:
            self._open_run(event, event.at_s)

    def _settle(self, started: events.RunStarted, event: Event) -> None:
        """Open the span of the run. A first model call inside a framework's trace decides where."""
        at_s = started.at_s
        if isinstance(event, events.TurnStarted):
            self._place = spans.place_of_first_call(self._place)
            at_s = event.at_s if self._place.inside else at_s
        self._open_run(started, at_s)

    def _open_run(self, started: events.RunStarted, at_s: float) -> None:
        here = self._place
        self._pending = None
        self._with_turns, self._with_tools = here.calls_made, here.tools_made
        if here.joined is not None:
            self._span, self._context, self._made = here.joined, here.parent, here.joined.get_span_context()
            here.joined.set_attributes({"monitor.joined": True})
            return
        attributes = self._named(
            kind="AGENT" if here.agent_made else "CHAIN",
            agent=self._agent,
            agent_id=self._agent_id,
            agent_version=self._agent_version,
            model=self._model if here.agent_made else None,  # viewers take a span with a model for a call of it
            node=self._agent,
        )
        attributes |= spans.own(detectors=started.detectors, stop_when=started.stop_when, resumed=self._resumed or None)
        operation = names.INVOKE if here.agent_made else None
        kind = operation or names.INSIDE
        name = f"{kind} {self._agent}" if self._agent else kind
        self._span = self._start(name, at_s, here.parent, attributes, operation=operation, links=self._links)
        self._made = self._span.get_span_context()
        self._context = self._child(self._span)
        if not self._span.is_recording():
            self._with_turns = self._with_tools = False
        elif here.agent_made:
            self._mark_start(f"{name} started", at_s, attributes)

    def _mark_start(self, name: str, at_s: float, attributes: dict[str, Any]) -> None:
        """Export at once that the run has begun. A viewer takes a span with an operation or a model
        for a call or an agent, so the marker has neither.
        """
        left_out = self._named(model=self._model)
        marked = {key: value for key, value in attributes.items() if key not in left_out}
        marked |= self._named(kind="CHAIN") | {"monitor.start_marker": True}
        self._end(self._start(name, at_s, self._context, marked), at_s)

    def _parent(self) -> Context:
        """The context of a new run: the call that it carries out, unless the program has made a
        span of its own inside it.
        """
        current, below = get_current(), None
        call = CALLS.get()
        if (identity := self._identity) is not None and identity.parent is not None:
            above = _RUNS.get((identity.parent, self.shared.target))
            if above is not None:
                call, below = above.place_of(identity.call) or call, above.context
        if call is None or call.ended:
            return below or current
        made = trace.get_current_span(current).get_span_context()
        outer = call.span.get_span_context()
        return current if made.is_valid and made.trace_id == outer.trace_id else call.context

    def place_of(self, call: str | None) -> OpenCallSpan | None:
        """The span of an open call. `None`: it has none."""
        return self._open.calls.get(call or "")

    @property
    def context(self) -> Context | None:
        """The context of the spans below the run's own. `None`: the run has none."""
        if self._pending is not None:
            self._open_run(self._pending, self._pending.at_s)
        return self._context if self._begun else None

    def _run_terminated(self, event: events.RunTerminated) -> None:
        outcome, shared = event.outcome, self.shared
        self._finish_open(event.at_s)
        ending = names.REASONS[outcome.reason]
        metrics, measured = shared.metrics, {**self._measured, "gen_ai.operation.name": names.INVOKE}
        if self._agent is not None:
            measured["gen_ai.agent.name"] = self._agent
        metrics.record("active", -1)
        if self._place.agent_made:
            metrics.record("run_s", outcome.elapsed_s, {**measured, names.REASON: outcome.reason.value})
            metrics.record("run_calls", self._calls, measured)
            metrics.record("run_tools", self._tool_calls, measured)
        metrics.ended(outcome, measured)
        span, self._span, self._begun = self._span, None, False
        if span is None or not span.is_recording():
            return
        span.set_attributes(self._of_end(outcome, ending))
        if ending in _FAILURES:
            span.set_status(Status(StatusCode.ERROR, content.cut(outcome.detail, DETAIL_CHARS)))
        if self._place.joined is None:
            self._end(span, event.at_s)

    def _of_end(self, outcome: Outcome, ending: str) -> dict[str, Any]:
        """The attributes of a run that has ended."""
        reason = outcome.reason.value
        ours = {names.REASON: reason, names.LANGFUSE_REASON: reason} | spans.own(
            ok=outcome.ok,
            source=outcome.source,
            turns=outcome.turns,
            closed=outcome.closed,
            chunks_after_stop=outcome.chunks_after_decision,
            limit=outcome.limit if isinstance(outcome.limit, int | float | str) else None,
            value=outcome.value if isinstance(outcome.value, int | float | str) else None,
            recovered_from=outcome.recovered_from and outcome.recovered_from.value,
            cost_usd=outcome.cost_usd or None,
            run=self._run_id,
        )
        ours |= self._named(agent_finish=ending, error=reason if ending in _FAILURES else None)
        # Viewers of OpenInference, and frameworks, add up what stands on the spans of model calls.
        if self._openinference or not self._place.agent_made:
            ours |= {f"monitor.usage.{key}": value for key, value in spans.counts(outcome.usage).items()}
        else:
            ours |= self._named(**spans.counts(outcome.usage))
        if outcome.usage_estimated:
            ours["monitor.usage.estimated"] = True
        if (chars := self.shared.content_chars) and self._place.agent_made:
            if self._openinference:
                ours |= {"input.value": content.cut(self._task, chars)} if self._task is not None else {}
                ours["output.value"] = content.cut(without_keys(outcome.text), chars)
            else:
                ours |= self._named(input=content.fitted(self._said_so_far.messages, chars))
        return ours

    def _finish_open(self, at_s: float) -> None:
        """End what is still open, as unfinished."""
        for span in self._open.all():
            span.set_attribute("monitor.unfinished", True)  # noqa: FBT003 - an attribute
            self._end(span, at_s)
        for call in self._open.calls.values():
            call.ended = True
        self._open = OpenSpans()

    # ------------------------------------------------------------------ turns

    def _turn_started(self, event: events.TurnStarted) -> None:
        self._calls += 1
        opened = self._open
        if opened.turn is not None and not opened.borrowed:
            self._end(opened.turn, event.at_s)
        opened.turn, opened.borrowed = None, False
        if opened.retry is not None:
            self._end(opened.retry, event.at_s)
            opened.retry = None
        opened.turn_since, opened.first_chunk_s = event.at_s, None
        if not self._with_turns:
            self._borrow()
            return
        attributes = self._named(kind="LLM", model=self._model, stream=True)
        if self._compacted:
            attributes |= self._named(compacted=True)
        attributes |= {"monitor.turn": event.turn, "monitor.model_call": event.model_call}
        name = f"{self._operation} {self._model}" if self._model else self._operation
        opened.turn = self._start(name, event.at_s, self._context, attributes, client=True, operation=self._operation)

    def _borrow(self) -> None:
        """The span that somebody else makes of the model call of this turn, where it is current."""
        current = trace.get_current_span()
        if spans.is_of_call(current):
            self._open.turn, self._open.borrowed = current, True

    def _first_chunk(self, event: events.FirstChunk) -> None:
        if not self._with_turns and self._open.turn is None:
            self._borrow()  # some frameworks begin it behind the guard
        if self._place.calls_made:
            self.shared.metrics.record("first_chunk_s", event.after_s, self._measured)
        self._open.first_chunk_s = event.after_s

    def _continued(self, event: events.StreamContinued) -> None:
        self._calls += 1

    def _turn_ended(self, event: events.TurnEnded) -> None:
        turn, shared, opened = event.turn, self.shared, self._open
        measured = dict(self._measured)
        error = _error_of(turn)
        if error is not None:
            measured["error.type"] = error
        if self._place.calls_made:
            shared.metrics.record("call_s", event.at_s - opened.turn_since, measured)
            shared.metrics.tokens(turn.usage, self._measured)
        shared.metrics.cut(turn, self._measured)
        message: dict[str, Any] = {}
        if shared.content_chars:
            message = content.assistant_message(turn)
            self._said_so_far.add(message)
        span, opened.turn = opened.turn, None
        borrowed, opened.borrowed = opened.borrowed, False
        if span is None:
            return
        if borrowed:
            if span.is_recording():
                span.set_attributes(_ours(turn))
            return
        finish: Any = content.finish_of(turn)
        attributes = _ours(turn) | self._named(
            finish_reasons=finish if self._openinference else (finish,),
            first_chunk=opened.first_chunk_s,
            error=error,
            **spans.counts(turn.usage),
        )
        if self._openinference and opened.first_chunk_s is not None:
            attributes["monitor.time_to_first_chunk"] = opened.first_chunk_s
        if shared.content_chars:
            attributes |= self._said(turn, message)
        if error is not None:
            what = turn.model_error.message if turn.model_error is not None else error
            span.set_status(Status(StatusCode.ERROR, content.cut(what, DETAIL_CHARS)))
        self._end(span, event.at_s, attributes)

    def _said(self, turn: Turn, message: dict[str, Any]) -> dict[str, Any]:
        """The attributes with the content of a turn."""
        chars = self.shared.content_chars
        if self._openinference:
            return content.flat_output(turn, chars)
        return self._named(output=content.fitted([message], chars))

    def _stream_closed(self, event: events.StreamClosed) -> None:
        self.shared.metrics.record("close_s", event.after_s, self._measured)
        span = self._open.turn or self._span
        if span is not None and span.is_recording():
            span.set_attributes({"monitor.closed": event.closed, "monitor.chunks_after_stop": event.chunks_dropped})

    def _retry(self, event: events.RetryScheduled) -> None:
        if self._span is not None and self._with_turns and event.after_s > 0:
            self._open.retry = self._wait("retry", event.at_s, self._context)

    # ------------------------------------------------------------------ tools and people

    def _tool_started(self, event: events.ToolStarted) -> None:
        self._tool_calls += 1
        if not self._with_tools:
            return
        call, shared = event.call, self.shared
        attributes = self._named(kind="TOOL", tool=call.name, tool_type="function", call=call.id)
        attributes["monitor.turn"] = event.turn
        if self._agent is not None:
            attributes |= self._named(agent=self._agent)
        if shared.content_chars:
            attributes |= self._named(arguments=content.fitted(content.arguments_of(call), shared.content_chars))
        name = f"{names.TOOL} {call.name}"
        span = self._start(name, event.at_s, self._context, attributes, operation=names.TOOL)
        self._open.calls[call.id] = OpenCallSpan(span, self._child(span), call.name)

    def _call_changed(self, event: events.ToolCallChanged) -> None:
        record = event.record
        self._run_id = self._run_id or record.run
        call = self._open.calls.get(record.call_id)
        if call is None:
            return
        call.state = record.state.value
        if record.state is CallState.RUNNING:
            CALLS.set(call)

    def _tool_finished(self, event: events.ToolFinished) -> None:
        result, shared = event.result, self.shared
        error = None
        if result.is_error:
            error = result.error_kind.value if result.error_kind is not None else "_OTHER"
        measured = {"gen_ai.operation.name": names.TOOL, "gen_ai.tool.name": result.name}
        if error is not None:
            measured["error.type"] = error
        if self._place.tools_made:
            shared.metrics.record("tool_s", event.after_s, measured)
        if shared.content_chars:
            self._said_so_far.add(content.tool_message(result))
        call = self._open.calls.pop(result.id, None)
        if call is None:
            return
        call.ended = True
        self._answered(call, event.at_s)
        attributes: dict[str, Any] = self._named(error=error)
        attributes |= spans.own(
            **{
                "call.state": call.state or ("failed" if result.is_error else "done"),
                "call.vetoed": result.vetoed or None,
                "call.work_s": result.duration_s,
                "approval": call.approval,
                "approval.wait_s": None if call.approval is None else round(call.waited_s, 6),
            }
        )
        if shared.content_chars:
            text = without_keys(result.text)
            attributes |= self._named(result=content.cut(text, shared.content_chars))
        if error is not None:
            call.span.set_status(Status(StatusCode.ERROR, error))
        self._end(call.span, event.at_s, attributes)

    def _approval_requested(self, event: events.ApprovalRequested) -> None:
        call = self._open.calls.get(event.request.call_id)
        if call is not None:
            call.approval, call.asked, call.waiting_since = "asked", event.request.id, event.at_s
            call.wait = self._wait("approval", event.at_s, call.context)

    def _approval_answered(self, event: events.ApprovalAnswered) -> None:
        call = next((one for one in self._open.calls.values() if one.asked == event.answer.id), None)
        if call is not None:
            call.approval = event.answer.decision
            self._answered(call, event.at_s)

    def _answered(self, call: OpenCallSpan, at_s: float) -> None:
        if call.wait is not None:
            call.waited_s += at_s - call.waiting_since
            self._end(call.wait, at_s)
            call.wait = call.asked = None

    def _paused(self, event: events.Paused) -> None:
        if self._span is not None and self._with_tools and self._open.pause is None:
            self._open.pause = self._wait("paused", event.at_s, self._context)

    def _resumed_again(self, event: events.Resumed) -> None:
        if self._open.pause is not None:
            self._end(self._open.pause, event.at_s)
            self._open.pause = None

    def _nudged(self, event: events.Nudged) -> None:
        if self.shared.content_chars:
            self._said_so_far.add(content.user_message(event.text))

    def _detected(self, event: events.DetectionRaised) -> None:
        found = event.detection
        self.shared.metrics.record("detections", 1, {"monitor.kind": found.kind, "monitor.level": found.level})

    _HANDLERS: ClassVar[Mapping[type, Callable[[Any, Any], None]]] = {
        events.RunStarted: _run_started,
        events.TurnStarted: _turn_started,
        events.FirstChunk: _first_chunk,
        events.StreamContinued: _continued,
        events.TurnEnded: _turn_ended,
        events.StreamClosed: _stream_closed,
        events.RetryScheduled: _retry,
        events.ToolStarted: _tool_started,
        events.ToolCallChanged: _call_changed,
        events.ToolFinished: _tool_finished,
        events.ApprovalRequested: _approval_requested,
        events.ApprovalAnswered: _approval_answered,
        events.Paused: _paused,
        events.Resumed: _resumed_again,
        events.Nudged: _nudged,
        events.DetectionRaised: _detected,
        events.JudgeAsked: SideSpans.judge_asked,
        events.JudgeAnswered: SideSpans.judge_answered,
        events.JudgeFailed: SideSpans.judge_failed,
        events.CompactionStarted: SideSpans.compaction_started,
        events.CompactionFinished: SideSpans.compaction_finished,
        events.CompactionFailed: SideSpans.compaction_failed,
        events.RunTerminated: _run_terminated,
    }


def _ours(turn: Turn) -> dict[str, Any]:
    """The attributes of a turn for which no convention has a name."""
    stopped = turn.stopped.reason.value if turn.stopped is not None else None
    estimated = {"usage.estimated": turn.usage_estimated or None}
    return spans.own(**estimated, stopped=stopped, loop_offset=turn.loop_offset)


def _error_of(turn: Turn) -> str | None:
    if turn.model_error is not None:
        return turn.model_error.kind.value
    return type(turn.error).__name__ if turn.error is not None else None
