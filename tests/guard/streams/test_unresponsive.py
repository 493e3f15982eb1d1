"""What does not let itself be cancelled, or does not return: a summariser, a hook, a reducer. The
run ends all the same, or goes on.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any, Self

import anyio
import anyio.lowlevel
import pytest

import monitor
from monitor.context.compaction.summarizer import Summary
from monitor.context.reduce import Messages
from monitor.errors import CompactionFailure
from monitor.runs.context.compaction_job import LATE_S
from monitor.testing import Pause, Stall, call
from tests.runs.context.test_run_context_compaction import (
    CEILING,
    EVENTS,
    SUMMARY,
    WINDOW,
    Agent,
    driven,
    read,
    reads,
    until_asked,
)
from tests.runs.driving import Drive, Reason

pytestmark = [pytest.mark.anyio, pytest.mark.feature("CL-05")]

GRACE_S = 0.01
TIMEOUT_S = 180.0
FULL = reads(20_000, 20_000, 20_000, 18_000, 8_000)
"""At the mark: a summary is made beside the run."""


class Deaf(Stall):
    """A step that swallows its cancellation, `times` times at most, until the test lets it go
    on.
    """

    def __init__(self, times: float = float("inf")) -> None:
        super().__init__()
        self.struck = 0
        self._times = times
        self._released = anyio.Event()
        self._left = anyio.Event()

    async def release(self) -> None:
        """Let it go on, and wait until what it belongs to has gone on as far as it goes."""
        self._released.set()
        await self._left.wait()
        await anyio.wait_all_tasks_blocked()

    async def perform(self) -> None:
        self._reached.set()
        try:
            while not self._released.is_set():
                try:
                    await self._released.wait()
                except anyio.get_cancelled_exc_class():
                    self.struck += 1
                    if self.struck > self._times:
                        raise
        finally:
            self._left.set()


class Summariser:
    """A summariser of the caller's that is deaf, and writes a summary in the end."""

    name = "deaf"

    def __init__(self, step: Deaf) -> None:
        self.step = step
        self.asked = 0

    async def summarize(self, task: Any, ask: Any, *, progress: Any, checkpoint: Any) -> Any:
        self.asked += 1
        await self.step.perform()
        return Summary(text=SUMMARY, by=self.name)


class DeafDrive(Drive):
    """The deadline of a question that is still open outlives the run, if nobody lets go of it."""

    async def go(self) -> Self:
        async with self.run as run:
            async for event in run:
                self.events.append(event)
        return self


def deaf_run(kind: str, step: Deaf, *answers: Any, **options: Any) -> DeafDrive:
    """A run whose summary does not let itself be cancelled, because its model does not, or a hook,
    or a summariser of the caller's.
    """
    parts: dict[str, Any] = {}
    if kind == "hook":
        parts["hooks"] = (monitor.context.CompactionHook(before=lambda _: step.perform()),)
    if kind == "summariser":
        parts["summarizer"] = Summariser(step)
    options["summaries"] = [[step, SUMMARY], SUMMARY] if kind == "model" else SUMMARY
    options = {
        "tools": [read],
        "results": monitor.runs.Results(bound=None),
        "window": WINDOW,
        "task": "read it all",
        "detectors": [],
        "policy": monitor.policy.ObserveOnly(),
        **options,
    }
    model = Agent(*answers, summaries=options.pop("summaries"))
    return DeafDrive(model=model, compaction=monitor.Compaction(steps=(), **parts), close_grace_s=GRACE_S, **options)


KINDS = pytest.mark.parametrize("kind", ["model", "hook", "summariser"])


@KINDS
async def test_an_abort_ends_a_run_that_waits_for_a_deaf_one_and_what_comes_late_is_thrown_away(kind: str):
    step, sink = Deaf(), monitor.sinks.MemorySink()
    d = deaf_run(kind, step, *CEILING, sinks=[sink])
    await until_asked(d, step, lambda: d.run.abort("enough"))
    assert (d.outcome.reason, d.outcome.detail) == (Reason.ABORTED, "enough")
    assert step.struck
    heard, asked = len(sink.events), len(d.requests)
    await step.release()
    assert d.run.history == d.run.originals
    assert len(sink.events) == heard
    assert len(d.requests) == asked
    assert d.clock.pending == 0


@KINDS
async def test_one_that_the_run_cannot_go_on_without_is_made_without_those_who_are_deaf(kind: str):
    step = Deaf()
    d = deaf_run(kind, step, *CEILING, "done")

    def too_long() -> None:
        d.clock.advance(TIMEOUT_S + LATE_S)
        d.clock.advance(GRACE_S)

    await until_asked(d, step, too_long)
    assert d.outcome.ok
    (finished,) = d.of(monitor.events.CompactionFinished)
    assert finished.summarised_by == "extractive"
    assert any("180 s" in warning for warning in finished.warnings)
    assert not d.of(monitor.events.CompactionFailed)
    assert len(d.of(monitor.events.CompactionStarted)) == 1
    history = d.run.history
    await step.release()
    assert d.run.history == history


