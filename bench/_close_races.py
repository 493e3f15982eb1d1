"""Races: our end and somebody else's in the same tick, in both orders; and sources that make ending
hard.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread

import monitor
from bench._close_cases import (
    HARNESS_LIMIT_S,
    SAME_TICK_S,
    SENTENCE,
    UNSEEN_S,
    Backend,
    Case,
    Row,
    cancelled_by,
    on_asyncio,
    read_cancelled,
    words,
)
from monitor.errors import TerminateReason
from monitor.events import RunTerminated
from monitor.testing import Do, FakeClock, Pause, ScriptedStream, Stall


@dataclass
class Armed:
    """One of our stops, to be caused in this very turn of the loop."""

    source: ScriptedStream
    options: dict[str, Any]
    pending: Pause | Stall
    """Where the source is when it is time."""
    cause: Callable[[monitor.guard.Watch[Any]], object]
    reason: TerminateReason


def _armed_abort() -> Armed:
    stall = Stall()
    return Armed(ScriptedStream("a", stall), {}, stall, lambda watched: watched.abort(), TerminateReason.ABORTED)


def _armed_timeout() -> Armed:
    stall, clock = Stall(), FakeClock()
    options = {"stop_when": monitor.Timeout(30), "clock": clock}
    return Armed(ScriptedStream("a", stall), options, stall, lambda _: clock.advance(60), TerminateReason.TIMEOUT)


def _armed_idle() -> Armed:
    stall, clock = Stall(), FakeClock()
    options = {"stop_when": monitor.IdleTimeout(30), "clock": clock}
    return Armed(ScriptedStream("a", stall), options, stall, lambda _: clock.advance(60), TerminateReason.IDLE_TIMEOUT)


def _armed_detection() -> Armed:
    pause = Pause()
    source = ScriptedStream("a", pause, SENTENCE * 20, Stall())
    return Armed(source, {}, pause, lambda _: pause.release(), TerminateReason.LOOP_DETECTED)


_ARMED = {"abort": _armed_abort, "timeout": _armed_timeout, "idle timeout": _armed_idle, "detection": _armed_detection}


async def _both(first: Callable[[], object], second: Callable[[], object], pending: Pause | Stall) -> None:
    await pending.reached()
    first()
    second()


def _ordered(
    ours: Callable[[], object], other: Callable[[], object], *, ours_first: bool
) -> tuple[Callable[[], object], Callable[[], object]]:
    return (ours, other) if ours_first else (other, ours)


async def _with_scope(case: Case, *, arm: Callable[[], Armed], ours_first: bool) -> None:
    """Ours, and the caller's scope is cancelled."""
    armed, went_on = arm(), False
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            watch = case.watch(armed.source, **armed.options)
            group.start_soon(
                _both, *_ordered(partial(armed.cause, watch), scope.cancel, ours_first=ours_first), armed.pending
            )
            async with watch as watched:
                await case.read(watched)
            await anyio.lowlevel.checkpoint()
            went_on = True
    case.expect(that=scope.cancelled_caught and not went_on, what_else="the cancelled scope's code went on")
    case.check(armed.reason, TerminateReason.CANCELLED)


async def _with_native(case: Case, *, arm: Callable[[], Armed], ours_first: bool) -> None:
    """Ours, and the caller's task is cancelled."""
    armed = arm()
    watch = case.watch(armed.source, **armed.options)
    task = asyncio.create_task(read_cancelled(case, watch))
    cancel = partial(task.cancel, "the caller's own")
    both = _both(*_ordered(partial(armed.cause, watch), cancel, ours_first=ours_first), armed.pending)
    await cancelled_by(case, task, both, came_second=ours_first)
    case.check(armed.reason, TerminateReason.CANCELLED)


async def _with_abort(case: Case, *, arm: Callable[[], Armed], ours_first: bool) -> None:
    """Two of ours: the user's abort wins."""
    armed = arm()
    async with anyio.create_task_group() as group, case.watch(armed.source, **armed.options) as watched:
        group.start_soon(
            _both, *_ordered(partial(armed.cause, watched), watched.abort, ours_first=ours_first), armed.pending
        )
        await case.read(watched)
    case.check(TerminateReason.ABORTED)


