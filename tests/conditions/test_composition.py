from __future__ import annotations

import json
import math
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass, replace
from itertools import product
from typing import Any, get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from monitor.chunks import Usage
from monitor.conditions import (
    AllOf,
    AnyOf,
    Condition,
    CostLimit,
    FirstChunkTimeout,
    IdleTimeout,
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
from monitor.errors import ConfigError, TerminateReason
from monitor.outcome import Phase, RunState
from monitor.verdicts import Met, Stop

TRUE = Predicate(lambda state: True, name="yes")
FALSE = Predicate(lambda state: False, name="no")


def reason_of(condition: Condition, state: RunState) -> TerminateReason | None:
    stop = condition.evaluate(state)
    return None if stop is None else stop.reason


# --- random trees and states. Times are halves, so that sums are exact.

HALVES = st.integers(0, 40).map(lambda number: number / 2)
TIMED = st.one_of(
    st.builds(Timeout, HALVES),
    st.builds(Timeout, HALVES, exclude_retry_delays=st.just(True)),
    st.builds(IdleTimeout, HALVES),
    st.builds(FirstChunkTimeout, HALVES),
)
COUNTED = st.one_of(
    st.builds(MaxTurns, st.integers(1, 4)),
    st.builds(MaxModelCalls, st.integers(1, 4)),
    st.builds(MaxToolCalls, st.integers(1, 4)),
    st.builds(TokenLimit, st.integers(1, 60)),
    st.builds(lambda n: TokenLimit(output_tokens=n), st.integers(1, 60)),
    st.builds(lambda n, m: TokenLimit(n, input_tokens=m), st.integers(1, 60), st.integers(1, 60)),
    st.builds(CostLimit, st.integers(1, 60).map(lambda quarters: quarters / 4)),
    st.builds(ToolCalled, st.sampled_from(["search", "finish"])),
    st.sampled_from([OutputsComplete(), PlanComplete(), TaskDone()]),
)


def joined(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    """`|` and `&` as users write them, and as a file may hold them, unflattened."""
    several = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.builds(lambda a, b: a | b, inner, inner),
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(AnyOf, several),
        st.builds(AllOf, several),
    )


def negated(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    return joined(inner) | st.builds(lambda part: ~part, inner)


UNTIMED_TREES: st.SearchStrategy[Condition] = st.recursive(COUNTED, negated, max_leaves=4)
PLAIN_TREES: st.SearchStrategy[Condition] = st.recursive(TIMED | COUNTED, joined, max_leaves=8)
TIMED_TREES: st.SearchStrategy[Condition] = st.recursive(TIMED | UNTIMED_TREES, joined, max_leaves=8)
"""`~` only over what does not depend on time: `~a` has no deadline by definition."""
ALL_TREES: st.SearchStrategy[Condition] = st.recursive(TIMED | COUNTED, negated, max_leaves=8)


@st.composite
def states(draw: st.DrawFn) -> RunState:
    """Moments of a run that can be."""
    elapsed = draw(HALVES)
    phase: Phase = draw(st.sampled_from(get_args(Phase)))
    started = waiting = None
    if phase == "streaming":
        started = draw(HALVES.filter(lambda at: at <= elapsed))
        waiting = draw(st.none() | HALVES.filter(lambda at: started <= at <= elapsed))
    input_tokens, output_tokens = draw(st.integers(0, 70)), draw(st.integers(0, 70))
    paused_s = draw(HALVES.filter(lambda seconds: seconds <= elapsed))
    return RunState(
        elapsed_s=elapsed,
        phase=phase,
        turns=draw(st.integers(0, 5)),
        model_calls=draw(st.integers(0, 5)),
        tool_calls=draw(st.integers(0, 5)),
        usage=Usage(input_tokens, output_tokens, total_tokens=input_tokens + output_tokens),
        usage_estimated=draw(st.booleans()),
        stream_started_s=started,
        first_chunk_seen=draw(st.booleans()) if phase == "streaming" else False,
        waiting_since_s=waiting,
        cost_usd=draw(st.integers(0, 70)) / 4,
        paused_s=paused_s,
        paused=draw(st.booleans()),
        retry_delay_s=draw(HALVES.filter(lambda seconds: seconds <= elapsed - paused_s)),
        tools_called=draw(st.sampled_from([(), ("search",), ("search", "finish")])),
        missing_outputs=draw(st.sampled_from([None, (), ("risk",)])),
        plan_done=draw(st.sampled_from([None, False, True])),
        task_done=draw(st.sampled_from([None, False, True])),
    )


def later(state: RunState, moment: float) -> RunState:
    """The same run at that moment, if nothing has happened: while a person is asked, it is the
    pause that grows.
    """
    passed = moment - state.elapsed_s
    return replace(state, elapsed_s=moment, paused_s=state.paused_s + passed if state.paused else state.paused_s)


THE_END = 42.0
"""After every deadline that the strategies can make."""


def moments(start: float, end: float = THE_END) -> Iterator[float]:
    """All halves from `start` up to `end`, which is not among them."""
    return (number / 2 for number in range(int(start * 2), int(end * 2)))


# --- what | & and ~ mean


@given(ALL_TREES, ALL_TREES, states())
def test_or_and_and_and_not_are_those_of_logic(a: Condition, b: Condition, state: RunState):
    one, other = a.evaluate(state) is not None, b.evaluate(state) is not None
    assert ((a | b).evaluate(state) is not None) is (one or other)
    assert ((a & b).evaluate(state) is not None) is (one and other)
    assert ((~a).evaluate(state) is not None) is (not one)


@given(ALL_TREES, ALL_TREES, states())
def test_the_order_in_which_parts_are_written_does_not_change_what_is_true(a: Condition, b: Condition, state: RunState):
    for one, other in ((a | b, b | a), (a & b, b & a)):
        assert (one.evaluate(state) is None) is (other.evaluate(state) is None)
        assert one.deadline(state) == other.deadline(state)
        assert one.token_headroom(state) == other.token_headroom(state)
        assert one.cost_headroom(state) == other.cost_headroom(state)


def test_chains_of_one_operator_are_one_composition():
    a, b, c, d = MaxTurns(1), MaxTurns(2), MaxTurns(3), MaxTurns(4)
    assert (a | b | c) == (a | (b | c)) == AnyOf((a, b, c))
    assert (a & b & c) == (a & (b & c)) == AllOf((a, b, c))
    assert ((a | b) | (c | d)) == AnyOf((a, b, c, d))


def test_and_binds_closer_than_or():
    a, b, c = MaxTurns(1), MaxTurns(2), MaxTurns(3)
    assert (a | b & c) == AnyOf((a, AllOf((b, c))))
    assert ((a | b) & c) == AllOf((AnyOf((a, b)), c))
    assert (~a | b) == AnyOf((Not(a), b))


def test_a_composition_is_named_as_it_is_written():
    condition = (Timeout(5) | ~MaxTurns(3)) & IdleTimeout(1)
    assert condition.name == "((timeout | ~max_turns) & idle_timeout)"


@pytest.mark.parametrize(
    "other", [None, 5, "timeout", lambda state: True, Timeout], ids=lambda other: type(other).__name__
)
def test_only_conditions_can_be_combined(other: Any):
    with pytest.raises(ConfigError, match=r"write monitor\.Timeout\(5\) \| monitor\."):
        _ = Timeout(5) | other
    with pytest.raises(ConfigError, match=r"write monitor\.Timeout\(5\) & monitor\."):
        _ = Timeout(5) & other
    with pytest.raises(ConfigError, match=r"write monitor\.Timeout\(5\) \| monitor\."):
        _ = other | Timeout(5)


@pytest.mark.parametrize(
    "join",
    [
        lambda a, b: a or b,
        lambda a, b: a and b,
        lambda a, b: not a,
        lambda a, b: b if a else None,
        lambda a, b: any([a, b]),
    ],
    ids=["or", "and", "not", "if", "any"],
)
def test_a_condition_is_neither_true_nor_false(join: Any):
    """`MaxTurns(30) or Timeout(600)` would be `MaxTurns(30)` alone."""
    line = re.escape("write monitor.MaxTurns(30) | monitor.Timeout(600)")
    with pytest.raises(ConfigError, match=line):
        join(MaxTurns(30), Timeout(600))


# --- who gives the reason

LATE = RunState(
    elapsed_s=20,
    phase="streaming",
    stream_started_s=2,
    waiting_since_s=6,
    tool_calls=9,
    cost_usd=3,
    tools_called=("finish",),
    missing_outputs=(),
    plan_done=True,
    task_done=True,
)


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        (Timeout(10) | IdleTimeout(5), "timeout"),  # at 10 and at 11
        (IdleTimeout(5) | Timeout(10), "timeout"),
        (Timeout(12) | IdleTimeout(5), "idle_timeout"),  # at 12 and at 11
        (IdleTimeout(5) | Timeout(12), "idle_timeout"),
        (Timeout(11) | IdleTimeout(5), "timeout"),  # both at 11: as written
        (IdleTimeout(5) | Timeout(11), "idle_timeout"),
        (MaxToolCalls(3) | Timeout(10), "timeout"),  # the tenth second is past, the tool call came just now
        (MaxToolCalls(3) | Timeout(20), "tool_call_limit"),  # both now: as written
        (Timeout(20) | MaxToolCalls(3), "timeout"),
        (MaxToolCalls(3) | Timeout(21), "tool_call_limit"),
        (MaxTurns(1) | Timeout(10), "timeout"),  # the first is not true while it streams
        (CostLimit(1) | MaxToolCalls(3), "cost_limit"),  # both now: as written
        (MaxToolCalls(3) | CostLimit(1), "tool_call_limit"),
        (OutputsComplete() | Timeout(10), "timeout"),  # the outputs came in the twentieth second
        (OutputsComplete() | Timeout(21), "goal"),
        (CostLimit(1) | TaskDone(), "cost_limit"),
        (TaskDone() | CostLimit(1), "goal"),
        (ToolCalled("finish", reason=TerminateReason.GOAL) | PlanComplete() | Timeout(20), "goal"),
        ((Timeout(19) & IdleTimeout(1)) | Timeout(18), "timeout"),
        ((Timeout(19) & IdleTimeout(1)) | FirstChunkTimeout(16), "idle_timeout"),  # at 19 and at 18
        ((IdleTimeout(1) & Timeout(17)) | FirstChunkTimeout(16), "idle_timeout"),  # at 17 and at 18
    ],
    ids=lambda value: value.name if isinstance(value, Condition) else value,
)
def test_the_one_that_became_true_first_gives_the_reason(condition: Condition, reason: str):
    assert reason_of(condition, LATE) == reason


