"""Awaits work of a run other than its stream. The end of the run interrupts it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from monitor.core.run import RunCore
from monitor.harness.streams.clock import Clock
from monitor.harness.streams.error_origin import ErrorOrigin
from monitor.harness.streams.wait import ReadWait, make_wait


class Interruptible:
    """Awaits work (tools, a delay, a compaction) under the deadlines and the abort of one run."""

    def __init__(self, core: RunCore, clock: Clock) -> None:
        self._core = core
        self._clock = clock
        self._waiting: ReadWait | None = None
        self._asides: set[ReadWait] = set()
        """Waits in the caller's block, while no task drives the run."""

    async def under_deadlines(self, work: Callable[[], Awaitable[object]]) -> bool:
        """Await `work` as the task that drives the run. False: the run ended, and `work` was
        interrupted.
        """
        # The wait is made before the limits are checked, so that an abort from another thread finds
        # it.
        wait = self._waiting = make_wait(self._core, self._clock)
        self._core.replanned = wait.follow
        try:
            await self._await(wait, work)
        finally:
            self._waiting = None
            self._core.replanned = _nothing
        return not self.is_over()

    async def aside(self, work: Callable[[], Awaitable[object]]) -> None:
        """Await `work` in the caller's block. The end of the run interrupts `work`."""
        wait = make_wait(self._core, self._clock)
        self._asides.add(wait)
        try:
            await self._await(wait, work)
        finally:
            self._asides.discard(wait)

    async def until(self, due: float) -> bool:
        """Sleep until the clock shows `due`. False: the run ended before."""
        return self._clock.now() >= due or await self.under_deadlines(lambda: _sleep(self._clock, due))

    def is_over(self) -> bool:
        """Whether the run must end now. The deadline is checked first, because that is cheap."""
        now = self._clock.now()
        return now >= self._core.deadline and self._core.must_stop(now)

    def interrupt(self) -> None:
        """End the work of the driving task, if there is any."""
        if self._waiting is not None:
            self._waiting.interrupt()

    def wake(self) -> None:
        """Make each pending wait check the deadline of the run. May be called from any thread or
        signal handler.
        """
        for pending in (self._waiting, *tuple(self._asides)):
            if pending is not None:
                pending.wake()

    async def _await(self, wait: ReadWait, work: Callable[[], Awaitable[object]]) -> None:
        try:
            if self.is_over():
                return
            wait.follow()
            wait.enter()
            try:
                await work()
            except BaseException as error:
                if wait.leave(error) is not ErrorOrigin.OURS:
                    raise
            else:
                wait.leave(None)
        finally:
            wait.close()


async def _sleep(clock: Clock, until: float) -> None:
    rung = anyio.Event()
    alarm = clock.call_at(until, rung.set)
    try:
        await rung.wait()
    finally:
        alarm.cancel()


def _nothing() -> None:
    """Does nothing: no wait follows the deadline."""
