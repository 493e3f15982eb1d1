"""The OpenTelemetry span of a watched request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monitor.proxy.state.runs import ProxiedRun
from monitor.proxy.transport.headers import Headers, first
from monitor.usage import Usage

if TYPE_CHECKING:
    from monitor.sinks.otel.request_spans import RequestSpan, RequestSpans


def begin_span(spans: RequestSpans | None, headers: Headers, run: ProxiedRun) -> RequestSpan | None:
    """The span of a request that has come. `None`: no spans are made."""
    if spans is None:
        return None
    operation = "generate_content" if run.wire == "gemini" else "chat"
    parent = first(headers, b"traceparent")
    return spans.begin(operation, run.model, traceparent=parent.decode("latin-1") if parent is not None else None)


def end_span(span: RequestSpan, run: ProxiedRun, status: int, usage: Usage) -> None:
    """End the span of a request, whose answer had this `status`."""
    stop = run.last_stop if run.state in {"stopped", "failed"} else None
    facts: dict[str, str | int | float | None] = {
        "conversation": run.id,
        "key": run.key,
        "state": run.state,
        "stop": stop["reason"] if stop is not None else None,
        "status": status or None,
        "input_tokens": usage.input_tokens or None,
        "output_tokens": usage.output_tokens or None,
    }
    span.end(facts, error="upstream" if run.state == "failed" else "")