def test_a_part_that_is_true_by_an_event_is_not_late_because_it_also_has_a_deadline_to_come():
    """The first part has been true since its tool call, at the latest now; that it would be true at
    100 as well says nothing.
    """
    first = MaxToolCalls(3) | Timeout(100)
    assert reason_of(AnyOf((first, MaxToolCalls(1))), LATE) == reason_of(first, LATE)
    assert reason_of(AnyOf((AllOf((first,)), Predicate(lambda state: True))), LATE) is TerminateReason.TOOL_CALL_LIMIT


@given(TIMED, TIMED, states().filter(lambda state: not state.paused))
def test_of_two_timed_conditions_the_earlier_deadline_gives_the_reason(a: Condition, b: Condition, state: RunState):
    both = (a | b).evaluate(state)
    one, other = a.evaluate(state), b.evaluate(state)
    if one is None or other is None:
        expected = other if one is None else one
    else:
        first, second = a.deadline(state), b.deadline(state)
        assert first is not None
        assert second is not None
        expected = other if second < first else one
    assert (both and (both.reason, both.source, both.limit)) == (
        expected and (expected.reason, expected.source, expected.limit)
    )


def test_the_first_of_parts_that_must_all_be_true_gives_the_reason():
    stop = (MaxToolCalls(3) & Timeout(10)).evaluate(LATE)
    assert stop is not None
    assert (stop.reason, stop.limit, stop.value) == (TerminateReason.TOOL_CALL_LIMIT, 3, 9)
    assert stop.source == "(max_tool_calls & timeout)"


