from __future__ import annotations

import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.budget import Account, Budget
from monitor.errors import ConfigError, TerminateReason
from monitor.verdicts import Met, Stop


def told(stop: Stop | None) -> tuple[Any, ...] | None:
    """What a stop says, without the sentence."""
    return None if stop is None else (stop.reason, stop.limit, stop.value, stop.source)


# --- one budget


@pytest.mark.parametrize(("spent", "stops"), [(0, False), (99, False), (100, False), (101, True)])
def test_a_budget_may_be_spent_to_the_last_token(spent: int, *, stops: bool):
    budget = Budget(tokens=100)
    budget.spend(spent)
    assert told(budget.exhausted()) == ((TerminateReason.TOKEN_LIMIT, 100, spent, "Budget") if stops else None)
    assert budget.remaining_tokens == max(0, 100 - spent)
    assert budget.remaining_usd is None


@pytest.mark.parametrize(("spent", "stops"), [(0, False), (1.99, False), (2, False), (2.01, True)])
def test_a_budget_may_be_spent_to_the_last_cent(spent: float, *, stops: bool):
    budget = Budget(usd=2)
    budget.spend(usd=spent)
    assert told(budget.exhausted()) == ((TerminateReason.COST_LIMIT, 2, spent, "Budget") if stops else None)
    assert budget.remaining_usd == pytest.approx(max(0, 2 - spent))
    assert budget.remaining_tokens is None


def test_ten_times_a_tenth_is_not_more_than_one():
    budget = Budget(usd=0.3)
    for _ in range(3):
        budget.spend(usd=0.1)
    assert budget.spent_usd > 0.3
    assert budget.exhausted() is None


def test_without_a_limit_it_only_counts():
    budget = Budget()
    budget.spend(10**9, 10**9)
    assert (budget.spent_tokens, budget.spent_usd) == (10**9, 10**9)
    assert (budget.remaining_tokens, budget.remaining_usd, budget.exhausted(), budget.progress()) == (
        None,
        None,
        None,
        [],
    )


def test_what_an_estimate_counted_too_much_is_taken_back():
    budget = Budget(tokens=100, usd=1)
    budget.spend(120, 1.5)
    assert budget.exhausted() is not None
    budget.spend(-30, -0.75)
    assert (budget.spent_tokens, budget.spent_usd, budget.exhausted()) == (90, 0.75, None)


def test_no_more_can_be_taken_back_than_was_spent():
    above = Budget(tokens=100)
    below = above.share()
    below.spend(50, 0.5)
    above.spend(5)
    for budget, tokens, usd in ((above, -6, 0.0), (above, 0, -0.1), (below, -51, 0.0), (below, 0, -0.6)):
        with pytest.raises(ConfigError, match="less was spent here"):
            budget.spend(tokens, usd)
    assert (above.spent_tokens, below.spent_tokens) == (55, 50)


def test_how_far_it_is_used_up_is_told_of_each_limit():
    above = Budget(usd=4)
    budget = above.share(tokens=100, usd=2)
    budget.spend(101, 1.0)
    assert budget.progress() == [
        Met("Budget.tokens", met=True, value=101, limit=100),
        Met("Budget.usd", met=False, value=1.0, limit=2),
        Met("Budget.usd", met=False, value=1.0, limit=4),
    ]


def test_it_says_what_it_is():
    budget = Budget(tokens=100, usd=2.5)
    budget.spend(40, 0.125)
    assert repr(budget) == "<Budget(tokens=100, usd=2.5): 40 tokens and 0.125 USD spent>"


def test_a_budget_can_be_pickled_with_those_above_it():
    above = Budget(tokens=100)
    below = above.share(usd=1)
    below.spend(7, 0.5)
    back = pickle.loads(pickle.dumps(below))
    back.spend(1)
    assert [budget.spent_tokens for budget in back.chain] == [8, 8]
    assert back.chain[0] is back
    assert above.spent_tokens == 7


# --- shares


