"""Spans and metrics of runs: the golden files say what each dialect gets."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Decision, Sampler, SamplingResult
from opentelemetry.trace import StatusCode
from pydantic import BaseModel, ConfigDict, TypeAdapter

import monitor
from monitor import events
from monitor.chunks import TextDelta, ToolCall, ToolResult, TurnFinished, UsageReport
from monitor.detectors import ToolCallRepetition
from monitor.errors import ConfigError, FinishReason, MissingExtra, TerminateReason
from monitor.messages import CallRecord, CallState
from monitor.models import ErrorKind, ModelError
from monitor.outcome import Turn
from monitor.sinks import FanOut, MemorySink, OtelSink
from monitor.sinks.otel import names as otel_names
from monitor.sinks.otel.content import fitted
from monitor.sinks.otel.exports import Exports
from monitor.sinks.otel.sink import in_tool_span, tool_context
from monitor.testing import FakeClock, ScriptedModel
from monitor.testing.scripted import call
from tests.sinks.otel.recorder import WALL_NS, Recorder, recording
from tests.sinks.otel.run import CALL, STARTED, USAGE, outcome, whole_run

GOLDEN = Path(__file__).parents[3] / "fixtures" / "telemetry"
CHANT = "I will now look at the file again. " * 40
Dialect = Literal["genai", "openinference"]
DIALECTS: list[Dialect] = ["genai", "openinference"]


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with recording() as made:
        yield made


def feed(sink: Any, *given: Any) -> None:
    for event in given:
        sink.emit(event)


def described(recorder: Recorder) -> list[dict[str, Any]]:
    """The spans as the golden files have them: without ids, times relative to the run."""
    return [
        {
            "name": span.name,
            "parent": recorder.parent_of(span),
            "kind": span.kind.name,
            "status": span.status.status_code.name,
            "start_s": ((span.start_time or 0) - WALL_NS) / 1e9,
            "end_s": ((span.end_time or 0) - WALL_NS) / 1e9,
            "attributes": json.loads(json.dumps(dict(sorted((span.attributes or {}).items())))),
            "events": [
                {
                    "name": event.name,
                    "at_s": (event.timestamp - WALL_NS) / 1e9,
                    "attributes": json.loads(json.dumps(dict(event.attributes or {}))),
                }
                for event in span.events
            ],
        }
        for span in sorted(recorder.spans, key=lambda span: (span.start_time, span.end_time, span.name))
    ]


# --- the golden files


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_spans_of_a_run_are_those_of_the_golden_file(recorder: Recorder, dialect: Dialect):
    sink = recorder.sink(dialect=dialect, conversation="s-1", content=True)
    feed(sink.for_run(task="find it"), *whole_run())
    made = described(recorder)
    path = GOLDEN / f"{dialect}.json"
    if os.environ.get("MONITOR_GOLDEN") == "write":
        path.write_text(json.dumps(made, indent=1) + "\n", "utf-8")
    assert made == json.loads(path.read_text("utf-8")), "MONITOR_GOLDEN=write writes the file anew"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_looped_run_is_found_by_one_query_in_every_dialect(recorder: Recorder, dialect: Dialect):
    feed(recorder.sink(dialect=dialect), *whole_run())
    found = [span.name for span in recorder.spans if (span.attributes or {}).get("monitor.reason") == "loop_detected"]
    assert "invoke_agent researcher" in found


def test_every_reason_of_a_run_has_a_finish_reason_of_the_proposal():
    assert set(otel_names.REASONS) == set(TerminateReason)
    assert set(otel_names.REASONS.values()) <= {
        "completed", "max_iterations", "max_tokens", "time_budget", "cancelled", "error", "guardrail", "handoff",
        "tool_failure",
    }  # fmt: skip


def test_only_the_table_of_names_has_names_of_conventions():
    """The old names are nowhere, and each dialect has a provider, a model and tokens."""
    used = [name for table in otel_names.NAMES.values() for name in table.values()]
    assert not {"gen_ai.system", "gen_ai.usage.prompt_tokens", "gen_ai.usage.cache_creation.input_tokens"} & set(used)
    for table in otel_names.NAMES.values():
        assert {"provider", "model", "input_tokens", "output_tokens", "tool", "conversation"} <= set(table)


@pytest.mark.parametrize(
    ("model", "provider", "name", "operation"),
    [
        ("google:gemini-2.5-flash", "gcp.gemini", "gemini-2.5-flash", "generate_content"),
        ("openai:gpt-5", "openai", "gpt-5", "chat"),
        ("anthropic:claude", "anthropic", "claude", "chat"),
        ("own-model", None, "own-model", "chat"),
    ],
)
def test_a_model_call_has_the_operation_and_the_provider_of_its_model(
    recorder: Recorder, model: str, provider: str | None, name: str, operation: str
):
    turn = events.TurnEnded(2.0, Turn(number=1, finish_reason=FinishReason.DONE))
    feed(recorder.sink(model=model), STARTED, events.TurnStarted(1.0, 1, 1), turn, events.RunTerminated(2.0, outcome()))
    span = recorder.named(f"{operation} {name}")
    attributes = dict(span.attributes or {})
    assert attributes["gen_ai.operation.name"] == operation
    assert attributes.get("gen_ai.provider.name") == provider


# --- content


class Part(BaseModel):
    """A part of a message, as the convention has them."""

    model_config = ConfigDict(extra="forbid")
    type: Literal["text", "tool_call", "tool_call_response"]
    content: str | None = None
    id: str | None = None
    name: str | None = None
    arguments: Any = None
    response: Any = None


class Message(BaseModel):
    model_config = ConfigDict(extra="forbid")
    role: Literal["user", "assistant", "tool", "system"]
    parts: list[Part]
    finish_reason: (
        Literal["stop", "length", "content_filter", "tool_call", "error", "repetition", "loop_detected"] | None
    ) = None


MESSAGES = TypeAdapter(list[Message])
REQUIRED = {"text": {"content"}, "tool_call": {"name"}, "tool_call_response": {"response"}}


def messages_of(span: ReadableSpan, name: str) -> list[Message]:
    read = MESSAGES.validate_json(str((span.attributes or {})[name]))
    for part in (part for message in read for part in message.parts):
        assert all(getattr(part, field) is not None for field in REQUIRED[part.type])
    return read


def test_content_is_off_unless_asked_for(recorder: Recorder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", raising=False)
    feed(recorder.sink(), *whole_run())
    everything = json.dumps(described(recorder))
    for said in ("I search.", "found", "again again", "secret chant", "try something else", "in circles"):
        assert said not in everything


@pytest.mark.parametrize(("value", "on"), [("true", True), ("SPAN_ONLY", True), ("false", False), ("", False)])
def test_the_variable_of_the_convention_turns_content_on(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, value: str, on: bool
):
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", value)
    feed(recorder.sink(), *whole_run())
    assert ("I search." in json.dumps(described(recorder))) is on


def test_the_run_has_all_messages_in_order_with_those_of_tools(recorder: Recorder):
    feed(recorder.sink(content=True).for_run(task="find it"), *whole_run())
    read = messages_of(recorder.named("invoke_agent researcher"), "gen_ai.input.messages")
    assert [message.role for message in read] == ["user", "assistant", "tool", "user", "assistant"]
    assert [part.type for part in read[1].parts] == ["text", "tool_call"]
    turn = next(span for span in recorder.spans if span.name == "chat m1")
    assert messages_of(turn, "gen_ai.output.messages")[0].finish_reason == "tool_call"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_keys_of_services_are_not_exported(recorder: Recorder, dialect: Dialect):
    feed(recorder.sink(content=True, dialect=dialect), *whole_run())
    assert "sk-abcdef" not in json.dumps(described(recorder))


@pytest.mark.parametrize("size", [256, 1_000, 10_000])
def test_content_that_is_too_long_is_cut_inside_the_json(recorder: Recorder, size: int):
    long = Turn(number=1, text='"\n' * 40_000, finish_reason=FinishReason.DONE)
    run = recorder.sink(content=True, content_chars=size).for_run(task="x" * 50_000)
    turns = [event for n in range(30) for event in (events.TurnStarted(n, n, n), events.TurnEnded(n + 0.5, long))]
    feed(run, STARTED, *turns, events.RunTerminated(40.0, outcome()))
    for span in recorder.spans:
        for name in ("gen_ai.input.messages", "gen_ai.output.messages"):
            if name in (span.attributes or {}):
                text = str((span.attributes or {})[name])
                assert len(text) <= size
                assert json.loads(text)


def test_what_cannot_be_shortened_is_left_out_and_still_json():
    assert len(fitted({str(n): n for n in range(10_000)}, 300)) <= 300
    assert json.loads(fitted({str(n): n for n in range(10_000)}, 300)).startswith("(left out")


def test_a_run_of_many_turns_keeps_a_bounded_number_of_characters(recorder: Recorder):
    run = recorder.sink(content=True, content_chars=1_000).for_run(task="begin")
    feed(run, STARTED)
    for n in range(2_000):
        feed(run, events.Nudged(float(n), 1, f"try number {n} " + "x" * 100))
    assert sum(len(json.dumps(message)) for message in run._said_so_far.messages) < 20_000
    feed(run, events.RunTerminated(2_000.0, outcome()))
    read = messages_of(recorder.named("invoke_agent researcher"), "gen_ai.input.messages")
    assert read[0].parts[0].content == "begin"
    assert "1999" in str(read[-1].parts[0].content)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_span_has_fewer_attributes_than_an_sdk_keeps(recorder: Recorder, dialect: Dialect):
    calls = tuple(ToolCall(f"c{n}", "search", {"n": n}) for n in range(200))
    ended = events.TurnEnded(2.0, Turn(number=1, text="t", tool_calls=calls, usage=USAGE))
    sink = recorder.sink(content=True, dialect=dialect)
    feed(sink, STARTED, events.TurnStarted(1.0, 1, 1), ended, events.RunTerminated(3.0, outcome()))
    assert max(len(span.attributes or {}) for span in recorder.spans) < 100
    assert sum(span.dropped_attributes for span in recorder.spans) == 0


# --- sampling, markers, links, time


class Asked(Sampler):
    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []

    def should_sample(self, parent_context: Any, trace_id: int, name: str, *args: Any, **more: Any) -> SamplingResult:
        given = more.get("attributes") or (args[1] if len(args) > 1 else {})
        self.seen.append((name, dict(given)))
        return SamplingResult(Decision.RECORD_AND_SAMPLE, given)

    def get_description(self) -> str:
        return "asked"


def test_a_sampler_sees_operation_provider_model_and_conversation_at_the_start():
    sampler = Asked()
    recorder = Recorder(sampler=sampler)
    with recorder.sink(model="openai:gpt-5", conversation="s-1") as sink:
        feed(sink, *whole_run())
    for name, attributes in sampler.seen:
        if name.split(" ")[0] in {"invoke_agent", "chat", "execute_tool"}:
            assert attributes["gen_ai.conversation.id"] == "s-1"
            assert attributes["gen_ai.provider.name"] == "openai"
    by_name = dict(reversed(sampler.seen))
    assert by_name["invoke_agent researcher"]["gen_ai.request.model"] == "gpt-5"
    assert by_name["chat gpt-5"]["gen_ai.operation.name"] == "chat"
    assert by_name["execute_tool search"]["gen_ai.tool.name"] == "search"


def test_a_run_that_is_not_sampled_makes_no_spans_and_still_counts():
    recorder = Recorder(sampler=ALWAYS_OFF)
    with recorder.sink() as sink:
        feed(sink, *whole_run())
    assert recorder.spans == []
    assert recorder.metrics()["monitor.stops"][0].value == 1


def test_a_run_under_way_is_seen_by_its_start_marker_and_its_turns(recorder: Recorder):
    feed(recorder.sink(), *whole_run()[:4])
    assert [span.name for span in recorder.spans] == ["invoke_agent researcher started", "chat m1"]
    marker = recorder.spans[0]
    assert marker.start_time == marker.end_time
    assert (marker.attributes or {})["gen_ai.agent.name"] == "researcher"
    feed(recorder.sinks[0], events.RunTerminated(9.0, outcome()))
    run = recorder.named("invoke_agent researcher")
    assert marker.parent is not None
    assert marker.parent.span_id == run.context.span_id


def test_a_resumed_run_is_a_new_span_with_a_link(recorder: Recorder):
    sink = recorder.sink()
    first = sink.for_run()
    feed(first, STARTED)
    feed(first, events.RunTerminated(1.0, outcome(TerminateReason.PAUSED)))
    stored = first.traceparent
    assert stored is not None
    second = sink.for_run(resumes=stored)
    feed(second, STARTED, events.RunTerminated(1.0, outcome()))
    before, after = [span for span in recorder.spans if span.name == "invoke_agent researcher"]
    if before.links:
        before, after = after, before
    assert stored[:-3] == f"00-{before.context.trace_id:032x}-{before.context.span_id:016x}"
    assert [link.context.span_id for link in after.links] == [before.context.span_id]
    assert (after.attributes or {})["monitor.resumed"] is True
    assert after.context.trace_id != before.context.trace_id


@pytest.mark.parametrize("wrong", ["", "00-1-2-3", "01-" + "a" * 32 + "-" + "b" * 16 + "-01"])
def test_a_text_that_is_no_traceparent_is_refused(recorder: Recorder, wrong: str):
    with pytest.raises(ConfigError, match="traceparent"):
        recorder.sink().for_run(resumes=wrong)


def test_a_jump_of_the_system_clock_does_not_reorder_the_spans(recorder: Recorder):
    times = iter([WALL_NS, WALL_NS - 10**12, WALL_NS + 10**15])
    feed(recorder.sink(now_ns=lambda: next(times)), *whole_run())
    run = recorder.named("invoke_agent researcher")
    assert run.start_time == WALL_NS
    for span in recorder.spans:
        times_of_span: list[Any] = [run.start_time, span.start_time, span.end_time, run.end_time]
        assert times_of_span == sorted(times_of_span)


def test_what_is_open_at_the_end_is_ended_and_says_that_it_is_unfinished(recorder: Recorder):
    run = whole_run()
    feed(recorder.sink(), *run[:7], run[10], run[11], events.TurnStarted(7.0, 2, 2), run[-1])
    unfinished = {span.name for span in recorder.spans if (span.attributes or {}).get("monitor.unfinished")}
    assert unfinished == {
        "monitor.wait approval",
        "execute_tool search",
        "chat loop_judge",
        "invoke_agent compact",
        "chat m1",
    }


# --- errors and estimates


def test_only_an_end_that_is_an_error_has_the_status_of_one(recorder: Recorder):
    for reason in TerminateReason:
        feed(recorder.sink(agent=reason.value), STARTED, events.RunTerminated(1.0, outcome(reason)))
    failed = {span.name.split()[1] for span in recorder.spans if span.status.status_code is StatusCode.ERROR}
    assert failed == {
        *("rate_limited", "invalid_stream", "truncated", "error", "consecutive_errors"),
        *("budget_busy", "budget_unreachable"),
    }
    assert failed == {span.name.split()[1] for span in recorder.spans if "error.type" in (span.attributes or {})}


def test_a_failed_call_has_its_kind_and_an_estimate_says_so(recorder: Recorder):
    failed = Turn(number=1, model_error=ModelError(ErrorKind.NETWORK, "gone"), usage=USAGE, usage_estimated=True)
    sink = recorder.sink()
    feed(sink, STARTED, events.TurnStarted(1.0, 1, 1), events.TurnEnded(2.0, failed), whole_run()[-1])
    turn, run = recorder.named("chat m1"), recorder.named("invoke_agent researcher")
    assert (turn.attributes or {})["error.type"] == "network"
    assert turn.status.status_code is StatusCode.ERROR
    for span in (turn, run):
        assert (span.attributes or {})["monitor.usage.estimated"] is True


def test_a_repeated_text_is_its_hash_and_length(recorder: Recorder):
    feed(recorder.sink(), *whole_run())
    turn = [span for span in recorder.spans if span.name == "chat m1"][1]
    found = next(event for event in turn.events if event.name == "monitor.detection")
    assert dict(found.attributes or {})["monitor.evidence.hash"] == "ab" * 8


# --- nothing twice


def instrumented(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, name, ModuleType(name))


@pytest.mark.parametrize(("turns", "spans"), [("auto", 0), ("on", 2), ("off", 0)])
def test_beside_an_instrumentor_of_the_same_sdk_there_is_no_second_span(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, turns: str, spans: int
):
    instrumented(monkeypatch, "opentelemetry.instrumentation.openai_v2")
    feed(recorder.sink(model="openai:gpt-5", turns=turns), *whole_run())
    assert sum(span.name == "chat gpt-5" for span in recorder.spans) == spans
    assert recorder.named("execute_tool search").name


def test_an_instrumentor_of_another_sdk_takes_nothing_away(recorder: Recorder, monkeypatch: pytest.MonkeyPatch):
    instrumented(monkeypatch, "opentelemetry.instrumentation.anthropic")
    feed(recorder.sink(model="openai:gpt-5"), *whole_run())
    assert sum(span.name == "chat gpt-5" for span in recorder.spans) == 2


@pytest.mark.parametrize(
    "given", [{"gen_ai.operation.name": "invoke_agent"}, {"openinference.span.kind": "AGENT"}], ids=DIALECTS
)
def test_inside_the_agent_of_a_framework_the_run_is_told_on_its_span(recorder: Recorder, given: dict[str, str]):
    tracer = recorder.tracers.get_tracer("framework")
    with tracer.start_as_current_span("their agent", attributes=given):
        feed(recorder.sink(), *whole_run())
    assert [span.name for span in recorder.spans] == ["their agent"]
    theirs = recorder.named("their agent")
    assert (theirs.attributes or {})["monitor.reason"] == "loop_detected"
    assert "gen_ai.usage.input_tokens" not in (theirs.attributes or {})
    assert {"monitor.detection", "monitor.nudge", "monitor.stop"} <= {event.name for event in theirs.events}


def test_a_span_of_the_program_is_the_parent_and_stays_as_it_is(recorder: Recorder):
    with recorder.tracers.get_tracer("program").start_as_current_span("request"):
        feed(recorder.sink(), *whole_run())
    assert recorder.parent_of(recorder.named("invoke_agent researcher")) == "request"
    assert not recorder.named("request").attributes


# --- exporters


class Blocked(SpanProcessor):
    """Its exporter hangs."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def on_end(self, span: ReadableSpan) -> None:
        self.go.wait(30)


