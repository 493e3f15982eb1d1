"""Closing takes no longer than `close_grace_s`, whatever the source does about its cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import monitor
from monitor.testing import FakeClock, ScriptedStream, Stall

pytestmark = pytest.mark.anyio

Reason = monitor.TerminateReason
GRACE_S = 0.02
SOON_S = 30.0
"""A close that hangs takes an hour; a busy machine some tenths of a second."""


class Deaf:
    """Ways not to end when one is cancelled, until the test lets it go."""

    def __init__(self) -> None:
        self.released = False
        self.ended = anyio.Event()

    async def swallow(self) -> None:
        """Wait on, however often it is cancelled."""
        try:
            while not self.released:
                with contextlib.suppress(anyio.get_cancelled_exc_class()):
                    await anyio.sleep(0.001)
        finally:
            self.ended.set()

    async def sleep_shielded(self) -> None:
        """Wait where no scope's cancellation gets to."""
        try:
            with anyio.CancelScope(shield=True):
                await self._until_released()
        finally:
            self.ended.set()

    async def _until_released(self) -> None:
        while not self.released:  # noqa: ASYNC110 - a task that swallows its cancellation is woken by no event
            await anyio.sleep(0.001)

    async def await_another(self) -> None:
        """Wait for a task that swallows: its cancellation does not even wake the one who waits."""
        await asyncio.ensure_future(self.swallow())

    async def let_go(self) -> None:
        self.released = True
        with anyio.fail_after(SOON_S):
            await self.ended.wait()


WAYS: dict[str, Callable[[Deaf], Awaitable[None]]] = {
    "swallows": Deaf.swallow,
    "is shielded": Deaf.sleep_shielded,
    "awaits one who swallows": Deaf.await_another,
}
ways = pytest.mark.parametrize(
    ("anyio_backend", "way"), [*(("asyncio", way) for way in WAYS), ("trio", "swallows"), ("trio", "is shielded")]
)


class Source:
    """Its `aclose()` does as it likes."""

    def __init__(self, close: Callable[[], Awaitable[None]], *, stalls: bool = False) -> None:
        self._close = close
        self._stalls = stalls

    def __aiter__(self) -> Source:
        return self

    async def __anext__(self) -> str:
        await (anyio.sleep_forever() if self._stalls else anyio.lowlevel.checkpoint())
        return "a"

    async def aclose(self) -> None:
        await self._close()


async def _generated(close: Callable[[], Awaitable[None]]) -> AsyncIterator[str]:
    try:
        while True:
            await anyio.lowlevel.checkpoint()
            yield "a"
    finally:
        await close()


KINDS: dict[str, Callable[[Callable[[], Awaitable[None]]], Any]] = {"object": Source, "generator": _generated}
kinds = pytest.mark.parametrize("kind", KINDS)


def _cancelling() -> int:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return 0
    return task.cancelling() if task is not None else 0


@ways
@kinds
async def test_a_close_that_does_not_let_itself_be_cancelled_is_given_up(
    way: str, kind: str, anyio_backend: str
) -> None:
    deaf = Deaf()
    sink = monitor.sinks.MemorySink()
    began = time.monotonic()
    async with monitor.watch(KINDS[kind](lambda: WAYS[way](deaf)), sinks=[sink], close_grace_s=GRACE_S) as watched:
        await anext(watched)
    took = time.monotonic() - began
    assert watched.outcome.reason is Reason.CLOSED_BY_CALLER
    assert not watched.outcome.closed
    (closed,) = [event for event in sink.events if isinstance(event, monitor.events.StreamClosed)]
    assert closed.note == f"closing did not end within {GRACE_S:g} s"
    assert took < SOON_S
    assert _cancelling() == 0
    for _ in range(5):
        await anyio.lowlevel.checkpoint()  # a stray cancellation would strike here
    with anyio.move_on_after(0):
        await anyio.sleep(1)  # the scopes of this task are in order
    await deaf.let_go()


