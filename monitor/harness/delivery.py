"""Passes the events of a run to its reader and to its sinks.

With a session, an event that announces an effect waits until the session has it, and the events
after it wait behind it. Text for the eye, such as the output of a tool, never waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import anyio
import anyio.lowlevel

from monitor.chunks import Chunk
from monitor.events import (
    ApprovalRequested,
    AttemptRetried,
    ChunkReceived,
    Event,
    RunTerminated,
    ToolOutput,
    ToolProgressed,
    TurnEnded,
)
from monitor.harness.recorder import Recorder
from monitor.outcome import Outcome
from monitor.sinks.base import EventSink, FanOut
from monitor.tools.masked_chunks import MaskedChunks
from monitor.tools.masking import Secrets

MOST_QUEUED: Final = 256
"""Events that wait for the reader of the run. A tool that writes more waits until they are read."""
_URGENT: Final = (ApprovalRequested, ToolOutput, ToolProgressed)
"""Events that the reader should have while tools run."""


class Delivery:
    """Queues the events of one run for its reader, if `streams`, and hands each to the sinks. Their
    secrets are masked.
    """

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
        self.listened = streams or bool(self._sinks)
        """Somebody gets the events."""
        self._ended = False
        self.secrets = Secrets()
        self._chunks = MaskedChunks(self.secrets)
        self._last_chunk = (0.0, 0)
        """Time and turn of the last chunk."""
        self._recorder: Recorder | None = None
        """Writes the run into its session, if it has one."""
        self._held: deque[tuple[int, Event]] = deque()
        """Events that wait for their commit, with their numbers."""
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
        elif isinstance(event, RunTerminated):
            self._ended = True
        if self._recorder is None and not self.listened:
            if isinstance(event, TurnEnded):
                self.secrets.learn(event)
            return
        event = self.secrets.event(event)
        if self._recorder is not None:
            number = self._recorder.emit(event)
            if number and (self._held or not self._recorder.is_early(event)):
                self._held.append((number, event))
                return
        self._hand_out(event)

    def _hand_out(self, event: Event) -> None:
        if isinstance(event, _URGENT):
            self.urgent = True
        if self.streams:
            self._show(self._chunks.flush())
            self.queue.append(event)
            if self._news is not None:
                self._news.set()
        self._sinks.emit(event)

    def chunk(self, chunk: Chunk, at_s: float, turn: int) -> None:
        """Queue a chunk for the reader."""
        self._last_chunk = at_s, turn
        self._show(self._chunks.feed(chunk))

    def _show(self, chunks: Iterable[Chunk]) -> None:
        self.queue.extend(ChunkReceived(*self._last_chunk, chunk) for chunk in chunks)

    def write_to(self, recorder: Recorder) -> None:
        """Every event from now on is written by `recorder`."""
        self._recorder = recorder
        recorder.journal.told = self._release

    def _release(self, number: int) -> None:
        """Hand out the events up to this number: they are stored."""
        while self._held and self._held[0][0] <= number:
            self._hand_out(self._held.popleft()[1])

    def hand_out_end(self, outcome: Outcome) -> None:
        """Nothing more is stored: of the events that wait, only the end of the run is handed out.
        `outcome`: how it ended.
        """
        last = self._held.pop()[1] if self._held else None
        self._held.clear()
        if isinstance(last, RunTerminated):
            self._hand_out(self.secrets.event(replace(last, outcome=outcome)))

    async def stored(self) -> None:
        """Return when what the history says stands in the session, if there is one."""
        if self._recorder is not None:
            await self._recorder.sync()

    async def announced(self) -> None:
        """Return when the events so far may be handed out."""
        if self._held and self._recorder is not None:
            await self._recorder.journal.flush()

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
