"""Events as log lines, through structlog where the program has configured it, else through the
standard library.
"""

from __future__ import annotations

import logging
from typing import Any

import structlog

from monitor._util.codec import tag_of
from monitor.events import (
    BudgetLost,
    CompactionFailed,
    ContextFull,
    ContextNearlyFull,
    Event,
    HistoryRepaired,
    LimitWarning,
    RunTerminated,
    SinkFailed,
    StopDecided,
    StreamFailed,
    WindowWarning,
    event_codec,
)

_LOUD = (
    BudgetLost,
    LimitWarning,
    WindowWarning,
    ContextNearlyFull,
    ContextFull,
    HistoryRepaired,
    CompactionFailed,
    StopDecided,
    StreamFailed,
    SinkFailed,
)


_OF_RECORDS = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})
"""The attributes of the standard library's log records. A record refuses extra fields with these
names, such as `name`.
"""


class LogSink:
    """One line an event: problems as warnings, the end of the run as info, all others as debug."""

    def emit(self, event: Event) -> None:
        """Log `event` with its fields."""
        level = (
            logging.WARNING
            if isinstance(event, _LOUD)
            else logging.INFO
            if isinstance(event, RunTerminated)
            else logging.DEBUG
        )
        _logger().log(level, tag_of(type(event)), **_fields(event))


def _fields(event: Event) -> dict[str, Any]:
    if isinstance(event, RunTerminated):
        outcome = event.outcome
        return {
            "reason": outcome.reason.value,
            "detail": outcome.detail,
            "ok": outcome.ok,
            "elapsed_s": outcome.elapsed_s,
        }
    fields = event_codec.to_dict(event)
    fields.pop("type")
    return {f"{name}_" if name in _OF_RECORDS else name: value for name, value in fields.items()}


def _logger() -> Any:
    """The logger, chosen at every call, because a program may configure structlog after this module
    was imported.

    An unconfigured structlog prints every level to stdout, which would corrupt a program's own
    output.
    """
    if structlog.is_configured():
        return structlog.get_logger("monitor")
    return structlog.wrap_logger(
        logging.getLogger("monitor"),
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.render_to_log_kwargs],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
