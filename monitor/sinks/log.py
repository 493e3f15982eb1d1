"""Events as log lines, through structlog where the program has configured it, else through the
standard library.
"""

from __future__ import annotations

import logging
from typing import Any

import structlog

from monitor._util.codec import tag_of
from monitor.events import Envelope, Event, RunTerminated, StopDecided, event_codec
from monitor.outcome import is_success
from monitor.sinks.descriptions import DESCRIPTIONS

_OF_RECORDS = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})
"""The attributes of the standard library's log records. A record refuses extra fields with these
names, such as `name`.
"""


class LogSink:
    """One line an event: problems as warnings, the end of the run as info, all others as debug.
    `run` and `agent` say whose the event is.

    A stop and an end say their `reason` and `detail`. To stop at the goal is no warning.
    """

    def receive(self, envelope: Envelope) -> None:
        """Log the event of `envelope` with its fields, and whose it is."""
        whose = {"run": envelope.run}
        if envelope.agent:
            whose["agent"] = envelope.agent
        _log(envelope.event, whose)

    def emit(self, event: Event) -> None:
        """Log `event` with its fields, without a run."""
        _log(event, {})


def _log(event: Event, whose: dict[str, Any]) -> None:
    _logger().log(_level(event), tag_of(type(event)), **_fields(event), **whose)


def _level(event: Event) -> int:
    if isinstance(event, RunTerminated):
        return logging.INFO
    if isinstance(event, StopDecided) and is_success(event.stop):
        return logging.DEBUG
    return logging.WARNING if DESCRIPTIONS[type(event)].warns else logging.DEBUG


def _fields(event: Event) -> dict[str, Any]:
    if isinstance(event, RunTerminated):
        outcome = event.outcome
        return {
            "reason": outcome.reason.value,
            "detail": outcome.detail,
            "ok": outcome.ok,
            "elapsed_s": outcome.elapsed_s,
        }
    if isinstance(event, StopDecided):
        stop = event.stop
        return {"at_s": event.at_s, "reason": stop.reason.value, "detail": stop.detail, "source": stop.source}
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
