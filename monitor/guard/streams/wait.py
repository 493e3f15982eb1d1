"""Waiting for the next chunk, on asyncio and on trio.

A wait is entered before every read and left after it. In between, only the run's deadline or an
abort interrupts the read. So the caller's code is never cancelled, and a cancellation from outside
is never swallowed.

- asyncio: `task.cancel()` interrupts the read, and `uncancel()` settles the cancellation, as in
  `asyncio.timeout`. A cancel scope for every read would cost 5.7 us; this costs 0.3 us.
- trio: one cancel scope a read, without a deadline, opened before the read. (Opening it only once
  the read has suspended corrupts the scope stack; a deadline on each would pile up in trio while
  the source does not suspend.)
- both: one alarm a stream, set to the run's deadline. The deadline mostly moves away. So the alarm
  rings at the old time, compares, and is set anew; it is not set for every chunk.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import math
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import anyio
from anyio.lowlevel import current_token

from monitor.errors import leaves_of
from monitor.tools.base import Alarm, Clock

if TYPE_CHECKING:
    import trio

    from monitor.core.limited_run import LimitedRun


# --------------------------------------------------------------------------------------------------
# Where a run's time comes from, and alarms of the running event loop.

__all__ = ["Alarm", "Clock", "SystemClock"]


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


# --------------------------------------------------------------------------------------------------
# Who caused an exception that foreign code raised: the monitor, the caller from outside, or the
# code itself.


class ErrorOrigin(Enum):
    """The cause of an exception that foreign code raised while it was awaited."""

    OURS = "we have interrupted it"
    OUTSIDE = "it is meant for the caller: a cancellation of the task, the end of the program"
    SOURCE = "it is a failure of what was awaited"


def cancelled_types() -> tuple[type[BaseException], ...]:
    """The exception types of a cancellation, of all event loops of this program."""
    trio = sys.modules.get("trio")
    return (asyncio.CancelledError,) if trio is None else (asyncio.CancelledError, trio.Cancelled)


def current_task() -> object:
    """The running task. `None`: no task runs, so nothing can be awaited, as in a coroutine that is
    destroyed with its event loop.
    """
    try:
        return asyncio.current_task()
    except RuntimeError:
        trio = sys.modules.get("trio")
        return trio.lowlevel.current_task() if trio is not None and trio.lowlevel.in_trio_task() else None


def current_loop() -> object:
    """The event loop that runs in this thread. `None`: none runs."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return current_token().native_token if loop_runs() else None


def loop_runs() -> bool:
    """Whether an event loop runs in this thread, in which a task can be started."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        trio = sys.modules.get("trio")
        return trio is not None and trio.lowlevel.in_trio_run()
    return True


class PendingCancel:
    """The cancellations of the current task before it awaits foreign code. They show afterwards who
    cancelled the task.
    """

    __slots__ = ("_delivered", "_task")

    def __init__(self) -> None:
        self._task = current_task()
        self._delivered = delivered(self._task) if isinstance(self._task, asyncio.Task) else 0

    @property
    def cancelled(self) -> bool:
        """Whether the task's cancellation was requested since then, or is still to come."""
        if isinstance(self._task, asyncio.Task):
            return self._task.cancelling() > self._delivered
        return current_task() is not None and anyio.current_effective_deadline() == -math.inf

    @property
    def swallowed(self) -> BaseException | None:
        """A requested cancellation that the awaited code has swallowed. (On trio it comes again by
        itself.)
        """
        return asyncio.CancelledError() if isinstance(self._task, asyncio.Task) and self.cancelled else None

    def whose(self, error: BaseException) -> ErrorOrigin:
        """The cause of `error`, if it is not the monitor."""
        return whose(error, cancelled=self.cancelled, destroyed=current_task() is not self._task)


def delivered(task: asyncio.Task[Any]) -> int:
    """The number of cancellations that the task has received. A requested one that it has not
    received yet is not counted.
    """
    asked = task.cancelling()
    return asked - 1 if asked and getattr(task, "_must_cancel", False) else asked


def whose(error: BaseException, *, cancelled: bool, destroyed: bool) -> ErrorOrigin:
    """The cause of `error`. `cancelled`: the task's cancellation was requested. `destroyed`: the
    task does not run any more.
    """
    return (
        ErrorOrigin.OUTSIDE
        if any(_is_outside(leaf, cancelled, destroyed) for leaf in leaves_of(error))
        else ErrorOrigin.SOURCE
    )