def test_what_is_not_true_gives_a_reason_of_its_own():
    stop = (~Timeout(10)).evaluate(RunState(elapsed_s=3))
    assert stop is not None
    assert (stop.reason, stop.detail, stop.source) == (TerminateReason.CONDITION_MET, "timeout is not true", "~timeout")


def test_the_tree_says_what_was_true_and_what_was_not():
    condition = (Timeout(10) & ~MaxTurns(1)) | MaxToolCalls(20) | IdleTimeout(14)
    stop = condition.evaluate(LATE)
    assert stop is not None
    assert stop.evidence == Met(
        "((timeout & ~max_turns) | max_tool_calls | idle_timeout)",
        met=True,
        parts=(
            Met(
                "(timeout & ~max_turns)",
                met=True,
                parts=(Met("timeout", True, 20, 10), Met("~max_turns", True, parts=(Met("max_turns", False),))),
            ),
            Met("max_tool_calls", met=False),
            Met("idle_timeout", met=True, value=14, limit=14),
        ),
    )


def shape(tree: Met) -> Any:
    return (tree.met, [shape(part) for part in tree.parts])


def truth(condition: Condition, state: RunState) -> Any:
    """What the tree should be, asked of each part by itself."""
    parts = (
        condition.parts
        if isinstance(condition, AnyOf | AllOf)
        else (condition.part,)
        if isinstance(condition, Not)
        else ()
    )
    return (condition.evaluate(state) is not None, [truth(part, state) for part in parts])


