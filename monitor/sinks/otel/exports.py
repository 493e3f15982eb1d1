"""Ends spans in a thread of its own, because the end of a span may run the program's exporter. Log
records go the same way.

A span is started where its event comes, which costs microseconds. To end it calls every span
processor, and a processor may send, block or raise. A run never waits for that.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from opentelemetry._logs import LoggerProvider, LogRecord, SeverityNumber, get_logger
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider, get_meter

from monitor._util.codec import tag_of
from monitor.chunks import Usage
from monitor.errors import describe
from monitor.events import Event, StopDecided
from monitor.outcome import Outcome, Turn, is_success
from monitor.sinks.descriptions import DESCRIPTIONS
from monitor.sinks.otel import names

QUEUED_SPANS: Final = 2_048
"""Ended spans and log records that wait. It is the queue of the SDK's own batch processor."""


class Exports:
    """A bounded queue of ended spans and log records, and the thread that passes them on."""

    def __init__(self, limit: int = QUEUED_SPANS) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._begin()
        self.dropped = 0
        """Spans and records that were not exported, because the queue was full."""

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._failure: str | None = None
        self._told = False

    def end(self, span: Any, end_ns: int, attributes: Mapping[str, Any] | None = None) -> None:
        """Give `span` its last `attributes` and end it at `end_ns`, soon. With a full queue it is
        dropped and counted.
        """
        self._put(partial(_ended, span, end_ns, attributes))

    def log(self, logger: Any, record: Any) -> None:
        """Give `record` to `logger`, soon. With a full queue it is dropped and counted."""
        self._put(partial(logger.emit, record))

    def _put(self, work: Callable[[], None]) -> None:
        self._begin_if_forked()
        if self._queue.qsize() >= self._limit:
            self.dropped += 1
            return
        self._queue.put(work)
        if self._thread is None:
            self._start()

    def _begin_if_forked(self) -> None:
        """A forked process has no thread, its locks may be held for ever, and its parent ends the
        spans that wait.
        """
        if self._pid != os.getpid():
            self._lock = threading.Lock()
            self._begin()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="agent-monitor spans", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        waiting = self._queue
        while True:
            work = waiting.get()
            try:
                if work is None:
                    return
                work()
            except Exception as error:  # noqa: BLE001 - a span processor is the program's code
                self._failure = self._failure or describe(error)
            finally:
                waiting.task_done()

    def failure(self) -> str | None:
        """The error that a span processor has raised, at the first call after it; later `None`."""
        if self._failure is None or self._told:
            return None
        self._told = True
        return self._failure

    def flush(self, timeout_s: float) -> bool:
        """Wait until the queue is empty, for at most `timeout_s` seconds. False: it is not."""
        self._begin_if_forked()
        until = time.monotonic() + timeout_s
        with self._queue.all_tasks_done:
            while self._queue.unfinished_tasks and self._thread is not None:
                left = until - time.monotonic()
                if left <= 0:
                    return False
                self._queue.all_tasks_done.wait(left)
        return True

    def close(self, timeout_s: float) -> bool:
        """`flush`, and end the thread. Spans that end later begin a new thread."""
        flushed = self.flush(timeout_s)
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            if flushed:
                thread.join(timeout_s)
        return flushed


def _ended(span: Any, end_ns: int, attributes: Mapping[str, Any] | None) -> None:
    if attributes:
        span.set_attributes(attributes)
    span.end(end_time=end_ns)


# --------------------------------------------------------------------------------------------------
# An event of a run as a moment of its trace: a name and attributes.


@dataclass(slots=True, frozen=True)
class Note:
    """A moment of a run. `guardrail`: the monitor has found or done something."""

    name: str
    attributes: dict[str, Any]
    guardrail: bool = False


def note_of(event: Event) -> Note | None:
    """The moment of `event`. `None`: a trace has the event as a span, or not at all. A stop at the
    goal is a step like others.
    """
    described = DESCRIPTIONS[type(event)]
    if described.facts is None:
        return None
    guardrail = described.guardrail and not (isinstance(event, StopDecided) and is_success(event.stop))
    return Note(f"monitor.{described.name or tag_of(type(event))}", described.facts(event), guardrail)


# --------------------------------------------------------------------------------------------------
# Moments of a run as OpenTelemetry log records with the names of the events.
#
# The record has the ids of the span that was open, so a viewer shows it beside that span.


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


# --------------------------------------------------------------------------------------------------
# The measurements of runs, as OpenTelemetry metrics.


class Metrics:
    """The instruments. They are made once, and cost nothing while no SDK is configured."""

    def __init__(self, scope: str, version: str, provider: MeterProvider | None) -> None:
        meter = get_meter(scope, version, meter_provider=provider)
        self._record: dict[str, Callable[..., None]] = {}
        for key, (kind, *said) in names.INSTRUMENTS.items():
            bounds = {"explicit_bucket_boundaries_advisory": names.LENGTHS} if key in names.BY_LENGTH else {}
            made = getattr(meter, f"create_{kind}")(*said, **bounds)
            self._record[key] = made.record if kind == "histogram" else made.add

    def record(self, instrument: str, value: float, attributes: Mapping[str, Any] | None = None) -> None:
        """Record `value` with one of `INSTRUMENTS`, or add it to a counter."""
        self._record[instrument](value, attributes)

    def ended(self, outcome: Outcome, attributes: Mapping[str, Any]) -> None:
        """Count the end of a run, and measure the length of one that had no success."""
        why = {**attributes, names.REASON: outcome.reason.value}
        self.record("stops", 1, why)
        if outcome.source.startswith("Budget"):
            self.record("refused", 1, why)
        if not outcome.ok and outcome.usage.output_tokens:
            self.record("stop_tokens", outcome.usage.output_tokens, why)

    def cut(self, turn: Turn, attributes: Mapping[str, Any]) -> None:
        """Measure the length of a response in which a run was ended without success."""
        stop = turn.stopped
        if stop is not None and turn.text_chars and not is_success(stop):
            self.record("stop_chars", turn.text_chars, {**attributes, names.REASON: stop.reason.value})

    def tokens(self, usage: Usage, attributes: dict[str, Any]) -> None:
        """Record the tokens of one model call."""
        for kind, count in (("input", usage.input_tokens), ("output", usage.output_tokens)):
            if count:
                self.record("tokens", count, {**attributes, "gen_ai.token.type": kind})
