"""What a run has used, with the runs that its tools started."""

from __future__ import annotations

import pytest

from monitor.budget import Budget
from monitor.chunks import NO_USAGE, AskCost, Price, Usage
from monitor.core.counters import Spending
from monitor.errors import TerminateReason

TURN = Usage(input_tokens=80, output_tokens=20, total_tokens=100)
PRICE = Price(input=1.0, output=10.0)


def test_turns_add_up_and_the_running_one_counts():
    spending = Spending(PRICE)
    spending.settle(TURN, estimated=False)
    assert spending.total() == (TURN, 280e-6)
    assert spending.total(TURN) == (TURN + TURN, 560e-6)
    assert not spending.estimated


def test_one_estimated_turn_makes_an_estimate_of_the_whole():
    spending = Spending()
    spending.settle(TURN, estimated=True)
    spending.settle(TURN, estimated=False)
    assert spending.estimated


def test_without_a_price_the_cost_of_tokens_is_not_known():
    spending = Spending()
    assert spending.total() == (NO_USAGE, 0.0)
    spending.settle(TURN, estimated=False)
    assert spending.total() == (TURN, None)


def test_a_nested_run_of_unknown_cost_leaves_the_sum_unknown():
    spending = Spending(PRICE)
    spending.nested(1, TURN, None)
    assert spending.total() == (TURN, None)


def test_a_long_request_is_priced_by_its_own_length_and_not_by_the_sum():
    price = Price(1.0, 1.0, above=((1_000, Price(2.0, 2.0)),))
    spending = Spending(price)
    for _ in range(3):
        spending.settle(Usage(input_tokens=600, total_tokens=600), estimated=False)
    assert spending.total()[1] == pytest.approx(3 * 600 / 1_000_000)
    assert spending.total(Usage(input_tokens=1_500, total_tokens=1_500))[1] == pytest.approx(
        (1_800 + 3_000) / 1_000_000
    )


def test_a_nested_run_is_counted_by_its_latest_figure_and_once():
    spending = Spending(PRICE)
    spending.nested(1, TURN, 0.5)
    spending.nested(1, TURN + TURN, 0.7)
    spending.nested(2, TURN, 0.1)
    assert spending.total() == (TURN + TURN + TURN, 0.7 + 0.1)
    spending.nested_ended(1)
    spending.nested_ended(1)
    assert spending.total()[0] == TURN + TURN + TURN


def test_budgets_are_told_what_the_run_itself_has_used_and_nothing_twice():
    budget = Budget(tokens=250)
    spending = Spending(PRICE, (budget,))
    spending.nested(1, TURN, 0.5)
    assert spending.post(TURN) is None
    assert budget.spent_tokens == 100
    spending.settle(TURN, estimated=False)
    assert spending.post() is None
    assert budget.spent_tokens == 100
    stop = spending.post(TURN + TURN)
    assert stop is not None
    assert (stop.reason, stop.source, stop.limit, stop.value) == (TerminateReason.TOKEN_LIMIT, "Budget", 250, 300)


def test_an_estimate_that_was_too_high_is_taken_back():
    budget = Budget(tokens=250)
    spending = Spending(None, (budget,))
    spending.post(Usage(output_tokens=200, total_tokens=200))
    spending.settle(TURN, estimated=False)
    spending.post()
    assert budget.spent_tokens == 100


def test_an_agent_that_ended_on_estimated_tokens_makes_an_estimate_of_the_whole():
    spending = Spending(PRICE)
    spending.take_over(TURN, 0.5, estimated=False)
    known = not spending.estimated
    spending.take_over(TURN, 0.5, estimated=True)
    assert (known, spending.estimated) == (True, True)
    assert spending.total() == (TURN + TURN, 1.0)


def test_a_judge_that_does_not_count_for_the_run_is_still_told_apart():
    spending = Spending(PRICE)
    spending.charge_judge(AskCost(TURN), counts=False)
    spending.charge_judge(AskCost(TURN), counts=True)
    spending.charge_compaction(AskCost(TURN, estimated=True))
    assert spending.total() == (TURN + TURN, 560e-6)
    assert (spending.judges.usage, spending.compactions.usage) == (TURN + TURN, TURN)
    assert spending.estimated