@given(ALL_TREES, states())
def test_the_tree_agrees_with_every_part(condition: Condition, state: RunState):
    assert shape(condition.met(state)) == truth(condition, state)
    stop = condition.evaluate(state)
    if stop is not None and isinstance(condition, AnyOf | AllOf | Not):
        assert stop.evidence == condition.met(state)


@given(st.builds(lambda a, b: a | b, ALL_TREES, ALL_TREES), states())
def test_a_composed_stop_says_what_one_of_its_parts_says(condition: AnyOf, state: RunState):
    stop = condition.evaluate(state)
    said = [(s.reason, s.detail, s.limit, s.value) for part in condition.parts if (s := part.evaluate(state))]
    assert stop is None if not said else stop is not None and (stop.reason, stop.detail, stop.limit, stop.value) in said


# --- when to look again


@pytest.mark.parametrize(
    ("condition", "deadline"),
    [
        (Timeout(30) | IdleTimeout(20), 26),
        (Timeout(30) | MaxTurns(1), 30),
        (MaxTurns(1) | MaxToolCalls(99), None),
        (Timeout(30) & IdleTimeout(20), 30),
        (Timeout(25) & IdleTimeout(20), 26),
        (Timeout(30) & MaxToolCalls(3), 30),  # the calls are exceeded already: only time is missing
        (Timeout(30) & MaxToolCalls(99), None),
        (Timeout(30) & TRUE, 30),
        (Timeout(30) & FALSE, None),
        (MaxToolCalls(3) & MaxToolCalls(4), None),
        (~Timeout(30), None),
        (~MaxTurns(1) & Timeout(30), 30),
        (~Timeout(30) | IdleTimeout(20), 26),
        (~MaxToolCalls(3) & Timeout(30), None),
    ],
    ids=lambda value: value.name if isinstance(value, Condition) else str(value),
)
def test_a_deadline_is_the_earlier_of_or_and_the_later_of_and(condition: Condition, deadline: float | None):
    found = condition.deadline(LATE)
    assert found == deadline or (deadline is None and found is not None and found <= LATE.elapsed_s)


def test_a_part_that_is_true_already_does_not_keep_the_others_waiting():
    """Tool calls are exceeded, so ten seconds are all that is missing; the hundred of the first
    part do not matter any more.
    """
    condition = (MaxToolCalls(3) | Timeout(100)) & Timeout(30)
    assert reason_of(condition, replace(LATE, elapsed_s=30)) is TerminateReason.TOOL_CALL_LIMIT
    assert condition.deadline(LATE) == 30


def becomes_true_at_its_deadline_and_never_before(condition: Condition, state: RunState) -> bool:
    """With time alone, from a state in which it is not true."""
    deadline = condition.deadline(state)
    early = moments(state.elapsed_s, THE_END if deadline is None else deadline)
    return all(condition.evaluate(later(state, moment)) is None for moment in early) and (
        deadline is None or (deadline > state.elapsed_s and condition.evaluate(later(state, deadline)) is not None)
    )


@given(TIMED_TREES, states())
def test_with_time_alone_a_condition_becomes_true_at_its_deadline_and_never_before(
    condition: Condition, state: RunState
):
    assume(condition.evaluate(state) is None)
    assert becomes_true_at_its_deadline_and_never_before(condition, state)


LEAVES = [Timeout(10), Timeout(30), IdleTimeout(20), MaxToolCalls(3), MaxToolCalls(99)]
"""At `LATE`: true since 10, true at 30, true at 26, true by an event, not true."""