@ways
async def test_a_stop_and_a_deadline_return_within_the_grace(way: str, anyio_backend: str) -> None:
    deaf = Deaf()
    began = time.monotonic()
    source = Source(lambda: WAYS[way](deaf), stalls=True)
    async with monitor.watch(source, stop_when=monitor.Timeout(GRACE_S), close_grace_s=GRACE_S) as watched:
        assert [piece async for piece in watched] == []
    assert watched.outcome.reason is Reason.TIMEOUT
    assert not watched.outcome.closed
    assert time.monotonic() - began < SOON_S
    await deaf.let_go()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("when", ["before", "while"])
async def test_a_cancellation_from_outside_is_not_lost_in_a_close_that_swallows_it(
    way: str, when: str, anyio_backend: str
) -> None:
    deaf, closing = Deaf(), asyncio.Event()
    went_on: list[bool] = []

    async def close() -> None:
        closing.set()
        await WAYS[way](deaf)

    async def caller() -> None:
        async with monitor.watch(Source(close), close_grace_s=GRACE_S) as watched:
            await anext(watched)
            if when == "before":
                task.cancel("the caller's own")
        went_on.append(True)

    task = asyncio.create_task(caller())
    await closing.wait()
    if when == "while":
        task.cancel("the caller's own")
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(task), SOON_S)
    assert not went_on
    await deaf.let_go()


@kinds
async def test_a_close_has_the_readers_own_context_variables(kind: str) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="outside")
    seen: list[str] = []
    token = variable.set("of the reader")

    async def close() -> None:
        seen.append(variable.get())
        variable.reset(token)  # as OpenTelemetry does: it raises in a copy of the context
        await anyio.lowlevel.checkpoint()

    async with monitor.watch(KINDS[kind](close)) as watched:
        await anext(watched)
    assert seen == ["of the reader"]
    assert variable.get() == "outside"
    assert watched.outcome.closed


async def test_a_close_may_use_scopes_and_timeouts_of_its_own() -> None:
    waited: list[str] = []

    async def close() -> None:
        with anyio.move_on_after(0.001):
            await anyio.sleep(3600)
        waited.append("a scope")
        with contextlib.suppress(TimeoutError), anyio.fail_after(0.001):
            await anyio.sleep(3600)
        waited.append("a timeout")
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 0.001)
        waited.append("a task group")
        await anyio.to_thread.run_sync(lambda: None)
        waited.append("a thread")

    async with monitor.watch(Source(close)) as watched:
        await anext(watched)
    assert waited == ["a scope", "a timeout", "a task group", "a thread"]
    assert watched.outcome.closed
    assert _cancelling() == 0


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_close_may_use_asyncios_own_means(anyio_backend: str) -> None:
    done: list[str] = []

    async def close() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.001):
                await asyncio.sleep(3600)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(3600), 0.001)
        reader = asyncio.ensure_future(asyncio.sleep(3600))
        await asyncio.sleep(0)
        reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reader
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
        with pytest.raises(OSError, match="down"):
            await asyncio.gather(_fails(), asyncio.sleep(0))
        done.append("all")

    async with monitor.watch(Source(close)) as watched:
        await anext(watched)
    assert done == ["all"]
    assert watched.outcome.closed
    assert _cancelling() == 0


async def _fails() -> None:
    raise OSError("the line is down")


async def test_a_slow_close_that_ends_in_time_is_waited_for() -> None:
    closed: list[bool] = []

    async def close() -> None:
        for _ in range(20):
            await anyio.sleep(0.001)
        closed.append(True)

    async with monitor.watch(Source(close)) as watched:
        await anext(watched)
    assert closed == [True]
    assert watched.outcome.closed


async def test_without_a_grace_a_close_may_take_as_long_as_it_likes() -> None:
    async def close() -> None:
        await anyio.sleep(GRACE_S)

    async with monitor.watch(Source(close), close_grace_s=None) as watched:
        await anext(watched)
    assert watched.outcome.closed