def test_a_share_spends_from_all_above_it():
    first = Budget(tokens=100)
    second = first.share(tokens=50)
    third = second.share()
    third.spend(10, 0.5)
    second.spend(1)
    assert [budget.spent_tokens for budget in (third, second, first)] == [10, 11, 11]
    assert third.chain == (third, second, first)


@pytest.mark.parametrize(
    ("own", "left"),
    [
        ({}, (60, 1.5)),
        ({"tokens": 10}, (10, 1.5)),
        ({"tokens": 10**6, "usd": 10**6}, (60, 1.5)),
        ({"usd": 0.5}, (60, 0.5)),
    ],
    ids=str,
)
def test_the_smallest_rest_of_the_chain_is_what_is_left(own: dict[str, Any], left: tuple[int, float]):
    above = Budget(tokens=100, usd=2.0)
    above.spend(40, 0.5)
    share = above.share(**own)
    assert (share.remaining_tokens, share.remaining_usd) == left


def test_a_run_says_whether_its_own_budget_ran_out_or_the_one_above():
    above = Budget(tokens=100)
    share = above.share(tokens=50)
    share.spend(51)
    assert told(share.exhausted()) == (TerminateReason.TOKEN_LIMIT, 50, 51, "Budget")
    assert above.exhausted() is None
    other = above.share(tokens=80)
    other.spend(60)
    stop = other.exhausted()
    assert told(stop) == told(above.exhausted()) == (TerminateReason.TOKEN_LIMIT, 100, 111, "Budget")
    assert stop is not None
    assert stop.detail == "111 tokens are used, the budget that is shared with the run above is 100"


def test_where_both_ran_out_the_own_one_is_told():
    above = Budget(tokens=100)
    share = above.share(usd=1)
    share.spend(101, 1.5)
    assert told(share.exhausted()) == (TerminateReason.COST_LIMIT, 1, 1.5, "Budget")


SHAPES = st.lists(st.integers(0, 6), min_size=1, max_size=8)
"""A tree: budget number n + 1 is a share of the one at this place among those before it."""
SPENDINGS = st.lists(
    st.tuples(st.integers(0, 8), st.integers(-40, 40), st.integers(-8, 8).map(lambda eighths: eighths / 8)), max_size=40
)


def tree(shape: list[int]) -> list[Budget]:
    budgets = [Budget(tokens=100, usd=4)]
    for place in shape:
        budgets.append(budgets[place % len(budgets)].share())
    return budgets


