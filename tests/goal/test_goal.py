"""What a run is held to: when it is done, when it needs a push, when it is given up."""

from __future__ import annotations

from typing import Any

from monitor.chunks import ToolCall
from monitor.errors import TerminateReason
from monitor.goal.goal import Goal
from monitor.goal.outputs import Outputs
from monitor.goal.plan import Plan, PlanState
from monitor.verdicts import Nudge, Stop

Reason = TerminateReason


def call(name: str, /, **arguments: Any) -> ToolCall:
    return ToolCall("c", name, arguments)


def emit(goal: Goal, **values: Any) -> None:
    for name, value in values.items():
        answer = goal.answer(call("emit_value", name=name, value=value))
        assert answer is not None
        assert not answer.is_error


def mark(plan: PlanState, *statuses: str) -> None:
    for number, status in enumerate(statuses, 1):
        assert not plan.call({"step": number, "status": status}).is_error


def stopped(verdict: object) -> Stop:
    assert isinstance(verdict, Stop)
    return verdict


def test_without_anything_declared_an_answer_is_the_goal():
    goal = Goal()
    assert goal.reached() is None
    assert stopped(goal.stopped_calling()).reason is Reason.GOAL


def test_the_goal_is_reached_exactly_when_the_last_output_is_there():
    goal = Goal(Outputs({"a": str, "b": int}))
    emit(goal, a="x")
    assert goal.reached() is None
    emit(goal, b=1)
    assert stopped(goal.reached()).reason is Reason.GOAL
    assert goal.result() == {"output": {"a": "x", "b": 1}, "emitted": {"a": "x", "b": 1}, "missing": []}


def test_missing_outputs_are_asked_for_so_often_and_then_no_more():
    goal = Goal(Outputs({"a": str}), max_nudges=2)
    for _ in range(2):
        verdict = goal.stopped_calling()
        assert isinstance(verdict, Nudge)
        assert "`a`" in verdict.text
    stop = stopped(goal.stopped_calling())
    assert (stop.reason, stop.limit, stop.value) == (Reason.MISSING_OUTPUTS, 2, "a")
    assert stop.detail == "the model stopped without emitting a, after 2 nudges"


def test_the_models_own_word_ends_the_run():
    goal = Goal()
    goal.answer(call("terminate", status="success", reason="all done"))
    stop = stopped(goal.reached())
    assert (stop.reason, stop.value) == (Reason.TERMINATED, "success")
    assert stop.detail == "the model ended the run with success: all done"


def test_failure_is_believed_also_where_all_outputs_are_there():
    goal = Goal(Outputs({"a": str}))
    emit(goal, a="x")
    goal.answer(call("terminate", status="failure", reason="they are wrong"))
    assert stopped(goal.reached()).reason is Reason.TERMINATED


def test_success_is_not_believed_while_outputs_are_missing():
    goal = Goal(Outputs({"a": str}))
    answer = goal.answer(call("terminate", status="success", reason="done"))
    assert answer is not None
    assert answer.is_error
    assert goal.reached() is None


def test_a_text_that_was_cut_off_is_no_answer():
    cut_off = Stop(Reason.TRUNCATED, "the output limit cut it off", "provider")
    assert Goal().stopped_calling(cut_off=cut_off) is cut_off
    assert isinstance(Goal(Outputs({"a": str})).stopped_calling(cut_off=cut_off), Nudge)


def test_the_next_active_step_drives_the_turn_until_a_summary_ends_the_plan():
    plan = Plan(["read", "write"]).fresh()
    goal = Goal(plan=plan)
    assert "Now do step 1: read" in (goal.first_step() or "")
    mark(plan, "completed")
    verdict = goal.stopped_calling()
    assert isinstance(verdict, Nudge)
    assert "Now do step 2: write" in verdict.text
    mark(plan, "completed", "blocked")
    assert isinstance(summary := goal.stopped_calling(), Nudge)
    assert "Summarize" in summary.text
    stop = stopped(goal.stopped_calling())
    assert (stop.reason, stop.source) == (Reason.GOAL, "plan")
    assert stop.detail == "the plan is done, apart from what was blocked: write"


def test_a_plan_that_does_not_move_is_given_up():
    goal = Goal(plan=Plan(["read"]).fresh(), max_nudges=1)
    goal.first_step()
    assert isinstance(goal.stopped_calling(), Nudge)
    stop = stopped(goal.stopped_calling())
    assert (stop.source, stop.value) == ("plan", "read")


def test_a_tool_of_somebody_else_is_not_answered():
    assert Goal().answer(call("search")) is None
    assert Goal().answer(call("emit_value", name="a", value=1)) is None


def test_the_last_words_name_what_is_missing_and_why_there_is_no_more_time():
    goal = Goal(Outputs({"a": str, "b": int}))
    emit(goal, a="x")
    text = goal.last_words(Stop(Reason.MAX_TURNS, "3 turns are done, the limit is 3", "max_turns"))
    assert "3 turns are done" in text
    assert "b" in text
    assert "emit_value" in text
