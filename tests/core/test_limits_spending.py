"""What a run has used, with the runs that its tools started."""

from __future__ import annotations

from monitor.budget import Budget
from monitor.core.limits import Spending
from monitor.reasons import TerminateReason
from monitor.usage import Price, Usage

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


def test_without_a_price_nothing_costs_anything():
    spending = Spending()
    spending.settle(TURN, estimated=False)
    assert spending.total() == (TURN, 0.0)


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
