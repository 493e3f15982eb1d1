"""Closing a source so that its connection is gone, whatever kind of object it is.

An object with `aclose()` or `close()` is closed by that method. There are SDKs whose `aclose()`
reaches only the outermost of several nested generators. These generators are unwound instead: by
closing the response behind them, or else from the inside. An `async for` does not close its source,
so open responses are looked for at the moment of an interruption.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel

from monitor.adapters.adapter import FullAdapter, responses_behind
from monitor.errors import describe
from monitor.guard.streams.wait import AGAIN_S, ErrorOrigin, PendingCancel, cancelled_types, current_task
from monitor.outcome import StoppedByGuard
from monitor.tools.base import Background

# --------------------------------------------------------------------------------------------------
# Waiting for work that may ignore its cancellation: after a while it is abandoned.

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


DRAIN_CHUNKS = 256
"""How many already buffered chunks are read and dropped while a stream is drained. Only a flooding
server buffers as many.
"""
DRAIN_S = 0.025
"""How long draining may take, in seconds."""


INTERRUPTED = "closing was interrupted by a cancellation"


@dataclass(slots=True)
class Closing:
    """The state of a close: running, done, or failed."""

    chunks_dropped: int = 0
    note: str | None = INTERRUPTED
    """Why the source may still be open. `None`: it is closed."""


async def close_source(closing: Closing, close: Callable[[Closing], Coroutine[Any, Any, None]], grace_s: float) -> None:
    """Await `close` (which calls `close_all`), shielded from cancel scopes and for at most
    `grace_s` seconds. `closing` holds the result.

    A source that swallows its cancellation is abandoned. A `task.cancel()` of asyncio passes
    through every shield: then the caller must call this function again.
    """
    closing.note = INTERRUPTED
    try:
        with anyio.CancelScope(shield=True):
            await within(grace_s, partial(close, closing), "agent-monitor closing")
    except AbandonedError:
        closing.note = not_ended(grace_s)
    except RuntimeError as error:  # the abandoned close has left a scope open in this task
        closing.note = f"closing did not end: {describe(error)}"


def not_ended(grace_s: float) -> str:
    """The note for a close that took too long."""
    return f"closing did not end within {grace_s:g} s"


async def close_all(
    closing: Closing, source: Any, *, holder: Any, left: Sequence[Any], adapter: FullAdapter | None
) -> None:
    """Close `source`, and `holder`, the object from which it was taken, if that is another one.
    `closing` holds the result.

    `left`: open responses that were found when a read was interrupted or failed. Exceptions of the
    SDK are noted and not raised, so that they do not hide how the run ended.
    """
    asked = PendingCancel()
    note: str | None = None
    try:
        if not hasattr(source, "__anext__"):
            source = await _not_yet_opened(source)
        nest = source if inspect.isasyncgen(source) else None
        searched = nest is not None or _closer(source) is None
        responses = [*left, *(responses_behind(source, adapter) if searched else ())]
        for response in responses:
            await _close(response)
        if nest is not None and not responses and adapter is not None and adapter.drains:
            note = await _drain(nest, closing)
        holders = [one for one in (source, None if holder is source else holder) if one is not None]
        closed = [await _close(one) for one in holders]
        if not any(closed) and not responses and hasattr(source, "__anext__"):
            note = f"{type(source).__name__} has neither aclose() nor close()"
        if holders or responses:
            await anyio.lowlevel.checkpoint()  # asyncio's transports close their socket in the next pass of the loop
    except BaseException as error:
        if asked.whose(error) is ErrorOrigin.OUTSIDE:
            raise
        note = f"closing raised {describe(error)}"
    closing.note = note


class Isolated:
    """Reads and closes a source in its own task, so that a waiting caller can leave, whatever the
    source does.

    `read`: returns the next object; the first call opens the source. `close`: as for
    `close_source`. One object is read at a time, on request. After a read that its caller leaves,
    no further read is possible.
    """

    def __init__(
        self, read: Callable[[], Awaitable[Any]], close: Callable[[Closing], Coroutine[Any, Any, None]]
    ) -> None:
        self._read = read
        self._close = close
        self.closing = Closing()
        self._task: Background | None = None
        self._asked = self._answered = anyio.Event()
        self._answer: Any = None
        self._raised: BaseException | None = None
        self._reading = self._leaving = False

    async def read(self) -> Any:
        """The next object, or what the source raises."""
        if self._leaving:
            raise StopAsyncIteration
        self._ask()
        try:
            await self._answered.wait()
        except cancelled_types():
            self._leave()
            raise
        if self._raised is not None:
            raise self._raised
        return self._answer

    async def close(self, grace_s: float) -> None:
        """Close the source. Returns when the source is closed, and after `grace_s` seconds at the
        latest.
        """
        task, until = self._leave(), anyio.current_time() + grace_s
        with anyio.CancelScope(shield=True):
            while not task.ended and anyio.current_time() < until:
                with anyio.move_on_at(min(until, anyio.current_time() + AGAIN_S)):
                    await task.wait()
                self._leave()  # a source that swallows its cancellation is cancelled again
        if not task.ended:
            task.give_up()
            self.closing.note = not_ended(grace_s)

    def _ask(self) -> Background:
        self._answered = anyio.Event()
        self._asked.set()
        if self._task is None:
            self._task = Background(self._serve, "agent-monitor source")
        return self._task

    def _leave(self) -> Background:
        """End the task: no further object is read."""
        self._leaving = True
        task = self._ask()
        if self._reading:
            task.cancel()
        return task

    async def _serve(self) -> None:
        struck: BaseException | None = None
        try:
            while not self._leaving:
                self._asked = anyio.Event()
                if self._raised is None:
                    await self._read_one()
                if isinstance(
                    self._raised, StopAsyncIteration
                ):  # the source has ended by itself: there is nothing to close
                    self.closing.note = None
                    return
                await self._asked.wait()
        except cancelled_types() as cancellation:
            struck = cancellation
        with anyio.CancelScope(shield=True):
            await self._close(self.closing)
        if struck is not None:
            raise struck

    async def _read_one(self) -> None:
        task = current_task()
        self._reading = True
        try:
            self._answer = await self._read()
        except BaseException as error:
            if current_task() is not task:  # the task is being destroyed, perhaps with its event loop
                raise
            self._raised = error  # `read` raises it again, in the task of the caller
        self._reading = False
        self._answered.set()


async def _not_yet_opened(source: Any) -> Any:
    """The object to close of a source that was never read. `None`: there is nothing (more) to
    close.
    """
    if inspect.iscoroutine(source):  # it was never awaited, or its await was cancelled
        source.close()
    elif inspect.isawaitable(source) and hasattr(source, "done"):  # a task that opens the stream
        task: Any = source
        if not task.done():
            over = anyio.Event()
            task.add_done_callback(lambda _: over.set())
            task.cancel()
            await over.wait()
        return None if task.cancelled() or task.exception() is not None else task.result()
    elif hasattr(source, "__aiter__") or not callable(source):  # a function that opens streams is not ours to close
        return source
    return None


async def _drain(source: AsyncIterator[object], closing: Closing) -> str | None:
    """Unwind nested async generators from the inside, by further reads in a cancelled scope.
    Returns a note if that failed, else `None`.

    The pending socket read gets the cancellation, every frame unwinds in order, and the transport
    closes. Buffered chunks come first, and are dropped.
    """
    give_up_at = anyio.current_time() + DRAIN_S
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            while closing.chunks_dropped < DRAIN_CHUNKS and anyio.current_time() < give_up_at:
                await source.__anext__()
                closing.chunks_dropped += 1
        except (StopAsyncIteration, StoppedByGuard):  # another guard inside has ended the stream and closed it
            return None
    if scope.cancelled_caught:
        return None
    return (
        f"the transport had buffered more than the {closing.chunks_dropped} chunks that were dropped; it may still be"
        " open"
    )


async def _close(holder: object) -> bool:
    """Close `holder`. False: it has no method for that."""
    closer = _closer(holder)
    closing = closer() if closer is not None else None
    if inspect.isawaitable(closing):
        await closing
    return closer is not None


def _closer(holder: object) -> Callable[[], object] | None:
    found = (getattr(holder, name, None) for name in ("aclose", "close"))
    return next((closer for closer in found if callable(closer)), None)
