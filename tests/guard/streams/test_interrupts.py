"""Interruptions at any moment, and deadlines that stand still while a person is asked."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest

import monitor
from monitor.messages import AssistantMessage
from monitor.testing import Do, FakeAlarm, FakeClock, Pause, ScriptedModel, ScriptedStream, Stall, call
from tests.runs.driving import Drive, Reason, drive

pytestmark = pytest.mark.anyio


async def interrupted(d: Drive, reached: Callable[[], Awaitable[object]], then: Callable[[], object]) -> Drive:
    async with anyio.create_task_group() as group:
        group.start_soon(d.go)
        await reached()
        then()
    return d


class Hanging:
    """A tool that hangs until it is cancelled."""

    def __init__(self) -> None:
        self.reached = anyio.Event()
        self.cancelled = False

    async def hang(self) -> str:
        """Hang."""
        self.reached.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.cancelled = True
            raise
        return "never"


# --- the user's abort


@pytest.mark.feature("ST-11", "GC-03")
@pytest.mark.parametrize("row", ["S17"])
async def test_an_abort_while_the_model_streams_closes_the_stream_at_once(row: str):
    stall = Stall()
    d = Drive(["I begin", stall])
    await interrupted(d, stall.reached, lambda: d.run.abort("the user pressed Ctrl-C"))
    assert (d.outcome.reason, d.outcome.detail, d.outcome.source) == (
        Reason.ABORTED,
        "the user pressed Ctrl-C",
        "abort",
    )
    assert d.model.streams[0].closed
    assert d.outcome.closed
    assert len(d.requests) == 1
    assert [event.why for event in d.of(monitor.events.AbortRequested)] == ["the user pressed Ctrl-C"]


@pytest.mark.feature("ST-11")
async def test_an_abort_while_a_tool_runs_cancels_the_tool():
    tool = Hanging()
    d = Drive([call("hang"), call("quick")], tools=[tool.hang, quick])
    await interrupted(d, tool.reached.wait, lambda: d.run.abort("enough"))
    assert d.outcome.reason is Reason.ABORTED
    assert tool.cancelled
    assert len(d.requests) == 1


async def quick() -> str:
    return "quick"


@pytest.mark.feature("ST-11")
async def test_an_abort_between_turns_ends_the_run_before_the_next_call():
    d = Drive(call("quick"), tools=[quick])
    async with d.run as run:
        async for event in run:
            d.events.append(event)
            if isinstance(event, monitor.events.ToolFinished):
                d.run.abort()
    assert d.outcome.reason is Reason.ABORTED
    assert d.kinds(monitor.events.TurnStarted) == ["TurnStarted"]


@pytest.mark.feature("ST-11")
async def test_an_abort_before_the_first_call_makes_none():
    d = Drive("never")
    d.run.abort("changed my mind")
    await d.go()
    assert d.outcome.reason is Reason.ABORTED
    assert d.requests == []


@pytest.mark.feature("ST-11")
async def test_an_abort_during_a_retry_delay_does_not_wait_for_its_end():
    d = Drive(ConnectionError("gone"), requests=monitor.runs.Requests(retries=monitor.Retries(first_delay_s=50)))
    scheduled = anyio.Event()

    async def until_it_waits() -> None:
        await anyio.wait_all_tasks_blocked()
        scheduled.set()

    await interrupted(d, until_it_waits, lambda: d.run.abort("enough"))
    assert d.of(monitor.events.RetryScheduled)
    assert (d.outcome.reason, d.clock.now()) == (Reason.ABORTED, 0)
    assert len(d.requests) == 1


async def test_an_abort_from_a_thread_is_seen():
    stall = Stall()
    d = Drive([stall])
    async with anyio.create_task_group() as group:
        group.start_soon(d.go)
        await stall.reached()
        await anyio.to_thread.run_sync(d.run.abort)
    assert d.outcome.reason is Reason.ABORTED


async def test_an_abort_by_a_tool_of_its_own_run_is_seen():
    async def give_up(context: monitor.ToolContext) -> str:
        assert isinstance(context.run, monitor.Run)
        context.run.abort("the tool says no")
        await anyio.sleep_forever()
        return "never"

    run = await drive(call("give_up"), tools=[give_up])
    assert (run.outcome.reason, run.outcome.detail) == (Reason.ABORTED, "the tool says no")


async def test_an_abort_gets_no_last_turn():
    d = Drive(["a", Do(lambda: d.run.abort("enough")), "b"], outputs={"a": int})
    await d.go()
    assert d.outcome.reason is Reason.ABORTED
    assert d.of(monitor.events.LastTurnStarted) == []


@pytest.mark.parametrize("row", ["S13"])
async def test_an_interrupted_batch_leaves_a_result_for_every_call_in_the_history(row: str):
    """Upstream raises when its scheduler drops results; here none can be dropped, and the history
    stays valid.
    """
    tool = Hanging()
    finished = anyio.Event()

    async def first() -> str:
        finished.set()
        return "ok"

    d = Drive([call("first"), call("hang")], tools=[first, tool.hang])

    async def both() -> None:
        await tool.reached.wait()
        await finished.wait()
        await anyio.wait_all_tasks_blocked()

    await interrupted(d, both, d.run.abort)
    (reply,) = [message for message in d.run.history if isinstance(message, AssistantMessage)]
    assert [result.text for result in reply.results] == [
        "ok",
        "[agent-monitor] This call was not carried out to its end: the run ends: aborted.",
    ]
    assert [result.is_error for result in reply.results] == [False, True]


# --- deadlines


@pytest.mark.feature("GC-02")
@pytest.mark.parametrize("row", ["E7", "D1"])
async def test_a_call_that_hangs_is_ended_by_the_timeout_and_not_merely_noticed_afterwards(row: str):
    """Upstream polls: there the model resolves after six of five minutes. Ours does not wait for
    it.
    """
    stall = Stall()
    clock = FakeClock()
    d = Drive([stall], stop_when=monitor.Timeout(300), last_turn=None, clock=clock)
    await interrupted(d, stall.reached, lambda: clock.advance(360))
    assert (d.outcome.reason, d.outcome.limit, len(d.requests)) == (Reason.TIMEOUT, 300, 1)
    assert d.model.streams[0].closed


@pytest.mark.feature("GC-02")
async def test_an_opening_that_hangs_is_ended_by_the_timeout():
    class Opening:
        name = "slow:model"
        reached = Pause()

        async def stream(self, request: monitor.models.ModelRequest) -> ScriptedStream:
            await self.reached.perform()
            return ScriptedStream("never")

    clock = FakeClock()
    model = Opening()
    d = Drive(model=model, stop_when=monitor.Timeout(300), last_turn=None, clock=clock)
    await interrupted(d, model.reached.reached, lambda: clock.advance(300))
    assert d.outcome.reason is Reason.TIMEOUT


@pytest.mark.parametrize("row", ["S16"])
async def test_a_tool_that_takes_longer_than_the_run_is_cancelled_and_the_last_turn_may_still_say_something(row: str):
    """Upstream waits for the tool's 61 s of a minute; ours ends it after 60. Two model calls in
    both, the second is the last turn.
    """
    tool = Hanging()
    clock = FakeClock()
    d = Drive(
        call("hang"),
        "I could not wait for it.",
        tools=[tool.hang],
        stop_when=monitor.Timeout(60),
        outputs={"a": int},
        clock=clock,
    )
    await interrupted(d, tool.reached.wait, lambda: clock.advance(60))
    assert tool.cancelled
    assert (d.outcome.reason, d.outcome.limit, len(d.requests)) == (Reason.TIMEOUT, 60, 2)
    (result,) = d.results(0)
    assert result.is_error


@pytest.mark.parametrize("row", ["D2", "D3"])
async def test_while_a_tool_asks_a_person_the_deadlines_stand_still(row: str):
    clock = FakeClock()

    async def ask(context: monitor.ToolContext) -> str:
        assert isinstance(context.run, monitor.Run)
        clock.advance(0.4)
        with context.run.paused():
            clock.advance(2.0)
            await anyio.lowlevel.checkpoint()
        clock.advance(0.05)
        return "yes"

    run = await drive(call("ask"), "Fine.", tools=[ask], stop_when=monitor.Timeout(0.5), clock=clock)
    assert run.outcome.reason is Reason.GOAL
    assert run.kinds(monitor.events.Paused, monitor.events.Resumed) == ["Paused", "Resumed"]
    assert [event.at_s for event in run.of(monitor.events.Resumed)] == [pytest.approx(2.4)]

    clock = FakeClock()
    hanging = Hanging()

    async def ask_and_hang(context: monitor.ToolContext) -> str:
        assert isinstance(context.run, monitor.Run)
        with context.run.paused(), context.run.paused():
            clock.advance(1.0)
        clock.advance(0.4)
        return await hanging.hang()

    d = Drive(call("ask_and_hang"), tools=[ask_and_hang], stop_when=monitor.Timeout(0.5), last_turn=None, clock=clock)
    async with anyio.create_task_group() as group:
        group.start_soon(d.go)
        await hanging.reached.wait()
        clock.advance(0.09)
        await anyio.wait_all_tasks_blocked()
        assert not hanging.cancelled
        clock.advance(0.02)
    assert d.outcome.reason is Reason.TIMEOUT
    assert d.outcome.elapsed_s == pytest.approx(1.51)
    assert d.outcome.value == pytest.approx(0.51)


async def test_a_pause_that_is_going_on_when_the_deadline_would_have_come_holds_it_off():
    clock = FakeClock()
    asked = anyio.Event()
    answered = anyio.Event()

    async def ask(context: monitor.ToolContext) -> str:
        assert isinstance(context.run, monitor.Run)
        with context.run.paused():
            asked.set()
            await answered.wait()
        return "yes"

    d = Drive(call("ask"), "Fine.", tools=[ask], stop_when=monitor.Timeout(60), clock=clock)
    async with anyio.create_task_group() as group:
        group.start_soon(d.go)
        await asked.wait()
        clock.advance(3_600)
        await anyio.wait_all_tasks_blocked()
        answered.set()
    assert d.outcome.reason is Reason.GOAL
    assert d.outcome.elapsed_s == 3_600


@pytest.mark.parametrize("row", ["D4"])
async def test_an_abort_in_a_pause_counts_and_its_reason_is_kept(row: str):
    asked = anyio.Event()

    async def ask(context: monitor.ToolContext) -> str:
        assert isinstance(context.run, monitor.Run)
        with context.run.paused():
            asked.set()
            await anyio.sleep_forever()
        return "never"

    clock = FakeClock()
    d = Drive(call("ask"), tools=[ask], stop_when=monitor.Timeout(60), clock=clock)

    def abort() -> None:
        d.run.abort("the person left")
        clock.advance(100)

    await interrupted(d, asked.wait, abort)
    assert (d.outcome.reason, d.outcome.detail) == (Reason.ABORTED, "the person left")


@pytest.mark.parametrize("row", ["D5"])
async def test_a_deadline_that_was_met_is_met_once(row: str):
    clock = FakeClock()
    stall = Stall()
    d = Drive(["a", stall], stop_when=monitor.Timeout(60), last_turn=None, clock=clock)
    await interrupted(d, stall.reached, lambda: clock.advance(60))
    clock.advance(1_000)
    d.run.abort("too late")
    await anyio.wait_all_tasks_blocked()
    assert d.outcome.reason is Reason.TIMEOUT
    assert len(d.of(monitor.events.StopDecided)) == 1
    assert clock.pending == 0


async def test_a_guard_can_be_paused_too():
    clock = FakeClock()
    async with monitor.Guard(stop_when=monitor.Timeout(60) | monitor.IdleTimeout(10), clock=clock) as guard:
        stream = ScriptedStream("a", Do(lambda: clock.advance(1)), "b")
        async with guard.watch(stream) as watched:
            async for _ in watched:
                pass
        with guard.paused():
            clock.advance(3_600)
        assert guard.check() == monitor.Continue()
        clock.advance(60)
        assert isinstance(guard.check(), monitor.Stop)
    assert guard.outcome.reason is Reason.TIMEOUT
    assert "3.6e+03 s of waiting do not count" in guard.outcome.detail


@pytest.mark.parametrize("excluded", [True, False])
async def test_waiting_for_another_attempt_may_be_left_out_of_the_timeout(excluded: bool):
    clock = FakeClock()
    d = Drive(
        ConnectionError("gone"),
        ConnectionError("gone"),
        "Hello",
        stop_when=monitor.Timeout(60, exclude_retry_delays=excluded),
        requests=monitor.runs.Requests(retries=monitor.Retries(first_delay_s=25, max_delay_s=100)),
        last_turn=None,
        clock=clock,
    )
    async with anyio.create_task_group() as group:
        group.start_soon(d.go)
        for _ in range(2):
            await anyio.wait_all_tasks_blocked()
            clock.advance(50)
    assert d.outcome.reason is (Reason.GOAL if excluded else Reason.TIMEOUT)
    assert [event.after_s for event in d.of(monitor.events.RetryScheduled)] == [25, 50]


class ClockOfItsLoop(FakeClock):
    """As the system's clock: its alarms can be set in the loop's thread only."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = threading.get_ident()

    def call_at(self, when: float, callback: Callable[[], object]) -> FakeAlarm:
        assert threading.get_ident() == self.thread
        return super().call_at(when, callback)