def spend_all(budgets: list[Budget], spendings: list[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
    """Those that were not refused."""
    done = []
    for place, tokens, usd in spendings:
        try:
            budgets[place % len(budgets)].spend(tokens, usd)
        except ConfigError:
            continue
        done.append((place, tokens, usd))
    return done


@given(SHAPES, SPENDINGS)
def test_children_never_spend_more_than_their_parent_has_counted(
    shape: list[int], spendings: list[tuple[int, int, float]]
):
    budgets = tree(shape)
    for spending in spendings:
        spend_all(budgets, [spending])
        for parent in budgets:
            children = [child for child in budgets if child.chain[1:] == parent.chain]
            assert sum(child.spent_tokens for child in children) <= parent.spent_tokens
            assert sum(child.spent_usd for child in children) <= parent.spent_usd
            assert parent.spent_tokens >= 0


@given(SHAPES, SPENDINGS, st.randoms(use_true_random=False))
def test_the_order_in_which_is_spent_does_not_matter(
    shape: list[int], spendings: list[tuple[int, int, float]], chance: Any
):
    one, other = tree(shape), tree(shape)
    done = spend_all(one, spendings)
    chance.shuffle(done)
    # nothing is taken back that has not been spent yet
    done.sort(key=lambda spending: spending[1] < 0 or spending[2] < 0)
    for place, tokens, usd in done:
        for part in ((max(0, tokens), max(0.0, usd)), (min(0, tokens), min(0.0, usd))):
            other[place % len(other)].spend(*part)
    assert [(b.spent_tokens, b.spent_usd, b.remaining_tokens, told(b.exhausted())) for b in one] == [
        (b.spent_tokens, b.spent_usd, b.remaining_tokens, told(b.exhausted())) for b in other
    ]


# --- the account of a run


def test_a_run_that_says_what_it_used_spends_the_difference():
    budget = Budget(tokens=1_000, usd=1)
    budget.spend(100)
    account = Account([budget])
    for tokens, usd in ((50, 0.25), (50, 0.25), (400, 0.75), (300, 0.5)):
        account.settle(tokens, usd)
        assert (budget.spent_tokens, budget.spent_usd) == (100 + tokens, usd)


def test_runs_that_are_given_the_same_budget_share_it():
    budget = Budget(tokens=100)
    one, other = Account([budget]), Account([budget])
    one.settle(60, 0.0)
    other.settle(41, 0.0)
    assert told(one.exhausted()) == told(other.exhausted()) == (TerminateReason.TOKEN_LIMIT, 100, 101, "Budget")


def test_a_budget_above_both_budgets_of_a_run_counts_it_once():
    """The run's own budget is a share of that of the run above, from which it inherits a share as
    well.
    """
    above = Budget(tokens=1_000)
    own, inherited = above.share(tokens=100), above.share()
    account = Account([own, inherited])
    account.settle(30, 0.5)
    assert [budget.spent_tokens for budget in (own, inherited, above)] == [30, 30, 30]
    assert above.spent_usd == 0.5


def test_the_budget_that_is_given_first_is_told_first():
    own, inherited = Budget(usd=1), Budget(tokens=10).share()
    account = Account([own, inherited])
    assert account.exhausted() is None
    account.settle(11, 0.5)
    assert told(account.exhausted()) == (TerminateReason.TOKEN_LIMIT, 10, 11, "Budget")
    account.settle(11, 1.5)
    assert told(account.exhausted()) == (TerminateReason.COST_LIMIT, 1, 1.5, "Budget")


def test_a_run_without_a_budget_spends_from_none():
    account = Account([])
    account.settle(10**9, 10**9)
    assert account.exhausted() is None


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 10**6), st.integers(0, 10**6)), max_size=30))
def test_what_a_budget_has_counted_is_what_its_runs_say_they_used(said: list[tuple[int, int, int]]):
    above = Budget()
    accounts = [Account([above.share()]) for _ in range(3)]
    last = {}
    for run, tokens, micros in said:
        accounts[run].settle(tokens, micros / 1e6)
        last[run] = (tokens, micros / 1e6)
    assert above.spent_tokens == sum(tokens for tokens, _ in last.values())
    assert above.spent_usd == pytest.approx(sum(usd for _, usd in last.values()), abs=1e-9)


# --- arguments


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "100", math.inf, [1]], ids=repr)
def test_what_is_no_number_of_tokens_is_refused_by_name(value: Any):
    for make in (Budget, Budget().share):
        with pytest.raises(ConfigError, match=r"Budget\.tokens"):
            make(tokens=value)


@pytest.mark.parametrize("value", [0, -1, True, "2", math.inf, math.nan, 10**400], ids=lambda value: repr(value)[:9])
def test_what_are_no_dollars_is_refused_by_name(value: Any):
    for make in (Budget, Budget().share):
        with pytest.raises(ConfigError, match=r"Budget\.usd"):
            make(usd=value)


@pytest.mark.parametrize(
    "spending", [(1.5, 0.0), (True, 0.0), ("1", 0.0), (None, 0.0), (1, math.nan), (1, math.inf), (1, "2")], ids=repr
)
def test_what_cannot_be_spent_is_refused_and_changes_nothing(spending: Any):
    budget = Budget(tokens=10)
    with pytest.raises(ConfigError, match=r"Budget\.spend"):
        budget.spend(*spending)
    assert (budget.spent_tokens, budget.spent_usd) == (0, 0.0)


@pytest.mark.parametrize("given_", [5, None, "100", {"tokens": 100}], ids=repr)
def test_a_run_spends_from_budgets_only(given_: Any):
    with pytest.raises(ConfigError, match="Budgets"):
        Account([given_])
