"""A task that is destroyed, with its event loop or without, has an outcome as well: nothing can be
awaited there any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import anyio
import pytest

import monitor
from monitor.testing import Pause, ScriptedModel, ScriptedStream, Stall, call

Reason = monitor.TerminateReason
Consume = Callable[[list[monitor.sinks.MemorySink]], Coroutine[Any, Any, None]]


async def reading(sinks: list[monitor.sinks.MemorySink]) -> None:
    """Destroyed in a read."""
    async with monitor.watch(ScriptedStream("a", Stall()), sinks=sinks, stop_when=monitor.Timeout(3600)) as watched:
        async for _ in watched:
            pass


async def reading_a_generator(sinks: list[monitor.sinks.MemorySink]) -> None:
    """The same, of a generator."""

    async def stalls() -> AsyncIterator[str]:
        yield "a"
        await asyncio.Event().wait()

    async with monitor.watch(stalls(), sinks=sinks) as watched:
        async for _ in watched:
            pass


async def opening(sinks: list[monitor.sinks.MemorySink]) -> None:
    """Destroyed before there is a stream."""

    async def opens() -> ScriptedStream:
        await asyncio.Event().wait()
        raise AssertionError

    async with monitor.watch(opens, sinks=sinks) as watched:
        async for _ in watched:
            pass


async def in_the_body(sinks: list[monitor.sinks.MemorySink]) -> None:
    """Destroyed in the caller's own code."""
    async with monitor.watch(ScriptedStream("a", Stall()), sinks=sinks) as watched:
        await anext(watched)
        await asyncio.Event().wait()


async def closing(sinks: list[monitor.sinks.MemorySink]) -> None:
    """Destroyed while the source is closed."""
    async with monitor.watch(ScriptedStream("a", at_close=[Stall()]), sinks=sinks, close_grace_s=None) as watched:
        await anext(watched)


async def isolated(sinks: list[monitor.sinks.MemorySink]) -> None:
    """Destroyed with the task of the source."""
    async with monitor.watch(ScriptedStream("a", Stall()), sinks=sinks, isolate=True) as watched:
        async for _ in watched:
            pass


async def between_turns(sinks: list[monitor.sinks.MemorySink]) -> None:
    """A guard whose streams have ended."""
    async with monitor.Guard(sinks=sinks) as guard:
        async with guard.watch(ScriptedStream("a")) as watched:
            async for _ in watched:
                pass
        await asyncio.Event().wait()


async def judged(sinks: list[monitor.sinks.MemorySink]) -> None:
    """A guard with a judge at work."""
    judge = monitor.LoopJudge(ScriptedModel([Stall()]), first_turn=1)
    async with (
        monitor.Guard(sinks=sinks, judge=judge, task="do it") as guard,
        guard.watch(ScriptedStream("a", Stall())) as watched,
    ):
        async for _ in watched:
            pass


async def supervised(sinks: list[monitor.sinks.MemorySink]) -> None:
    """A whole run, in a model call."""
    await monitor.Supervisor(ScriptedModel([Stall()]), sinks=sinks).run("do it")


async def in_a_tool(sinks: list[monitor.sinks.MemorySink]) -> None:
    """A whole run, in a tool."""

    async def wait() -> str:
        """Wait."""
        await asyncio.Event().wait()
        return "never"

    await monitor.Supervisor(ScriptedModel(call("wait")), tools=[wait], sinks=sinks).run("do it")


async def streamed(sinks: list[monitor.sinks.MemorySink]) -> None:
    """A whole run, in the body of whoever reads its events."""
    async with monitor.Supervisor(ScriptedModel([Stall()]), sinks=sinks).stream("do it") as run:
        async for _ in run:
            await asyncio.Event().wait()


WHERE: list[Consume] = [
    reading,
    reading_a_generator,
    opening,
    in_the_body,
    closing,
    isolated,
    between_turns,
    judged,
    supervised,
    in_a_tool,
    streamed,
]
where = pytest.mark.parametrize("consume", WHERE, ids=lambda consume: str(consume.__name__))


