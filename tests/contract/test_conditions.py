"""What holds for every condition, found by its class. A new one needs a line in `SAMPLES` and
nothing else.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pickle
import pkgutil
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields, replace
from typing import get_args

import pytest

import monitor.conditions
from monitor.chunks import Usage
from monitor.conditions import (
    AllOf,
    AnyOf,
    Condition,
    CostLimit,
    FirstChunkTimeout,
    IdleTimeout,
    MaxConsecutiveErrors,
    MaxModelCalls,
    MaxToolCalls,
    MaxTurns,
    Not,
    OutputsComplete,
    PlanComplete,
    Predicate,
    TaskDone,
    Timeout,
    TokenLimit,
    ToolCalled,
    condition_from_dict,
)
from monitor.conditions.limits import DefaultLimits
from monitor.errors import TerminateReason
from monitor.outcome import Phase, RunState
from monitor.verdicts import Met, Stop, verdict_codec


def many_calls(state: RunState) -> bool:
    return state.tool_calls > 2


SAMPLES: dict[type[Condition], list[Condition]] = {
    MaxTurns: [MaxTurns(2)],
    MaxModelCalls: [MaxModelCalls(2)],
    MaxToolCalls: [MaxToolCalls(2)],
    MaxConsecutiveErrors: [MaxConsecutiveErrors(), MaxConsecutiveErrors(2)],
    TokenLimit: [TokenLimit(50), TokenLimit(input_tokens=50), TokenLimit(output_tokens=50)],
    CostLimit: [CostLimit(50), CostLimit(0.5)],
    Timeout: [Timeout(5), Timeout(2.5), Timeout(5, exclude_retry_delays=True)],
    IdleTimeout: [IdleTimeout(5)],
    FirstChunkTimeout: [FirstChunkTimeout(5)],
    Predicate: [Predicate(many_calls), Predicate(many_calls, reason=TerminateReason.PAUSED, name="calls")],
    ToolCalled: [ToolCalled("finish"), ToolCalled("give_up", reason=TerminateReason.PAUSED)],
    OutputsComplete: [OutputsComplete()],
    PlanComplete: [PlanComplete()],
    TaskDone: [TaskDone()],
    AnyOf: [Timeout(5) | MaxToolCalls(2), IdleTimeout(5) | ~TokenLimit(50), CostLimit(50) | OutputsComplete()],
    DefaultLimits: [DefaultLimits((MaxTurns(2), Timeout(5)))],
    AllOf: [
        Timeout(5) & MaxToolCalls(2),
        IdleTimeout(5) & (MaxTurns(2) | TokenLimit(50)),
        ToolCalled("finish") & CostLimit(50),
    ],
    Not: [~Timeout(5), ~(Timeout(5) & MaxToolCalls(2))],
}
ALL = [pytest.param(sample, id=sample.name) for samples in SAMPLES.values() for sample in samples]


def conditions() -> set[type[Condition]]:
    """Every public condition in `monitor.conditions` that can be made."""
    names = [name for _, name, _ in pkgutil.iter_modules(monitor.conditions.__path__, "monitor.conditions.")]
    classes = [
        value for name in names for value in vars(importlib.import_module(name)).values() if inspect.isclass(value)
    ]
    return {
        cls
        for cls in classes
        if issubclass(cls, Condition)
        and cls.__module__ in names
        and not cls.__name__.startswith("_")
        and not inspect.isabstract(cls)
    }


def states() -> Iterator[RunState]:
    """Moments in every phase, with little and with much of everything."""
    for phase in get_args(Phase):
        for much in (0, 1, 100):
            state = RunState(
                elapsed_s=float(much),
                phase=phase,
                turns=much,
                model_calls=much,
                tool_calls=much,
                consecutive_errors=much,
                usage=Usage(much, much, total_tokens=2 * much),
                usage_estimated=much == 1,
                cost_usd=float(much),
                retry_delay_s=much / 4,
                tools_called=("finish", "give_up")[:much],
                missing_outputs=(None, ("risk",), ())[min(much, 2)],
                plan_done=(None, False, True)[min(much, 2)],
                task_done=(None, False, True)[min(much, 2)],
            )
            yield state
            yield replace(state, paused_s=much / 2)
            yield replace(state, paused_s=much / 2, paused=True)
            if phase == "streaming":
                yield replace(state, stream_started_s=0.0)
                yield replace(state, stream_started_s=0.0, waiting_since_s=0.0)
                yield replace(state, stream_started_s=0.0, waiting_since_s=0.0, first_chunk_seen=True)


STATES = list(states())


def test_every_condition_is_under_the_contract():
    assert set(SAMPLES) == conditions()
    assert all(type(sample) is cls for cls, samples in SAMPLES.items() for sample in samples)


@pytest.mark.parametrize("condition", ALL)
def test_each_is_true_of_some_moments_and_not_of_others(condition: Condition):
    """Else the tests below would prove nothing."""
    assert {condition.evaluate(state) is None for state in STATES} == {True, False}


@pytest.mark.parametrize("condition", ALL)
def test_a_stop_says_reason_sentence_and_source_and_can_be_recorded(condition: Condition):
    for stop in filter(None, map(condition.evaluate, STATES)):
        assert isinstance(stop, Stop)
        assert isinstance(stop.reason, TerminateReason)
        assert stop.detail
        assert stop.source
        assert verdict_codec.loads(verdict_codec.dumps(stop)) == stop


@pytest.mark.parametrize("condition", ALL)
def test_the_tree_says_whether_it_is_true(condition: Condition):
    for state in STATES:
        tree = condition.met(state)
        assert isinstance(tree, Met)
        assert tree.met is (condition.evaluate(state) is not None)
        assert tree.condition == condition.name


@pytest.mark.parametrize("condition", ALL)
def test_the_same_question_has_the_same_answer(condition: Condition):
    def answers() -> list[object]:
        return [
            (
                condition.evaluate(state),
                condition.deadline(state),
                condition.token_headroom(state),
                condition.progress(state),
            )
            for state in STATES
        ]

    assert answers() == answers()


@pytest.mark.parametrize("condition", ALL)
def test_a_deadline_is_a_moment_and_a_headroom_a_count(condition: Condition):
    for state in STATES:
        deadline, headroom, dollars = (
            condition.deadline(state),
            condition.token_headroom(state),
            condition.cost_headroom(state),
        )
        assert deadline is None or (deadline >= 0)
        assert headroom is None or (type(headroom) is int and headroom >= 0)
        assert dollars is None or dollars >= 0


@pytest.mark.parametrize("condition", ALL)
def test_it_tells_of_the_same_limits_in_the_same_order_at_every_moment(condition: Condition):
    """So that each can be warned of once."""
    seen = [condition.progress(state) for state in STATES]
    assert len({tuple((met.condition, met.limit) for met in used) for used in seen}) == 1
    assert all(
        isinstance(met.value, int | float) and met.value >= 0 and isinstance(met.limit, int | float)
        for used in seen
        for met in used
    )
    if not isinstance(condition, AnyOf | AllOf):
        assert all(met.condition.split(".")[0] == condition.name for used in seen for met in used)


@pytest.mark.parametrize("condition", ALL)
def test_what_is_not_true_is_true_at_its_deadline(condition: Condition):
    for state in STATES:
        deadline = condition.deadline(state)
        if deadline is not None and condition.evaluate(state) is None:
            assert deadline > state.elapsed_s
            assert condition.evaluate(replace(state, elapsed_s=deadline)) is not None


@pytest.mark.parametrize("condition", ALL)
def test_all_are_frozen_hashable_and_picklable(condition: Condition):
    for field in fields(condition):  # type: ignore[arg-type]
        with pytest.raises(FrozenInstanceError):
            setattr(condition, field.name, "changed")
    back = pickle.loads(pickle.dumps(condition))
    assert back == condition
    assert {back: 1}[condition] == 1


@pytest.mark.parametrize(
    "condition", [sample for cls, samples in SAMPLES.items() if cls is not Predicate for sample in samples]
)
def test_all_but_a_predicate_come_back_from_json(condition: Condition):
    form = condition.to_dict()
    back = condition_from_dict(json.loads(json.dumps(form)))
    assert back == condition
    assert back.to_dict() == form
    assert [back.evaluate(state) for state in STATES] == [condition.evaluate(state) for state in STATES]


@pytest.mark.parametrize("condition", ALL)
def test_all_can_be_combined_with_all(condition: Condition):
    for cls in SAMPLES:
        other = SAMPLES[cls][0]
        assert isinstance(condition | other, AnyOf)
        assert isinstance(condition & other, AllOf)
        assert isinstance(~condition, Not)
        assert all(isinstance(found, Stop | None) for found in map((condition | other).evaluate, STATES))
