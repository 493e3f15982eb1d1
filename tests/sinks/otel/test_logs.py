"""Moments of a run as log records; and all names, beside the packages that define them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.semconv._incubating.attributes import error_attributes, gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

from monitor import events
from monitor.sinks import FanOut, MemorySink, OtelSink
from monitor.sinks.otel import names as otel_names
from tests.sinks.otel.recorder import WALL_NS, Recorder, recording
from tests.sinks.otel.run import whole_run

MOMENTS = {"monitor.detection", "monitor.nudge", "monitor.stop", "monitor.approval", "gen_ai.evaluation.result"}


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with recording() as made:
        yield made


def feed(sink: Any) -> None:
    for event in whole_run():
        sink.emit(event)


def on_spans(recorder: Recorder) -> set[str]:
    return {event.name for span in recorder.spans for event in span.events}


@pytest.mark.parametrize(
    ("moments", "spans", "logs"), [("spans", True, False), ("logs", False, True), ("both", True, True)]
)
def test_moments_are_told_where_the_option_says(recorder: Recorder, moments: str, spans: bool, logs: bool):
    feed(recorder.sink(moments=moments))
    assert (on_spans(recorder) >= MOMENTS) is spans
    assert bool(on_spans(recorder)) is spans
    assert ({one.log_record.event_name for one in recorder.records} >= MOMENTS) is logs
    assert bool(recorder.records) is logs


def test_a_record_has_the_event_its_time_its_severity_and_the_ids_of_its_span(recorder: Recorder):
    feed(recorder.sink(moments="logs"))
    turn = [span for span in recorder.spans if span.name == "chat m1"][1]
    record = next(one.log_record for one in recorder.records if one.log_record.event_name == "monitor.detection")
    assert (record.trace_id, record.span_id) == (turn.context.trace_id, turn.context.span_id)
    assert record.timestamp == WALL_NS + 8 * 10**9
    assert record.severity_text == "WARN"
    assert (record.attributes or {})["monitor.evidence.hash"] == "ab" * 8
    assert "secret chant" not in json.dumps(dict(record.attributes or {}))
    output = next(one.log_record for one in recorder.records if one.log_record.event_name == "gen_ai.evaluation.result")
    assert output.severity_text == "INFO"


def test_records_are_written_where_openinference_shows_spans_too(recorder: Recorder):
    feed(recorder.sink(moments="both", dialect="openinference"))
    names = {one.log_record.event_name for one in recorder.records}
    assert {"monitor.detection", "monitor.stop"} <= names & {span.name for span in recorder.spans}


def test_without_a_log_sdk_records_cost_nothing_and_fail_nothing():
    memory = MemorySink()
    with OtelSink(moments="both") as sink:
        fan = FanOut([sink, memory])
        for event in whole_run():
            fan.emit(event)
    assert not [event for event in memory.events if isinstance(event, events.SinkFailed)]


class Raising:
    """A processor of log records whose exporter has no route."""

    def on_emit(self, log_record: Any) -> None:
        raise OSError("no route")

    def shutdown(self) -> None: ...

    def force_flush(self, timeout_millis: int = 0) -> bool:
        return True


def test_a_log_processor_that_raises_is_reported_once_and_never_reaches_the_run():
    loggers, memory = LoggerProvider(shutdown_on_exit=False), MemorySink()
    loggers.add_log_record_processor(Raising())  # type: ignore[arg-type]
    with OtelSink(moments="logs", logger_provider=loggers) as sink:
        fan = FanOut([sink, memory])
        for event in whole_run():
            fan.emit(event)
            sink.flush()
    [failed] = [event for event in memory.events if isinstance(event, events.SinkFailed)]
    assert "no route" in failed.why


# --- the names

GENAI = {value for name, value in vars(gen_ai_attributes).items() if name.isupper() and isinstance(value, str)}
NEWER = {
    "gen_ai.agent.finish_reason",  # proposed
    "gen_ai.conversation.compacted",  # in the conventions since they have a repository of their own
}
"""Names that the released package does not have yet."""


def test_every_name_of_the_genai_dialect_is_one_of_the_conventions():
    used = set(otel_names.NAMES["genai"].values())
    assert used - GENAI - {error_attributes.ERROR_TYPE} == NEWER
    assert not NEWER & GENAI, "the package has it now: take it out of the list"


def test_every_metric_of_the_conventions_has_a_name_of_the_conventions():
    known = {value for name, value in vars(gen_ai_metrics).items() if name.isupper() and isinstance(value, str)}
    ours = {one.name for one in otel_names.INSTRUMENTS.values()}
    assert {name for name in ours if name.startswith("gen_ai.client.")} <= known
    assert {name for name in ours if not name.startswith("gen_ai.client.")} == {
        "gen_ai.invoke_agent.duration", "gen_ai.invoke_agent.inference_calls", "gen_ai.invoke_agent.tool_calls",
        "gen_ai.execute_tool.duration",  # newer than the package
        "monitor.stops", "monitor.detections", "monitor.budget.refused", "monitor.runs.active",
        "monitor.close.duration", "monitor.stop.tokens", "monitor.stop.chars",
    }  # fmt: skip


def test_the_providers_are_those_of_the_conventions():
    names: Any = gen_ai_attributes.GenAiProviderNameValues  # type: ignore[deprecated]  # moved, and not released yet
    known = {one.value for one in names}
    assert set(otel_names.PROVIDERS.values()) - known <= {"moonshot_ai"}


def test_every_name_of_the_openinference_dialect_is_one_of_openinference():
    semconv = pytest.importorskip("openinference.semconv.trace", reason="OpenInference is not installed")
    known = {
        value
        for one in vars(semconv).values()
        if isinstance(one, type)
        for name, value in vars(one).items()
        if name.isupper() and isinstance(value, str)
    }
    used = set(otel_names.NAMES["openinference"].values())
    assert used - known == {"error.type"}


def test_the_messages_are_those_of_the_conventions_own_types(recorder: Recorder):
    types = pytest.importorskip("opentelemetry.util.genai.types", reason="the conventions' package is not installed")
    parts = {
        "text": types.Text,
        "tool_call": types.ToolCallRequestPart,
        "tool_call_response": types.ToolCallResponsePart,
    }
    run = recorder.sink(content=True).for_run(task="find it")
    feed(run)
    read = 0
    for span in recorder.spans:
        for name, kind in (
            ("gen_ai.input.messages", types.InputMessage),
            ("gen_ai.output.messages", types.OutputMessage),
        ):
            for message in json.loads(str((span.attributes or {}).get(name, "[]"))):
                made = [parts[part["type"]](**part) for part in message.pop("parts")]
                message.setdefault("finish_reason", "stop")
                if kind is types.InputMessage:
                    del message["finish_reason"]
                assert kind(parts=made, **message).role in {"user", "assistant", "tool"}
                read += 1
    assert read == 7