def test_an_exporter_that_hangs_does_not_hold_the_run_and_drops_are_counted():
    tracers, blocked = TracerProvider(shutdown_on_exit=False), Blocked()
    tracers.add_span_processor(blocked)
    sink = OtelSink(tracer_provider=tracers, queued_spans=8)
    for _ in range(5):
        feed(sink, *whole_run())
    assert sink.dropped > 0
    assert sink.flush(0.01) is False
    blocked.go.set()
    assert sink.close()


class Raising(SpanProcessor):
    def on_end(self, span: ReadableSpan) -> None:
        raise OSError("no route")


def test_a_span_processor_that_raises_is_reported_once_as_a_failed_sink():
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(Raising())
    memory = MemorySink()
    with OtelSink(tracer_provider=tracers) as sink:
        fan = FanOut([sink, memory])
        for event in whole_run():
            fan.emit(event)
            sink.flush()
    failed = [event for event in memory.events if isinstance(event, events.SinkFailed)]
    assert len(failed) == 1
    assert "OSError: no route" in failed[0].why


def test_a_forked_process_gets_a_queue_of_its_own(monkeypatch: pytest.MonkeyPatch):
    ended: list[int] = []

    class Span:
        def set_attributes(self, given: dict[str, Any]) -> None:
            ended.append(len(given))

        def end(self, end_time: int) -> None:
            ended.append(end_time)

    exports = Exports()
    exports.end(Span(), 1)
    assert exports.flush(5)
    monkeypatch.setattr("monitor.sinks.otel.exports.os.getpid", lambda: -1)
    exports.end(Span(), 2, {"a": 1, "b": 2, "c": 3})
    assert exports.close(5)
    assert ended == [1, 3, 2]


