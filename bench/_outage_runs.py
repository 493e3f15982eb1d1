"""Many runs over a clock that moves as soon as all of them wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import sniffio

import monitor
from monitor.testing import CapturedEvents, FakeClock


class Fleet:
    """Supervisors that share a clock and a list of events."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.events = CapturedEvents()

    def supervisor(self, model: Any, **options: Any) -> monitor.Supervisor[Any]:
        """A supervisor of this fleet. Its tools are asynchronous, as the clock sees no threads."""
        given = {"clock": self.clock, "sinks": [self.events], "detectors": None, **options}
        return monitor.Supervisor(model, **given)

    async def sleep(self, seconds: float) -> None:
        """Wait, by the clock of this fleet."""
        rung = anyio.Event()
        alarm = self.clock.call_at(self.clock.now() + seconds, rung.set)
        try:
            await rung.wait()
        finally:
            alarm.cancel()

    async def one(self, supervisor: monitor.Supervisor[Any]) -> monitor.Outcome[Any]:
        """One run."""
        return await supervisor.run("task")

    async def run(self, supervisor: monitor.Supervisor[Any], runs: int, every_s: float) -> list[monitor.Outcome[Any]]:
        """`runs` runs, of which one begins each `every_s` seconds."""
        outcomes: list[monitor.Outcome[Any]] = []

        async def one(after_s: float) -> None:
            await self.sleep(after_s)
            outcomes.append(await self.one(supervisor))

        async with self.time(), anyio.create_task_group() as group:
            for number in range(runs):
                group.start_soon(one, every_s * (number + 1))
        return outcomes

    @asynccontextmanager
    async def time(self) -> AsyncIterator[None]:
        """Inside this block the clock moves to its next alarm whenever all tasks wait."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._pass)
            yield
            group.cancel_scope.cancel()

    async def _pass(self) -> None:
        while True:
            await _all_wait()
            if (due := self.clock.next_due) is None:
                await anyio.lowlevel.checkpoint()
            else:
                self.clock.advance(max(0.0, due - self.clock.now()))


async def _all_wait() -> None:
    """Return when no other task can go on. anyio's own function takes 0.1 s of asyncio each."""
    if sniffio.current_async_library() == "trio":
        await anyio.wait_all_tasks_blocked()
        return
    loop: Any = asyncio.get_running_loop()
    await anyio.lowlevel.checkpoint()
    while loop._ready:  # noqa: SLF001 - no public name says that every task waits
        await anyio.lowlevel.checkpoint()
