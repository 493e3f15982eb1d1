"""An OpenTelemetry SDK that keeps spans, metrics and log records in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk._logs import LoggerProvider, ReadableLogRecord
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

from monitor.sinks import OtelSink

WALL_NS = 1_700_000_000_000_000_000


class Recorder:
    """An SDK that keeps spans and metrics in memory."""

    def __init__(self, *, sampler: Sampler | None = None) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.kept_records = InMemoryLogRecordExporter()
        self.loggers = LoggerProvider(shutdown_on_exit=False)
        self.loggers.add_log_record_processor(SimpleLogRecordProcessor(self.kept_records))
        self.sinks: list[OtelSink] = []

    def sink(self, **options: Any) -> OtelSink:
        given: dict[str, Any] = {"model": "scripted:m1", "agent": "researcher", "now_ns": lambda: WALL_NS} | options
        made = OtelSink(tracer_provider=self.tracers, meter_provider=self.meters, logger_provider=self.loggers, **given)
        self.sinks.append(made)
        return made

    @property
    def spans(self) -> list[Any]:
        """The exported spans, in the order of their start, children behind their parents."""
        for sink in self.sinks:
            assert sink.flush()
        return sorted(self.exporter.get_finished_spans(), key=lambda span: (span.start_time, span.context.span_id))

    @property
    def records(self) -> list[ReadableLogRecord]:
        """The log records, in the order in which they were made."""
        for sink in self.sinks:
            assert sink.flush()
        return list(self.kept_records.get_finished_logs())

    def close(self) -> None:
        for sink in self.sinks:
            sink.close()
        self.tracers.shutdown()
        self.meters.shutdown()
        self.loggers.shutdown()

    def named(self, name: str) -> Any:
        found = [span for span in self.spans if span.name == name]
        assert len(found) == 1, [span.name for span in self.spans]
        return found[0]

    def parent_of(self, span: ReadableSpan) -> str | None:
        by_id = {one.context.span_id: one.name for one in self.spans}
        return by_id.get(span.parent.span_id, "(outside)") if span.parent is not None else None

    def scopes_of(self, metric: str) -> set[str]:
        """Who has measured `metric`."""
        data = self.reader.get_metrics_data()
        return {
            scope.scope.name
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            if any(one.name == metric for one in scope.metrics)
        }

    def metrics(self) -> dict[str, list[Any]]:
        data = self.reader.get_metrics_data()
        return {
            metric.name: list(metric.data.data_points)
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@contextmanager
def recording() -> Iterator[Recorder]:
    """A recorder whose sinks are closed afterwards."""
    made = Recorder()
    try:
        yield made
    finally:
        made.close()
