"""A last turn instead of the end."""

from __future__ import annotations

import pytest

from monitor.chunks import ToolCall
from monitor.core.ending import RunGoal, SteerQueue, StreamEnd
from monitor.errors import TerminateReason
from monitor.goal.goal import Goal
from monitor.goal.outputs import Outputs
from monitor.messages import SteerMessage
from monitor.outcome import Turn
from monitor.verdicts import Continue, LastTurn, Nudge, Stop, Verdict

Reason = TerminateReason
TURNS = Stop(Reason.MAX_TURNS, "30 turns are done", "max_turns")
LOOP = Stop(Reason.LOOP_DETECTED, "it repeats itself", "content_repetition")
GOAL = Stop(Reason.GOAL, "every declared output was emitted", "outputs")
GAVE_UP = Stop(Reason.TERMINATED, "the model gave up", "terminate", value="failure")
SAID_DONE = Stop(Reason.TERMINATED, "the model is done", "terminate", value="success")
BUSY = Stop(Reason.RATE_LIMITED, "the provider is busy", "provider")


def goal() -> Goal:
    return Goal(Outputs({"summary": str}).fresh())


def in_its_last_turn() -> RunGoal:
    recovery = RunGoal(LastTurn(60), goal())
    recovery.cause = TURNS
    return recovery


def test_an_end_that_is_worth_it_is_put_off_once_and_says_what_is_missing():
    recovery = RunGoal(LastTurn(60), goal())
    last = recovery.instead_of(TURNS)
    assert last is not None
    assert "summary" in last.text
    assert "30 turns are done" in last.text
    recovery.cause = TURNS
    assert recovery.instead_of(TURNS) is None


@pytest.mark.parametrize(
    "recovery",
    [
        RunGoal(None, goal()),
        RunGoal(LastTurn(60), None),
        RunGoal(LastTurn(60, after=[Reason.TIMEOUT]), goal()),
    ],
)
def test_an_end_without_a_rule_for_it_stands(recovery: RunGoal):
    assert recovery.instead_of(TURNS) is None


def test_a_policy_gets_a_last_turn_only_where_the_run_gives_one():
    assert RunGoal(None, goal()).by_policy(LastTurn("Finish."), LOOP) is LOOP
    last = RunGoal(LastTurn(7), goal()).by_policy(LastTurn("Finish."), LOOP)
    assert isinstance(last, LastTurn)
    assert last.seconds == 7
    assert last.text.startswith("Finish. ")
    assert "summary" in last.text


@pytest.mark.parametrize(
    ("verdict", "end"),
    [(GOAL, Reason.GOAL), (SAID_DONE, Reason.GOAL), (GAVE_UP, Reason.MAX_TURNS), (Nudge("more"), Reason.MAX_TURNS)],
)
def test_a_last_turn_reaches_the_goal_or_the_old_end_stands(verdict: Verdict, end: TerminateReason):
    assert in_its_last_turn().judged(verdict, TURNS).reason is end
    assert in_its_last_turn().judged(Continue(), TURNS) is TURNS


def test_a_last_turn_never_hides_why_the_run_was_ending():
    recovery = in_its_last_turn()
    assert recovery.ending(LOOP, None) is TURNS
    assert recovery.ending(BUSY, StreamEnd(BUSY)) is TURNS
    crashed = Stop(Reason.ERROR, "the model crashed", "provider")
    assert recovery.ending(crashed, StreamEnd(crashed)) is TURNS
    assert recovery.ending(crashed, None) is crashed


def test_without_a_last_turn_an_end_is_what_it_is():
    assert RunGoal(LastTurn(60), goal()).ending(LOOP, StreamEnd(LOOP)) is LOOP


def reached() -> RunGoal:
    made = goal()
    made.answer(ToolCall("1", "emit_value", {"name": "summary", "value": "done"}))
    return RunGoal(None, made)


def test_a_goal_that_is_reached_in_the_turn_of_a_limit_wins_over_it_and_over_no_other_end():
    end = reached().instead_of_limit(TURNS)
    assert end is not None
    assert end.reason is Reason.GOAL
    assert reached().instead_of_limit(LOOP) is None
    assert RunGoal(None, goal()).instead_of_limit(TURNS) is None


def test_a_run_whose_goal_is_reached_goes_on_while_messages_wait():
    turn, well = Turn(number=1), StreamEnd()
    assert isinstance(reached().verdict_on(turn, well, None, None), Stop)
    steers = SteerQueue()
    steers.accept(SteerMessage(id="1", text="and the other one", kind="follow_up"))
    assert isinstance(reached().verdict_on(turn, well, None, steers), Continue)
    assert [one.id for one in steers.due()] == ["1"]
