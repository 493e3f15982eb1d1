"""What a sink is, and how one event reaches several of them.

A sink is told about a run and has no say in it: one that raises is taken off, the others are told so, and the run goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from monitor.events import Event, RunStarted, SinkFailed


class EventSink(Protocol):
    """Receives the events of a run, in order, synchronously; keep it quick."""

    def emit(self, event: Event) -> None:
        """The next event."""
        ...


class FanOut:
    """Passes every event to every sink that still works."""

    def __init__(self, sinks: Sequence[EventSink]) -> None:
        self._sinks = list(sinks)

    def emit(self, event: Event) -> None:
        """Never raises."""
        for sink in tuple(self._sinks):
            if sink not in self._sinks:
                continue
            try:
                sink.emit(event)
            except Exception as error:  # noqa: BLE001 - a sink is the caller's code, and must not end the run
                self._take_off(sink, error, event)

    def _take_off(self, sink: EventSink, error: Exception, event: Event) -> None:
        self._sinks.remove(sink)
        name = type(sink).__name__
        logging.getLogger("monitor.sinks").warning("sink %s failed and gets no more events: %r", name, error)
        self.emit(SinkFailed(0.0 if isinstance(event, RunStarted) else event.at_s, name, f"{type(error).__name__}: {error}"))