def test_a_closed_sink_serves_another_run(recorder: Recorder):
    sink = recorder.sink()
    sink.close()
    feed(sink, *whole_run())
    assert sink.close()
    assert recorder.named("invoke_agent researcher").name


# --- real runs


def model(*answers: Any) -> ScriptedModel:
    return ScriptedModel(*answers, name="scripted:m1")


@pytest.mark.anyio
async def test_a_supervised_run_is_one_trace_with_its_turns_and_tools(recorder: Recorder):
    async def search(q: str) -> str:
        """Search."""
        return f"found {q}"

    script = model([call("search", q="x"), UsageReport(10, 5)], "the answer")
    with recorder.sink() as sink:
        ended = await monitor.Supervisor(script, tools=[search], sinks=[sink]).run("find x")
    assert ended.ok
    assert {(span.name, recorder.parent_of(span)) for span in recorder.spans} == {
        ("invoke_agent researcher", None),
        ("invoke_agent researcher started", "invoke_agent researcher"),
        ("chat m1", "invoke_agent researcher"),
        ("execute_tool search", "invoke_agent researcher"),
    }
    tool = recorder.named("execute_tool search").attributes or {}
    assert tool["monitor.call.state"] == "done"
    points = recorder.metrics()
    assert points["gen_ai.invoke_agent.inference_calls"][0].sum == 2
    assert points["gen_ai.invoke_agent.tool_calls"][0].sum == 1
    assert points["monitor.runs.active"][0].value == 0
    assert {"gen_ai.client.operation.duration", "gen_ai.execute_tool.duration", "gen_ai.client.token.usage"} <= {
        *points
    }


