"""What viewers make of the spans, and the metrics of stops.

The rule of `kind_of` is that of Phoenix 20 (`phoenix/trace/gen_ai`) and of Langfuse
(`ObservationTypeMapper`). Where they differ, the wider one stands here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from monitor import events
from monitor.chunks import Usage
from monitor.errors import SUCCESSES, TerminateReason
from monitor.outcome import Turn
from monitor.sinks.otel.names import DIALECTS, Dialect
from monitor.verdicts import Stop
from tests.sinks.otel.recorder import Recorder, recording
from tests.sinks.otel.run import STARTED, outcome, whole_run

OPERATIONS = {"chat": "llm", "generate_content": "llm", "invoke_agent": "agent", "execute_tool": "tool"}
MODELS = {"gen_ai.request.model", "gen_ai.response.model", "llm.model_name", "model"}
MESSAGES = {"gen_ai.input.messages", "gen_ai.output.messages"}


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with recording() as made:
        yield made


def kind_of(attributes: Mapping[str, Any]) -> str:
    """What a viewer takes a span for."""
    if "openinference.span.kind" in attributes:
        return str(attributes["openinference.span.kind"]).lower()
    if "gen_ai.operation.name" in attributes:
        return OPERATIONS[attributes["gen_ai.operation.name"]]
    if attributes.keys() & {"gen_ai.tool.name", "gen_ai.tool.call.id"}:
        return "tool"
    return "llm" if attributes.keys() & (MODELS | MESSAGES) else "step"


def kinds(recorder: Recorder) -> Counter[str]:
    return Counter(kind_of(span.attributes or {}) for span in recorder.spans)


@pytest.mark.parametrize("content", [False, True], ids=["names", "content"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_viewer_counts_as_many_calls_agents_and_tools_as_there_were(
    recorder: Recorder, dialect: Dialect, content: bool
):
    sink = recorder.sink(dialect=dialect, model="google:gemini-2.5-flash", conversation="s-1", content=content)
    run = sink.for_run(task="find it")
    for event in whole_run():
        run.emit(event)
    found = kinds(recorder)
    judge = dialect == "genai"  # OpenInference has a kind of its own for a judge
    assert found["llm"] == 2 + 1 + judge, "two turns, one summary"
    assert found["tool"] == 1
    assert found["agent"] == 1 + judge, "in the GenAI conventions a compaction is an agent"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_start_marker_is_neither_a_call_nor_an_agent(recorder: Recorder, dialect: Dialect):
    recorder.sink(dialect=dialect, model="openai:gpt-5", content=True).emit(STARTED)
    sink = recorder.sinks[0]
    sink.emit(events.TurnStarted(1.0, 1, 1))
    (marker,) = recorder.spans
    assert (marker.attributes or {})["monitor.start_marker"] is True
    assert kind_of(marker.attributes or {}) in {"step", "chain"}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_inside_the_trace_of_a_framework_the_run_is_neither_a_call_nor_an_agent(recorder: Recorder, dialect: Dialect):
    sink = recorder.sink(dialect=dialect, content=True)
    first, *others = whole_run()
    sink.emit(first)
    theirs = recorder.tracers.get_tracer("opentelemetry.instrumentation.genai.agents")
    with theirs.start_as_current_span("their step"):
        for event in others:
            sink.emit(event)
    run = recorder.named("monitor.run researcher").attributes or {}
    assert run["monitor.reason"] == "loop_detected"
    assert kind_of(run) in {"step", "chain"}
    assert not kinds(recorder).keys() & {"llm", "agent"}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_one_query_finds_the_stopped_runs_and_no_other_span(recorder: Recorder, dialect: Dialect):
    for reason in TerminateReason:
        sink = recorder.sink(dialect=dialect, agent=reason.value)
        stop = Stop(reason, "it ended", "s")
        for event in (
            STARTED,
            events.StopDecided(1.0, stop),
            events.RunTerminated(1.0, outcome(reason)),
        ):
            sink.emit(event)
    ended = [span for span in recorder.spans if (span.attributes or {}).get("monitor.ok") is False]
    assert {span.name for span in ended} == {
        f"invoke_agent {one.value}" for one in TerminateReason if one not in SUCCESSES
    }
    assert len(ended) == len(TerminateReason) - len(SUCCESSES)
    for span in ended:
        told = span.attributes or {}
        assert told["langfuse.observation.metadata.monitor_reason"] == told["monitor.reason"]


def test_a_goal_is_no_guardrail(recorder: Recorder):
    for reason in (TerminateReason.GOAL, TerminateReason.LOOP_DETECTED):
        sink = recorder.sink(dialect="openinference", agent=reason.value)
        for event in (STARTED, events.StopDecided(1.0, Stop(reason, "it ended", "s"))):
            sink.emit(event)
    stops = [span.attributes or {} for span in recorder.spans if span.name == "monitor.stop"]
    assert {one["monitor.reason"]: one["openinference.span.kind"] for one in stops} == {
        "goal": "CHAIN",
        "loop_detected": "GUARDRAIL",
    }


def test_stops_are_counted_and_their_lengths_measured_by_reason(recorder: Recorder):
    ends = [
        (TerminateReason.LOOP_DETECTED, 300, 80),
        (TerminateReason.LOOP_DETECTED, 700, 200),
        (TerminateReason.MAX_TURNS, 0, 9_000),
        (TerminateReason.GOAL, 5_000, 1_200),
    ]
    for reason, chars, tokens in ends:
        sink, usage = recorder.sink(), Usage(output_tokens=tokens)
        turn = Turn(number=1, text_chars=chars, usage=usage, stopped=Stop(reason, "it ended", "s"))
        for event in (
            STARTED,
            events.TurnStarted(1.0, 1, 1),
            events.TurnEnded(2.0, turn),
            events.RunTerminated(2.0, outcome(reason, usage=usage)),
        ):
            sink.emit(event)
    measured = recorder.metrics()

    def sums(metric: str) -> dict[str, tuple[int, float]]:
        return {one.attributes["monitor.reason"]: (one.count, one.sum) for one in measured[metric]}

    assert {one.attributes["monitor.reason"]: one.value for one in measured["monitor.stops"]} == {
        "loop_detected": 2,
        "max_turns": 1,
        "goal": 1,
    }
    assert sums("monitor.stop.chars") == {"loop_detected": (2, 1_000)}, "of nothing written nothing is known"
    assert sums("monitor.stop.tokens") == {"loop_detected": (2, 280), "max_turns": (1, 9_000)}
    (loops, _) = measured["monitor.stop.tokens"]
    assert loops.explicit_bounds[-1] > 100_000, "a limit is farther than the bounds of an SDK"


def test_the_metrics_of_stops_are_there_where_somebody_else_makes_the_spans(recorder: Recorder):
    given = {"gen_ai.operation.name": "invoke_agent"}
    with recorder.tracers.get_tracer("framework").start_as_current_span("their agent", attributes=given):
        sink = recorder.sink()
        for event in whole_run():
            sink.emit(event)
    measured = recorder.metrics()
    assert {"monitor.stops", "monitor.stop.tokens"} <= measured.keys()
    assert "gen_ai.invoke_agent.duration" not in measured
