from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import pytest

from monitor.conditions import (
    Condition,
    MaxTurns,
    OutputsComplete,
    PlanComplete,
    Predicate,
    TaskDone,
    Timeout,
    ToolCalled,
)
from monitor.errors import ConfigError, TerminateReason
from monitor.outcome import RunState


def many_calls(state: RunState) -> bool:
    return state.tool_calls > 5


def more_calls_than(limit: int, state: RunState) -> bool:
    return state.tool_calls > limit


@pytest.mark.parametrize(("calls", "stops"), [(5, False), (6, True)])
def test_a_predicate_is_true_when_its_function_says_so(calls: int, *, stops: bool):
    assert (Predicate(many_calls).evaluate(RunState(tool_calls=calls)) is not None) is stops


def test_a_predicate_gives_its_reason_and_its_functions_name():
    stop = Predicate(many_calls).evaluate(RunState(tool_calls=6))
    assert stop is not None
    assert (stop.reason, stop.source, stop.detail) == (
        TerminateReason.CONDITION_MET,
        "many_calls",
        "many_calls is true",
    )


@pytest.mark.parametrize("reason", [TerminateReason.PAUSED, "paused"])
def test_the_caller_may_say_which_reason_it_is(reason: Any):
    stop = Predicate(lambda state: True, reason=reason, name="break_time").evaluate(RunState())
    assert stop is not None
    assert stop.reason is TerminateReason.PAUSED
    assert stop.source == "break_time"


@pytest.mark.parametrize(
    ("condition", "name"),
    [
        (Predicate(many_calls), "many_calls"),
        (Predicate(many_calls, name="calls"), "calls"),
        (Predicate(lambda state: True), "<lambda>"),
        (Predicate(partial(more_calls_than, 3)), "predicate"),
    ],
)
def test_a_predicate_always_has_a_name(condition: Condition, name: str):
    assert condition.name == name
    assert (condition | Timeout(5)).name == f"({name} | timeout)"


def test_a_predicate_is_asked_at_transitions_only():
    condition = Predicate(lambda state: state.elapsed_s > 5)
    assert condition.deadline(RunState()) is None
    assert condition.token_headroom(RunState()) is None


def test_the_functions_own_exception_goes_through():
    def broken(state: RunState) -> bool:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        Predicate(broken).evaluate(RunState())


@pytest.mark.parametrize("fn", [None, 5, "state.turns > 3", Timeout(5)], ids=repr)
def test_what_is_no_function_is_refused_by_name(fn: Any):
    with pytest.raises(ConfigError, match="Predicate") as refused:
        Predicate(fn)
    assert repr(fn) in str(refused.value)


@pytest.mark.parametrize("reason", ["boredom", None, 5])
def test_a_reason_that_does_not_exist_is_refused_by_name(reason: Any):
    with pytest.raises(ConfigError, match="reason") as refused:
        Predicate(many_calls, reason=reason)
    assert repr(reason) in str(refused.value)


def test_an_async_function_is_refused():
    """Its coroutine is true of every state, so the run would end at once, and for no reason."""

    async def done(state: RunState) -> bool:
        return False

    with pytest.raises(ConfigError, match="async"):
        Predicate(done)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "condition", [Predicate(many_calls), Predicate(many_calls) | Timeout(5), ~(MaxTurns(3) & Predicate(many_calls))]
)
def test_a_predicate_has_no_json_form_and_says_so(condition: Condition):
    with pytest.raises(ConfigError, match="'many_calls' holds a Python function and has no JSON form"):
        condition.to_dict()


def test_a_predicate_can_be_pickled_if_its_function_can():
    condition = Predicate(many_calls, reason=TerminateReason.PAUSED, name="calls")
    back = pickle.loads(pickle.dumps(condition))
    assert back == condition
    assert hash(back) == hash(condition)
    assert back.name == "calls"
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(Predicate(lambda state: True))


def test_predicates_are_equal_by_function_reason_and_name():
    assert Predicate(many_calls) == Predicate(many_calls)
    assert Predicate(many_calls) != Predicate(many_calls, name="calls")
    assert Predicate(many_calls) != Predicate(many_calls, reason=TerminateReason.PAUSED)
    assert Predicate(many_calls) != Predicate(lambda state: state.tool_calls > 1)


# --- tools


@pytest.mark.parametrize(
    ("called", "stops"), [((), False), (("search",), False), (("finished",), False), (("search", "finish"), True)]
)
def test_a_tool_that_was_called_is_known_by_its_name(called: tuple[str, ...], *, stops: bool):
    assert (ToolCalled("finish").evaluate(RunState(tools_called=called)) is not None) is stops


@pytest.mark.parametrize("reason", [TerminateReason.GOAL, "goal"])
def test_the_caller_may_say_what_a_call_means(reason: Any):
    stop = ToolCalled("finish", reason=reason).evaluate(RunState(tools_called=("finish",)))
    assert stop is not None
    assert (stop.reason, stop.source, stop.value) == (TerminateReason.GOAL, "tool_called", "finish")
    assert stop.reason is TerminateReason.GOAL


def test_a_call_by_itself_is_a_condition_of_the_callers_own():
    stop = ToolCalled("finish").evaluate(RunState(tools_called=("finish",)))
    assert stop is not None
    assert (stop.reason, stop.detail) == (TerminateReason.CONDITION_MET, "tool 'finish' was called")


@pytest.mark.parametrize("name", ["", None, 5, ["finish"], len], ids=repr)
def test_what_is_no_name_of_a_tool_is_refused(name: Any):
    with pytest.raises(ConfigError, match="ToolCalled") as refused:
        ToolCalled(name)
    assert repr(name) in str(refused.value)


@pytest.mark.parametrize("reason", ["boredom", None, 5, ["goal"]])
def test_so_is_what_is_no_reason(reason: Any):
    with pytest.raises(ConfigError, match="ToolCalled takes a TerminateReason"):
        ToolCalled("finish", reason=reason)


def test_its_json_is_plain_data():
    form = ToolCalled("finish", reason=TerminateReason.GOAL).to_dict()
    assert form == {"type": "tool_called", "tool": "finish", "reason": "goal"}
    assert type(form["reason"]) is str


# --- what is reached


@pytest.mark.parametrize(
    ("condition", "reached", "others"),
    [
        (OutputsComplete(), RunState(missing_outputs=()), [RunState(), RunState(missing_outputs=("risk",))]),
        (PlanComplete(), RunState(plan_done=True), [RunState(), RunState(plan_done=False)]),
        (TaskDone(), RunState(task_done=True), [RunState(), RunState(task_done=False)]),
    ],
    ids=lambda value: value.name if isinstance(value, Condition) else "",
)
def test_a_goal_is_reached_when_it_is_known_to_be_and_not_when_nobody_knows(
    condition: Condition, reached: RunState, others: list[RunState]
):
    stop = condition.evaluate(reached)
    assert stop is not None
    assert (stop.reason, stop.source) == (TerminateReason.GOAL, condition.name)
    assert [condition.evaluate(state) for state in others] == [None, None]


@pytest.mark.parametrize("condition", [ToolCalled("finish"), OutputsComplete(), PlanComplete(), TaskDone()])
def test_facts_depend_on_neither_time_nor_tokens_nor_cost(condition: Condition):
    assert condition.deadline(RunState()) is None
    assert condition.token_headroom(RunState()) is None
    assert condition.cost_headroom(RunState()) is None