def _is_over(sink: monitor.sinks.MemorySink) -> monitor.Outcome:
    ends = [event for event in sink.events if isinstance(event, monitor.events.RunTerminated)]
    assert len(ends) == 1
    assert sink.events[-1] is ends[0]
    return ends[0].outcome


@where
def test_a_task_that_is_destroyed_with_its_loop_has_one_outcome(
    consume: Consume, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "asyncio")  # "Task was destroyed but it is pending!"
    sink = monitor.sinks.MemorySink()
    loop = asyncio.new_event_loop()
    coroutine = consume([sink])
    task = loop.create_task(coroutine)
    loop.run_until_complete(anyio.wait_all_tasks_blocked())
    loop.close()
    coroutine.close()  # which the collector does with one that is not inside of a scope; those are kept by anyio
    outcome = _is_over(sink)
    assert outcome.reason is Reason.CLOSED_BY_CALLER
    assert outcome.closed is (consume in (between_turns, in_a_tool, streamed))
    del task
    gc.collect()


@pytest.mark.parametrize("consume", [reading_a_generator, opening], ids=lambda consume: str(consume.__name__))
def test_a_task_that_nobody_keeps_has_one_outcome(consume: Consume, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "asyncio")
    sink = monitor.sinks.MemorySink()

    async def main() -> None:
        task = asyncio.create_task(consume([sink]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        del task
        gc.collect()
        assert not _is_over(sink).closed

    asyncio.run(main())


@pytest.mark.anyio
async def test_a_guard_that_is_dropped_has_one_outcome_as_well() -> None:
    sink = monitor.sinks.MemorySink()
    source = ScriptedStream("a", "b")

    async def drop() -> None:
        guard = monitor.Guard(sinks=[sink])
        await guard.__aenter__()
        watched = await guard.watch(source).__aenter__()
        await anext(watched)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        await drop()
        gc.collect()
    assert ResourceWarning in [warning.category for warning in caught]
    outcome = _is_over(sink)
    assert outcome.reason is Reason.CLOSED_BY_CALLER
    assert not outcome.closed


@pytest.mark.anyio
async def test_a_generator_around_the_run_that_is_closed_closes_the_source() -> None:
    source, sink = ScriptedStream("a", "b"), monitor.sinks.MemorySink()

    async def around() -> AsyncIterator[Any]:
        async with monitor.watch(source, sinks=[sink]) as watched:
            async for piece in watched:
                yield piece

    generator: Any = around()
    assert await anext(generator) == "a"
    await generator.aclose()
    outcome = _is_over(sink)
    assert outcome.reason is Reason.CLOSED_BY_CALLER
    assert outcome.closed
    assert source.closed


@pytest.mark.anyio
async def test_a_generator_exit_of_the_sources_own_is_not_the_callers_end() -> None:
    sink = monitor.sinks.MemorySink()
    async with monitor.watch(ScriptedStream("a", GeneratorExit()), sinks=[sink]) as watched:
        assert [piece async for piece in watched] == ["a"]
    outcome = _is_over(sink)
    assert outcome.reason is Reason.ERROR
    assert isinstance(outcome.error, monitor.errors.MonitorError)


@pytest.mark.anyio
@pytest.mark.parametrize("when", ["in the block", "behind it"])
async def test_a_compaction_that_is_asked_for_after_an_abort_is_refused_for_the_abort(when: str) -> None:
    pause = Pause()
    run = monitor.Supervisor(ScriptedModel([pause, "done"]), window=100_000).stream("do it")
    async with run:
        await anext(run)
        run.abort("enough")
        if when == "in the block":
            with pytest.raises(monitor.context.CompactionError, match="enough") as caught:
                await run.compact()
            assert caught.value.failure is monitor.errors.CompactionFailure.ABORTED
        with contextlib.suppress(StopAsyncIteration):
            while True:
                await anext(run)
    assert run.outcome.reason is Reason.ABORTED
    with pytest.raises(monitor.context.CompactionError, match="enough") as caught:
        await run.compact()
    assert caught.value.failure is monitor.errors.CompactionFailure.ABORTED
    await anyio.lowlevel.checkpoint()
