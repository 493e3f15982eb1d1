"""Whose cancellation is it? One that a source raises by itself is its failure, and the caller's
task goes on. One that somebody asks of the caller's task is never swallowed, also where both come
in the same tick.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio

import monitor
from monitor.models import ErrorKind
from monitor.testing import FakeClock, Pause, ScriptedStream, Stall
from tests.runs.driving import Drive

pytestmark = pytest.mark.anyio

Reason = monitor.TerminateReason


# --- where a cancellation of the source's own comes from


async def _leak_asyncio() -> None:
    """Wait for a task that somebody else has cancelled."""
    other = asyncio.ensure_future(asyncio.sleep(3600))
    asyncio.get_running_loop().call_soon(other.cancel)
    await other


async def _kept_by_trio() -> BaseException:
    """A cancellation that a scope of the source's has raised, and that the source has kept."""
    kept: list[BaseException] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            kept.append(error)
    return kept[0]


async def leak(backend: str) -> None:
    """Raise a cancellation that nobody has asked of this task."""
    if backend == "trio":
        raise await _kept_by_trio()
    await _leak_asyncio()


async def raise_at_once(backend: str) -> None:
    """The same, without letting anybody else run."""
    raise await _kept_by_trio() if backend == "trio" else asyncio.CancelledError("its own")


async def raise_in_a_group(backend: str) -> None:
    error = await _kept_by_trio() if backend == "trio" else asyncio.CancelledError("its own")
    raise BaseExceptionGroup("of a task group", [error, BaseExceptionGroup("inside", [ValueError("and this")])])


async def exit_like_a_generator(backend: str) -> None:
    raise GeneratorExit


KINDS: dict[str, Callable[[str], Awaitable[None]]] = {
    "of a task that it awaits": leak,
    "raised at once": raise_at_once,
    "in a group": raise_in_a_group,
    "GeneratorExit": exit_like_a_generator,
}
kinds = pytest.mark.parametrize("kind", KINDS)


class Source:
    """Fails by `how` after its pieces, or where it is told; knows how often it was closed."""

    def __init__(
        self, *pieces: str, read: Awaitable[None] | None = None, close: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self._pieces = iter(pieces)
        self._read = read
        self._close = close
        self.closings = 0

    def __aiter__(self) -> Source:
        return self

    async def __anext__(self) -> str:
        await anyio.lowlevel.checkpoint()
        for piece in self._pieces:
            return piece
        if self._read is not None:
            await self._read
        await anyio.sleep_forever()
        raise AssertionError

    async def aclose(self) -> None:
        self.closings += 1
        if self._close is not None:
            await self._close()


# --- what is around the read


async def _read_in(around: str, read: Callable[[], Awaitable[None]]) -> None:
    """Run `read` in a frame; whatever was asked of the task before must be as it was."""
    if around == "asyncio task group":
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_awaited(read))
    elif around == "task group":
        async with anyio.create_task_group() as group:
            group.start_soon(_awaited, read)
    elif around == "asyncio timeout":
        async with asyncio.timeout(3600):
            await read()
    elif around == "scope":
        with anyio.move_on_after(3600):
            await read()
    elif around == "task that has swallowed a cancellation":
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        await read()
        assert task.uncancel() == 0
    else:
        await read()


async def _awaited(read: Callable[[], Awaitable[None]]) -> None:
    await read()


ON_BOTH = ("nothing", "task group", "scope")
ON_ASYNCIO = (*ON_BOTH, "asyncio task group", "asyncio timeout", "task that has swallowed a cancellation")
frames = pytest.mark.parametrize(
    ("anyio_backend", "around"),
    [*(("asyncio", around) for around in ON_ASYNCIO), *(("trio", around) for around in ON_BOTH)],
)


