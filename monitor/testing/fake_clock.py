"""A clock that only a test moves."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel


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
