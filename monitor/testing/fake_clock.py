"""A clock that only a test moves."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar, overload

import anyio
import anyio.lowlevel

from monitor.errors import ConfigError
from monitor.events import (
    ChunkReceived,
    Event,
    FirstChunk,
    RunTerminated,
    StopDecided,
    StreamClosed,
    ToolCallChanged,
    TurnEnded,
)
from monitor.outcome import Outcome
from monitor.sinks.base import listening
from monitor.sinks.log import LINE_CHARS, line_of


class FakeClock:
    """Time for tests. `advance()` moves it and rings the alarms that are due, in order, each at its
    own time.

    Call `advance()` in the thread of the event loop. Code that an alarm wakes runs at the caller's
    next await.
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._order = itertools.count()
        self._alarms: list[tuple[float, int, FakeAlarm]] = []

    def now(self) -> float:
        """The time of the clock, in seconds."""
        return self._now

    def call_at(self, when: float, callback: Callable[[], object]) -> FakeAlarm:
        """Call `callback` once `advance()` has reached `when`."""
        alarm = FakeAlarm(callback)
        heapq.heappush(self._alarms, (when, next(self._order), alarm))
        return alarm

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass, and ring the alarms that are due."""
        end = self._now + seconds
        while self._alarms and self._alarms[0][0] <= end:
            when, _, alarm = heapq.heappop(self._alarms)
            self._now = max(self._now, when)
            alarm.ring()
        self._now = end

    @property
    def next_due(self) -> float | None:
        """The time of the next alarm. `None`: none is set. To simulate time, advance to it whenever
        all tasks wait.
        """
        while self._alarms and not self._alarms[0][2].is_set:
            heapq.heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else None

    @property
    def pending(self) -> int:
        """The number of alarms that are still set. After the end of a run it must be 0."""
        return sum(alarm.is_set for _, _, alarm in self._alarms)

    async def sleep(self, seconds: float) -> None:
        """Wait until this clock has moved by `seconds`."""
        rung = anyio.Event()
        alarm = self.call_at(self._now + seconds, rung.set)
        try:
            await rung.wait()
        finally:
            alarm.cancel()

    @asynccontextmanager
    async def autojump(self) -> AsyncIterator[None]:
        """Inside this block the clock moves to its next alarm whenever all tasks wait. Threads are
        not seen, so tools of the block must be asynchronous.
        """
        async with anyio.create_task_group() as group:
            group.start_soon(self._jump)
            yield
            group.cancel_scope.cancel()

    async def _jump(self) -> None:
        while True:
            await _all_wait()
            if (due := self.next_due) is None:
                await anyio.lowlevel.checkpoint()
            else:
                self.advance(max(0.0, due - self._now))


async def _all_wait() -> None:
    """Return when no other task can go on. anyio's own function takes 0.1 s of asyncio each."""
    try:
        loop: Any = asyncio.get_running_loop()
    except RuntimeError:  # trio
        await anyio.wait_all_tasks_blocked()
        return
    await anyio.lowlevel.checkpoint()
    while loop._ready:  # noqa: SLF001 - no public name says that every task waits
        await anyio.lowlevel.checkpoint()


class FakeAlarm:
    """An alarm that rings when its `FakeClock` is moved to its time."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback: Callable[[], object] | None = callback

    @property
    def is_set(self) -> bool:
        """Whether the alarm is set and will ring."""
        return self._callback is not None

    def cancel(self) -> None:
        """Prevent the alarm from ringing."""
        self._callback = None

    def ring(self) -> None:
        """Call the callback, at most once."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


# --------------------------------------------------------------------------------------------------
# Captures the events of runs, for the assertions of a test.

E = TypeVar("E", bound=Event)

_LEFT_OUT = (ChunkReceived, FirstChunk, StopDecided, StreamClosed, ToolCallChanged)
"""Events that a summary omits: details of timing, and facts that other events repeat."""


class CapturedEvents(Sequence[Event]):
    """The events so far, as a sequence. Also a sink: `sinks=[CapturedEvents()]`."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def emit(self, event: Event) -> None:
        """Keep `event` for the test."""
        self._events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        """The events of one type, in order: `events.of(monitor.events.Nudged)`."""
        return [event for event in self._events if isinstance(event, kind)]

    def summary(self, *, chars: int | None = LINE_CHARS) -> list[str]:
        """The events, one line each: turns, texts, calls, results, nudges, outputs, the end.

        The lines have no times, so a scripted run gives the same lines each time. Lines are cut to
        `chars` characters.
        """
        return [
            line_of(event, chars=chars)
            for event in self._events
            if not isinstance(event, _LEFT_OUT) and not _only_called(event)
        ]

    @property
    def outcomes(self) -> list[Outcome]:
        """How the runs ended, in the order in which they did. A nested run ends before the run that
        called it.
        """
        return [event.outcome for event in self.of(RunTerminated)]

    @property
    def outcome(self) -> Outcome:
        """How the only run ended. `ConfigError`: none has, or several have."""
        outcomes = self.outcomes
        if len(outcomes) != 1:
            raise ConfigError(f"{len(outcomes)} runs have ended while events were captured; look at `outcomes`")
        return outcomes[0]

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> list[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | list[Event]:
        return self._events[index]

    def __len__(self) -> int:
        return len(self._events)

    def __repr__(self) -> str:
        return "\n".join(["<CapturedEvents", *(f"  {line}" for line in self.summary()), ">"])


def _only_called(event: Event) -> bool:
    """Whether the event is a turn without text, whose calls have their own lines."""
    return isinstance(event, TurnEnded) and bool(event.turn.tool_calls) and not event.turn.text.strip()


@contextmanager
def capture_events() -> Iterator[CapturedEvents]:
    """Collect the events of every run that is made within the block, however deep in the code under
    test.

        with capture_events() as events:
            await my_agent("task")  # makes a Supervisor, a Guard or a watch() somewhere
        assert events.outcome.reason == "goal"
        assert "call search(limit=3)" in events.summary()

    Runs of tasks and worker threads that are started in the block count; those of other tasks do
    not.
    """
    events = CapturedEvents()
    with listening(events):
        yield events