class Reader:
    """A caller who reads, and notes whether its code went on behind the block."""

    def __init__(self, source: Any, **options: Any) -> None:
        self.sink = monitor.sinks.MemorySink()
        self.watch = monitor.watch(source, sinks=[self.sink], **options)
        self.seen: list[Any] = []
        self.went_on = False

    async def read(self) -> None:
        async with self.watch as watched:
            async for piece in watched:
                self.seen.append(piece)
        await anyio.lowlevel.checkpoint()
        self.went_on = True

    async def read_one(self) -> None:
        async with self.watch as watched:
            self.seen.append(await anext(watched))
        await anyio.lowlevel.checkpoint()
        self.went_on = True

    def ended(self, reason: Reason) -> monitor.Outcome:
        outcome = self.watch.outcome
        assert outcome.reason is reason, outcome
        assert [type(event) for event in self.sink.events].count(monitor.events.RunTerminated) == 1
        assert isinstance(self.sink.events[-1], monitor.events.RunTerminated)
        return outcome


def _is_failure(reader: Reader, *, closed: bool = True) -> None:
    outcome = reader.ended(Reason.ERROR)
    assert isinstance(outcome.error, Exception)
    assert outcome.source == "provider"
    assert outcome.closed is closed
    assert reader.went_on


# --- reading


@kinds
@frames
async def test_a_read_that_is_cancelled_by_nobody_is_a_failure_of_the_source(
    kind: str, around: str, anyio_backend: str
) -> None:
    source = Source("a", read=KINDS[kind](anyio_backend))
    reader = Reader(source)
    await _read_in(around, reader.read)
    _is_failure(reader)
    assert reader.seen == ["a"]
    assert source.closings == 1


@kinds
@frames
async def test_a_generator_that_is_cancelled_by_nobody_is_a_failure_of_the_source(
    kind: str, around: str, anyio_backend: str
) -> None:

    async def generated() -> AsyncIterator[str]:
        yield "a"
        await KINDS[kind](anyio_backend)

    reader = Reader(generated())
    await _read_in(around, reader.read)
    _is_failure(reader)


@kinds
@frames
async def test_an_opening_that_is_cancelled_by_nobody_is_a_failure_of_the_source(
    kind: str, around: str, anyio_backend: str
) -> None:

    async def opening() -> Source:
        await KINDS[kind](anyio_backend)
        raise AssertionError

    reader = Reader(opening)
    await _read_in(around, reader.read)
    _is_failure(reader)


@kinds
async def test_a_supervised_run_fails_by_it_and_its_caller_goes_on(kind: str, anyio_backend: str) -> None:
    async def generated() -> AsyncIterator[Any]:
        yield "a"
        await KINDS[kind](anyio_backend)

    class Model:
        name = "leaky"
        adapter = None

        def stream(self, request: object) -> AsyncIterator[Any]:
            return generated()

    d = await Drive(model=Model()).go()
    assert d.outcome.reason is Reason.ERROR
    assert isinstance(d.outcome.error, Exception)


@kinds
async def test_the_failure_names_what_the_source_raised_and_keeps_it(kind: str, anyio_backend: str) -> None:
    reader = Reader(Source(read=KINDS[kind](anyio_backend)))
    await reader.read()
    error = reader.watch.outcome.error
    assert isinstance(error, monitor.errors.MonitorError)
    assert error.__cause__ is not None
    assert type(error.__cause__).__name__ in str(error)
    turn = reader.watch.turn
    assert turn.model_error is not None
    assert turn.model_error.kind is ErrorKind.UNKNOWN


# --- closing


