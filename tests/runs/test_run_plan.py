"""A plan that drives a run: each turn takes the first active step, and the run ends when none is
left.
"""

from __future__ import annotations

from typing import Any

import pytest

import monitor
from monitor.testing import ScriptedModel, call
from tests.runs.driving import Reason, drive, look, text_of_user

pytestmark = pytest.mark.anyio

PLAN = monitor.Plan(["read the page", "write the summary"], title="A report")


def mark(step: int, status: str = "completed", **more: Any) -> monitor.chunks.ToolCall:
    return call("update_plan", step=step, status=status, **more)


@pytest.mark.feature("OM-05", "OM-10")
async def test_the_active_step_drives_each_turn_and_the_model_writes_the_summary_at_the_end():
    run = await drive(
        [call("look", q="page"), mark(1)],
        "I have read it.",
        mark(2),
        "It is about noon.",
        "All is done: it is about noon.",
        plan=PLAN,
        tools=[look],
    )
    outcome = run.outcome
    assert (outcome.reason, outcome.source, outcome.ok) == (Reason.GOAL, "plan", True)
    assert outcome.detail == "the plan is done"
    assert outcome.text == "All is done: it is about noon."
    assert text_of_user(run.requests[0].messages[0]) == "do it"
    assert "Now do step 1: read the page" in run.told(0)
    assert "Now do step 2: write the summary" in run.told(2)
    assert "The plan is over. Summarize" in run.told(4)
    assert "[x] read the page" in run.told(4)
    assert len(run.of(monitor.events.PlanUpdated)) == 2
    assert "[x] write the summary" in run.of(monitor.events.PlanUpdated)[1].plan


@pytest.mark.feature("OM-05")
async def test_blocked_steps_end_a_plan_too_and_the_outcome_says_which():
    run = await drive(
        [mark(1), mark(2, "blocked", note="no paper")], "I could not write.", "Half of it is done.", plan=PLAN
    )
    assert run.outcome.reason is Reason.GOAL
    assert run.outcome.detail == "the plan is done, apart from what was blocked: write the summary"
    assert "(no paper)" in run.told(2)
    assert "what the blocked steps leave open" in run.told(2)


@pytest.mark.feature("OM-10")
async def test_steps_may_be_given_with_a_status_and_done_ones_drive_nothing():
    steps: list[str | monitor.goal.Step] = [
        monitor.goal.Step("one", monitor.goal.StepStatus.COMPLETED),
        monitor.goal.Step("two", monitor.goal.StepStatus.IN_PROGRESS),
        "three",
    ]
    run = await drive(mark(2), "now three", mark(3), "done", "summary", plan=monitor.Plan(steps))
    assert "Now do step 2: two" in run.told(0)
    assert "Now do step 3: three" in run.told(2)
    assert run.outcome.reason is Reason.GOAL


@pytest.mark.feature("OM-10")
async def test_a_model_that_stops_at_a_step_is_told_again_a_bounded_number_of_times():
    run = await drive(
        lambda request: f"I am at it, {len(request.messages)}.",
        plan=PLAN,
        requests=monitor.runs.Requests(max_nudges=2),
        last_turn=None,
    )
    assert run.outcome.reason is Reason.MISSING_OUTPUTS
    assert "plan unfinished, at: read the page" in run.outcome.detail
    assert len(run.requests) == 3


async def test_moving_on_does_not_use_up_the_nudges():
    steps = [f"step {n}" for n in range(1, 9)]
    answers = [answer for n in range(1, 9) for answer in (mark(n), f"Step {n} is done.")]
    run = await drive(*answers, "Summary.", plan=monitor.Plan(steps), requests=monitor.runs.Requests(max_nudges=1))
    assert run.outcome.reason is Reason.GOAL
    assert len(run.requests) == 17


async def test_an_update_that_makes_no_sense_is_a_tool_error():
    run = await drive(mark(7), mark(1, "finished"), [mark(1), mark(2)], "ok", "summary", plan=PLAN)
    assert [run.results(n)[0].is_error for n in (0, 1, 2)] == [True, True, False]
    assert "steps 1 to 2" in run.results(0)[0].text
    assert run.outcome.reason is Reason.GOAL


@pytest.mark.feature("OM-05")
async def test_a_condition_may_end_the_run_as_soon_as_no_step_is_left():
    run = await drive([mark(1), mark(2)], plan=PLAN, stop_when=monitor.conditions.PlanComplete() | monitor.MaxTurns(9))
    assert (run.outcome.reason, run.outcome.source) == (Reason.GOAL, "plan_complete")
    assert len(run.requests) == 1


async def test_outputs_that_are_there_before_the_plan_is_done_wait_for_it():
    emit = call("emit_value", name="a", value=1)
    run = await drive([emit, mark(1)], mark(2), plan=PLAN, outputs={"a": int})
    assert (run.outcome.reason, run.outcome.output, len(run.requests)) == (Reason.GOAL, {"a": 1}, 2)


async def test_outputs_that_are_missing_when_the_plan_is_done_are_asked_for():
    run = await drive([mark(1), mark(2)], "done", call("emit_value", name="a", value=1), plan=PLAN, outputs={"a": int})
    assert run.outcome.reason is Reason.GOAL
    assert "`a`" in run.told(2)


async def test_terminate_with_success_is_refused_while_a_step_is_left_but_failure_is_not():
    success = call("terminate", status="success", reason="done")
    run = await drive(success, call("terminate", status="failure", reason="no access"), plan=PLAN)
    (refusal,) = run.results(0)
    assert refusal.is_error
    assert "read the page" in refusal.text
    assert (run.outcome.reason, run.outcome.value) == (Reason.TERMINATED, "failure")

    run = await drive([mark(1), mark(2), success], plan=PLAN)
    assert (run.outcome.reason, run.outcome.value, run.outcome.ok) == (Reason.TERMINATED, "success", True)


async def test_a_last_turn_is_left_with_emit_and_terminate_and_an_unfinished_plan_is_no_goal():
    run = await drive(mark(1), "I ran out of turns.", plan=PLAN, stop_when=monitor.MaxTurns(1))
    assert run.offered(0) == ["terminate", "update_plan"]
    assert run.offered(1) == ["terminate"]
    assert (run.outcome.reason, run.outcome.text) == (Reason.MAX_TURNS, "I ran out of turns.")


async def test_two_runs_of_one_supervisor_have_a_plan_each():
    model = ScriptedModel([mark(1), mark(2)], "ok", "one", [mark(1), mark(2)], "ok", "two")
    supervisor = monitor.Supervisor(model, plan=PLAN)
    assert [(await supervisor.run("go")).text for _ in range(2)] == ["one", "two"]
    assert "[ ] read the page" in text_of_user(model.requests[3].messages[-1])


async def test_the_instructions_speak_of_the_plan():
    run = await drive([mark(1), mark(2)], plan=PLAN, stop_when=monitor.conditions.PlanComplete())
    assert "`update_plan`" in (run.requests[0].instructions or "")
