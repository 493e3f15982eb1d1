"""One span for each request that a proxy answers. Needs the extra `otel`.

A request has no loop of its own: its client's program has. So its span begins at the client's span,
if the client sends `traceparent`, and no metrics are made: the proxy has those of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from monitor.errors import MissingExtra

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, Span, SpanKind, Status, StatusCode, TracerProvider
except ImportError:
    raise MissingExtra("opentelemetry-api", "otel") from None

from monitor.errors import ConfigError
from monitor.sinks.otel.names import NAMES
from monitor.sinks.otel.sink import SCOPE, span_context

_NAMES = NAMES["genai"]
_OWN = "agent_monitor."


class RequestSpan:
    """The span of one request. It is never made current."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def end(self, facts: Mapping[str, str | int | float | None], *, error: str = "") -> None:
        """End the span. `facts`: by the keys of `NAMES`, or of our own; `None` is left out.
        `error`: a word for the failure.
        """
        for name, value in facts.items():
            if value is not None:
                self._span.set_attribute(_NAMES.get(name, f"{_OWN}{name}"), value)
        if error:
            self._span.set_attribute(_NAMES["error"], error)
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


class RequestSpans:
    """Makes the spans. The tracer provider is the program's global one, unless it is given."""

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)

    def begin(self, operation: str, model: str, *, traceparent: str | None = None) -> RequestSpan:
        """A request has come. `traceparent`: of the client's span; one that is none is ignored."""
        try:
            parent = span_context(traceparent) if traceparent is not None else None
        except ConfigError:
            parent = None
        context = Context() if parent is None else trace.set_span_in_context(NonRecordingSpan(parent), Context())
        return RequestSpan(
            self._tracer.start_span(
                f"{operation} {model}".strip(),
                context=context,
                kind=SpanKind.SERVER,
                attributes={_NAMES["operation"]: operation, _NAMES["model"]: model},
            )
        )
