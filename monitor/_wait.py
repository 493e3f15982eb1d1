"""Waiting for the next chunk: the one place that knows asyncio from trio.

Around every read a wait is entered and left. In between it can be interrupted, by the run's deadline or by an abort, and by
nothing else of ours: the caller's code is never cancelled, and a cancellation from outside is never swallowed.

- asyncio: the read is interrupted by `task.cancel()`, and that is settled by `uncancel()`, as `asyncio.timeout` does it. A
  cancel scope for every read would cost 5.7 us; this costs 0.3 us.
- trio: one cancel scope a read, without a deadline, opened before the read. (Opening it only once the read has suspended
  corrupts the scope stack; a deadline on each would pile up in trio while the source does not suspend.)
- both: one alarm a stream, set to the run's deadline. It mostly moves away, so the alarm rings at the old moment, looks, and is
  set anew: nothing is re-armed per chunk.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

import anyio
from anyio.lowlevel import current_token

if TYPE_CHECKING:
    import trio

AGAIN_S = 0.25
"""A source that swallows its cancellation is interrupted again after so many seconds."""

_current_task = asyncio.current_task
"""Given the loop, it need not be looked up, which is half of its cost."""


class Alarm(Protocol):
    """A wake-up that was asked for."""

    def cancel(self) -> object:
        """It is not wanted any more."""
        ...


class Clock(Protocol):
    """Where a run's time comes from."""

    def now(self) -> float:
        """Seconds; never goes back."""
        ...

    def call_at(self, when: float, callback: Callable[[], object]) -> Alarm:
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


class Background:
    """Something that goes on beside the caller, in the same event loop, until it ends or is cancelled.

    `work` sees to its own errors: one that it raises is a bug, and ends up where the event loop reports those. `then` is called when it
    has ended, also where it was cancelled before it began.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]], name: str, *, then: Callable[[], object] = lambda: None) -> None:
        self._work = work
        self._then = then
        self._done = anyio.Event()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            import trio  # noqa: PLC0415 - only a program that runs on trio needs it

            self._scope = trio.CancelScope()
            self._cancel: Callable[[], object] = self._scope.cancel
            trio.lowlevel.spawn_system_task(self._in_scope, name=name, context=contextvars.copy_context())
            self._forget: Callable[[], object] = lambda: None
        else:
            self._task = loop.create_task(self._work(), name=name)
            self._task.add_done_callback(lambda _: self._has_ended())  # also of one that is cancelled before it begins
            self._cancel = self._task.cancel
            self._forget = lambda: asyncio.tasks._unregister_task(self._task)  # noqa: SLF001 - documented, for schedulers of one's own

    def cancel(self) -> None:
        """End it. `wait()` says when it has ended."""
        self._cancel()

    def give_up(self) -> None:
        """It has swallowed its cancellation: it is cancelled once more, and nobody waits for it any longer.

        On asyncio the loop closes without it. On trio one that heeds no cancellation at all keeps the loop open, as any task of trio does.
        """
        self._cancel()
        self._forget()

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._done.is_set()

    async def wait(self) -> None:
        """Return when it has ended."""
        await self._done.wait()

    async def _in_scope(self) -> None:
        try:
            with self._scope:
                await self._work()
        finally:
            self._has_ended()

    def _has_ended(self) -> None:
        self._done.set()
        self._then()


class Deadlined(Protocol):
    """What a wait asks of the run."""

    deadline: float

    def refresh(self, now: float) -> float:
        """`deadline`, made exact for the pending read. Never raises."""
        ...


class Wait(Protocol):
    """Makes one stream's reads interruptible."""

    pending: Any
    """The read that is going on; `None`: none is."""
    unsettled: bool
    """The read must be left by `leave()`, because it was interrupted; else setting `pending` to `None` is enough, and quicker."""

    def enter(self) -> None:
        """A read begins. No other may be pending."""
        ...

    def leave(self, error: BaseException | None) -> bool:
        """The read is over, perhaps by `error`. True: that was our interruption and nothing else."""
        ...

    def interrupt(self) -> None:
        """End the pending read."""
        ...

    def wake(self) -> None:
        """Let the pending read see whether the run's deadline has come. From any thread, and from a signal handler."""
        ...

    def follow(self) -> None:
        """The run's deadline may have come closer."""
        ...

    def close(self) -> None:
        """No alarm may ring any more."""
        ...


