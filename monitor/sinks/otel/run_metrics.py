"""The measurements of runs, as OpenTelemetry metrics."""

from __future__ import annotations

from typing import Any

from opentelemetry.metrics import MeterProvider, get_meter

from monitor.sinks.otel import names
from monitor.usage import Usage


class Metrics:
    """The instruments. They are made once, and cost nothing while no SDK is configured."""

    def __init__(self, scope: str, version: str, provider: MeterProvider | None) -> None:
        meter = get_meter(scope, version, meter_provider=provider)
        self.run_s = meter.create_histogram(names.METRIC_DURATION_RUN, "s", "Duration of runs")
        self.run_calls = meter.create_histogram(names.METRIC_CALLS_RUN, "{call}", "Model calls of runs")
        self.run_tools = meter.create_histogram(names.METRIC_TOOLS_RUN, "{call}", "Tool calls of runs")
        self.tool_s = meter.create_histogram(names.METRIC_DURATION_TOOL, "s", "Duration of tool calls")
        self.call_s = meter.create_histogram(names.METRIC_DURATION_CALL, "s", "Duration of model calls")
        self.first_chunk_s = meter.create_histogram(names.METRIC_FIRST_CHUNK, "s", "Time to the first chunk")
        self._tokens = meter.create_histogram(names.METRIC_TOKENS, "{token}", "Tokens of model calls")
        self.stops = meter.create_counter(names.METRIC_STOPS, "{run}", "Ends of runs by reason")
        self.detections = meter.create_counter(names.METRIC_DETECTIONS, "{detection}", "Detections")
        self.refused = meter.create_counter(names.METRIC_REFUSED, "{run}", "Runs that a budget has ended")
        self.active = meter.create_up_down_counter(names.METRIC_ACTIVE, "{run}", "Runs under way")
        self.close_s = meter.create_histogram(names.METRIC_CLOSE, "s", "From the decision to the closed stream")

    def tokens(self, usage: Usage, attributes: dict[str, Any]) -> None:
        """Record the tokens of one model call."""
        kind = "gen_ai.token.type"
        if usage.input_tokens:
            self._tokens.record(usage.input_tokens, {**attributes, kind: "input"})
        if usage.output_tokens:
            self._tokens.record(usage.output_tokens, {**attributes, kind: "output"})