@pytest.mark.anyio
async def test_the_spans_of_a_tool_and_of_a_nested_run_stand_below_the_call(recorder: Recorder):
    tracer = recorder.tracers.get_tracer("program")
    sink = recorder.sink()
    inner = monitor.Supervisor(model("inner answer"), sinks=[recorder.sink(agent="inner")])

    async def fetch() -> str:
        """Fetch."""
        with in_tool_span(), tracer.start_as_current_span("request by await"):
            pass
        return "fetched"

    def compute() -> str:
        """Compute, in a thread."""
        tracer.start_span("request in a thread", context=tool_context()).end()
        return "computed"

    script = model([call("fetch"), call("compute"), call("inner", task="go")], "done")
    tools: list[Any] = [fetch, compute, inner.as_tool(name="inner", description="an agent")]
    ended = await monitor.Supervisor(script, tools=tools, sinks=[sink]).run("go")
    assert ended.ok
    assert recorder.parent_of(recorder.named("request by await")) == "execute_tool fetch"
    assert recorder.parent_of(recorder.named("request in a thread")) == "execute_tool compute"
    assert recorder.parent_of(recorder.named("invoke_agent inner")) == "execute_tool inner"
    assert not trace.get_current_span().get_span_context().is_valid


@pytest.mark.anyio
@pytest.mark.parametrize("given", ["to the caller", "to both", "to each its own"])
async def test_three_nested_runs_at_once_stand_each_below_its_own_call(recorder: Recorder, given: str):
    sink = recorder.sink(agent="lead")
    names = ("north", "south", "west")

    def inner(name: str) -> Any:
        own = {"to both": [sink], "to each its own": [recorder.sink(agent=f"the {name}", model="scripted:own")]}
        supervisor = monitor.Supervisor(
            ScriptedModel([call("look")], "done", name=f"openai:{name}"), tools=[look], sinks=own.get(given, [])
        )
        return supervisor.as_tool(name=name, description="an agent")

    async def look() -> str:
        """Look."""
        await anyio.lowlevel.checkpoint()
        return "closed"

    script = model([call(name, task="go") for name in names], "done")
    ended = await monitor.Supervisor(script, tools=[inner(name) for name in names], sinks=[sink]).run("go")
    assert ended.ok
    spans = recorder.spans
    assert len({span.context.trace_id for span in spans}) == 1
    for name in names:
        agent = f"the {name}" if given == "to each its own" else name
        run = recorder.named(f"invoke_agent {agent}")
        assert recorder.parent_of(run) == f"execute_tool {name}"
        below = [span for span in spans if span.parent is not None and span.parent.span_id == run.context.span_id]
        model_name = "own" if given == "to each its own" else name
        told = sorted(span.name for span in below)
        assert told == [f"chat {model_name}"] * 2 + ["execute_tool look", f"invoke_agent {agent} started"]
        assert (run.attributes or {})["gen_ai.request.model"] == model_name
    assert recorder.named("invoke_agent lead").parent is None