@pytest.mark.parametrize("outer", [AnyOf, AllOf])
@pytest.mark.parametrize("inner", [AnyOf, AllOf])
def test_that_is_so_for_every_tree_of_two_levels(outer: type[AnyOf | AllOf], inner: type[AnyOf | AllOf]):
    """Random trees seldom have what makes a deadline wrong: an event has made one part true, and
    time is missing for another.
    """
    trees = [outer((inner((a, b)), c)) for a, b, c in product(LEAVES, repeat=3)]
    wrong = [
        tree
        for tree in trees
        if tree.evaluate(LATE) is None and not becomes_true_at_its_deadline_and_never_before(tree, LATE)
    ]
    assert wrong == []


@given(PLAIN_TREES, states())
def test_what_has_become_true_by_time_stays_true(condition: Condition, state: RunState):
    """So it does no harm if the harness looks late."""
    assume(condition.evaluate(state) is not None)
    for moment in moments(state.elapsed_s):
        assert condition.evaluate(later(state, moment)) is not None


@given(
    st.recursive(st.builds(Timeout, HALVES) | st.builds(FirstChunkTimeout, HALVES) | UNTIMED_TREES, negated),
    states(),
    HALVES,
)
def test_a_condition_that_does_not_follow_reads_has_a_deadline_that_does_not(
    condition: Condition, state: RunState, since: float
):
    assert condition.deadline(state) == condition.deadline(replace(state, waiting_since_s=since))


@given(PLAIN_TREES, states(), st.lists(st.integers(0, 70), max_size=5))
def test_no_condition_becomes_true_by_tokens_within_its_headroom(
    condition: Condition, state: RunState, spent: list[int]
):
    assume(condition.evaluate(state) is None)
    headroom = condition.token_headroom(state)
    for tokens in spent:
        if headroom is None or tokens <= headroom:
            more = replace(state, usage=state.usage + Usage(output_tokens=tokens, total_tokens=tokens))
            assert condition.evaluate(more) is None


@given(PLAIN_TREES, states(), st.lists(st.integers(0, 70), max_size=5))
def test_no_condition_becomes_true_by_cost_within_its_headroom(condition: Condition, state: RunState, spent: list[int]):
    assume(condition.evaluate(state) is None)
    headroom = condition.cost_headroom(state)
    for quarters in spent:
        if headroom is None or quarters / 4 <= headroom:
            assert condition.evaluate(replace(state, cost_usd=(state.cost_usd or 0) + quarters / 4)) is None


@pytest.mark.parametrize(
    ("condition", "headroom"),
    [
        (TokenLimit(100) | TokenLimit(output_tokens=30), 30),
        (TokenLimit(100) | MaxTurns(3), 100),
        (MaxTurns(3) | Timeout(5), None),
        (TokenLimit(100) & MaxToolCalls(3), 100),
        (Timeout(10) & TokenLimit(40), 40),
        (~TokenLimit(100), None),
    ],
    ids=lambda value: value.name if isinstance(value, Condition) else str(value),
)
def test_headroom_is_the_smallest_that_may_matter(condition: Condition, headroom: int | None):
    assert condition.token_headroom(LATE) == headroom


@pytest.mark.parametrize(
    ("condition", "headroom"),
    [
        (CostLimit(2) | CostLimit(1.5), 0.5),
        (CostLimit(2) | TokenLimit(100), 1.0),
        (TokenLimit(100) | Timeout(5), None),
        (CostLimit(2) & MaxToolCalls(99), 1.0),
        (CostLimit(0.5) & CostLimit(2), 1.0),  # the first is true already: what is left is the second
        (CostLimit(0.5) & Timeout(30), None),
        (~CostLimit(2), None),
    ],
    ids=lambda value: value.name if isinstance(value, Condition) else str(value),
)
def test_dollars_that_are_left_are_the_fewest_that_may_matter(condition: Condition, headroom: float | None):
    assert condition.cost_headroom(replace(LATE, cost_usd=1.0)) == headroom


# --- how far limits are used up


def test_every_limit_of_a_composition_tells_how_far_it_is_used_up():
    condition = (
        (Timeout(100) & ~MaxTurns(1))
        | MaxToolCalls(3)
        | OutputsComplete()
        | TokenLimit(10, output_tokens=5)
        | CostLimit(2)
    )
    assert condition.progress(replace(LATE, usage=Usage(output_tokens=4, total_tokens=11), cost_usd=0.5)) == [
        Met("timeout", met=False, value=20, limit=100),
        Met("max_tool_calls", met=True, value=9, limit=3),
        Met("token_limit.total_tokens", met=True, value=11, limit=10),
        Met("token_limit.output_tokens", met=False, value=4, limit=5),
        Met("cost_limit", met=False, value=0.5, limit=2),
    ]


