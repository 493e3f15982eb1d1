"""Waiting for the next chunk: the one place that knows asyncio from trio.

A read runs inside `with wait:`. It is woken by a deadline or by an abort, and never by anything else of ours; the
caller's code is never cancelled, a cancellation from outside is never swallowed.

- asyncio: one timer a stream, set to the run's deadline and moved on lazily; the read is woken by `task.cancel()`, and
  settled by `uncancel()`, as `asyncio.timeout` does it. A scope for every read would cost 5.7 us; this costs 0.3 us.
- trio: one cancel scope a read, opened before the read. (Opening it only once the read has suspended corrupts the
  scope stack.)
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from anyio.lowlevel import current_token

from monitor.errors import ConfigError

if TYPE_CHECKING:
    import trio


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
    """Monotonic time. On trio the deadlines of cancel scopes serve as alarms instead of `call_at`."""

    now = staticmethod(time.monotonic)

    def call_at(self, when: float, callback: Callable[[], object]) -> Alarm:
        """An alarm of the running asyncio loop."""
        return asyncio.get_running_loop().call_later(max(0.0, when - time.monotonic()), callback)


class Deadlined(Protocol):
    """What a wait asks of the run."""

    deadline: float
    waiting_since: float

    def refresh(self, now: float) -> float: ...

    def exact_deadline(self) -> float: ...


class Wait(Protocol):
    """Makes one stream's reads interruptible. Use `with wait:` around each read; `close()` when the stream is over."""

    def __enter__(self) -> object: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool: ...

    def wake(self) -> None:
        """End the pending read, if there is one. From any thread."""
        ...

    def replanned(self) -> None:
        """The run's deadline may have come closer."""
        ...

    def close(self) -> None:
        """No alarm may ring any more."""
        ...


def make_wait(run: Deadlined, clock: Clock) -> Wait:
    """The wait for the running event loop."""
    native = current_token().native_token
    return AsyncioWait(run, clock) if isinstance(native, asyncio.AbstractEventLoop) else TrioWait(run, clock)


class _LazyAlarm:
    """One alarm for a deadline that mostly moves away: it rings at the old moment, looks, and is set anew."""

    __slots__ = ("_alarm", "_clock", "_ring", "_run", "_set_for")

    def __init__(self, run: Deadlined, clock: Clock, ring: Callable[[], None]) -> None:
        self._run = run
        self._clock = clock
        self._ring = ring
        self._alarm: Alarm | None = None
        self._set_for = math.inf

    def follow(self) -> None:
        """Ring no later than the run's deadline."""
        deadline = self._run.deadline
        if -math.inf < deadline < self._set_for:
            self.cancel()
            self._set_for = deadline
            self._alarm = self._clock.call_at(deadline, self._due)

    def cancel(self) -> None:
        """Ring no more."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
            self._set_for = math.inf

    def _due(self) -> None:
        self._alarm = None
        self._set_for = math.inf
        self._ring()


class AsyncioWait:
    """Wakes the reading task by `cancel()`, and settles that by `uncancel()`."""

    __slots__ = ("_alarm", "_base", "_clock", "_loop", "_run", "_task", "_thread", "_woke")

    def __init__(self, run: Deadlined, clock: Clock) -> None:
        self._run = run
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._task: asyncio.Task[Any] | None = None
        self._base = 0
        self._woke = False
        self._alarm = _LazyAlarm(run, clock, self._ring)
        self._alarm.follow()

    def __enter__(self) -> None:
        if self._task is not None:
            raise ConfigError("this stream is already being read by another task")
        task = _current_task(self._loop)
        assert task is not None  # noqa: S101 - a coroutine of asyncio always runs in a task
        self._base = task.cancelling()
        self._task = task

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        task = self._task
        self._task = None
        if not self._woke:
            return False
        self._woke = False
        # Only ours is settled here: one cancellation more than before the read is somebody else's, and goes on.
        return task is not None and task.uncancel() <= self._base and kind is asyncio.CancelledError

    def _ring(self) -> None:
        """The deadline of some moment ago has come: is it still the deadline?"""
        if self._task is None:
            return  # nobody waits; the next read compares the clock first, and plans anew
        now = self._clock.now()
        if self._run.refresh(now) <= now:
            self._wake()
        else:
            self._alarm.follow()

    def _wake(self) -> None:
        task = self._task
        if task is not None and not self._woke and task.cancelling() <= self._base:
            self._woke = True
            task.cancel()

    def _wake_if_ending(self) -> None:
        # A late call may find another read: it is woken only if the run is to end, and then it has to be.
        if self._run.deadline == -math.inf:
            self._wake()

    def wake(self) -> None:
        if threading.get_ident() == self._thread:
            self._wake_if_ending()
        # Also in our own thread: a signal handler interrupts the selector's sleep, and only this wakes the loop.
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing is pending
            self._loop.call_soon_threadsafe(self._wake_if_ending)

    def replanned(self) -> None:
        self._alarm.follow()

    def close(self) -> None:
        self._alarm.cancel()


class TrioWait:
    """One cancel scope a read. With the system clock its deadline is the run's; any other clock rings through an alarm."""

    __slots__ = ("_alarm", "_clock", "_now", "_run", "_scope", "_scope_type", "_thread", "_token")

    def __init__(self, run: Deadlined, clock: Clock) -> None:
        import trio  # noqa: PLC0415 - only a program that runs on trio needs it

        self._run = run
        self._clock = clock
        self._scope_type = trio.CancelScope
        self._now = trio.current_time
        self._token = trio.lowlevel.current_trio_token()
        self._thread = threading.get_ident()
        self._scope: trio.CancelScope | None = None
        self._alarm = None if isinstance(clock, SystemClock) else _LazyAlarm(run, clock, self._ring)
        self.replanned()

    def __enter__(self) -> None:
        if self._scope is not None:
            raise ConfigError("this stream is already being read by another task")
        run = self._run
        deadline = math.inf
        if self._alarm is None and run.deadline != math.inf:
            deadline = self._now() + run.exact_deadline() - run.waiting_since
        self._scope = scope = self._scope_type(deadline=deadline)
        scope.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        scope = self._scope
        self._scope = None
        return scope is not None and bool(scope.__exit__(kind, error, trace))

    def _ring(self) -> None:
        if self._scope is None:
            return
        now = self._clock.now()
        if self._run.refresh(now) <= now:
            self._scope.cancel()
        else:
            self.replanned()

    def wake(self) -> None:
        if threading.get_ident() == self._thread:
            self._wake()
        import trio  # noqa: PLC0415 - as above

        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._wake)

    def _wake(self) -> None:
        # As on asyncio: a late call may find another read.
        if self._scope is not None and self._run.deadline == -math.inf:
            self._scope.cancel()

    def replanned(self) -> None:
        if self._alarm is not None:
            self._alarm.follow()

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