@pytest.mark.anyio
async def test_two_dialects_are_two_sinks_for_nested_runs_too(recorder: Recorder):
    sinks = [recorder.sink(agent="lead"), recorder.sink(agent="lead", dialect="openinference")]
    inner = monitor.Supervisor(model("inner answer")).as_tool(name="inner", description="an agent")
    await monitor.Supervisor(model([call("inner", task="go")], "done"), tools=[inner], sinks=sinks).run("go")
    runs = [span for span in recorder.spans if span.name == "invoke_agent inner"]
    assert len(runs) == 2
    assert {recorder.parent_of(run) for run in runs} == {"execute_tool inner"}
    assert len({run.context.trace_id for run in runs}) == 2


@pytest.mark.anyio
async def test_the_clock_of_a_run_is_the_anchor_of_its_spans(recorder: Recorder):
    memory = monitor.sinks.MemorySink()
    sink = recorder.sink(now_ns=None)
    await monitor.Supervisor(model("an answer"), sinks=[sink, memory]).run("go")
    began_s = memory.envelopes[0].identity.began_s
    assert recorder.named("invoke_agent researcher").start_time == round(began_s * 1e9)


@pytest.mark.anyio
async def test_two_runs_of_one_sink_at_once_are_two_traces(recorder: Recorder):
    sink = recorder.sink()

    async def one() -> None:
        await monitor.Supervisor(model("an answer"), sinks=[sink]).run("go")

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(one)
    runs = [span for span in recorder.spans if span.name == "invoke_agent researcher"]
    assert len({span.context.trace_id for span in runs}) == 5
    for span in recorder.spans:
        assert span.parent is None or any(span.parent.span_id == run.context.span_id for run in runs)


