"""Who caused an exception that foreign code raised: the monitor, the caller from outside, or the
code itself.
"""

from __future__ import annotations

import asyncio
import math
import sys
from enum import Enum
from typing import Any

import anyio
from anyio.lowlevel import current_token

from monitor.errors import leaves_of


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
