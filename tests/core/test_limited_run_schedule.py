from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor._util.text import MOST_EIGHTHS_PER_CHAR, eighths_of_tokens
from monitor.budget import Account, Budget
from monitor.chunks import Price, Usage
from monitor.conditions import (
    AllOf,
    AnyOf,
    Condition,
    CostLimit,
    FirstChunkTimeout,
    IdleTimeout,
    MaxToolCalls,
    MaxTurns,
    Not,
    Timeout,
    TokenLimit,
)
from monitor.core.limited_run import BUDGET_LOOK_TOKENS, Limits
from monitor.outcome import RunState

READING = RunState(elapsed_s=10, phase="streaming", stream_started_s=7, waiting_since_s=8)


def planned(condition: Condition | None, state: RunState = READING) -> Limits:
    limits = Limits(condition)
    limits.plan(state)
    return limits


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
    assert Limits(Timeout(5)).deadline_s == math.inf


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
def test_the_first_piece_above_the_limit_asks_for_a_look(
    condition: Condition | None, spent: list[int], passed: list[bool]
):
    limits = planned(condition)
    assert [limits.spend(eighths) for eighths in spent] == passed


def test_a_new_plan_counts_down_anew():
    limits = planned(TokenLimit(100))
    assert not limits.spend(800)
    limits.plan(replace(READING, usage=Usage(total_tokens=40)))
    assert not limits.spend(480)
    assert limits.spend(1)


UNNEGATED: st.SearchStrategy[Condition] = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, min_size=1, max_size=3).flatmap(
        lambda parts: st.sampled_from([AnyOf(tuple(parts)), AllOf(tuple(parts))])
    ),
    max_leaves=6,
)
"""`~` of what depends on tokens counts nothing down: it is looked at when something happens."""


