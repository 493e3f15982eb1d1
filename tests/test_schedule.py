from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor._tokens import MOST_EIGHTHS_PER_CHAR, eighths_of_tokens
from monitor.conditions import AllOf, AnyOf, Condition, FirstChunkTimeout, IdleTimeout, MaxToolCalls, MaxTurns, Not, Timeout, TokenLimit
from monitor.schedule import Schedule
from monitor.state import RunState, Usage

READING = RunState(elapsed_s=10, phase="streaming", stream_started_s=7, waiting_since_s=8)


def planned(condition: Condition | None, state: RunState = READING) -> Schedule:
    schedule = Schedule(condition)
    schedule.plan(state)
    return schedule


# --- time


@pytest.mark.parametrize(
    ("condition", "deadline"),
    [
        (None, math.inf),
        (MaxTurns(3), math.inf),
        (Timeout(30), 30),
        (IdleTimeout(5), 13),
        (FirstChunkTimeout(5), 12),
        (IdleTimeout(5) | Timeout(30), 13),
        (IdleTimeout(50) | Timeout(30), 30),
        (IdleTimeout(5) | MaxTurns(3), 13),
        (IdleTimeout(5) & Timeout(30), 30),
    ],
    ids=lambda value: value.name if isinstance(value, Condition) else str(value),
)
def test_the_next_look_is_the_earliest_moment_that_counts(condition: Condition | None, deadline: float):
    assert planned(condition).deadline_s == deadline


def test_an_idle_deadline_is_off_while_the_caller_is_at_work():
    at_work = replace(READING, waiting_since_s=None)
    assert planned(IdleTimeout(5), at_work).deadline_s == math.inf
    assert planned(IdleTimeout(5) | Timeout(30), at_work).deadline_s == 30


def test_before_the_first_plan_nothing_is_due():
    assert Schedule(Timeout(5)).deadline_s == math.inf


HALVES = st.integers(0, 40).map(lambda number: number / 2)
LEAVES: st.SearchStrategy[Condition] = st.one_of(
    st.builds(Timeout, HALVES),
    st.builds(IdleTimeout, HALVES),
    st.builds(FirstChunkTimeout, HALVES),
    st.builds(MaxToolCalls, st.integers(1, 3)),
    st.builds(TokenLimit, st.integers(1, 60)),
)
TREES: st.SearchStrategy[Condition] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: AnyOf(tuple(parts))),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: AllOf(tuple(parts))),
        st.builds(Not, inner),
    ),
    max_leaves=6,
)
STATES = st.builds(
    lambda waiting, further, calls, tokens, first: RunState(
        elapsed_s=waiting + further,
        phase="streaming",
        tool_calls=calls,
        usage=Usage(output_tokens=tokens, total_tokens=tokens),
        stream_started_s=0.0,
        first_chunk_seen=first,
        waiting_since_s=waiting,
    ),
    HALVES,
    HALVES,
    st.integers(0, 4),
    st.integers(0, 70),
    st.booleans(),
)


@given(TREES, STATES)
def test_the_plan_is_the_conditions_own_deadline(condition: Condition, state: RunState):
    deadline = condition.deadline(state)
    assert planned(condition, state).deadline_s == (math.inf if deadline is None else deadline)


# --- tokens, in eighths


@pytest.mark.parametrize(
    ("condition", "spent", "passed"),
    [
        (None, [10**9], [False]),
        (Timeout(5), [10**9], [False]),
        (TokenLimit(100), [799, 1, 1], [False, False, True]),
        (TokenLimit(100), [801], [True]),
        (TokenLimit(100), [0, 0], [False, False]),
        (TokenLimit(100) | TokenLimit(output_tokens=30), [240, 1], [False, True]),
        (TokenLimit(input_tokens=1), [10**9], [False]),
    ],
    ids=str,
)
def test_the_first_piece_above_the_limit_asks_for_a_look(condition: Condition | None, spent: list[int], passed: list[bool]):
    schedule = planned(condition)
    assert [schedule.spend(eighths) for eighths in spent] == passed


def test_a_new_plan_counts_down_anew():
    schedule = planned(TokenLimit(100))
    assert not schedule.spend(800)
    schedule.plan(replace(READING, usage=Usage(total_tokens=40)))
    assert not schedule.spend(480)
    assert schedule.spend(1)


UNNEGATED: st.SearchStrategy[Condition] = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, min_size=1, max_size=3).flatmap(
        lambda parts: st.sampled_from([AnyOf(tuple(parts)), AllOf(tuple(parts))])
    ),
    max_leaves=6,
)
"""`~` of what depends on tokens counts nothing down: it is looked at when something happens."""


@given(UNNEGATED, STATES, st.lists(st.integers(0, 240), max_size=8))
def test_no_condition_becomes_true_by_tokens_before_a_look_is_asked_for(condition: Condition, state: RunState, spent: list[int]):
    was = condition.evaluate(state) is not None
    schedule, used = planned(condition, state), 0
    for eighths in spent:
        if schedule.spend(eighths):
            break
        used += eighths
        tokens = -(-used // 8)
        later = replace(state, usage=state.usage + Usage(output_tokens=tokens, total_tokens=tokens))
        assert was or condition.evaluate(later) is None


@pytest.mark.parametrize("condition", [None, Timeout(5), TokenLimit(input_tokens=1)])
def test_without_a_limit_on_output_text_need_not_be_looked_at(condition: Condition | None):
    assert planned(condition).free_chars >= 2**31


@pytest.mark.parametrize(("left", "chars"), [(0, 0), (1, 0), (2, 1), (11, 8), (110, 80), (10**6, 727_272)])
def test_as_much_text_is_free_as_cannot_pass_the_limit(left: int, chars: int):
    """A character may cost 11/8 of a token."""
    assert planned(TokenLimit(10**7), replace(READING, usage=Usage(total_tokens=10**7 - left))).free_chars == chars


@given(st.integers(1, 800), st.lists(st.text(st.characters(), max_size=40), max_size=60))
def test_text_that_is_not_looked_at_cannot_overrun_a_token_limit(limit: int, pieces: list[str]):
    schedule, unseen = planned(TokenLimit(limit)), ""
    for piece in pieces:
        if len(unseen) + len(piece) > schedule.free_chars:
            assert not schedule.spend(eighths_of_tokens(unseen))
            unseen = ""
            if len(piece) > schedule.free_chars:
                break  # the piece itself is looked at
        unseen += piece


def test_a_limit_beyond_every_float_is_a_limit():
    """`TokenLimit` takes any whole number."""
    assert planned(TokenLimit(10**400)).free_chars == 8 * 10**400 // MOST_EIGHTHS_PER_CHAR
