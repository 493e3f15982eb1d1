"""Waiting for work that may ignore its cancellation: after a while it is abandoned."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any

from monitor.tools.event_loop import Background

STRIKES = 3
"""The number of times that work is cancelled, in consecutive passes of the event loop, before it is
abandoned.
"""


class AbandonedError(Exception):
    """The work did not end in time, nor after its cancellation. It goes on, abandoned."""


async def within(limit_s: float, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
    """Await `work` for at most `limit_s` seconds, even if it ignores its cancellation. Raises
    `AbandonedError` after that.

    On asyncio `work` runs in the caller's own task, to which a generator's scopes and context
    variables belong; that costs no pass of the event loop. On trio `work` runs in its own task,
    with the caller's context variables.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        await _beside(limit_s, work, name)
    else:
        await _Leavable(work(), limit_s, loop, name)


async def _beside(limit_s: float, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
    import trio  # noqa: PLC0415 - only a program that runs on trio needs it

    raised: list[BaseException] = []
    over = False

    async def keep() -> None:
        nonlocal over
        try:
            await work()
            over = True
        except trio.Cancelled:
            raise
        except BaseException as error:  # noqa: BLE001 - raised again below, in the task that waits
            raised.append(error)

    task = Background(keep, name, context=trio.lowlevel.current_task().context)
    with trio.CancelScope(shield=True, deadline=trio.current_time() + limit_s):
        await task.wait()
    if not task.ended:
        task.cancel()
        with trio.CancelScope(shield=True):
            for _ in range(STRIKES):
                await trio.lowlevel.checkpoint()
    if raised:
        raise raised[0]
    if not over:
        task.forget()
        raise AbandonedError


class _Leavable:
    """Awaits a coroutine step by step, as a task does, and can leave it at a step where it waits.

    The task waits for a future of ours, which ends together with the future of the coroutine. So a
    cancellation always wakes the task, even if the coroutine ignores the cancellation and goes on.
    """

    __slots__ = ("_limit_s", "_loop", "_name", "_step", "_strikes", "_task", "_timer", "_waits_for", "_work")

    def __init__(
        self, work: Coroutine[Any, Any, None], limit_s: float, loop: asyncio.AbstractEventLoop, name: str
    ) -> None:
        self._work = work
        self._step: Callable[[], Any] = partial(work.send, None)
        self._waits_for: Any = None
        self._limit_s = limit_s
        self._loop = loop
        self._name = name
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.Handle | None = None
        self._strikes = 0

    def __await__(self) -> Generator[Any, None, None]:
        self._task = task = asyncio.current_task(self._loop)
        assert task is not None  # noqa: S101 - a coroutine of asyncio always runs in a task
        try:
            while self._goes_on():
                yield from self._wait()
        except asyncio.CancelledError:
            if self._strikes:
                raise AbandonedError from None
            raise
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for _ in range(self._strikes):
                task.uncancel()

    def _goes_on(self) -> bool:
        """Run the coroutine to its next wait. False: it has ended."""
        step, self._step = self._step, partial(self._work.send, None)
        try:
            self._waits_for = step()
        except StopIteration:
            return False
        if self._waits_for is not None:
            self._waits_for._asyncio_future_blocking = False  # a task resets this flag of a future that it waits for  # noqa: SLF001
        if self._timer is None and self._task is not None and self._limit_s < math.inf:
            self._timer = self._loop.call_later(self._limit_s, self._strike)
        return True

    def _strike(self) -> None:
        self._strikes += 1
        if self._task is not None:
            self._task.cancel()
        self._timer = self._loop.call_soon(self._strike)

    def _wait(self) -> Generator[Any, None, None]:
        """Wait for the future of the coroutine. A cancellation has the same effect on it as in a
        task.
        """
        waits_for = self._waits_for
        if waits_for is None:  # only for the next pass of the loop
            try:
                yield
            except asyncio.CancelledError as error:
                self._struck(error)
            return
        while not waits_for.done():
            proxy: asyncio.Future[None] = self._loop.create_future()
            waits_for.add_done_callback(partial(_release, proxy))
            try:
                yield from proxy
            except asyncio.CancelledError as error:
                if not waits_for.cancel(*error.args):
                    self._struck(error)
                    return
                self._left_behind()

    def _struck(self, error: BaseException) -> None:
        self._step = partial(self._work.throw, error)
        self._left_behind()

    def _left_behind(self) -> None:
        """Abandon the coroutine after enough cancellations: its rest runs in its own task."""
        if self._strikes >= STRIKES:
            self._task = None
            Background(self._rest, self._name).forget()
            raise AbandonedError

    async def _rest(self) -> None:
        with contextlib.suppress(asyncio.CancelledError, Exception):  # the result is not needed any more
            await _Rest(self)

    def rest(self) -> Generator[Any, None, None]:
        """Continue the coroutine from the step at which it was left."""
        yield from self._wait()
        while self._goes_on():
            yield from self._wait()


class _Rest:
    def __init__(self, left: _Leavable) -> None:
        self._left = left

    def __await__(self) -> Generator[Any, None, None]:
        return self._left.rest()


def _release(proxy: asyncio.Future[None], _: object) -> None:
    if not proxy.done():
        proxy.set_result(None)
