"""One more turn for a run that is about to end without its goal: with its own time, and only what
it needs to hand things over.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import monitor
from monitor.testing import Do, FakeClock, ScriptedModel, Stall, call
from tests.runs.driving import SENTENCE, Drive, Reason, drive, look

pytestmark = pytest.mark.anyio

ONE = monitor.MaxTurns(1)


def emit(name: str, value: Any) -> monitor.chunks.ToolCall:
    return call("emit_value", name=name, value=value)


@pytest.mark.feature("GC-09")
@pytest.mark.parametrize("row", ["S24", "S25"])
async def test_a_last_turn_that_reaches_the_goal_is_the_goal_and_says_what_it_recovered_from(row: str):
    """Upstream reports MAX_TURNS and a success flag beside it; ours is the goal, with
    `recovered_from` (gemini-cli #22323).
    """
    run = await drive(call("look", q="x"), emit("a", 1), tools=[look], outputs={"a": int}, stop_when=ONE)
    outcome = run.outcome
    assert (outcome.reason, outcome.ok, outcome.recovered_from, outcome.output) == (
        Reason.GOAL,
        True,
        Reason.MAX_TURNS,
        {"a": 1},
    )
    assert outcome.error is None
    assert (outcome.turns, len(run.requests)) == (2, 2)
    assert [(event.reason, event.seconds) for event in run.of(monitor.events.LastTurnStarted)] == [
        (Reason.MAX_TURNS, 60)
    ]
    assert run.kinds(monitor.events.StopDecided, monitor.events.LastTurnStarted, monitor.events.TurnStarted) == [
        "TurnStarted",
        "StopDecided",
        "LastTurnStarted",
        "TurnStarted",
        "StopDecided",
    ]


@pytest.mark.parametrize("row", ["S24"])
async def test_a_last_turn_that_does_not_leaves_the_reason_what_it_was(row: str):
    run = await drive(call("look", q="x"), emit("a", 1), tools=[look], outputs={"a": int, "b": int}, stop_when=ONE)
    outcome = run.outcome
    assert (outcome.reason, outcome.ok, outcome.recovered_from) == (Reason.MAX_TURNS, False, None)
    assert (outcome.emitted, outcome.missing) == ({"a": 1}, ["b"])
    assert (outcome.limit, outcome.source) == (1, "max_turns")


@pytest.mark.feature("GC-09")
async def test_only_emit_and_terminate_are_offered_and_a_call_of_anything_else_is_answered_with_a_veto():
    """Upstream merely asks for it in the prompt; a model that calls other tools all the same has
    them carried out.
    """
    ran = []

    async def work() -> str:
        ran.append(1)
        return "ok"

    run = await drive(
        call("work"),
        [call("work"), call("update_plan", step=1, status="completed"), emit("a", 1)],
        tools=[work],
        outputs={"a": int},
        stop_when=ONE,
    )
    assert run.offered(0) == ["emit_value", "terminate", "work"]
    assert run.offered(1) == ["emit_value", "terminate"]
    assert ran == [1]
    work_again, _, emitted = run.results(1)
    assert (work_again.text, work_again.is_error) == (
        "[agent-monitor] This call was not made: work is not available any more.",
        True,
    )
    assert not emitted.is_error
    assert run.outcome.reason is Reason.GOAL


async def test_the_model_is_told_why_and_what_is_missing_in_one_message():
    run = await drive(call("look", q="x"), "no", tools=[look], outputs={"a": int, "b": int}, stop_when=ONE)
    told = run.told(1)
    assert "1 turn is done, the limit is 1" in told
    assert "a, b" in told
    assert "emit_value" in told
    assert run.requests[1].messages[: len(run.requests[0].messages)] == run.requests[0].messages
    assert run.requests[1].instructions == run.requests[0].instructions


@pytest.mark.parametrize("row", ["S19"])
async def test_a_text_in_the_last_turn_is_no_goal_where_outputs_are_declared(row: str):
    run = await drive(call("look", q="x"), "I ran out of turns.", tools=[look], outputs={"a": int}, stop_when=ONE)
    assert (run.outcome.reason, run.outcome.missing) == (Reason.MAX_TURNS, ["a"])
    assert run.outcome.text == "I ran out of turns."


async def test_without_outputs_an_answer_in_the_last_turn_is_the_goal_unless_nothing_can_be_seen_of_it():
    run = await drive(call("look", q="x"), "It is noon.", tools=[look], stop_when=ONE)
    assert (run.outcome.reason, run.outcome.recovered_from, run.outcome.text) == (
        Reason.GOAL,
        Reason.MAX_TURNS,
        "It is noon.",
    )
    run = await drive(
        call("look", q="x"), "\u200b", tools=[look], stop_when=ONE, requests=monitor.runs.Requests(retries=None)
    )
    assert (run.outcome.reason, run.outcome.recovered_from) == (Reason.MAX_TURNS, None)


@pytest.mark.parametrize(("status", "reason"), [("success", Reason.GOAL), ("failure", Reason.MAX_TURNS)])
async def test_terminate_in_the_last_turn(status: str, reason: monitor.TerminateReason):
    run = await drive(
        call("look", q="x"), call("terminate", status=status, reason="that is all"), tools=[look], stop_when=ONE
    )
    assert run.outcome.reason is reason


@pytest.mark.feature("GC-09")
@pytest.mark.parametrize(
    ("row", "last", "reason"),
    [("S20", emit("a", 1), Reason.GOAL), ("S21", "I have no more to say.", Reason.MISSING_OUTPUTS)],
)
async def test_a_run_that_is_given_up_on_for_missing_outputs_gets_one_too(
    row: str, last: Any, reason: monitor.TerminateReason
):
    run = await drive("Done.", "Done, I said.", last, outputs={"a": int}, requests=monitor.runs.Requests(max_nudges=1))
    assert run.outcome.reason is reason
    assert run.outcome.recovered_from is (Reason.MISSING_OUTPUTS if reason is Reason.GOAL else None)
    assert run.kinds(monitor.events.Nudged, monitor.events.LastTurnStarted) == ["Nudged", "LastTurnStarted"]
    assert len(run.requests) == 3


@pytest.mark.feature("GC-09")
async def test_after_a_timeout_it_has_a_time_of_its_own():
    clock = FakeClock()
    d = Drive(
        ["a", Do(lambda: clock.advance(600)), "b"],
        [Do(lambda: clock.advance(59)), emit("a", 1)],
        outputs={"a": int},
        stop_when=monitor.Timeout(600),
        clock=clock,
    )
    await d.go()
    assert (d.outcome.reason, d.outcome.recovered_from) == (Reason.GOAL, Reason.TIMEOUT)
    assert d.model.streams[0].closed


@pytest.mark.feature("GC-09")
async def test_a_last_turn_that_hangs_is_ended_and_there_is_no_second_one():
    clock = FakeClock()
    hanging = Stall()
    d = Drive(
        ["a", Do(lambda: clock.advance(600)), "b"],
        [emit("b", 2), hanging],
        outputs={"a": int, "b": int},
        stop_when=monitor.Timeout(600),
        last_turn=monitor.LastTurn(5),
        clock=clock,
    )
    async with anyio.create_task_group() as group:
        group.start_soon(d.go)
        await hanging.reached()
        clock.advance(5)
    assert (d.outcome.reason, d.outcome.limit) == (Reason.TIMEOUT, 600)
    assert d.outcome.emitted == {"b": 2}
    assert len(d.of(monitor.events.LastTurnStarted)) == 1
    assert all(stream.closed for stream in d.model.streams)


@pytest.mark.feature("GC-09")
@pytest.mark.parametrize("silence", [monitor.IdleTimeout(7), monitor.FirstChunkTimeout(7)])
@pytest.mark.parametrize("cause", [ONE, monitor.Timeout(600), monitor.MaxModelCalls(1)])
async def test_a_provider_that_is_silent_in_the_last_turn_ends_it_and_the_reason_stays(
    silence: monitor.Condition, cause: monitor.Condition
):
    clock, hanging = FakeClock(), Stall()

    async def work() -> str:
        clock.advance(600)
        return "done"

    d = Drive(call("work"), [hanging], tools=[work], outputs={"a": int}, stop_when=cause | silence, clock=clock)
    async with anyio.create_task_group() as group:
        group.start_soon(d.go)
        await hanging.reached()
        before = clock.now()
        clock.advance(6.9)
        await anyio.wait_all_tasks_blocked()
        assert not d.of(monitor.events.RunTerminated)
        clock.advance(0.1)
    assert clock.now() - before == pytest.approx(7)
    assert d.outcome.reason in (Reason.MAX_TURNS, Reason.TIMEOUT, Reason.MODEL_CALL_LIMIT)
    assert len(d.of(monitor.events.LastTurnStarted)) == 1
    assert d.of(monitor.events.StopDecided)[-1].stop.reason is Reason.IDLE_TIMEOUT


@pytest.mark.parametrize("silence", [monitor.IdleTimeout(7), monitor.FirstChunkTimeout(7)])
async def test_silence_is_no_reason_for_another_turn(silence: monitor.Condition):
    clock, hanging = FakeClock(), Stall()
    d = Drive([hanging], emit("a", 1), outputs={"a": int}, stop_when=monitor.Timeout(600) | silence, clock=clock)
    async with anyio.create_task_group() as group:
        group.start_soon(d.go)
        await hanging.reached()
        clock.advance(7)
    assert d.outcome.reason is Reason.IDLE_TIMEOUT
    assert not d.of(monitor.events.LastTurnStarted)
    assert len(d.requests) == 1


async def test_an_abort_in_the_last_turn_is_an_abort():
    d = Drive(call("look", q="x"), [Do(lambda: d.run.abort("enough")), "a"], tools=[look], stop_when=ONE)
    await d.go()
    assert (d.outcome.reason, d.outcome.recovered_from) == (Reason.ABORTED, None)


async def test_a_model_that_fails_in_the_last_turn_leaves_the_reason_what_it_was():
    run = await drive(
        call("look", q="x"),
        ConnectionError("gone"),
        tools=[look],
        stop_when=ONE,
        requests=monitor.runs.Requests(retries=None),
    )
    assert run.outcome.reason is Reason.MAX_TURNS


@pytest.mark.parametrize(
    "condition",
    [monitor.MaxModelCalls(1), monitor.Timeout(30)],
)
async def test_an_attempt_that_failed_just_before_keeps_nobody_from_the_last_turn_and_leaves_no_trace(
    condition: monitor.Condition,
):
    d = Drive(
        ["half an ans", call("look", q="x"), ConnectionError("gone")],
        emit("a", 1),
        tools=[look],
        outputs={"a": int},
        stop_when=condition,
        requests=monitor.runs.Requests(
            retries=monitor.Retries(first_delay_s=20 if condition.name == "max_model_calls" else 50)
        ),
    )
    async with anyio.create_task_group() as group:
        group.start_soon(d.go)
        await anyio.wait_all_tasks_blocked()
        d.clock.advance(40)
    assert d.outcome.reason is Reason.GOAL
    assert d.outcome.recovered_from in (Reason.MODEL_CALL_LIMIT, Reason.TIMEOUT)
    assert len(d.requests[1].messages) == 2
    assert d.outcome.turns == 1


@pytest.mark.parametrize("off", [{"last_turn": None}, {"last_turn": monitor.LastTurn(after=[Reason.TIMEOUT])}])
async def test_it_can_be_switched_off_altogether_or_for_some_endings(off: dict[str, Any]):
    run = await drive(call("look", q="x"), tools=[look], stop_when=ONE, **off)
    assert (run.outcome.reason, len(run.requests)) == (Reason.MAX_TURNS, 1)


@pytest.mark.parametrize("limit", [monitor.TokenLimit(50), monitor.CostLimit(0.00001)])
async def test_money_that_is_spent_buys_no_last_turn(limit: monitor.Condition):
    run = await drive(
        [call("look", q="x"), monitor.chunks.UsageReport(input_tokens=90)],
        tools=[look],
        stop_when=limit,
        prices=monitor.Price(1, 1),
    )
    assert run.of(monitor.events.LastTurnStarted) == []
    assert len(run.requests) == 1


async def test_a_budget_still_counts_in_the_last_turn():
    run = await drive(
        [call("look", q="x"), monitor.chunks.UsageReport(input_tokens=90)],
        ["x", monitor.chunks.UsageReport(input_tokens=90)],
        tools=[look],
        stop_when=ONE,
        budget=monitor.Budget(tokens=100),
        outputs={"a": int},
    )
    assert run.outcome.reason is Reason.MAX_TURNS
    assert run.outcome.usage.total_tokens == 180 + 4


async def test_a_loop_in_the_last_turn_is_cut_and_the_reason_stays():
    run = await drive(call("look", q="x"), [SENTENCE] * 60, tools=[look], stop_when=ONE)
    assert run.outcome.reason is Reason.MAX_TURNS
    assert run.model.streams[1].closed
    assert len(run.requests) == 2


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), 60])
def test_a_last_turn_without_a_time_is_refused(wrong: float):
    with pytest.raises(monitor.ConfigError, match=r"(?i)last_?turn"):
        monitor.Supervisor(ScriptedModel("x"), last_turn=wrong if wrong == 60 else monitor.LastTurn(wrong))  # type: ignore[arg-type]