@given(UNNEGATED, STATES, st.lists(st.integers(0, 240), max_size=8))
def test_no_condition_becomes_true_by_tokens_before_a_look_is_asked_for(
    condition: Condition, state: RunState, spent: list[int]
):
    was = condition.evaluate(state) is not None
    limits, used = planned(condition, state), 0
    for eighths in spent:
        if limits.spend(eighths):
            break
        used += eighths
        tokens = -(-used // 8)
        later = replace(state, usage=state.usage + Usage(output_tokens=tokens, total_tokens=tokens))
        assert was or condition.evaluate(later) is None


# --- dollars: what they buy of output

PRICE = Price(1.0, 10.0)
"""A hundred thousand tokens of output for a dollar."""


@pytest.mark.parametrize(
    ("condition", "price", "tokens"),
    [
        (CostLimit(0.001), PRICE, 100),
        (CostLimit(0.001051), PRICE, 105),
        (CostLimit(0.001059), PRICE, 105),
        (CostLimit(0.001) | TokenLimit(40), PRICE, 40),
        (CostLimit(0.001) | TokenLimit(400), PRICE, 100),
        (CostLimit(0.001), Price(1.0, 20.0), 50),
    ],
    ids=str,
)
def test_dollars_that_are_left_are_counted_down_as_tokens(condition: Condition, price: Price, tokens: int):
    limits = Limits(condition, price=price)
    limits.plan(READING)
    assert not limits.spend(8 * tokens)
    assert limits.spend(1)


@pytest.mark.parametrize(
    ("condition", "price"),
    [
        (CostLimit(0.001), None),  # nothing is known to cost anything
        (CostLimit(0.001), Price(1.0, 0.0)),  # what a stream writes costs nothing
        (CostLimit(1e308), Price(0.0, 1e-300)),  # more tokens than can ever come
        (~CostLimit(0.001), PRICE),
    ],
    ids=str,
)
def test_dollars_that_no_text_can_spend_are_not_counted_down(condition: Condition, price: Price | None):
    limits = Limits(condition, price=price)
    limits.plan(READING)
    assert limits.free_chars >= 2**31


def test_the_model_may_change_within_a_run():
    limits = Limits(CostLimit(0.001), price=PRICE)
    limits.price = Price(1.0, 100.0)
    limits.plan(READING)
    assert not limits.spend(8 * 10)
    assert limits.spend(1)


@given(
    st.recursive(
        st.builds(CostLimit, st.integers(1, 80).map(lambda n: n / 10**5)) | LEAVES,
        lambda inner: st.builds(lambda a, b: a | b, inner, inner) | st.builds(lambda a, b: a & b, inner, inner),
        max_leaves=4,
    ),
    STATES,
    st.sampled_from([0.07, 0.3, 1 / 3, 2.5, 10.0, 60.0]),
    st.lists(st.integers(0, 240), max_size=8),
)
def test_no_condition_becomes_true_by_cost_before_a_look_is_asked_for(
    condition: Condition, state: RunState, usd: float, spent: list[int]
):
    price = Price(usd, usd)
    state = replace(state, cost_usd=price.cost(state.usage))
    was, limits, used = condition.evaluate(state) is not None, Limits(condition, price=price), 0
    limits.plan(state)
    for eighths in spent:
        if limits.spend(eighths):
            break
        used += eighths
        usage = state.usage + Usage(output_tokens=-(-used // 8), total_tokens=-(-used // 8))
        assert was or condition.evaluate(replace(state, usage=usage, cost_usd=price.cost(usage))) is None


# --- budgets


@pytest.mark.parametrize(
    ("condition", "budget", "price", "tokens"),
    [
        (None, Budget(tokens=100), None, 100),
        (None, Budget(usd=0.001), PRICE, 100),
        (None, Budget(tokens=100, usd=0.0005), PRICE, 50),
        (None, Budget(tokens=100).share(tokens=30), None, 30),
        (None, Budget(tokens=30).share(tokens=100), None, 30),
        (TokenLimit(20) | Timeout(5), Budget(tokens=100), None, 20),
        (CostLimit(0.0002), Budget(tokens=100), PRICE, 20),
        (TokenLimit(100), Budget(tokens=20), None, 20),
    ],
    ids=str,
)
def test_what_is_left_of_a_budget_is_counted_down(
    condition: Condition | None, budget: Budget, price: Price | None, tokens: int
):
    limits = Limits(condition, price=price, budgets=[budget])
    limits.plan(READING)
    assert not limits.spend(8 * tokens)
    assert limits.spend(1)


@pytest.mark.parametrize("budget", [Budget(tokens=10**9), Budget(usd=10**9), Budget(tokens=10**9).share()], ids=str)
def test_a_budget_is_looked_at_often_because_others_may_spend_from_it(budget: Budget):
    limits = Limits(None, budgets=[budget])
    limits.plan(READING)
    assert not limits.spend(8 * BUDGET_LOOK_TOKENS)
    assert limits.spend(1)


def test_a_budget_without_a_limit_asks_for_no_look():
    limits = Limits(None, price=PRICE, budgets=[Budget().share()])
    limits.plan(READING)
    assert limits.free_chars >= 2**31
    assert limits.deadline_s == math.inf


def test_a_budget_leaves_the_deadline_to_the_condition():
    limits = Limits(Timeout(30), budgets=[Budget(tokens=5)])
    limits.plan(READING)
    assert limits.deadline_s == 30


class Streaming:
    """A run that does with its budget what the core does."""

    def __init__(self, budget: Budget, price: Price, wants: int, piece: int) -> None:
        self.account = Account([budget])
        self.limits = Limits(None, price=price, budgets=self.account.budgets)
        self.price, self.wants, self.piece = price, wants, piece
        self.eighths = 0
        self.over = False
        self.limits.plan(READING)

    @property
    def tokens(self) -> int:
        return -(-self.eighths // 8)

    def goes_on(self) -> bool:
        """One more piece, unless it has said everything or has seen that the budget ran out."""
        if self.tokens >= self.wants or self.over:
            return False
        self.eighths += self.piece
        if self.limits.spend(self.piece):
            self.account.settle(self.tokens, self.price.cost(Usage(output_tokens=self.tokens)))
            self.over = self.account.exhausted() is not None
            self.limits.plan(READING)
        return True


@given(
    st.integers(1, 3_000),
    st.lists(st.tuples(st.integers(1, 4_000), st.integers(1, 400)), min_size=1, max_size=5),
    st.booleans(),
)
def test_runs_that_share_a_budget_overdraw_it_by_one_look_each_at_most(
    limit: int, runs: list[tuple[int, int]], dollars: bool
):
    """They stream side by side, each so many tokens in pieces of so many eighths."""
    price = Price(0.0, 10.0)
    above = Budget(usd=price.cost(Usage(output_tokens=limit))) if dollars else Budget(tokens=limit)
    streams = [Streaming(above.share(), price, tokens, piece) for tokens, piece in runs]
    while True in {stream.goes_on() for stream in streams}:  # one piece of each, again and again
        pass
    assert sum(stream.tokens for stream in streams) <= limit + sum(
        BUDGET_LOOK_TOKENS + stream.piece // 8 + 2 for stream in streams
    )
    if sum(tokens for tokens, _ in runs) > limit + len(runs) * BUDGET_LOOK_TOKENS:
        assert above.exhausted() is not None


@pytest.mark.parametrize("condition", [None, Timeout(5), TokenLimit(input_tokens=1)])
def test_without_a_limit_on_output_text_need_not_be_looked_at(condition: Condition | None):
    assert planned(condition).free_chars >= 2**31


@pytest.mark.parametrize(("left", "chars"), [(0, 0), (1, 0), (2, 1), (11, 8), (110, 80), (10**6, 727_272)])
def test_as_much_text_is_free_as_cannot_pass_the_limit(left: int, chars: int):
    """A character may cost 11/8 of a token."""
    assert planned(TokenLimit(10**7), replace(READING, usage=Usage(total_tokens=10**7 - left))).free_chars == chars


@given(st.integers(1, 800), st.lists(st.text(st.characters(), max_size=40), max_size=60))
def test_text_that_is_not_looked_at_cannot_overrun_a_token_limit(limit: int, pieces: list[str]):
    limits, unseen = planned(TokenLimit(limit)), ""
    for piece in pieces:
        if len(unseen) + len(piece) > limits.free_chars:
            assert not limits.spend(eighths_of_tokens(unseen))
            unseen = ""
            if len(piece) > limits.free_chars:
                break  # the piece itself is looked at
        unseen += piece


def test_a_limit_beyond_every_float_is_a_limit():
    """`TokenLimit` takes any whole number."""
    assert planned(TokenLimit(10**400)).free_chars == 8 * 10**400 // MOST_EIGHTHS_PER_CHAR