async def _chunk_and_abort(case: Case, *, ours_first: bool) -> None:
    """A chunk comes in the same turn: delivered or not, but once, and the run ends."""
    pause = Pause()
    async with anyio.create_task_group() as group, case.watch(ScriptedStream("a", pause, "b", Stall())) as watched:
        group.start_soon(_both, *_ordered(watched.abort, pause.release, ours_first=ours_first), pause)
        items = await case.read(watched)
    case.expect(that=items in (["a"], ["a", "b"]), what_else=f"delivered {items}")
    case.check(TerminateReason.ABORTED)


async def _equal_scope(case: Case) -> None:
    """The caller's `move_on_after` and our `Timeout`, of the same length."""
    went_on = False
    with anyio.move_on_after(SAME_TICK_S) as scope:
        async with case.watch(ScriptedStream("a", Stall()), stop_when=monitor.Timeout(SAME_TICK_S)) as watched:
            await case.read(watched)
        await anyio.sleep(HARNESS_LIMIT_S)
        went_on = True
    case.expect(that=scope.cancelled_caught and not went_on, what_else="the cancelled scope's code went on")
    case.check(TerminateReason.TIMEOUT, TerminateReason.CANCELLED)


async def _equal_timeout(case: Case) -> None:
    """The same with `asyncio.timeout`."""
    try:
        async with asyncio.timeout(SAME_TICK_S):
            async with case.watch(ScriptedStream("a", Stall()), stop_when=monitor.Timeout(SAME_TICK_S)) as watched:
                await case.read(watched)
            await asyncio.sleep(HARNESS_LIMIT_S)
    except TimeoutError:
        pass
    else:
        case.wrong.append("the TimeoutError was swallowed")
    case.check(TerminateReason.TIMEOUT, TerminateReason.CANCELLED)


async def _scope_while_closing(case: Case) -> None:
    """The caller's scope is cancelled while a slow source is being closed: it is closed all the
    same.
    """
    closing = Pause()
    went_on = False
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            group.start_soon(_both, scope.cancel, closing.release, closing)
            source = ScriptedStream("a", "b", at_close=[closing])
            async with case.watch(source) as watched:
                await anext(watched)
            await anyio.lowlevel.checkpoint()
            went_on = True
    case.expect(that=scope.cancelled_caught and not went_on, what_else="the cancelled scope's code went on")
    case.expect(that=source.closed, what_else="the source stayed open")
    case.check(TerminateReason.CLOSED_BY_CALLER)


async def _native_while_closing(case: Case) -> None:
    """The same with a task, which no scope can shield: if the close is cut short, the outcome must
    not say otherwise.
    """
    stall, closing = Stall(), Pause()
    source = ScriptedStream("a", stall, at_close=[closing])
    watch = case.watch(source)
    task = asyncio.create_task(read_cancelled(case, watch))
    await stall.reached()
    watch.abort()
    cancel = partial(task.cancel, "the caller's own")
    await cancelled_by(case, task, _both(cancel, closing.release, closing))
    case.expect(that=source.closed or not case.outcome.closed, what_else="it said that it had closed")
    case.check(TerminateReason.ABORTED, may_stay_open=True)


# --- sources that make it hard


async def _abort_by_source(case: Case) -> None:
    """`abort()` from inside the read, as from a signal handler: it must end the read, and nothing
    after it.
    """
    source = ScriptedStream("a", Do(lambda: watched.abort("by itself")), "b", "c")
    async with case.watch(source) as watched:
        await case.read(watched)
    case.check(TerminateReason.ABORTED)


async def _swallowed_once(case: Case) -> None:
    """The source takes the first cancellation for a bad connection, and waits again."""

    async def source() -> AsyncIterator[str]:
        yield "a"
        with contextlib.suppress(asyncio.CancelledError):
            await anyio.sleep(UNSEEN_S)
        await anyio.sleep(UNSEEN_S)

    start = time.perf_counter()
    async with case.watch(source(), stop_when=monitor.IdleTimeout(SAME_TICK_S)) as watched:
        await case.read(watched)
    case.expect(that=time.perf_counter() - start < UNSEEN_S, what_else="the deadline passed unheard")
    case.check(TerminateReason.IDLE_TIMEOUT)


async def _close_raises(case: Case) -> None:
    """Closing fails, and the outcome says so."""
    async with case.watch(ScriptedStream("a", "b", at_close=[OSError("no")])) as watched:
        await anext(watched)
    case.expect(that=not case.outcome.closed, what_else="it said that it had closed")
    case.check(TerminateReason.CLOSED_BY_CALLER, may_stay_open=True)