@kinds
@frames
@pytest.mark.parametrize("by", ["break", "abort", "failure"])
async def test_a_close_that_is_cancelled_by_nobody_leaves_the_source_open_and_the_caller_goes_on(
    kind: str, around: str, by: str, anyio_backend: str
) -> None:
    source = Source("a", close=lambda: KINDS[kind](anyio_backend), read=_fails() if by == "failure" else None)
    reader = Reader(source)

    async def read() -> None:
        if by == "break":
            await reader.read_one()
            return
        if by == "failure":
            await reader.read()
            return
        async with anyio.create_task_group() as group:
            group.start_soon(reader.read)
            await anyio.wait_all_tasks_blocked()
            reader.watch.abort()

    await _read_in(around, read)
    outcome = reader.ended({"break": Reason.CLOSED_BY_CALLER, "abort": Reason.ABORTED, "failure": Reason.ERROR}[by])
    assert not outcome.closed
    assert reader.went_on
    assert source.closings == 1


async def _fails() -> None:
    raise OSError("the line is down")


@pytest.mark.parametrize(
    "error", [ValueError("no"), BaseExceptionGroup("", [GeneratorExit()]), KeyboardInterrupt()], ids=type
)
async def test_whatever_a_close_raises_is_never_called_closed(error: BaseException) -> None:
    source = ScriptedStream("a", "b", at_close=[error])
    reader = Reader(source)
    with contextlib.suppress(KeyboardInterrupt):
        await reader.read_one()
    assert not reader.ended(Reason.CLOSED_BY_CALLER).closed
    assert reader.went_on is not isinstance(error, KeyboardInterrupt)


# --- both at once


class Gate:
    """A source that waits for something which the test cancels."""

    def __init__(self, *, while_closing: bool = False) -> None:
        self.waits_for: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.reached = asyncio.Event()
        self._while_closing = while_closing
        self.closed = False

    def __aiter__(self) -> Gate:
        return self

    async def __anext__(self) -> str:
        if self._while_closing:
            return "a"
        self.reached.set()
        await self.waits_for
        raise AssertionError

    async def aclose(self) -> None:
        if self._while_closing:
            self.reached.set()
            await self.waits_for
        self.closed = True


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("while_closing", [False, True])
@pytest.mark.parametrize("outer_first", [False, True])
@pytest.mark.parametrize("outer", ["task.cancel()", "scope.cancel()", "asyncio.timeout"])
async def test_a_cancellation_from_outside_goes_on_though_the_source_is_cancelled_in_the_same_tick(
    outer: str, outer_first: bool, while_closing: bool, anyio_backend: str
) -> None:
    source = Gate(while_closing=while_closing)
    reader = Reader(source)
    went_on = []
    acts: list[Callable[[], object]] = [source.waits_for.cancel]

    async def caller() -> None:
        if outer == "scope.cancel()":
            with anyio.CancelScope() as scope:
                acts.append(scope.cancel)
                await (reader.read_one() if while_closing else reader.read())
                went_on.append("inside")
            assert scope.cancelled_caught
        elif outer == "asyncio.timeout":
            async with asyncio.timeout(3600) as timeout:
                acts.append(lambda: timeout.reschedule(0))
                await (reader.read_one() if while_closing else reader.read())
                went_on.append("inside")
        else:
            await (reader.read_one() if while_closing else reader.read())
            went_on.append("inside")

    task = asyncio.create_task(caller())
    await source.reached.wait()
    if outer == "task.cancel()":
        acts.append(lambda: task.cancel("the caller's own"))
    if outer == "asyncio.timeout":  # its timer strikes one turn later
        acts.reverse()
        acts[0]()
        await asyncio.sleep(0)
        acts[1]()
    else:
        for act in reversed(acts) if outer_first else acts:
            act()
    if outer == "scope.cancel()":
        await task
    else:
        with pytest.raises(TimeoutError if outer == "asyncio.timeout" else asyncio.CancelledError):
            await task
    assert went_on == []
    if while_closing:
        assert not reader.ended(Reason.CLOSED_BY_CALLER).closed
    # it strikes behind the block, where the source has failed already
    elif outer == "scope.cancel()" and not outer_first:
        reader.ended(Reason.ERROR)
    else:
        reader.ended(Reason.CANCELLED)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancellation_that_was_asked_before_the_read_and_strikes_in_it_goes_on(anyio_backend: str) -> None:
    reader = Reader(ScriptedStream(Stall()))

    async def caller() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel("the caller's own")
        await reader.read()

    with pytest.raises(asyncio.CancelledError, match="the caller's own"):
        await asyncio.create_task(caller())
    reader.ended(Reason.CANCELLED)
    assert not reader.went_on


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancellation_that_was_asked_before_the_close_and_strikes_in_it_goes_on_and_the_source_is_closed(
    anyio_backend: str,
) -> None:
    pause = Pause()
    source = ScriptedStream("a", "b", at_close=[pause])
    reader = Reader(source)

    async def caller() -> None:
        task = asyncio.current_task()
        assert task is not None
        async with reader.watch as watched:
            await anext(watched)
            task.cancel("the caller's own")

    task = asyncio.create_task(caller())
    await pause.reached()
    pause.release()
    with pytest.raises(asyncio.CancelledError, match="the caller's own"):
        await task
    assert reader.ended(Reason.CLOSED_BY_CALLER).closed


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("ours_first", [False, True])
async def test_our_stop_and_the_sources_own_cancellation_in_the_same_tick_are_our_stop(
    ours_first: bool, anyio_backend: str
) -> None:
    source = Gate()
    reader = Reader(source)
    task = asyncio.create_task(reader.read())
    await source.reached.wait()
    acts: list[Callable[[], object]] = [lambda: reader.watch.abort("enough"), source.waits_for.cancel]
    for act in acts if ours_first else reversed(acts):
        act()
    await task
    reader.ended(Reason.ABORTED)
    assert reader.went_on
    assert task.cancelling() == 0


