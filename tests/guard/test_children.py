"""Several agents under one guard: each has its own turns, calls and detectors; limits, budget and
the end are those of the run.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

import monitor
from monitor.chunks import TextDelta, ToolCall, TurnFinished, UsageReport
from monitor.events import DetectionRaised, RunStarted, RunTerminated, StopDecided
from monitor.testing import FakeClock, ScriptedStream

pytestmark = pytest.mark.anyio

Reason = monitor.TerminateReason
DONE = TurnFinished(monitor.FinishReason.DONE)
USED = UsageReport(input_tokens=60, output_tokens=40)


async def read(guard: monitor.Guard[Any], *chunks: Any) -> monitor.outcome.Turn:
    async with guard.watch(ScriptedStream(*chunks, DONE)) as watched:
        async for _ in watched:
            pass
    return watched.turn


class Silent(AsyncIterator[Any]):
    """A stream that says a word, and then nothing."""

    def __init__(self) -> None:
        self.closed = False
        self.waits = anyio.Event()

    async def __anext__(self) -> Any:
        if not self.waits.is_set():
            self.waits.set()
            return TextDelta("wait")
        await anyio.sleep_forever()
        raise AssertionError

    async def aclose(self) -> None:
        self.closed = True


async def drain(guard: monitor.Guard[Any], stream: Any) -> monitor.outcome.Turn:
    async with guard.watch(stream) as watched:
        async for _ in watched:
            pass
    return watched.turn


def asks(number: int, tool: str = "ask") -> ToolCall:
    return ToolCall(f"c{number}", tool, {"q": "status"})


async def test_turns_of_all_agents_count_for_the_run() -> None:
    async with monitor.Guard(stop_when=monitor.MaxTurns(4)) as guard:
        await read(guard, asks(1))
        for name in "abc":
            async with guard.child(name, call="c1") as child:
                await read(child, TextDelta("an answer"))
                assert child.check() == monitor.Continue()
        guard.tool_result("c1", "three answers")
        assert isinstance(guard.check(), monitor.Stop)
    assert guard.outcome.reason is Reason.MAX_TURNS
    assert guard.outcome.turns == 4


@pytest.mark.parametrize("limit", ["tokens", "budget", "cost"])
async def test_what_the_agents_use_counts_together(limit: str) -> None:
    choices: dict[str, dict[str, Any]] = {
        "tokens": {"stop_when": monitor.TokenLimit(250)},
        "budget": {"budget": monitor.Budget(tokens=250)},
        "cost": {"stop_when": monitor.CostLimit(0.00025), "prices": monitor.Price(input=1, output=1)},
    }
    async with monitor.Guard(**choices[limit]) as guard, guard.child("a") as a, guard.child("b") as b:
        assert (await read(guard, USED)).stopped is None
        assert (await read(a, USED)).stopped is None
        turn = await read(b, USED)
        assert turn.stopped is not None
        assert isinstance(a.check(), monitor.Stop)
        assert isinstance(guard.check(), monitor.Stop)
    assert guard.outcome.usage.total_tokens == 300
    assert a.outcome.usage.total_tokens == 100
    assert guard.outcome.reason == b.outcome.reason == a.outcome.reason


async def test_a_loop_in_one_agent_ends_the_others_while_they_write() -> None:
    sibling, parents = Silent(), Silent()
    turns: list[monitor.outcome.Turn] = []
    async with (
        monitor.Guard() as guard,
        guard.child("a") as a,
        guard.child("b") as b,
        anyio.create_task_group() as group,
    ):
        group.start_soon(drain, b, sibling)
        group.start_soon(drain, guard, parents)
        await sibling.waits.wait()
        await parents.waits.wait()
        turns.append(await read(a, *[TextDelta("Let me check the file again. ")] * 400))
    assert turns[0].stopped is not None
    assert turns[0].stopped.reason is Reason.LOOP_DETECTED
    assert sibling.closed
    assert parents.closed
    stops = {one.outcome.reason for one in (guard, a, b)}
    assert stops == {Reason.LOOP_DETECTED}
    assert guard.outcome.evidence == a.outcome.evidence is not None


def test_the_loop_of_an_agent_is_the_end_of_the_run_while_another_thread_still_reads() -> None:
    with monitor.Guard() as guard:
        guard.watch(TextDelta(f"{number} ") for number in range(9)).__enter__()  # nobody leaves it
        with guard.child("one") as one, one.watch(TextDelta("Look at it again. ") for _ in range(99)) as watched:
            assert len([*watched]) < 99
    assert guard.outcome.reason is one.outcome.reason is Reason.LOOP_DETECTED


async def test_no_stream_of_any_agent_is_opened_after_the_stop() -> None:
    opened: list[str] = []

    def opener(name: str) -> Any:
        opened.append(name)
        return ScriptedStream(TextDelta("x"), DONE)

    async with monitor.Guard() as guard:
        await read(guard, asks(1))
        async with guard.child("a") as child:
            await read(child, *[TextDelta("Let me check the file again. ")] * 400)
        for agent in (guard, guard.child("b")):
            if agent is not guard:
                await agent.__aenter__()
            async with agent.watch(lambda: opener("late")) as watched:
                assert [_ async for _ in watched] == []
            assert watched.turn.stopped is not None
    assert opened == []


async def test_an_abort_from_another_thread_ends_all_agents() -> None:
    streams = [Silent() for _ in range(3)]
    async with monitor.Guard() as guard, anyio.create_task_group() as group:
        for number, stream in enumerate(streams):
            child = await guard.child(str(number)).__aenter__()
            group.start_soon(drain, child, stream)
            await stream.waits.wait()
        thread = threading.Thread(target=guard.abort, args=("enough",))
        thread.start()
        thread.join()
    assert all(stream.closed for stream in streams)
    assert guard.outcome.reason is Reason.ABORTED
    assert guard.outcome.detail == "enough"


async def test_a_timeout_of_the_run_ends_a_silent_child() -> None:
    clock, stream = FakeClock(), Silent()
    async with monitor.Guard(stop_when=monitor.Timeout(10), clock=clock) as guard:
        clock.advance(6)
        async with guard.child() as child, anyio.create_task_group() as group:
            group.start_soon(drain, child, stream)
            await stream.waits.wait()
            clock.advance(5)
    assert stream.closed
    assert child.outcome.reason is guard.outcome.reason is Reason.TIMEOUT


async def test_a_manager_that_polls_a_child_with_changing_answers_runs_on() -> None:
    async with monitor.Guard() as guard:
        for number in range(12):
            turn = await read(guard, asks(number))
            assert turn.stopped is None
            async with guard.child("worker", call=turn.tool_calls[0]) as child:
                await read(child, ToolCall("x", "look", {}))
                child.tool_result("x", f"{number} of 12")
                await read(child, TextDelta(f"{number} of 12 are done"))
            guard.tool_result(turn.tool_calls[0], f"{number} of 12 are done")
            assert guard.check() == monitor.Continue()
    assert guard.outcome.ok


async def test_a_manager_that_gets_the_same_answers_is_stopped_at_its_own_count() -> None:
    async with monitor.Guard() as guard:
        turns = 0
        turn = await read(guard, asks(0))
        while turn.stopped is None:
            async with guard.child("worker") as child:
                await read(child, ToolCall("x", f"look_{turns}", {}))
                child.tool_result("x", f"page {turns}")
                await read(child, TextDelta(f"a thought of its own {turns}"))
            guard.tool_result(turn.tool_calls[0], "nothing yet")
            turns += 1
            turn = await read(guard, asks(turns))
    assert turns == 4
    assert guard.outcome.reason is Reason.LOOP_DETECTED


async def test_events_name_the_agent_its_run_and_the_run_above() -> None:
    sink = monitor.sinks.MemorySink()
    kept: list[monitor.events.Envelope] = []

    class Envelopes:
        def receive(self, envelope: monitor.events.Envelope, /) -> None:
            kept.append(envelope)

    async with monitor.Guard(agent="boss", sinks=[Envelopes(), sink]) as guard:
        await read(guard, asks(1))
        async with guard.child("a", call="c1") as a, a.child("deep") as deep:
            await read(deep, TextDelta("hello"))
    began = {one.identity.agent: one.identity for one in kept if isinstance(one.event, RunStarted)}
    assert set(began) == {"boss", "a", "deep"}
    boss, child, deepest = began["boss"], began["a"], began["deep"]
    assert (child.parent, child.root, child.call) == (boss.run, boss.run, "c1")
    assert (deepest.parent, deepest.root) == (child.run, boss.run)
    ends = [one for one in kept if isinstance(one.event, RunTerminated)]
    assert [one.identity.agent for one in ends] == ["deep", "a", "boss"]


async def test_each_agent_has_detectors_of_its_own() -> None:
    kept: list[monitor.events.Envelope] = []

    class Envelopes:
        def receive(self, envelope: monitor.events.Envelope, /) -> None:
            kept.append(envelope)

    detectors = [monitor.ToolCallRepetition(loop_at=3)]
    async with (
        monitor.Guard(detectors=detectors, sinks=[Envelopes()]) as guard,
        guard.child("a") as a,
        guard.child("b") as b,
    ):
        for number in range(2):
            for agent in (guard, a, b):
                assert (await read(agent, asks(number))).stopped is None
                agent.tool_result(f"c{number}", "nothing")
        turn = await read(b, asks(2))
    assert turn.stopped is not None
    found = [one for one in kept if isinstance(one.event, DetectionRaised)]
    assert [one.identity.agent for one in found] == ["b"]
    assert {one.identity.agent for one in kept if isinstance(one.event, StopDecided)} == {"", "a", "b"}


class Holding:
    """A detector that holds what nobody can copy, and a state."""

    name = "holding"

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.seen: list[str] = []

    def observe(self, chunk: Any, /) -> tuple[()]:
        with self.lock:
            self.seen.append(type(chunk).__name__)
        return ()

    def reset(self) -> None:
        self.seen.clear()


async def test_a_detector_with_a_lock_is_copied_but_for_its_lock() -> None:
    own = Holding()
    async with monitor.Guard(detectors=[own]) as guard:  # type: ignore[list-item] # without a snapshot
        await read(guard, asks(1))
        async with guard.child() as child:
            await read(child, asks(2), asks(3))
    assert own.seen == ["ToolCall", "TurnFinished"]


async def test_a_failed_last_call_of_a_child_is_a_turn_of_the_run_as_it_is_one_of_the_child() -> None:
    async with monitor.Guard() as guard:
        await read(guard, asks(1))
        async with guard.child() as child:
            await read(child, ConnectionResetError("gone"))
    assert (child.outcome.turns, guard.outcome.turns) == (1, 2)


async def test_a_child_after_the_block_is_refused() -> None:
    guard: monitor.Guard[Any] = monitor.Guard()
    with pytest.raises(monitor.ConfigError, match="async with guard"):
        guard.child()


async def test_leaving_the_guard_ends_the_children_that_are_open() -> None:
    stream = Silent()
    async with monitor.Guard() as guard:
        child = await guard.child().__aenter__()
        watched = await child.watch(stream).__aenter__()
        await anext(watched)
    assert stream.closed
    assert child.outcome.reason is Reason.CLOSED_BY_CALLER
    assert guard.outcome.reason is Reason.CLOSED_BY_CALLER


async def test_a_failure_of_the_caller_is_the_end_of_every_agent() -> None:
    guard: monitor.Guard[Any] = monitor.Guard()
    children: list[monitor.Guard[Any]] = []

    async def fails() -> None:
        async with guard:
            children.append(await guard.child().__aenter__())
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError):
        await fails()
    assert guard.outcome.reason is children[0].outcome.reason is Reason.ERROR


async def test_outputs_of_the_run_are_seen_by_conditions_in_every_agent() -> None:
    async with monitor.Guard(stop_when=monitor.conditions.ToolCalled("submit")) as guard, guard.child() as child:
        await read(child, ToolCall("s", "submit", {}))
        child.tool_result("s", "taken")
        assert isinstance(guard.check(), monitor.Stop)
    assert guard.outcome.reason is Reason.CONDITION_MET


async def test_a_hundred_agents_that_have_ended_leave_their_sums_behind() -> None:
    async with monitor.Guard(stop_when=monitor.MaxTurns(1000)) as guard:
        for _ in range(100):
            async with guard.child() as child:
                await read(child, USED)
    assert guard.outcome.turns == 100
    assert guard.outcome.usage.total_tokens == 10_000