async def _close_hangs(case: Case) -> None:
    """Closing never ends, and the outcome says so."""
    async with case.watch(ScriptedStream("a", "b", at_close=[Stall()]), close_grace_s=SAME_TICK_S) as watched:
        await anext(watched)
    case.expect(that=not case.outcome.closed, what_else="it said that it had closed")
    case.check(TerminateReason.CLOSED_BY_CALLER, may_stay_open=True)


async def _own_cancellation(case: Case, *, closing: bool) -> None:
    """The source awaits what somebody else has cancelled: that is its failure, and the caller's
    task goes on.
    """

    async def source() -> AsyncIterator[str]:
        try:
            yield "a"
            if not closing:
                await _cancelled_task()
        finally:
            if closing:
                await _cancelled_task()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(_read_one_or_all(case, source(), one=closing))
    case.expect(that=not task.cancelled(), what_else="the caller's task vanished")
    case.expect(
        that=case.outcome.closed is not closing,
        what_else="it said of a failed close that it had closed, or the reverse",
    )
    case.check(TerminateReason.CLOSED_BY_CALLER if closing else TerminateReason.ERROR, may_stay_open=closing)


async def _cancelled_task() -> None:
    other = asyncio.ensure_future(asyncio.sleep(UNSEEN_S))
    asyncio.get_running_loop().call_soon(other.cancel)
    await other


async def _read_one_or_all(case: Case, source: AsyncIterator[str], *, one: bool) -> None:
    async with case.watch(source) as watched:
        await (anext(watched) if one else case.read(watched))


async def _close_swallows(case: Case) -> None:
    """Closing swallows every cancellation: it is left to itself within the grace."""
    released = anyio.Event()

    async def source() -> AsyncIterator[str]:
        try:
            yield "a"
        finally:
            await _swallow(released)

    start = time.perf_counter()
    async with case.watch(source(), close_grace_s=SAME_TICK_S) as watched:
        await anext(watched)
    case.expect(that=time.perf_counter() - start < UNSEEN_S, what_else="the grace was exceeded")
    case.expect(that=not case.outcome.closed, what_else="it said that it had closed")
    released.set()
    case.check(TerminateReason.CLOSED_BY_CALLER, may_stay_open=True)


async def _isolated_swallows(case: Case) -> None:
    """A read in a task of its own swallows every cancellation: the deadline is met all the same."""
    released = anyio.Event()

    async def source() -> AsyncIterator[str]:
        yield "a"
        await _swallow(released)

    start = time.perf_counter()
    options: dict[str, Any] = {
        "isolate": True,
        "close_grace_s": SAME_TICK_S,
        "stop_when": monitor.IdleTimeout(SAME_TICK_S),
    }
    async with case.watch(source(), **options) as watched:
        await case.read(watched)
    case.expect(that=time.perf_counter() - start < UNSEEN_S, what_else="the deadline passed unheard")
    released.set()
    case.check(TerminateReason.IDLE_TIMEOUT, may_stay_open=True)


async def _swallow(released: anyio.Event) -> None:
    while not released.is_set():
        with contextlib.suppress(anyio.get_cancelled_exc_class()):
            await released.wait()


class _Iterable:
    """Not an iterator: its `__aiter__` is a generator function, so whoever iterates has to close
    what it makes.
    """

    def __init__(self) -> None:
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[str]:
        try:
            for word in words(3):
                yield word
                await anyio.lowlevel.checkpoint()
        finally:
            self.closed = True


async def _iterable_closed(case: Case) -> None:
    """The iterator that was made of an iterable is closed."""
    source = _Iterable()
    async with case.watch(source) as watched:
        await anext(watched)
    case.expect(that=source.closed or not case.outcome.closed, what_else="it said that it had closed")
    case.check(TerminateReason.CLOSED_BY_CALLER, may_stay_open=True)


async def _read_cut_short(case: Case) -> None:
    """The caller's scope around one read expires, which ends the source; that is no good end of the
    stream.
    """
    stall = Stall()
    async with anyio.create_task_group() as group, case.watch(ScriptedStream("a", stall)) as watched:
        with anyio.CancelScope() as scope:
            group.start_soon(_both, scope.cancel, lambda: None, stall)
            await case.read(watched)
        await case.read(watched)
    case.expect(that=not case.outcome.ok, what_else="ok")
    case.expect(that=_ended_once(case), what_else="RunTerminated is not the last event")