async def _leaves_early(sink: OtelSink) -> None:
    run = monitor.Supervisor(model(["a ", "b ", "c"]), sinks=[sink]).stream("go")
    async with run:
        async for _ in run:
            break


async def _aborts(sink: OtelSink) -> None:
    run = monitor.Supervisor(model(["a ", "b ", "c"]), sinks=[sink]).stream("go")
    async with run:
        async for _ in run:
            run.abort()


async def _cancelled(sink: OtelSink) -> None:
    with anyio.CancelScope() as scope:
        async with monitor.Guard(sinks=[sink]) as guard, guard.watch(_chunks()) as watched:
            async for _ in watched:
                scope.cancel()
                await anyio.lowlevel.checkpoint()


async def _closed_by_another_task(sink: OtelSink) -> None:
    async def reads() -> Any:
        async with monitor.watch(_chunks(), sinks=[sink]) as watched:
            async for chunk in watched:
                yield chunk

    generator: Any = reads()
    await anext(generator)
    async with anyio.create_task_group() as group:
        group.start_soon(generator.aclose)


async def _chunks() -> Any:
    for _ in range(20):
        yield TextDelta("some text, ")
        await anyio.lowlevel.checkpoint()
    yield TurnFinished(FinishReason.DONE)


@pytest.mark.anyio
@pytest.mark.parametrize("scenario", [_leaves_early, _aborts, _cancelled, _closed_by_another_task])
async def test_an_early_end_logs_no_error_and_leaves_no_span_current(
    recorder: Recorder, scenario: Any, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING)
    await scenario(recorder.sink())
    assert [record.getMessage() for record in caplog.records] == []
    assert not trace.get_current_span().get_span_context().is_valid
    run = recorder.named("invoke_agent researcher")
    assert (run.attributes or {})["monitor.reason"] in {"closed_by_caller", "aborted", "cancelled"}


