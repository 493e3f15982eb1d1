"""Guards of one kind: one for each run, found by the context of the run."""

from __future__ import annotations

import contextvars
import threading
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import monitor
from monitor.chunks import TextDelta, TurnFinished
from monitor.guard.framework_guards import Guarding
from monitor.testing import ScriptedStream

pytestmark = pytest.mark.anyio

DONE = TurnFinished(monitor.FinishReason.DONE)


async def say(guarded: Guarding, *words: str) -> monitor.outcome.Turn:
    async with guarded.current.watch(ScriptedStream(*map(TextDelta, words), DONE)) as watched:
        async for _ in watched:
            pass
    return watched.turn


async def test_runs_side_by_side_have_guards_of_their_own() -> None:
    guarded = monitor.guard.guarding(stop_when=monitor.MaxTurns(2))
    outcomes: dict[str, monitor.Outcome] = {}

    async def run(name: str) -> None:
        async with guarded() as guard:
            for _ in range(2):
                await say(guarded, name)
                await anyio.lowlevel.checkpoint()
        outcomes[name] = guard.outcome

    async with anyio.create_task_group() as group:
        for name in "abcd":
            group.start_soon(run, name)
    assert {name: (one.turns, one.text) for name, one in outcomes.items()} == {name: (2, name) for name in "abcd"}


async def test_a_loop_of_one_run_ends_no_other() -> None:
    guarded = monitor.guard.guarding()
    async with guarded() as first:
        assert (await say(guarded, *["Let me check the file again. "] * 400)).stopped is not None
    async with guarded() as second:
        assert (await say(guarded, "Let me check the file again. ")).stopped is None
    assert not first.outcome.ok
    assert second.outcome.ok


async def test_tasks_and_threads_of_the_block_belong_to_its_guard() -> None:
    guarded = monitor.guard.guarding()
    found: list[Any] = []
    async with guarded() as guard:
        async with anyio.create_task_group() as group:
            group.start_soon(_find, guarded, found)
        await anyio.to_thread.run_sync(lambda: found.append(guarded.current))
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(lambda: found.append(guarded.current),))
        thread.start()
        thread.join()
    assert found == [guard] * 3


async def _find(guarded: Guarding, found: list[Any]) -> None:
    found.append(guarded.current)


async def test_outside_of_a_run_there_is_no_guard() -> None:
    guarded = monitor.guard.guarding()
    async with guarded():
        pass
    with pytest.raises(monitor.ConfigError, match="async with guarded"):
        _ = guarded.current


async def test_two_kinds_of_guards_may_be_nested() -> None:
    outer, inner = monitor.guard.guarding(), monitor.guard.guarding()
    async with outer() as one, inner() as two, outer() as three:
        assert outer.current is three
        assert inner.current is two
        assert one is not three


def test_a_block_without_an_event_loop_has_a_guard_too() -> None:
    guarded = monitor.guard.guarding()
    with guarded() as guard:
        assert guarded.current is guard
        with guarded.current.watch(iter(["a"])) as watched:
            assert list(watched) == ["a"]
    assert guard.outcome.ok


def test_an_option_that_a_guard_does_not_have_is_refused_at_once() -> None:
    with pytest.raises(monitor.ConfigError, match=r"stop_when=monitor\.MaxTurns"):
        monitor.guard.guarding(max_turns=30)  # type: ignore[call-arg]


async def test_declared_outputs_are_those_of_each_run() -> None:
    guarded = monitor.guard.guarding(outputs={"summary": str})
    async with guarded() as one:
        pass
    async with guarded() as two:
        pass
    assert one.outputs is not two.outputs
    assert one.outputs is not None
    assert one.outputs.missing == ["summary"]


async def test_guarding_itself_is_no_guard_and_says_what_to_write() -> None:
    guarded: Any = monitor.guard.guarding()
    with pytest.raises(monitor.ConfigError, match=r"async with guarded\(\) as guard"):
        async with guarded:
            pass
    with pytest.raises(monitor.ConfigError, match=r"with guarded\(\) as guard"), guarded:
        pass