@KINDS
async def test_one_beside_the_run_is_given_up_and_the_history_is_as_before(kind: str):
    step, pause = Deaf(), Pause()
    d = deaf_run(kind, step, *FULL, [pause, *reads(10)], "done")

    def later() -> None:
        d.clock.advance(TIMEOUT_S + LATE_S)
        d.clock.advance(GRACE_S)
        pause.release()

    await until_asked(d, step, later)
    assert d.outcome.ok
    assert d.of(monitor.events.CompactionFailed)[0].failure is CompactionFailure.TIMEOUT
    assert d.run.history == d.run.originals
    await step.release()
    assert d.run.history == d.run.originals


@KINDS
async def test_who_asked_for_it_by_hand_is_told_at_the_end_of_the_run_and_not_when_it_returns(kind: str):
    step, pause = Deaf(), Pause()
    d = deaf_run(kind, step, *reads(9_000, 9_000), [pause, "done"])
    caught: list[monitor.context.CompactionError] = []

    async def ask() -> None:
        with pytest.raises(monitor.context.CompactionError) as error:
            await d.run.compact()
        caught.append(error.value)

    async with anyio.create_task_group() as group:
        group.start_soon(d.go)
        await pause.reached()
        group.start_soon(ask)
        await step.reached()
        pause.release()
    assert d.outcome.ok
    assert [error.failure for error in caught] == [CompactionFailure.ABORTED]
    await step.release()


async def test_a_last_turn_does_not_wait_for_a_deaf_one():
    step = Deaf()
    emits = call("emit_value", name="answer", value="x")
    d = deaf_run("model", step, *CEILING, emits, stop_when=monitor.Timeout(60), outputs={"answer": str})

    async with anyio.create_task_group() as group:
        group.start_soon(d.go)
        await step.reached()
        await anyio.wait_all_tasks_blocked()
        d.clock.advance(60)
        while not step.struck:  # on trio a deaf task is never blocked
            await anyio.lowlevel.checkpoint()
        d.clock.advance(GRACE_S)
    assert (d.outcome.reason, d.outcome.recovered_from) == (Reason.GOAL, Reason.TIMEOUT)
    assert [event.summarised_by for event in d.of(monitor.events.CompactionFinished)] == ["extractive"]
    await step.release()


async def test_a_clock_that_jumps_over_everything_leaves_a_pressing_one_its_fallback():
    stall = Stall()
    d = driven(*CEILING, "done", summaries=[[stall]])
    await until_asked(d, stall, lambda: d.clock.advance(TIMEOUT_S + LATE_S))
    assert d.outcome.ok
    assert d.kinds(*EVENTS)[-4:] == ["CompactionStarted", "CompactionFinished", "StopDecided", "RunTerminated"]
    assert d.of(monitor.events.CompactionFinished)[0].summarised_by == "extractive"
    assert d.clock.pending == 0


async def test_a_hook_that_never_returns_does_not_keep_a_full_run_from_going_on():
    stall, told = Stall(), []
    hook = monitor.context.CompactionHook(before=lambda _: stall.perform(), after=lambda _: told.append("after"))
    d = driven(*CEILING, "done", compaction=monitor.Compaction(steps=(), hooks=(hook,)))
    await until_asked(d, stall, lambda: d.clock.advance(TIMEOUT_S + LATE_S))
    assert d.outcome.ok
    assert d.of(monitor.events.CompactionFinished)[0].summarised_by == "extractive"
    assert told == ["after"]


async def test_a_reducer_that_takes_minutes_in_its_thread_keeps_no_run_from_ending():
    begun, go_on = threading.Event(), threading.Event()

    class Slow:
        name = "slow"

        def reduce(self, messages: Messages, *, head: int = 0) -> Messages:
            begun.set()
            go_on.wait(60)
            return messages[:1]

    def wait_for_it() -> str:
        """Wait until the reducer is at work."""
        return "at work" if begun.wait(60) else "not at work"

    d = driven(*reads(9_000), call("wait_for_it"), "done", tools=[read, wait_for_it],
               compaction=monitor.Compaction(steps=(), after_turn=(Slow(),)), close_grace_s=GRACE_S)  # fmt: skip
    try:
        await d.go()
        assert d.outcome.ok
        assert d.results(-2)[0].text == "at work"
    finally:
        go_on.set()
    await anyio.sleep(GRACE_S)
    assert d.run.history == d.run.originals


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_event_loop_closes_behind_one_that_heeds_a_second_cancellation(backend: str):
    """One that heeds none keeps it open: it is a task like any other, and nobody can end it."""

    async def main() -> None:
        step = Deaf(times=1)
        d = deaf_run("model", step, *CEILING)
        await until_asked(d, step, d.run.abort)
        assert d.outcome.reason is Reason.ABORTED
        assert step.struck

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("kind", ["hook", "summariser"])
def test_asyncio_closes_its_loop_behind_one_that_heeds_none(kind: str):
    """On trio it stays open: a task of trio ends by itself or not at all."""
    steps: list[Deaf] = []

    async def main() -> None:
        steps.append(Deaf())
        d = deaf_run(kind, steps[0], *CEILING)
        await until_asked(d, steps[0], d.run.abort)
        assert d.outcome.reason is Reason.ABORTED

    asyncio.run(main())
    struck = steps.pop().struck
    gc.collect()
    assert struck == 2