@pytest.mark.anyio
async def test_nothing_is_current_while_the_callers_code_runs(recorder: Recorder):
    async with monitor.watch(_chunks(), sinks=[recorder.sink()]) as watched:
        async for _ in watched:
            assert not trace.get_current_span().get_span_context().is_valid


@pytest.mark.anyio
async def test_a_chant_in_a_watched_stream_is_an_event_of_its_turn(recorder: Recorder):
    async def chanting() -> Any:
        for at in range(0, len(CHANT), 7):
            yield TextDelta(CHANT[at : at + 7])

    async with monitor.watch(chanting(), sinks=[recorder.sink()]) as watched:
        async for _ in watched:
            pass
    assert watched.outcome.reason is TerminateReason.LOOP_DETECTED
    names = [event.name for event in recorder.named("chat m1").events]
    assert names[0] == "monitor.detection"
    assert (recorder.named("chat m1").attributes or {})["monitor.closed"] is True


@pytest.mark.anyio
async def test_a_loop_of_calls_is_told_on_the_run(recorder: Recorder):
    def look() -> str:
        """Look."""
        return "nothing"

    answers = [[ToolCall(f"c{n}", "look", {})] for n in range(12)]
    clock = FakeClock()
    supervisor = monitor.Supervisor(
        model(*answers), tools=[look], sinks=[recorder.sink()], detectors=[ToolCallRepetition()], clock=clock
    )
    ended = await supervisor.run("go")
    assert ended.reason is TerminateReason.LOOP_DETECTED
    run = recorder.named("invoke_agent researcher")
    assert (run.attributes or {})["gen_ai.agent.finish_reason"] == "guardrail"
    told = [event.name for span in recorder.spans for event in span.events]
    assert "monitor.detection" in told