@pytest.mark.parametrize("anyio_backend", ["trio"])
@pytest.mark.parametrize("outer_first", [False, True])
async def test_on_trio_a_scope_that_is_cancelled_while_the_source_fails_by_itself_goes_on(
    outer_first: bool, anyio_backend: str
) -> None:
    pause = Pause()

    async def generated() -> AsyncIterator[str]:
        error = await _kept_by_trio()
        await pause.perform()
        raise error

    reader = Reader(generated())
    went_on = False
    async with anyio.create_task_group() as group:
        scope = anyio.CancelScope()

        async def both() -> None:
            await pause.reached()
            for act in [scope.cancel, pause.release] if outer_first else [pause.release, scope.cancel]:
                act()

        group.start_soon(both)
        with scope:
            await reader.read()
            went_on = True
    assert not went_on
    reader.ended(Reason.CANCELLED)


# --- a source that swallows


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_source_that_swallows_a_cancellation_from_outside_still_meets_the_deadline_and_nothing_is_lost(
    anyio_backend: str,
) -> None:
    struck = asyncio.Event()

    async def generated() -> AsyncIterator[str]:
        yield "a"
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        struck.set()
        await asyncio.sleep(3600)

    clock = FakeClock()
    reader = Reader(generated(), clock=clock, stop_when=monitor.Timeout(10))
    task = asyncio.create_task(reader.read())
    await anyio.wait_all_tasks_blocked()
    task.cancel("the caller's own")
    await struck.wait()
    clock.advance(10)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(task), 60)
    reader.ended(Reason.CANCELLED)
    assert not reader.went_on


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_a_source_that_makes_an_error_of_our_interruption_is_what_stopped_it(anyio_backend: str) -> None:
    async def generated() -> AsyncIterator[str]:
        yield "a"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_fails_when_cancelled)
            await trio.sleep_forever()

    reader = Reader(generated())
    async with anyio.create_task_group() as group:
        group.start_soon(reader.read)
        await anyio.wait_all_tasks_blocked()
        reader.watch.abort("enough")
    reader.ended(Reason.ABORTED)
    assert reader.went_on


async def _fails_when_cancelled() -> None:
    try:
        await anyio.sleep_forever()
    finally:
        raise ValueError("at the worst moment")
