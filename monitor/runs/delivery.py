"""Passes the events of a run to its reader and to its sinks.

With a session, an event that announces an effect waits until the session has it, and the events
after it wait behind it. While calls are open, such an event causes its commit at once; what comes
meanwhile is in the next one. Text for the eye, such as the output of a tool, never waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import anyio
import anyio.lowlevel

from monitor.chunks import Chunk
from monitor.events import (
    AttemptRetried,
    ChunkReceived,
    Envelope,
    Event,
    RunIdentity,
    RunTerminated,
    TurnEnded,
)
from monitor.guard.async_sinks import fan_out
from monitor.outcome import Outcome
from monitor.runs.record.recorder import EFFECTS, Recorder
from monitor.tools.masking import MaskedChunks, Secrets

MOST_QUEUED: Final = 256
"""Events that wait for the reader of the run. A tool that writes more waits until they are read."""


class Delivery:
    """Queues the events of one run for its reader, if `streams`, and hands each to the sinks. Their
    secrets are masked.

    A sink that takes envelopes gets the events of nested runs too. So does the reader, if the
    reader takes envelopes (`nested`).
    """

    def __init__(self, sinks: Sequence[Any], *, streams: bool, grace_s: float, caller: Delivery | None = None) -> None:
        """`grace_s`: how long the run waits for an asynchronous sink. `caller`: of the run that
        calls this run as a tool.
        """
        self.streams = streams
        self.queue: deque[Event | Envelope] = deque()
        """Events of this run, and envelopes of nested runs."""
        self.nested = False
        """Whether the reader takes envelopes."""
        self._read = 0
        """The number of the newest event that was read."""
        self.retried_inside = False
        """Whether an `AttemptRetried` was emitted since the model call began. The provider's token
        count then covers several attempts.
        """
        self._caller = caller
        self.reader: Delivery | None = None
        """Where the events go that a reader of the outermost run gets. `None`: nobody reads."""
        if streams:
            self.reader = self
        elif caller is not None:
            self.reader = caller.reader
        above = caller.for_nested if caller is not None else ()
        self._sinks, self._awaited = fan_out(sinks, grace_s, above=above, emit=self.emit)
        self._news: anyio.Event | None = None
        self._room: anyio.Event | None = None
        self.listened = streams or bool(self._sinks) or self._is_read_above
        """Whether any sink or reader gets the events."""
        self._ended = False
        self.secrets = Secrets()
        self._chunks = MaskedChunks(self.secrets)
        self._last_chunk = (0.0, 0)
        """Time and turn of the last chunk."""
        self._recorder: Recorder | None = None
        """Writes the run into its session, if it has one."""
        self._held: deque[tuple[int, Event]] = deque()
        """Events that wait for their commit, with their numbers."""
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
            if number and (self._held or isinstance(event, EFFECTS)):
                self._held.append((number, event))
                return
        self._hand_out(event)

    def _hand_out(self, event: Event) -> None:
        if self.wants_chunks:
            self._show(self._chunks.flush())
        if self.streams:
            self.queue.append(event)
            if self._news is not None:
                self._news.set()
        elif self._is_read_above:
            self._hand_up(event, self._sinks.seq + 1)
        self._sinks.emit(event)

    def chunk(self, chunk: Chunk, at_s: float, turn: int) -> None:
        """Queue a piece of the model's answer, which is for the reader alone."""
        self._last_chunk = at_s, turn
        self._show(self._chunks.feed(chunk))

    def _show(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            event = ChunkReceived(*self._last_chunk, chunk)
            if self.streams:
                self.queue.append(event)
            elif self._is_read_above:
                self._hand_up(event, self._sinks.seq)

    def write_to(self, recorder: Recorder) -> None:
        """Every event from now on is written by `recorder`."""
        self._recorder = recorder
        recorder.told = self._release

    def _release(self, number: int) -> None:
        """Hand out the events up to this number, which are stored, and those right behind them that
        need not wait.
        """
        while self._held and (self._held[0][0] <= number or not isinstance(self._held[0][1], EFFECTS)):
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
        """Return when what the history says stands in the session, if there is one, and when no
        receiver is far behind.
        """
        if self._recorder is not None:
            await self._recorder.sync()
        await self.receivers()

    @property
    def holds(self) -> bool:
        """Events wait for their commit."""
        return bool(self._held)

    async def announced(self, *, reply: bool = False, beside_open_calls: bool = False) -> None:
        """Return when the events so far are handed out.

        `reply`: the model's message is stored with them, though its calls cannot begin yet.
        `beside_open_calls`: see `Journal.flush`.
        """
        if self._held and self._recorder is not None:
            if reply:
                self._recorder.add_reply()
            await self._recorder.flush(beside_open_calls=beside_open_calls)

    @property
    def wants_chunks(self) -> bool:
        """Somebody reads the pieces of the model's answer."""
        return self.streams or self._is_read_above

    # ------------------------------------------------------------------ runs inside of runs

    @property
    def identity(self) -> RunIdentity:
        """Set the run to which the events belong."""
        return self._sinks.identity

    @identity.setter
    def identity(self, identity: RunIdentity) -> None:
        self._sinks.identity = identity

    @property
    def for_nested(self) -> Sequence[Any]:
        """The sinks that also get the events of nested runs."""
        return self._sinks.for_nested

    @property
    def _is_read_above(self) -> bool:
        """The events of this run are read with those of the run above."""
        return self.reader is not None and self.reader is not self and self.reader.nested

    def _hand_up(self, event: Event, seq: int) -> None:
        """Queue an event for the reader of the outermost run."""
        if self.reader is not None:
            self.reader.hear(Envelope(self.identity, seq, event))

    def hear(self, envelope: Envelope) -> None:
        """Queue an event of a nested run."""
        self.queue.append(envelope)
        if self._news is not None:
            self._news.set()

    async def receivers(self) -> None:
        """Return when no asynchronous sink, and no reader of a run above, is far behind."""
        if self._awaited.sinks:
            await self._awaited.room()
        if self._caller is not None:
            await self._caller.receivers()
        if self._is_read_above and self.reader is not None:
            await self.reader.room()

    async def close(self) -> None:
        """Return when the asynchronous sinks have all events, or were given up."""
        if self._awaited.sinks:
            await self._awaited.close()

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

    def take(self) -> Event | Envelope:
        """The oldest event of the queue, for the reader."""
        event = self.queue.popleft()
        if not isinstance(event, ChunkReceived | Envelope):
            self._read += 1
        if self._room is not None and len(self.queue) < MOST_QUEUED:
            self._room.set()
            self._room = None
        return event

    def enveloped(self, taken: Event | Envelope) -> Envelope:
        """The event that `take` has just returned, with its run."""
        return taken if isinstance(taken, Envelope) else Envelope(self.identity, self._read, taken)

    @contextmanager
    def news(self) -> Iterator[anyio.Event]:
        """An `anyio.Event` that is set when the next event is queued."""
        self._news = news = anyio.Event()
        try:
            yield news
        finally:
            self._news = None
