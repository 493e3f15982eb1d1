"""Passes the events of a run to its reader and to its sinks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import anyio
import anyio.lowlevel

from monitor.events import AttemptRetried, Event, RunTerminated, TurnEnded
from monitor.harness.recorder import Recorder
from monitor.sinks.base import EventSink, FanOut
from monitor.tools.masking import without_secrets

MOST_QUEUED: Final = 256
"""Events that wait for the reader of the run. A tool that writes more waits until they are read."""


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
        self._room: anyio.Event | None = None
        self.listened = streams or bool(sinks)
        """Somebody gets the events."""
        self._ended = False
        self.recorder: Recorder | None = None
        """Writes the run into its session, if it has one."""
        self.urgent = False
        """An event is queued that the reader should have while tools run. The others come when the
        turn is part of the history.
        """
        self.waits = False
        """The reader reads while tools run, so tools may wait for it."""

    def emit(self, event: Event) -> None:
        """Deliver one event. After the end of the run there are none."""
        if self._ended:
            return
        if isinstance(event, AttemptRetried):
            self.retried_inside = True
        elif isinstance(event, TurnEnded):
            event = masked_turn(event)
        elif isinstance(event, RunTerminated):
            self._ended = True
        if self.recorder is not None:
            self.recorder.emit(event)
        if self.streams:
            self.queue.append(event)
            if self._news is not None:
                self._news.set()
        self._sinks.emit(event)

    async def stored(self) -> None:
        """Return when what the history says stands in the session, if there is one."""
        if self.recorder is not None:
            await self.recorder.sync()

    async def room(self) -> None:
        """Return when the reader is not far behind."""
        while self.waits and len(self.queue) >= MOST_QUEUED:
            if self._room is None:
                self._room = anyio.Event()
            await self._room.wait()
        await anyio.lowlevel.checkpoint()

    def wake(self) -> None:
        """Let everybody who waits for events, or for room, look again."""
        if self._news is not None:
            self._news.set()
        if self._room is not None:
            self._room.set()
            self._room = None

    def take(self) -> Event:
        """The oldest event of the queue, for the reader."""
        event = self.queue.popleft()
        if self._room is not None and len(self.queue) < MOST_QUEUED:
            self._room.set()
            self._room = None
        return event

    @contextmanager
    def news(self) -> Iterator[anyio.Event]:
        """An `anyio.Event` that is set when the next event is queued."""
        self._news = news = anyio.Event()
        try:
            yield news
        finally:
            self._news = None


def masked_turn(event: TurnEnded) -> TurnEnded:
    """The same with the secrets in its calls masked."""
    calls = tuple(without_secrets(call) for call in event.turn.tool_calls)
    if all(call is before for call, before in zip(calls, event.turn.tool_calls, strict=True)):
        return event
    return replace(event, turn=replace(event.turn, tool_calls=calls))