def make_wait(run: Deadlined, clock: Clock, before: Callable[[], object] = lambda: None) -> Wait:
    """The wait for the running event loop. `before`: called just before a pending read is interrupted.

    Its alarm is set by `follow`, when the run's deadline is planned.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        token: Any = current_token().native_token
        return TrioWait(run, clock, before, token)
    return AsyncioWait(run, clock, before, loop)


class _Alarmed(ABC):
    """The part that both have: an alarm that follows the run's deadline and interrupts the pending read."""

    __slots__ = ("_alarm", "_before", "_clock", "_run", "_set_for", "pending")

    def __init__(self, run: Deadlined, clock: Clock, before: Callable[[], object]) -> None:
        self._run = run
        self._clock = clock
        self._before = before
        self._alarm: Alarm | None = None
        self._set_for = math.inf
        self.pending: Any = None

    @abstractmethod
    def interrupt(self) -> None: ...

    def follow(self) -> None:
        deadline = self._run.deadline
        if -math.inf < deadline < self._set_for:
            self.close()
            self._set_for = deadline
            self._alarm = self._clock.call_at(deadline, self._rung)

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
            self._set_for = math.inf

    def _rung(self) -> None:
        self._alarm = None
        self._set_for = math.inf
        self._look()

    def _look(self) -> None:
        """Has the deadline come? If nobody waits, the next read will see it by itself: it compares the clock first."""
        if self.pending is None:
            return
        now = self._clock.now()
        if self._run.refresh(now) <= now:
            self.interrupt()
        else:
            self.follow()


class AsyncioWait(_Alarmed):
    """Interrupts the reading task by `cancel()`, and settles that by `uncancel()`."""

    __slots__ = ("_again", "_base", "_cancels", "_loop", "unsettled")

    def __init__(self, run: Deadlined, clock: Clock, before: Callable[[], object], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(run, clock, before)
        self._loop = loop
        self._base = 0
        self._cancels = 0
        self._again: asyncio.TimerHandle | None = None
        self.unsettled = False

    def enter(self) -> None:
        self.pending = task = _current_task(self._loop)
        self._base = task.cancelling()  # type: ignore[union-attr]  # a coroutine of asyncio always runs in a task

    def leave(self, error: BaseException | None) -> bool:
        task, self.pending = self.pending, None
        if not self.unsettled:
            return False
        self.unsettled = False
        if self._again is not None:
            self._again.cancel()
        while self._cancels:
            self._cancels -= 1
            task.uncancel()
        # One cancellation more than before the read is somebody else's, and goes on.
        return task.cancelling() <= self._base and isinstance(error, asyncio.CancelledError)

    def interrupt(self) -> None:
        task = self.pending
        if task is None or task.cancelling() > self._base + self._cancels:
            return  # somebody else's cancellation is on its way: that will do
        if task is _current_task(self._loop):
            # It is running, not waiting: a cancellation now would strike whatever it awaits next, perhaps the caller's code.
            self._loop.call_soon(self._look)
            return
        self._before()
        self.unsettled = True
        self._cancels += 1
        task.cancel()
        self._again = self._loop.call_later(AGAIN_S, self.interrupt)

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing is pending
            self._loop.call_soon_threadsafe(self._look)


class TrioWait(_Alarmed):
    """One cancel scope a read."""

    __slots__ = ("_finished", "_scope_type", "_token")

    unsettled = True

    def __init__(self, run: Deadlined, clock: Clock, before: Callable[[], object], token: trio.lowlevel.TrioToken) -> None:
        import trio  # noqa: PLC0415 - only a program that runs on trio needs it

        super().__init__(run, clock, before)
        self._scope_type = trio.CancelScope
        self._finished = trio.RunFinishedError
        self._token = token

    def enter(self) -> None:
        self.pending = scope = self._scope_type()
        scope.__enter__()

    def leave(self, error: BaseException | None) -> bool:
        scope, self.pending = self.pending, None
        return bool(scope.__exit__(type(error) if error else None, error, error.__traceback__ if error else None))

    def interrupt(self) -> None:
        if self.pending is not None:
            self._before()
            self.pending.cancel()

    def wake(self) -> None:
        with contextlib.suppress(self._finished):
            self._token.run_sync_soon(self._look)
