"""Runs as OpenTelemetry's spans, metrics and logs."""

from monitor.errors import MissingExtra

try:
    import opentelemetry.trace  # noqa: F401 - the extra is there
except ImportError:
    raise MissingExtra("opentelemetry-api", "otel") from None
