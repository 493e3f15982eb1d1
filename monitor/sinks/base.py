"""What a sink is, and how one event reaches several of them.

A sink is told about a run and has no say in it: one that raises is taken off, the others are told so, and the run goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from monitor.errors import describe
from monitor.events import Event, RunTerminated, SinkFailed


class EventSink(Protocol):
    """Receives the events of a run, in order, synchronously; keep it quick."""

    def emit(self, event: Event) -> None:
        """The next event."""
        ...


class FanOut:
    """Passes every event to every sink that still works."""

    __slots__ = ("_sinks",)

    def __init__(self, sinks: Sequence[EventSink]) -> None:
        self._sinks = list(sinks)

    def emit(self, event: Event) -> None:
        """Never raises. The others hear of a failed sink after the event in which it failed, unless that was the last one."""
        failures: list[SinkFailed] = []
        for sink in tuple(self._sinks):
            try:
                sink.emit(event)
            except Exception as error:  # noqa: BLE001 - a sink is the caller's code, and must not end the run
                self._sinks = [kept for kept in self._sinks if kept is not sink]
                failures.append(_report(sink, error, event))
        if not isinstance(event, RunTerminated):
            for failure in failures:
                self.emit(failure)


def _report(sink: EventSink, error: Exception, event: Event) -> SinkFailed:
    name, why = type(sink).__name__, describe(error)
    logging.getLogger("monitor.sinks").warning("sink %s failed and gets no more events: %s", name, why)
    return SinkFailed(event.at_s, name, why)