@pytest.mark.parametrize(
    "condition", [~Timeout(100), ~(MaxTurns(3) | CostLimit(1)), TRUE, IdleTimeout(5), FirstChunkTimeout(5), TaskDone()]
)
def test_what_is_no_limit_of_the_whole_run_has_nothing_to_warn_of(condition: Condition):
    assert list(condition.progress(LATE)) == []


@given(ALL_TREES, states())
def test_a_limit_that_is_passed_is_used_up(condition: Condition, state: RunState):
    for met in condition.progress(state):
        assert isinstance(met.value, int | float)
        assert isinstance(met.limit, int | float)
        assert not met.met or met.value >= met.limit - 1e-6


# --- values: frozen, hashable, picklable, with a JSON form


@given(ALL_TREES)
def test_a_tree_comes_back_from_json(condition: Condition):
    line = json.dumps(condition.to_dict())
    back = condition_from_dict(json.loads(line))
    assert back == condition
    assert back.name == condition.name
    assert type(back) is type(condition)


@given(ALL_TREES)
def test_a_tree_can_be_pickled_and_hashed(condition: Condition):
    back = pickle.loads(pickle.dumps(condition))
    assert back == condition
    assert hash(back) == hash(condition)
    assert len({back, condition}) == 1


@given(ALL_TREES, states())
def test_asking_changes_nothing(condition: Condition, state: RunState):
    """Conditions keep nothing, so that runs can share one."""
    before = pickle.dumps(condition)
    answers = [
        (condition.evaluate(state), condition.deadline(state), condition.token_headroom(state), condition.met(state))
        for _ in range(2)
    ]
    assert answers[0] == answers[1]
    assert pickle.dumps(condition) == before


@pytest.mark.parametrize("condition", [Timeout(5) | MaxTurns(3), Timeout(5) & MaxTurns(3)])
def test_compositions_are_frozen(condition: AnyOf | AllOf):
    with pytest.raises(FrozenInstanceError):
        condition.parts = ()  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        Not(condition).part = condition  # type: ignore[misc]


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (None, "NoneType"),
        ([], "list"),
        ("timeout", "str"),
        ({}, "None"),
        ({"type": "boredom"}, "boredom"),
        ({"type": ["timeout"]}, r"\['timeout'\]"),
        ({"type": "condition"}, "condition"),
        ({"type": "_composition", "parts": []}, "_composition"),
        ({"type": "_timed", "seconds": 5}, "_timed"),
        ({"type": "timeout"}, "seconds"),
        ({"type": "timeout", "seconds": None}, "seconds"),
        ({"type": "timeout", "seconds": -1}, "Timeout"),
        ({"type": "timeout", "seconds": math.nan}, "Timeout"),
        ({"type": "max_turns", "turns": 0}, "MaxTurns"),
        ({"type": "max_turns", "turns": 1.5}, "turns"),
        ({"type": "token_limit"}, "TokenLimit"),
        ({"type": "cost_limit"}, "usd"),
        ({"type": "cost_limit", "usd": 0}, "CostLimit"),
        ({"type": "tool_called", "tool": ""}, "ToolCalled"),
        ({"type": "tool_called", "tool": "finish", "reason": "boredom"}, "boredom"),
        ({"type": "timeout", "seconds": 5, "exclude_retry_delays": 1}, "exclude_retry_delays"),
        ({"type": "token_limit", "output_tokens": 0}, "TokenLimit.output_tokens"),
        ({"type": "any_of"}, "any_of"),
        ({"type": "any_of", "parts": []}, "any_of"),
        ({"type": "any_of", "parts": "timeout"}, "any_of"),
        ({"type": "all_of", "parts": [{"type": "timeout", "seconds": 5}, {"type": "boredom"}]}, "boredom"),
        ({"type": "not"}, "condition"),
        ({"type": "not", "part": 5}, "int"),
        ({"type": "predicate"}, "predicate"),
        ({"type": "predicate", "fn": "print"}, "predicate"),
    ],
    ids=str,
)
def test_what_is_no_condition_is_refused_by_name(data: Any, named: str):
    with pytest.raises(ConfigError, match=named):
        condition_from_dict(data)


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"type": "timeout", "seconds": True}, "seconds"),
        ({"type": "timeout", "seconds": "5"}, "seconds"),
        ({"type": "max_turns", "turns": True}, "turns"),
        ({"type": "cost_limit", "usd": True}, "usd"),
        ({"type": "cost_limit", "usd": "5"}, "usd"),
        ({"type": "outputs_complete", "outputs": []}, "outputs"),
        ({"type": "max_turns", "turns": "3"}, "turns"),
        ({"type": "token_limit", "total_tokens": 100, "output_token": 50}, "output_token"),
        ({"type": "any_of", "parts": [{"type": "max_turns", "turns": 3}], "part": []}, "part"),
        ({"type": "not", "part": {"type": "max_turns", "turns": 3}, "parts": []}, "parts"),
    ],
    ids=str,
)
def test_json_is_held_to_the_same_types_as_the_constructor(data: dict[str, Any], named: str):
    """`Timeout(True)` is refused; and an argument that is misspelt is a limit that is silently
    off.
    """
    with pytest.raises(ConfigError, match=named):
        condition_from_dict(data)