async def test_a_plain_function_in_its_thread_may_ask_a_person_as_well():
    clock = ClockOfItsLoop()

    def ask(context: monitor.ToolContext) -> str:
        assert isinstance(context.run, monitor.Run)
        with context.run.paused():
            anyio.from_thread.run_sync(clock.advance, 3_600)
        return "yes"

    run = await drive(call("ask"), "Fine.", tools=[ask], stop_when=monitor.Timeout(60), clock=clock)
    assert [event.result.text for event in run.of(monitor.events.ToolFinished)] == ["yes"]
    assert run.kinds(monitor.events.Paused, monitor.events.Resumed) == ["Paused", "Resumed"]
    assert run.outcome.reason is Reason.GOAL


async def test_a_deadline_that_comes_between_the_look_and_the_call_leaves_the_history_as_it_was():
    clock = FakeClock()

    class Slow(ScriptedModel):
        @property
        def adapter(self) -> None:
            """Asked for when the next call is prepared."""
            clock.advance(40)

    d = Drive(model=Slow(call("quick"), "It took too long."), tools=[quick], stop_when=monitor.Timeout(60), clock=clock)
    await d.go()
    assert (d.outcome.reason, d.outcome.recovered_from) == (Reason.GOAL, Reason.TIMEOUT)
    assert [type(message).__name__ for message in d.requests[1].messages] == [
        "UserMessage",
        "AssistantMessage",
        "UserMessage",
    ]


@pytest.mark.feature("GT-11")
@pytest.mark.parametrize("by", ["abort", "limit"])
async def test_the_reason_why_a_running_call_was_cut_reaches_its_result(by: str):
    tool = Hanging()
    options: dict[str, Any] = {"stop_when": monitor.Timeout(30), "last_turn": None}
    d = Drive([call("hang")], tools=[tool.hang], **options)
    end = d.run.abort if by == "abort" else None

    def cut() -> None:
        if end is not None:
            end("the user pressed stop")
        else:
            d.clock.advance(31)

    await interrupted(d, tool.reached.wait, cut)
    (reply,) = [message for message in d.run.history if isinstance(message, AssistantMessage)]
    (result,) = reply.results
    why = "the user pressed stop" if by == "abort" else "30"
    assert result.text.startswith("[agent-monitor] This call was not carried out to its end: the run ends: ")
    assert why in result.text
    assert result.error_kind == "cancelled"
