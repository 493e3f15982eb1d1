"""A coroutine that runs from pause to pause, as the reader of a run asks for its events.

Inside it, plain `await` does all the work: a step that pauses deep inside another one leaves them
all where they are. An async generator would have to hand on each pause by hand.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Final, TypeVar

import anyio

from monitor.guard.streams.ask import Interruptible
from monitor.guard.streams.wait import current_task
from monitor.runs.delivery import Delivery
from monitor.tools.base import Background

T = TypeVar("T")

_PAUSE: Final = object()


@types.coroutine
def pause() -> Generator[Any, Any, None]:
    """There may be events for the reader: go on when the next one is asked for."""
    yield _PAUSE


class _Left(BaseException):
    """The reader has left the run. `GeneratorExit` would close the inner coroutines at once."""


class Pausing:
    """Runs `work`, which may `await pause()`."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._begin = work
        self._work: Coroutine[Any, Any, None] | None = None

    async def __anext__(self) -> None:
        """Go on to the next pause. Raises `StopAsyncIteration` at the end."""
        if self._work is None:
            self._work = self._begin()
        if inspect.getcoroutinestate(self._work) == inspect.CORO_CLOSED:
            raise StopAsyncIteration
        await self._go_on(self._work, partial(self._work.send, None))

    async def aclose(self) -> None:
        """Leave the work at its pause: its `finally` blocks run, and may wait."""
        if self._work is None or inspect.getcoroutinestate(self._work) != inspect.CORO_SUSPENDED:
            return
        try:
            await self._go_on(self._work, partial(self._work.throw, _Left()))
        except (_Left, StopAsyncIteration):
            return
        raise RuntimeError("a run went on after it was left")

    @types.coroutine
    def _go_on(self, work: Coroutine[Any, Any, None], step: Callable[[], Any]) -> Generator[Any, Any, None]:
        while True:
            try:
                trap = step()
            except StopIteration:
                raise StopAsyncIteration from None
            if trap is _PAUSE:
                return
            try:
                value = yield trap
            except GeneratorExit:  # the task is destroyed with its loop: nothing can be awaited
                work.close()
                raise
            except BaseException as error:  # noqa: BLE001 - it is thrown where the work waits
                step = partial(work.throw, error)
            else:
                step = partial(work.send, value)


# --------------------------------------------------------------------------------------------------
# Work in a task beside the reader of a run: the reader gets its events meanwhile.

TOOLS_GRACE: Final = 3
"""How many times `close_grace_s` the end of a run waits for its tools. A command has 2 seconds
between TERM and KILL (`ShellTools`), and what it wrote is its result.
"""


async def in_task(
    work: Callable[[], Coroutine[Any, Any, T]], *, limits: Interruptible, delivery: Delivery, grace_s: float
) -> T | None:
    """Do `work` in a task of its own, and return its result; the end of the run interrupts it, as
    `limits` says. Pauses whenever there are events for a reader of the run. Left early, the task is
    cancelled and waited for, `TOOLS_GRACE` times `grace_s` seconds.
    """
    results: list[T] = []
    errors: list[BaseException] = []
    cancelled = anyio.get_cancelled_exc_class()

    async def keep() -> None:
        try:
            results.append(await work())
        except cancelled:
            raise
        except BaseException as error:  # noqa: BLE001 - raised again below, in the task that drives the run
            errors.append(error)

    delivery.waits = True
    task = Background(keep, "agent-monitor tools", then=delivery.wake)
    try:
        while not task.ended:
            if delivery.queue:
                await pause()
                continue
            with delivery.news() as news:
                if not await limits.under_deadlines(news.wait):
                    break
    finally:
        delivery.waits = False
        delivery.wake()
        if not task.ended and current_task() is not None:
            task.cancel()
            with anyio.move_on_after(TOOLS_GRACE * grace_s, shield=True):
                await task.wait()
            if not task.ended:
                task.give_up()
    if errors:
        raise errors[0]
    limits.is_over()
    if delivery.queue:
        await pause()
    return results[0] if results else None
