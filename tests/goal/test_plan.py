from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import ConfigError
from monitor.goal.plan import Plan, PlanState, Step, StepStatus


def plan(*statuses: str | None) -> PlanState:
    """A plan with steps a, b, c, ... of these states."""
    return Plan([Step(chr(97 + index), status) for index, status in enumerate(statuses)]).fresh()  # type: ignore[arg-type]


def texts(state: PlanState) -> list[str]:
    return [f"{step.text} {step.status}" for step in state.steps]


# --- the description


def test_steps_are_given_as_texts_or_as_steps():
    assert Plan(["look", Step("write", StepStatus.BLOCKED, "no pen")]).steps == (
        Step("look"),
        Step("write", StepStatus.BLOCKED, "no pen"),
    )


def test_a_plan_is_reusable_and_its_runs_know_nothing_of_each_other():
    description = Plan(["look", "write"], "Report")
    first, second = description.fresh(), description.fresh()
    first.call({"step": 1, "status": "completed"})
    assert second.active_number == 1
    assert pickle.loads(pickle.dumps(description)) == description


@pytest.mark.parametrize("steps", [[], "look", None, 3, [""], ["  "], [3], [None], {"look": 1}])
def test_what_is_no_plan_is_refused(steps: Any):
    with pytest.raises(ConfigError):
        Plan(steps)


@pytest.mark.parametrize(("status", "note"), [("done", None), (3, None), ([], None), ("completed", 3)])
def test_a_step_with_a_wrong_state_is_refused(status: Any, note: Any):
    with pytest.raises(ConfigError):
        Step("look", status, note)


# --- what is active


@pytest.mark.parametrize(
    ("statuses", "active"),
    [
        (["not_started", "not_started"], 1),
        (["completed", "not_started"], 2),
        (["completed", "in_progress", "not_started"], 2),
        (["not_started", "in_progress"], 1),
        (["blocked", None], 2),  # a missing status counts as not started
        (["completed", "blocked"], None),
    ],
)
def test_the_active_step_is_the_first_that_is_not_started_or_in_progress(
    statuses: list[str | None], active: int | None
):
    state = plan(*statuses)
    assert state.active_number == active
    assert state.active == (None if active is None else state.steps[active - 1])
    assert state.done == (active is None)


def test_blocked_steps_end_a_plan_and_are_told():
    state = plan("completed", "in_progress")
    state.call({"step": 2, "status": "blocked", "note": "no access"})
    assert state.done
    assert state.blocked == (Step("b", StepStatus.BLOCKED, "no access"),)


# --- the tool


def test_an_update_is_answered_with_what_is_next():
    state = plan(None, None)
    assert state.call({"step": 1, "status": "completed"}).text == "Step 1 is completed. Next: step 2, b"
    assert state.call({"step": 2, "status": "in_progress"}).text == "Step 2 is in_progress. In progress: step 2, b"
    assert state.call({"step": 2, "status": "completed"}).text == "Step 2 is completed. No step is left."


@pytest.mark.parametrize(
    "arguments",
    [
        {"step": "1", "status": "completed"},
        {"step": 1.0, "status": " Completed "},
        '{"step": 1, "status": "COMPLETED"}',
        {"step": 1, "status": "completed", "note": None, "steps": None, "why": "because"},
    ],
)
def test_an_update_is_understood_in_the_forms_in_which_models_write_it(arguments: object):
    state = plan(None, None)
    assert not state.call(arguments).is_error
    assert texts(state) == ["a completed", "b not_started"]


@pytest.mark.parametrize("status", ["in progress", "In-Progress", "IN_PROGRESS"])
def test_a_status_is_read_with_any_case_and_separator(status: str):
    state = plan(None)
    state.call({"step": 1, "status": status})
    assert texts(state) == ["a in_progress"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"step": 3, "status": "completed"}, "There is no step 3: the plan has steps 1 to 2."),
        ({"step": 0, "status": "completed"}, "There is no step 0"),
        ({"step": True, "status": "completed"}, "There is no step true"),
        ({"step": 1.5, "status": "completed"}, "There is no step 1.5"),
        ({"step": float("inf"), "status": "completed"}, "There is no step"),
        ({"step": float("nan"), "status": "completed"}, "There is no step"),
        ({"step": "a", "status": "completed"}, 'There is no step "a"'),
        ({"step": [1], "status": "completed"}, "There is no step [1]"),
        ({"step": 1}, "`status` is missing"),
        ({"status": "completed"}, "`step` is missing"),
        ({"step": 1, "status": "complete"}, "Did you mean completed?"),
        ({"step": 1, "status": "finito"}, '"finito" is not a status.'),
        ({"step": 1, "status": 3}, "3 is not a status."),
        ({}, "`step` and `status` are missing."),
        (None, "`step` and `status` are missing."),
        ("{", "not valid JSON"),
        ([], "must be a JSON object"),
        ({"step": 1, "status": "completed", "steps": []}, "`steps` is empty"),
        ({"step": 1, "status": "completed", "steps": ["x", 3]}, "must be an array of strings"),
        ({"step": 1, "status": "completed", "steps": ["x", " "]}, "must be an array of strings"),
    ],
)
def test_a_wrong_update_changes_nothing_and_is_told_what_is_allowed(arguments: object, told: str):
    state = plan(None, "in_progress")
    answer = state.call(arguments)
    assert answer.is_error
    assert told in answer.text
    assert "update_plan(step=1..2, status=one of not_started, in_progress, completed, blocked)" in answer.text
    assert texts(state) == ["a not_started", "b in_progress"]


