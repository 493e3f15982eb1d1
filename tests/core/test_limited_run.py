"""Condition and budgets of one run, together."""

from __future__ import annotations

import math

import pytest

from monitor.budget import Budget
from monitor.chunks import Usage
from monitor.conditions import Condition, FirstChunkTimeout, IdleTimeout, MaxTurns, Timeout, TokenLimit
from monitor.conditions.limits import silence_limits
from monitor.core.limited_run import ASK_AGAIN_S, Limits
from monitor.errors import TerminateReason
from monitor.outcome import RunState
from monitor.verdicts import Stop

OVERSPENT = Stop(TerminateReason.TOKEN_LIMIT, "the budget is used up", "Budget")


class _Impatient(Condition):
    """Names a deadline at which it is not true."""

    def evaluate(self, state: RunState) -> Stop | None:
        return None

    def deadline(self, state: RunState) -> float | None:
        return 1.0


class _Broken(_Impatient):
    def deadline(self, state: RunState) -> float | None:
        raise ValueError("no")


def test_without_a_condition_a_budget_or_a_run_above_there_is_nothing_to_look_at():
    assert not Limits(None)
    assert Limits(MaxTurns(1))
    assert Limits(None, budgets=[Budget()])
    assert Limits(None, nested=True)


def test_the_condition_comes_before_the_budget():
    limits = Limits(MaxTurns(2))
    assert limits.look(RunState(turns=1), OVERSPENT) is OVERSPENT
    stop = limits.look(RunState(turns=2), OVERSPENT)
    assert stop is not None
    assert stop.reason is TerminateReason.MAX_TURNS


def test_a_look_plans_for_a_read_that_begins_at_once():
    limits = Limits(IdleTimeout(30) | Timeout(600))
    assert limits.look(RunState(elapsed_s=10, phase="streaming", stream_started_s=9), None) is None
    assert limits.deadline_s == 40


def test_an_exact_deadline_is_that_of_the_read_that_is_pending():
    limits = Limits(IdleTimeout(30))
    assert limits.exact_deadline_s(RunState(elapsed_s=10, phase="streaming", waiting_since_s=5)) == 35


def test_a_condition_that_is_not_true_at_its_deadline_is_asked_again_a_little_later():
    assert Limits(_Impatient()).exact_deadline_s(RunState(elapsed_s=10)) == 10 + ASK_AGAIN_S


def test_a_deadline_that_cannot_be_told_has_come():
    """So that the next look meets the error."""
    limits = Limits(_Broken())
    assert limits.exact_deadline_s(RunState()) == -math.inf
    with pytest.raises(ValueError, match="no"):
        limits.look(RunState(), None)


def test_what_is_no_stop_is_a_type_error():
    class Yes(_Impatient):
        def evaluate(self, state: RunState) -> Stop | None:
            return True  # type: ignore[return-value]

    with pytest.raises(TypeError, match="expected a Stop"):
        Limits(Yes()).look(RunState(), None)


def test_another_condition_takes_the_place_of_the_first_and_budgets_stay():
    budget = Budget(tokens=5)
    limits = Limits(MaxTurns(1), budgets=[budget])
    limits.replace(Timeout(60))
    assert limits.look(RunState(turns=9), None) is None
    assert limits.spending.budgets == (budget,)
    assert limits.name == "timeout"
    limits.replace(None)
    assert (limits.name, limits.condition_name, limits.timed) == ("budget", None, False)


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        (None, None),
        (Timeout(600) | MaxTurns(3), None),
        (IdleTimeout(30), IdleTimeout(30)),
        (Timeout(600) | IdleTimeout(30), IdleTimeout(30)),
        (Timeout(600) | IdleTimeout(30) | FirstChunkTimeout(9), IdleTimeout(30) | FirstChunkTimeout(9)),
        (MaxTurns(3) | (IdleTimeout(30) & MaxTurns(1)), IdleTimeout(30) & MaxTurns(1)),
        ((Timeout(600) | IdleTimeout(30)) & MaxTurns(1), (Timeout(600) | IdleTimeout(30)) & MaxTurns(1)),
        (~IdleTimeout(30), None),
    ],
)
def test_in_a_last_turn_only_its_time_and_the_limits_on_silence_count(
    condition: Condition | None, kept: Condition | None
):
    limits = Limits(condition)
    limits.only(Timeout(60))
    assert limits.condition_name == (Timeout(60) | kept if kept is not None else Timeout(60)).name
    assert silence_limits(condition) == kept


def test_tokens_are_counted_down_to_the_next_look():
    limits = Limits(TokenLimit(10))
    limits.look(RunState(usage=Usage(total_tokens=8)), None)
    assert not limits.spend(16)
    assert limits.spend(1)
    assert limits.free_chars == 0