async def test_a_close_that_heeds_its_cancellation_is_over_when_the_block_is() -> None:
    ended: list[str] = []

    async def close() -> None:
        try:
            await anyio.sleep(3600)
        finally:
            ended.append("at once")

    async with monitor.watch(Source(close), close_grace_s=GRACE_S) as watched:
        await anext(watched)
    assert ended == ["at once"]
    assert not watched.outcome.closed


def test_asyncio_closes_its_loop_behind_a_close_that_heeds_nothing() -> None:
    async def main() -> None:
        deaf.append(Deaf())
        async with monitor.watch(Source(deaf[0].swallow), close_grace_s=GRACE_S) as watched:
            await anext(watched)
        assert not watched.outcome.closed

    deaf: list[Deaf] = []
    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < SOON_S
    deaf.pop().released = True
    gc.collect()


# --- a source that nobody trusts, in a task of its own


class Untrusted:
    """A source whose reads, or whose opening, do not let themselves be cancelled."""

    def __init__(self, *pieces: Any, deaf: Callable[[], Awaitable[None]] | None = None) -> None:
        self._pieces = iter(pieces)
        self._deaf = deaf
        self.closed = 0

    def __aiter__(self) -> Untrusted:
        return self

    async def __anext__(self) -> Any:
        await anyio.lowlevel.checkpoint()
        for piece in self._pieces:
            if isinstance(piece, BaseException):
                raise piece
            return piece
        if self._deaf is not None:
            await self._deaf()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self.closed += 1
        await anyio.lowlevel.checkpoint()


@ways
@pytest.mark.parametrize("where", ["reading", "opening", "closing"])
@pytest.mark.parametrize("by", ["abort", "deadline"])
async def test_an_isolated_source_that_ignores_everything_is_left_within_the_grace(
    way: str, where: str, by: str, anyio_backend: str
) -> None:
    deaf = Deaf()

    begun = anyio.Event()

    async def ignore() -> None:
        begun.set()
        await WAYS[way](deaf)

    async def end() -> None:
        await (anyio.wait_all_tasks_blocked() if where == "closing" else begun.wait())
        watch.abort() if by == "abort" else clock.advance(10)

    async def opening() -> Untrusted:
        await ignore()
        return Untrusted()

    source: Any = Untrusted("a", deaf=ignore)
    if where == "opening":
        source = opening
    if where == "closing":
        source = Source(ignore, stalls=True)
    closes = where != "closing" and (anyio_backend, way) == ("asyncio", "is shielded")
    clock = FakeClock()
    began = time.monotonic()
    seen: list[Any] = []
    watch = monitor.watch(
        source, isolate=True, stop_when=monitor.Timeout(10), close_grace_s=SOON_S if closes else GRACE_S, clock=clock
    )
    async with anyio.create_task_group() as group, watch as watched:
        group.start_soon(end)
        seen.extend([piece async for piece in watched])
    assert time.monotonic() - began < SOON_S
    assert watched.outcome.reason is (Reason.ABORTED if by == "abort" else Reason.TIMEOUT)
    assert watched.outcome.closed is closes
    assert seen == (["a"] if where == "reading" else [])
    await deaf.let_go()


async def test_an_isolated_source_is_read_to_its_end_as_any_other() -> None:
    source = Untrusted("a", "b", "c")
    async with monitor.watch(source, isolate=True) as watched:
        assert [piece async for piece in watched] == ["a", "b", "c"]
    assert watched.outcome.ok
    assert source.closed == 0  # it came to its own end
    await anyio.wait_all_tasks_blocked()
    assert "agent-monitor source" not in {task.name for task in anyio.get_running_tasks()}


@pytest.mark.parametrize("leave", ["break", "failure", "abort"])
async def test_the_task_of_an_isolated_source_ends_with_its_stream(leave: str) -> None:
    source = Untrusted("a", OSError("down")) if leave == "failure" else ScriptedStream("a", Stall())
    async with monitor.watch(source, isolate=True) as watched:
        async for _ in watched:
            if leave == "break":
                break
            if leave == "abort":
                watched.abort()
    await anyio.wait_all_tasks_blocked()
    assert "agent-monitor source" not in {task.name for task in anyio.get_running_tasks()}


