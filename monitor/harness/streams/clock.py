"""Where a run's time comes from, and alarms of the running event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Alarm(Protocol):
    """A call that `Clock.call_at` has scheduled."""

    def cancel(self) -> object:
        """Do not make the call at that time."""
        ...


class Clock(Protocol):
    """Where a run's time comes from."""

    def now(self) -> float:
        """The time in seconds, which never goes back."""
        ...

    def call_at(self, when: float, callback: Callable[[], object], /) -> Alarm:
        """Call `callback` in the event loop's thread when `now()` has reached `when`."""
        ...


class SystemClock:
    """Monotonic time, with alarms of the running event loop."""

    now = staticmethod(time.monotonic)

    def call_at(self, when: float, callback: Callable[[], object]) -> Alarm:
        """An alarm of the running event loop."""
        delay_s = max(0.0, when - time.monotonic())
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return _TrioAlarm(delay_s, callback)
        return loop.call_later(delay_s, callback)


class _TrioAlarm:
    """A system task that sleeps. It ends with its alarm, or with the run of trio."""

    def __init__(self, delay_s: float, callback: Callable[[], object]) -> None:
        import trio  # noqa: PLC0415 - only a program that runs on trio needs it

        self._scope = trio.CancelScope()
        self._sleep = trio.sleep
        trio.lowlevel.spawn_system_task(self._ring_after, delay_s, callback, name="agent-monitor alarm")

    async def _ring_after(self, delay_s: float, callback: Callable[[], object]) -> None:
        with self._scope:
            await self._sleep(delay_s)
            callback()

    def cancel(self) -> None:
        self._scope.cancel()
