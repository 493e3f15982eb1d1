"""Passes the events of a run to its reader and to its sinks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import anyio

from monitor.events import AttemptRetried, Event
from monitor.sinks.base import EventSink, FanOut


class Delivery:
    """Queues the events of one run for its reader, if `streams`, and hands each to the sinks."""

    def __init__(self, sinks: Sequence[EventSink], *, streams: bool) -> None:
        self.streams = streams
        self.queue: deque[Event] = deque()
        self.retried_inside = False
        """Whether an `AttemptRetried` was emitted since the model call began. The provider's token
        count then covers several attempts.
        """
        self._sinks = FanOut(sinks)
        self._news: anyio.Event | None = None

    def emit(self, event: Event) -> None:
        """Deliver one event."""
        if isinstance(event, AttemptRetried):
            self.retried_inside = True
        if self.streams:
            self.queue.append(event)
            if self._news is not None:
                self._news.set()
        self._sinks.emit(event)

    @contextmanager
    def news(self) -> Iterator[anyio.Event]:
        """An `anyio.Event` that is set when the next event is queued."""
        self._news = news = anyio.Event()
        try:
            yield news
        finally:
            self._news = None
