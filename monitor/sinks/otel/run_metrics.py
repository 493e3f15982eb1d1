"""The measurements of runs, as OpenTelemetry metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.metrics import MeterProvider, get_meter

from monitor.outcome import Outcome, Turn, is_success
from monitor.sinks.otel import names
from monitor.usage import Usage

_LENGTHS: Final = (100, 400, 1_600, 6_400, 25_600, 102_400, 409_600)
"""Bounds of the histograms of lengths: a loop is cut after some hundred characters, a limit ends a
run after some hundred thousand. The bounds of an SDK end at 10,000.
"""


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
        self._stops = meter.create_counter(names.METRIC_STOPS, "{run}", "Ends of runs by reason")
        self.detections = meter.create_counter(names.METRIC_DETECTIONS, "{detection}", "Detections")
        self._refused = meter.create_counter(names.METRIC_REFUSED, "{run}", "Runs that a budget has ended")
        self.active = meter.create_up_down_counter(names.METRIC_ACTIVE, "{run}", "Runs under way")
        self._stop_tokens = meter.create_histogram(
            names.METRIC_STOP_TOKENS,
            "{token}",
            "Output tokens of a run until it was ended without success",
            explicit_bucket_boundaries_advisory=_LENGTHS,
        )
        self._stop_chars = meter.create_histogram(
            names.METRIC_STOP_CHARS,
            "{char}",
            "Visible characters of the response in which a run was ended without success",
            explicit_bucket_boundaries_advisory=_LENGTHS,
        )
        self.close_s = meter.create_histogram(names.METRIC_CLOSE, "s", "From the decision to the closed stream")

    def ended(self, outcome: Outcome, attributes: Mapping[str, Any]) -> None:
        """Count the end of a run, and measure the length of one that had no success."""
        why = {**attributes, names.REASON: outcome.reason.value}
        self._stops.add(1, why)
        if outcome.source.startswith("Budget"):
            self._refused.add(1, why)
        if not outcome.ok and outcome.usage.output_tokens:
            self._stop_tokens.record(outcome.usage.output_tokens, why)

    def cut(self, turn: Turn, attributes: Mapping[str, Any]) -> None:
        """Measure the length of a response in which a run was ended without success."""
        stop = turn.stopped
        if stop is not None and turn.text_chars and not is_success(stop):
            self._stop_chars.record(turn.text_chars, {**attributes, names.REASON: stop.reason.value})

    def tokens(self, usage: Usage, attributes: dict[str, Any]) -> None:
        """Record the tokens of one model call."""
        kind = "gen_ai.token.type"
        if usage.input_tokens:
            self._tokens.record(usage.input_tokens, {**attributes, kind: "input"})
        if usage.output_tokens:
            self._tokens.record(usage.output_tokens, {**attributes, kind: "output"})