def _is_outside(error: BaseException, cancelled: bool, destroyed: bool) -> bool:  # noqa: FBT001 - a helper of the one above
    if isinstance(error, Exception):
        return False
    if isinstance(error, GeneratorExit):
        return destroyed
    return cancelled or destroyed or not isinstance(error, cancelled_types())


def is_leaked(error: BaseException) -> bool:
    """Whether `error` is a cancellation that nobody requested: code that this task called has
    raised it. Call this where `error` was caught.
    """
    if not isinstance(error, asyncio.CancelledError):
        return False
    try:
        task = asyncio.current_task()
    except RuntimeError:  # not on asyncio, where such an error means nothing
        return True
    return task is not None and not task.cancelling()


AGAIN_S = 0.25
"""A source that swallows its cancellation is interrupted again after this time, in seconds."""

_current_task = asyncio.current_task
"""Called with the loop, it need not look the loop up, which is half of its cost."""


class ReadWait(Protocol):
    """Makes one stream's reads interruptible."""

    pending: Any
    """The pending read. `None`: there is none."""
    unsettled: bool
    """Whether the read was interrupted, so that `leave()` must end it. Otherwise setting `pending`
    to `None` is enough, and quicker.
    """

    def enter(self) -> None:
        """Begin a read. No other may be pending."""
        ...

    def leave(self, error: BaseException | None) -> ErrorOrigin:
        """End the read, perhaps after `error`. Returns who caused it."""
        ...

    def turn(self) -> Awaitable[object]:
        """Let the other tasks of the event loop have their turn."""
        ...

    def interrupt(self) -> None:
        """End the read that is pending."""
        ...

    def wake(self) -> None:
        """Make the pending read check whether the run's deadline has come. May be called from any
        thread or signal handler.
        """
        ...

    def follow(self) -> None:
        """Adjust the alarm: the run's deadline may have come closer."""
        ...

    def close(self) -> None:
        """No read follows: cancel the alarm, and forget who read."""
        ...


def _nothing() -> None:
    """Nothing is to be done before an interruption."""