async def _left_while_closing(case: Case) -> None:
    """One task ends the stream and is closing it when the block is left in another: the outcome
    waits for the close.
    """
    stall, closing = Stall(), Pause()
    async with anyio.create_task_group() as group:
        async with case.watch(ScriptedStream("a", stall, at_close=[closing])) as watched:
            group.start_soon(case.read, watched)
            await stall.reached()
            watched.abort()
            await closing.reached()
            group.start_soon(_both, closing.release, lambda: None, closing)
        outcome_at = len(case.events.events)
    case.expect(that=outcome_at == len(case.events.events), what_else="events after the block was left")
    case.check(TerminateReason.ABORTED)


async def _left_while_read(case: Case) -> None:
    """The block is left while another task waits for a chunk: that task comes out."""
    stall = Stall()
    with anyio.move_on_after(UNSEEN_S) as hanging:
        async with anyio.create_task_group() as group, case.watch(ScriptedStream("a", stall)) as watched:
            group.start_soon(case.read, watched)
            await stall.reached()
    case.expect(that=not hanging.cancelled_caught, what_else="the reader was left waiting")
    case.check(TerminateReason.CLOSED_BY_CALLER, may_stay_open=True)


async def _two_readers(case: Case) -> None:
    """A second task reads at the same time: it is refused, and the first one is none the worse."""
    stall = Stall()
    async with anyio.create_task_group() as group, case.watch(ScriptedStream("a", stall)) as watched:
        group.start_soon(case.read, watched)
        await stall.reached()
        try:
            await anext(watched)
            case.wrong.append("the second reader was let in")
        except monitor.ConfigError:
            watched.abort()
    case.check(TerminateReason.ABORTED)


async def _never_iterated(case: Case) -> None:
    """An SDK's coroutine that nobody awaits in the end: it is closed, and aborting late changes
    nothing.
    """

    async def opened() -> ScriptedStream:
        case.wrong.append("it was opened")
        return ScriptedStream()

    async with case.watch(opened()) as watched:
        pass
    watched.abort("too late")
    watched.abort("and again")
    await anyio.lowlevel.checkpoint()
    case.check(TerminateReason.CLOSED_BY_CALLER)


def _ended_once(case: Case) -> bool:
    return [type(event) for event in case.events.events].index(RunTerminated) == len(case.events.events) - 1


def _races() -> Iterator[tuple[str, Callable[[Case], Awaitable[None]]]]:
    """What runs on the current event loop."""
    for ours_first in (True, False):
        for name, arm in _ARMED.items():
            yield (
                _named(name, "scope.cancel()", ours_first=ours_first),
                partial(_with_scope, arm=arm, ours_first=ours_first),
            )
            if on_asyncio():
                yield (
                    _named(name, "task.cancel()", ours_first=ours_first),
                    partial(_with_native, arm=arm, ours_first=ours_first),
                )
            if name != "abort":
                yield _named(name, "abort", ours_first=ours_first), partial(_with_abort, arm=arm, ours_first=ours_first)
        yield _named("abort", "a chunk", ours_first=ours_first), partial(_chunk_and_abort, ours_first=ours_first)
    yield "move_on_after = Timeout", _equal_scope
    yield "scope.cancel() while closing", _scope_while_closing
    if on_asyncio():
        yield "asyncio.timeout = Timeout", _equal_timeout
        yield "task.cancel() while closing", _native_while_closing
        yield "the source cancels itself", partial(_own_cancellation, closing=False)
        yield "the source cancels itself as it is closed", partial(_own_cancellation, closing=True)
    yield "the source itself aborts", _abort_by_source
    yield "the source swallows one cancellation", _swallowed_once
    yield "closing raises", _close_raises
    yield "closing hangs", _close_hangs
    yield "closing swallows its cancellation", _close_swallows
    yield "an isolated read swallows its cancellation", _isolated_swallows
    yield "an iterable that is no iterator", _iterable_closed
    yield "a read cut short by the caller", _read_cut_short
    yield "left while another task closes", _left_while_closing
    yield "left while another task reads", _left_while_read
    yield "two readers", _two_readers
    yield "never iterated, aborted late", _never_iterated


def _named(ours: str, other: str, *, ours_first: bool) -> str:
    return f"{ours}, then {other}" if ours_first else f"{other}, then {ours}"


async def raced(backend: Backend, runs: int) -> list[Row]:
    rows = []
    for name, play in _races():
        row = Row(name, backend)
        for _ in range(runs):
            case = Case()
            await case.unless_hung(play(case))
            row.add(case)
        rows.append(row)
    return rows