def test_the_steps_to_come_can_be_replaced():
    state = plan("completed", "in_progress", None, "blocked", None)
    answer = state.call({"step": 2, "status": "completed", "steps": ["x", "y"]})
    assert texts(state) == ["a completed", "b completed", "d blocked", "x not_started", "y not_started"]
    assert "4. [ ] x" in answer.text  # the numbers are new: the model is shown them


def test_a_model_that_lists_the_whole_plan_again_doubles_nothing():
    state = plan("completed", "in_progress", None)
    state.call({"steps": ["a", "b", "c", "c", "d"]})
    assert texts(state) == ["a completed", "b in_progress", "c not_started", "d not_started"]


def test_a_note_stays_until_there_is_another():
    state = plan(None)
    state.call({"step": 1, "status": "in_progress", "note": "half"})
    state.call({"step": 1, "status": "completed"})
    assert state.steps[0].note == "half"
    state.call({"step": 1, "status": "completed", "note": "all"})
    assert state.steps[0].note == "all"


@pytest.mark.parametrize("number", [0, 2, -1])
def test_marking_a_step_that_is_not_there_is_an_error_of_the_caller(number: int):
    with pytest.raises(ConfigError):
        plan(None).mark(number, StepStatus.COMPLETED)


def test_the_declaration_says_what_the_tool_takes():
    spec = plan(None).spec
    assert spec.name == "update_plan"
    assert spec.parameters["properties"]["status"]["enum"] == ["not_started", "in_progress", "completed", "blocked"]


# --- what the model reads


def test_the_plan_is_shown_with_its_states():
    state = Plan(["look", Step("read", StepStatus.BLOCKED, "no access"), "think", "write"], "Report").fresh()
    state.mark(1, StepStatus.COMPLETED)
    state.mark(3, StepStatus.IN_PROGRESS)
    assert state.render() == "Plan: Report\n1. [x] look\n2. [!] read (no access)\n3. [>] think\n4. [ ] write"


def test_the_active_step_drives_the_turn():
    state = plan("completed", None)
    assert "Now do step 2: b" in state.step_text()
    assert 'update_plan(step=2, status="completed")' in state.step_text()


def test_a_plan_that_is_over_drives_nothing():
    with pytest.raises(ConfigError, match="done"):
        plan("completed").step_text()


def test_the_summary_speaks_of_blocked_steps_if_there_are_any():
    assert "blocked" not in plan("completed").summary_prompt()
    assert "blocked steps leave open" in plan("blocked").summary_prompt()


# --- laws

statuses = st.sampled_from(StepStatus)
updates = st.fixed_dictionaries(
    {"step": st.integers(0, 6), "status": statuses.map(str)},
    optional={"note": st.text(), "steps": st.lists(st.text(), max_size=4)},
)


@given(st.lists(statuses, min_size=1, max_size=5), st.lists(updates, max_size=8))
def test_a_snapshot_restores_the_plan_through_json(start: list[StepStatus], calls: list[dict[str, Any]]):
    state = plan(*start)
    for arguments in calls:
        state.call(arguments)
    other = Plan(["something else"]).fresh()
    other.restore(json.loads(json.dumps(state.snapshot())))
    assert other.steps == state.steps
    assert other.snapshot() == state.snapshot()


@given(st.lists(statuses, min_size=1, max_size=5), st.lists(updates, max_size=8))
def test_a_step_that_was_begun_is_never_lost_by_changing_the_plan(start: list[StepStatus], calls: list[dict[str, Any]]):
    state = plan(*start)
    for arguments in calls:
        begun = {
            step.text
            for number, step in enumerate(state.steps, 1)
            # which the call itself may set back
            if step.status is not StepStatus.NOT_STARTED and number != arguments["step"]
        }
        state.call(arguments)
        assert begun <= {step.text for step in state.steps}


def test_a_step_without_a_status_is_restored_as_not_started():
    state = plan("completed")
    state.restore({"version": 1, "steps": [{"text": "a"}, {"text": "b", "status": None}]})
    assert texts(state) == ["a not_started", "b not_started"]


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"version": 2, "steps": [{"text": "a"}]},
        {"version": 1},
        {"version": 1, "steps": []},
        {"version": 1, "steps": [{"status": "completed"}]},
        {"version": 1, "steps": [{"text": "a", "status": "done"}]},
        {"version": 1, "steps": ["a"]},
        {"version": 1, "steps": None},
    ],
)
def test_wrong_data_is_not_restored(data: dict[str, Any]):
    state = plan("completed")
    with pytest.raises(ValueError, match="plan"):
        state.restore(data)
    assert texts(state) == ["a completed"]