def make_wait(run: LimitedRun, clock: Clock, before: Callable[[], object] = _nothing) -> ReadWait:
    """The wait for the running event loop. `before`: called just before a pending read is
    interrupted.

    Its alarm is set by `follow`, when the run's deadline is planned.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        token: Any = current_token().native_token
        return TrioWait(run, clock, before, token)
    return AsyncioWait(run, clock, before, loop)


class _Alarmed(ABC):
    """The common part of both waits: an alarm that follows the run's deadline and interrupts the
    pending read.
    """

    __slots__ = ("_alarm", "_before", "_clock", "_run", "_set_for", "pending")

    def __init__(self, run: LimitedRun, clock: Clock, before: Callable[[], object]) -> None:
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
            self._cancel_alarm()
            self._set_for = deadline
            self._alarm = self._clock.call_at(deadline, self._rung)

    def _cancel_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
            self._set_for = math.inf

    def close(self) -> None:
        self._cancel_alarm()
        self._before = _nothing

    def _rung(self) -> None:
        self._alarm = None
        self._set_for = math.inf
        self._look()

    def _look(self) -> None:
        """Interrupt the pending read if the deadline has come. If no read is pending, the next one
        compares the clock first.
        """
        if self.pending is None:
            return
        now = self._clock.now()
        if self._run.refresh(now) <= now:
            self.interrupt()
        else:
            self.follow()


class AsyncioWait(_Alarmed):
    """Interrupts the reading task by `cancel()`, and settles that by `uncancel()`."""

    __slots__ = ("_again", "_base", "_cancels", "_insists", "_loop", "unsettled")

    def __init__(
        self, run: LimitedRun, clock: Clock, before: Callable[[], object], loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(run, clock, before)
        self._loop = loop
        self._base = 0
        self._cancels = 0
        self._insists = False
        self._again: asyncio.TimerHandle | None = None
        self.unsettled = False

    turn = staticmethod(partial(asyncio.sleep, 0))

    def enter(self) -> None:
        self.pending = task = _current_task(self._loop)
        self._base = task.cancelling()  # type: ignore[union-attr]  # a coroutine of asyncio always runs in a task
        if self._base:
            self._base = delivered(task)  # type: ignore[arg-type]

    def leave(self, error: BaseException | None) -> ErrorOrigin:
        task, self.pending = self.pending, None
        ours = self._cancels > 0
        self.unsettled = self._insists = False
        if self._again is not None:
            self._again.cancel()
            self._again = None
        while self._cancels:
            self._cancels -= 1
            task.uncancel()
        if error is None or isinstance(error, Exception):
            return ErrorOrigin.SOURCE
        # A cancellation beyond those before the read comes from outside, and is raised further.
        cancelled = task.cancelling() > self._base
        if ours and not cancelled and isinstance(error, asyncio.CancelledError):
            return ErrorOrigin.OURS
        return whose(error, cancelled=cancelled, destroyed=current_task() is not task)

    def interrupt(self) -> None:
        task = self.pending
        if task is None:
            return
        if task.cancelling() > self._base + self._cancels and not self._insists:
            # A cancellation from outside is on its way, which is enough, unless the source swallows
            # it.
            self.unsettled = self._insists = True
            self._again = self._loop.call_later(AGAIN_S, self.interrupt)
            return
        if task is _current_task(self._loop):
            # The task is running, not waiting: a cancellation now would interrupt its next await,
            # perhaps in the caller's code.
            self._loop.call_soon(self._look)
            return
        self._before()
        self.unsettled = True
        self._cancels += 1
        task.cancel()
        self._again = self._loop.call_later(AGAIN_S, self.interrupt)

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nothing is pending
            self._loop.call_soon_threadsafe(self._look)


class TrioWait(_Alarmed):
    """A wait with one cancel scope for each read."""

    __slots__ = ("_checkpoint", "_finished", "_scope_type", "_token")

    unsettled = True

    def __init__(
        self, run: LimitedRun, clock: Clock, before: Callable[[], object], token: trio.lowlevel.TrioToken
    ) -> None:
        import trio  # noqa: PLC0415 - only a program that runs on trio needs it

        super().__init__(run, clock, before)
        self._scope_type = trio.CancelScope
        self._checkpoint = trio.lowlevel.checkpoint
        self._finished = trio.RunFinishedError
        self._token = token

    async def turn(self) -> None:
        await self._checkpoint()

    def enter(self) -> None:
        self.pending = scope = self._scope_type()
        scope.__enter__()

    def leave(self, error: BaseException | None) -> ErrorOrigin:
        scope, self.pending = self.pending, None
        destroyed = current_task() is None
        if not destroyed:
            try:
                if scope.__exit__(type(error) if error else None, error, error.__traceback__ if error else None):
                    return ErrorOrigin.OURS
            except BaseException as rest:  # noqa: BLE001 - the rest of a group that contained our interruption
                error = rest
        if error is None:
            return ErrorOrigin.SOURCE
        cancelled = not destroyed and anyio.current_effective_deadline() == -math.inf
        return whose(error, cancelled=cancelled, destroyed=destroyed)

    def interrupt(self) -> None:
        if self.pending is not None:
            self._before()
            self.pending.cancel()

    def wake(self) -> None:
        with contextlib.suppress(self._finished):
            self._token.run_sync_soon(self._look)


# --------------------------------------------------------------------------------------------------
# An event loop for programs that have none: one for each thread, as long as the thread lives.
#
# The connections that an SDK's client keeps open belong to the loop in which they were opened. So
# all runs of one thread share a loop: with a loop for each run, the second run would find the
# connections of the first in a loop that is closed.

T = TypeVar("T")


class _ThreadLoop(threading.local):
    """The loop of the current thread. It is closed when the thread or the program ends."""

    runner: asyncio.Runner | None = None
    process: int = 0

    def of_this_process(self) -> asyncio.Runner:
        if self.runner is None or self.process != os.getpid():  # a loop does not survive a fork
            self.runner, self.process = asyncio.Runner(), os.getpid()
            self.closes = _LoopCloser(self.runner)  # dropped with the thread
        return self.runner


class _LoopCloser:
    """Closes the loop of a thread that ends, and that of the main thread with the program."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._process = os.getpid()
        if threading.current_thread() is threading.main_thread():
            atexit.register(self.close)

    def close(self) -> None:
        if self._process == os.getpid():
            self._runner.close()

    __del__ = close


_OWN = _ThreadLoop()


def run_in_own_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The result of `work`, in the loop of this thread. No loop may run here."""
    return _OWN.of_this_process().run(work(), context=contextvars.copy_context())
