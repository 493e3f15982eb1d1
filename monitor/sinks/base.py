"""What a sink is, and how one event reaches several of them.

A sink receives the events of a run and cannot change it. A sink that raises is removed, the other
sinks receive an event about it, and the run goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from monitor.errors import describe
from monitor.events import Event, RunTerminated, SinkFailed


class EventSink(Protocol):
    """Receives the events of a run, in order, synchronously; keep it quick."""

    def emit(self, event: Event, /) -> None:
        """The next event."""
        ...


_listening: ContextVar[tuple[EventSink, ...]] = ContextVar("listening", default=())


@contextmanager
def listening(sink: EventSink) -> Iterator[None]:
    """`sink` receives the events of every run that is made within this block, at any depth, in
    addition to the run's own sinks.
    """
    token = _listening.set((*_listening.get(), sink))
    try:
        yield
    finally:
        _listening.reset(token)


class FanOut:
    """Passes every event to every sink that still works."""

    __slots__ = ("_sinks",)

    def __init__(self, sinks: Sequence[EventSink]) -> None:
        listening = _listening.get()
        given = (*sinks, *[sink for sink in listening if all(sink is not given for given in sinks)])
        self._sinks: tuple[EventSink, ...] = tuple(_of_one_run(sink) for sink in given)

    def __bool__(self) -> bool:
        """Whether anybody receives the events."""
        return bool(self._sinks)

    def emit(self, event: Event) -> None:
        """Pass on `event`. Never raises. The other sinks get a `SinkFailed` after the event in
        which a sink failed, unless that was the last event.
        """
        if not self._sinks:
            return
        failures: list[SinkFailed] = []
        for sink in self._sinks:
            try:
                sink.emit(event)
            except Exception as error:  # noqa: BLE001 - a sink is the caller's code, and must not end the run
                self._sinks = tuple(kept for kept in self._sinks if kept is not sink)
                failures.append(_report(sink, error, event))
        if not isinstance(event, RunTerminated):
            for failure in failures:
                self.emit(failure)


def _of_one_run(sink: EventSink) -> EventSink:
    """What receives the events of this run. A sink that keeps something for each run has a method
    `for_run`, which makes a sink for one.
    """
    for_run = getattr(sink, "for_run", None)
    made: EventSink = sink if for_run is None else for_run()
    return made


def _report(sink: EventSink, error: Exception, event: Event) -> SinkFailed:
    name, why = type(sink).__name__, describe(error)
    logging.getLogger("monitor.sinks").warning("sink %s failed and gets no more events: %s", name, why)
    return SinkFailed(event.at_s, name, why)