# --- conditions of the user's own


@dataclass(frozen=True)
class QuietHours(Condition):
    """A user's condition: true from a certain second on, which it knows."""

    from_s: float

    def evaluate(self, state: RunState) -> Stop | None:
        if state.elapsed_s < self.from_s:
            return None
        return Stop(TerminateReason.CONDITION_MET, "it is late", self.name, self.from_s, state.elapsed_s)

    def deadline(self, state: RunState) -> float | None:
        return self.from_s


class Stubborn(Condition):
    """The least that a condition can be: no dataclass, one method."""

    def evaluate(self, state: RunState) -> Stop | None:
        return Stop(TerminateReason.CONDITION_MET, "no", self.name) if state.tool_calls else None


@dataclass(frozen=True)
class NotByTimeAlone(Condition):
    """Its author says "never by time alone" with infinity instead of `None`."""

    def evaluate(self, state: RunState) -> Stop | None:
        return Stop(TerminateReason.CONDITION_MET, "a call was made", self.name) if state.tool_calls else None

    def deadline(self, state: RunState) -> float | None:
        return math.inf


def test_a_users_condition_combines_like_any_other():
    condition = (QuietHours(30) & Timeout(10)) | MaxTurns(5)
    assert condition.deadline(LATE) == 30
    stop = condition.evaluate(replace(LATE, elapsed_s=31))
    assert stop is not None
    assert (stop.reason, stop.limit, stop.value) == (TerminateReason.CONDITION_MET, 30, 31)
    assert stop.source == "(quiet_hours & timeout)"


def test_a_users_dataclass_comes_back_from_json_and_pickle():
    condition = QuietHours(30.0) | ~QuietHours(40.0)
    assert condition_from_dict(json.loads(json.dumps(condition.to_dict()))) == condition
    assert pickle.loads(pickle.dumps(condition)) == condition


def test_a_users_condition_needs_one_method_only():
    condition = Stubborn() | Timeout(30)
    assert condition.deadline(LATE) == 30
    assert condition.token_headroom(LATE) is None
    assert condition.met(LATE).met
    assert reason_of(condition, LATE) is TerminateReason.CONDITION_MET


def test_a_condition_without_fields_that_are_known_has_no_json_and_says_so():
    with pytest.raises(ConfigError, match="stubborn"):
        Stubborn().to_dict()
    with pytest.raises(ConfigError, match="stubborn"):
        condition_from_dict({"type": "stubborn"})


def test_or_is_true_when_a_part_is_whatever_the_part_says_of_its_deadline():
    assert (NotByTimeAlone() | Timeout(30)).evaluate(LATE) is not None
    assert (Timeout(30) | NotByTimeAlone()).evaluate(LATE) is not None


NAMESAKE = """
from monitor import Condition, ConfigError, MaxTurns
from monitor.conditions import condition_from_dict
Builtin = MaxTurns
try:
    class MaxTurns(Condition):
        def evaluate(self, state): return None
except ConfigError:
    pass  # refusing the name is as good
print(condition_from_dict({"type": "max_turns", "turns": 3}) == Builtin(3))
"""


def test_a_users_class_of_the_same_name_does_not_take_a_built_ins_place():
    """Recorded conditions must not turn into it. In a process of its own, because the class would
    stay.
    """
    done = subprocess.run([sys.executable, "-c", NAMESAKE], capture_output=True, text=True, timeout=250, check=False)
    assert (done.stdout, done.stderr) == ("True\n", "")