# --- what it costs when it is not there


@pytest.mark.parametrize("program", ["import monitor, monitor.sinks", "from monitor.sinks import JsonlSink"])
def test_nothing_of_opentelemetry_is_imported_without_the_sink(program: str):
    check = f"{program}; import sys; print([name for name in sys.modules if name.startswith('opentelemetry')])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, timeout=250)
    assert done.stdout.strip() == "[]"


def test_without_the_api_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    for name in [name for name in sys.modules if name.startswith("monitor.sinks.otel")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtra, match=r"agent-monitor\[otel\]"):
        __import__("monitor.sinks.otel.sink")


@pytest.mark.parametrize(
    "wrong", [{"dialect": "langfuse"}, {"turns": "yes"}, {"content_chars": 3}, {"queued_spans": 0}]
)
def test_an_option_that_means_nothing_is_refused(wrong: dict[str, Any]):
    with pytest.raises(ConfigError):
        OtelSink(**wrong)


def test_the_global_providers_are_left_alone():
    before = trace.get_tracer_provider()
    with OtelSink() as sink:
        feed(sink, *whole_run())
    assert trace.get_tracer_provider() is before


def test_a_call_record_sets_no_context_of_opentelemetry(recorder: Recorder):
    run = recorder.sink().for_run()
    running = CallRecord(run="r", call_id="c1", tool="search", arguments={}, key="k", state=CallState.RUNNING)
    feed(run, STARTED, events.ToolStarted(1.0, 1, CALL), events.ToolCallChanged(1.0, 1, running))
    assert not trace.get_current_span().get_span_context().is_valid
    assert trace.get_current_span(tool_context()).get_span_context().is_valid
    feed(run, events.ToolFinished(2.0, 1, ToolResult("c1", "search", "x"), 1.0))
    assert not trace.get_current_span(tool_context()).get_span_context().is_valid
