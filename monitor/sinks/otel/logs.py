"""Moments of a run as OpenTelemetry log records with the names of the events.

The record has the ids of the span that was open, so a viewer shows it beside that span.
"""

from __future__ import annotations

from typing import Any

from opentelemetry._logs import LoggerProvider, LogRecord, SeverityNumber, get_logger
from opentelemetry.context import Context

from monitor.sinks.otel.exports import Exports


class Records:
    """Makes the log records of all runs of one sink."""

    def __init__(self, scope: str, version: str, provider: LoggerProvider | None, exports: Exports) -> None:
        self._logger = get_logger(scope, version, provider)
        self._exports = exports

    def write(self, name: str, attributes: dict[str, Any], at_ns: int, context: Context, *, warns: bool) -> None:
        """One record, soon. `warns`: the monitor has found or done something."""
        severity = SeverityNumber.WARN if warns else SeverityNumber.INFO
        record = LogRecord(
            timestamp=at_ns,
            observed_timestamp=at_ns,
            context=context,
            severity_number=severity,
            severity_text=severity.name,
            attributes=attributes,
            event_name=name,
        )
        self._exports.log(self._logger, record)
