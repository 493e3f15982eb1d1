"""Who iterates over a run sees what happens while it waits, and not when the wait is over."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

import monitor
from monitor.errors import CompactionReason
from monitor.testing import Pause, Stall
from tests.runs.context.test_run_context_compaction import CEILING, FULL, REFUSED, SUMMARY, driven
from tests.runs.driving import Drive, Reason
from tests.runs.test_turn_loop_retries import Failed, failing

pytestmark = pytest.mark.anyio


async def read_until(d: Drive, kind: type[monitor.events.Event], pause: Pause | Stall) -> None:
    """Read the run's events up to the first of a kind, at a time at which whoever makes it has not
    come to its end.
    """
    async for event in d.run:
        d.events.append(event)
        if isinstance(event, kind):
            break
    await pause.reached()


@pytest.mark.parametrize(
    ("answers", "reason"),
    [([*CEILING, "done"], CompactionReason.CEILING), ([*FULL, REFUSED, "done"], CompactionReason.OVERFLOW)],
    ids=["ceiling", "refusal"],
)
async def test_a_compaction_that_the_run_waits_for_is_seen_when_it_begins(
    answers: list[object], reason: CompactionReason
):
    pause = Pause()
    d = driven(*answers, summaries=[[pause, SUMMARY]])
    async with d.run:
        await read_until(d, monitor.events.CompactionStarted, pause)
        assert d.of(monitor.events.CompactionStarted)[0].reason is reason
        assert not d.of(monitor.events.CompactionFinished)
        pause.release()
        async for event in d.run:
            d.events.append(event)
    assert d.outcome.ok
    assert [type(event).__name__ for event in d.events[-1:]] == ["RunTerminated"]
    assert len(d.of(monitor.events.CompactionFinished)) == 1
    assert len(d.model.summaries) == 1
    assert d.clock.pending == 0


async def test_so_is_each_part_of_it():
    """The summariser's window is small, so the summary is made in parts."""
    first, second = Pause(), Pause()
    talk = [
        monitor.UserMessage((monitor.messages.Text("word" * 4_000),)),
        monitor.AssistantMessage((monitor.messages.Text("word" * 400),)),
    ] * 22
    compaction = monitor.Compaction(steps=(), window=monitor.Window(40_000))
    d = driven(
        "done", summaries=[[first, SUMMARY], [second, SUMMARY], *[SUMMARY] * 20], compaction=compaction, history=talk
    )
    async with d.run:
        await read_until(d, monitor.events.CompactionStarted, first)
        assert not d.of(monitor.events.CompactionProgressed)
        first.release()
        await read_until(d, monitor.events.CompactionProgressed, second)
        assert not d.of(monitor.events.CompactionFinished)
        second.release()
        async for event in d.run:
            d.events.append(event)
    assert d.outcome.ok


async def test_the_caller_may_do_what_it_likes_meanwhile():
    """Ask for the same compaction, abort, leave: the run goes on from there."""
    pause = Pause()
    d = driven(*CEILING, "done", summaries=[[pause, SUMMARY]])
    async with d.run as run:
        await read_until(d, monitor.events.CompactionStarted, pause)
        pause.release()
        result = await run.compact()
        assert result.messages == run.history
        async for event in run:
            d.events.append(event)
    assert d.outcome.ok
    assert len(d.of(monitor.events.CompactionFinished)) == 1

    stall = Stall()
    d = driven(*CEILING, summaries=[[stall]])
    async with d.run as run:
        await read_until(d, monitor.events.CompactionStarted, stall)
        run.abort("enough")
        async for event in run:
            d.events.append(event)
    assert (d.outcome.reason, d.outcome.detail) == (Reason.ABORTED, "enough")
    assert len(d.of(monitor.events.CompactionFailed)) == 1

    stall = Stall()
    d = driven(*CEILING, summaries=[[stall]])
    async with d.run:
        await read_until(d, monitor.events.CompactionStarted, stall)
    assert d.outcome.reason is Reason.CLOSED_BY_CALLER
    assert all(stream.exhausted for stream in d.model.streams)
    assert d.clock.pending == 0


async def test_deadlines_are_kept_while_events_are_handed_out():
    stall = Stall()
    d = driven(*CEILING, summaries=[[stall]], stop_when=monitor.Timeout(60), last_turn=None)
    async with d.run as run:
        await read_until(d, monitor.events.CompactionStarted, stall)
        d.clock.advance(60)
        async for event in run:
            d.events.append(event)
    assert d.outcome.reason is Reason.TIMEOUT
    assert run.history == run.originals


async def test_a_compaction_that_nobody_waits_for_any_longer_does_not_make_the_driver_spin():
    """One event, one turn of the driver."""
    pause = Pause()
    d = driven(*CEILING, "done", summaries=[[pause, SUMMARY]])
    handed_out = 0

    async def read() -> None:
        nonlocal handed_out
        async with d.run as run:
            async for _ in run:
                handed_out += 1

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await pause.reached()
        await anyio.wait_all_tasks_blocked()
        before = handed_out
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        assert handed_out == before
        pause.release()
    assert d.outcome.ok


async def test_a_retry_is_told_before_its_delay():
    d = Drive(
        model=failing(Failed(monitor.models.ErrorKind.SERVER), "done"),
        requests=monitor.runs.Requests(retries=monitor.Retries(3, first_delay_s=30.0)),
    )
    async with d.run as run:
        async for event in run:
            d.events.append(event)
            if isinstance(event, monitor.events.RetryScheduled):
                assert event.after_s == 30.0
                assert len(d.requests) == 1
                d.clock.advance(30)
    assert d.outcome.ok
    assert len(d.requests) == 2


async def test_what_the_caller_takes_of_the_delay_is_part_of_it():
    d = Drive(
        model=failing(Failed(monitor.models.ErrorKind.SERVER), "done"),
        requests=monitor.runs.Requests(retries=monitor.Retries(3, first_delay_s=30.0)),
    )
    async with anyio.create_task_group() as group, d.run as run:
        async for event in run:
            d.events.append(event)
            if isinstance(event, monitor.events.RetryScheduled):
                d.clock.advance(29)
                group.start_soon(advance_when_blocked, d)
    assert d.outcome.ok
    assert d.clock.now() == 30


async def advance_when_blocked(d: Drive) -> None:
    await anyio.wait_all_tasks_blocked()
    assert len(d.requests) == 1
    d.clock.advance(1)