async def test_an_isolated_source_is_read_one_piece_at_a_time() -> None:
    source = ScriptedStream("a", "b", "c", suspends=True)
    async with monitor.watch(source, isolate=True) as watched:
        await anext(watched)
        await anyio.wait_all_tasks_blocked()
        assert source.pulled == 1
    assert source.closed
    assert watched.outcome.closed
    assert watched.outcome.reason is Reason.CLOSED_BY_CALLER


@pytest.mark.parametrize("error", [OSError("down"), GeneratorExit(), asyncio.CancelledError()], ids=type)
async def test_what_an_isolated_source_raises_is_its_failure(error: BaseException, anyio_backend: str) -> None:
    if anyio_backend == "trio" and isinstance(error, asyncio.CancelledError):
        error = ValueError("on trio nothing raises that")
    source = Untrusted("a", error)
    async with monitor.watch(source, isolate=True) as watched:
        assert [piece async for piece in watched] == ["a"]
    assert watched.outcome.reason is Reason.ERROR
    assert isinstance(watched.outcome.error, Exception)
    assert source.closed == 1


async def test_a_wrong_source_is_the_callers_mistake_also_where_it_is_isolated() -> None:
    with pytest.raises(monitor.ConfigError, match="not an async iterator"):
        async with monitor.watch(object(), isolate=True) as watched:  # type: ignore[arg-type,var-annotated]
            await anext(watched)


async def test_an_isolated_read_that_the_caller_cuts_short_ends_the_stream_and_closes_it() -> None:
    source = ScriptedStream("a", Stall())
    async with monitor.watch(source, isolate=True) as watched:
        await anext(watched)
        with anyio.move_on_after(GRACE_S) as scope:
            await anext(watched)
        assert scope.cancelled_caught
        assert [piece async for piece in watched] == []
    assert watched.outcome.reason is Reason.CLOSED_BY_CALLER
    assert source.closed


async def test_a_generator_is_opened_read_and_closed_in_one_task() -> None:
    tasks: set[int] = set()

    async def generated() -> AsyncIterator[str]:
        try:
            for _ in range(3):
                tasks.add(anyio.get_current_task().id)
                await anyio.lowlevel.checkpoint()
                yield "a"
        finally:
            tasks.add(anyio.get_current_task().id)

    async def opening() -> AsyncIterator[str]:
        tasks.add(anyio.get_current_task().id)
        return generated()

    async with monitor.watch(opening, isolate=True) as watched:
        await anext(watched)
        await anext(watched)
    assert watched.outcome.closed
    assert len(tasks) == 1
    assert anyio.get_current_task().id not in tasks


async def test_a_guard_isolates_the_streams_that_it_is_told_to() -> None:
    deaf, clock = Deaf(), FakeClock()

    async def ignore() -> None:
        clock.advance(10)
        await deaf.swallow()

    guard = monitor.Guard(stop_when=monitor.Timeout(10), close_grace_s=GRACE_S, clock=clock)
    async with guard, guard.watch(Untrusted("a", deaf=ignore), isolate=True) as watched:
        assert [piece async for piece in watched] == ["a"]
    assert guard.outcome.reason is Reason.TIMEOUT
    await deaf.let_go()


def test_asyncio_closes_its_loop_behind_a_read_that_heeds_nothing() -> None:
    async def main() -> None:
        deaf.append(Deaf())
        source = Untrusted(deaf=deaf[0].swallow)
        async with monitor.watch(
            source, isolate=True, stop_when=monitor.Timeout(GRACE_S), close_grace_s=GRACE_S
        ) as watched:
            assert [piece async for piece in watched] == []
        assert watched.outcome.reason is Reason.TIMEOUT

    deaf: list[Deaf] = []
    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < SOON_S
    deaf.pop().released = True
    gc.collect()
