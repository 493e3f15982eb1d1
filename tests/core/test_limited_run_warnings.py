from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.budget import Account, Budget
from monitor.chunks import Usage
from monitor.conditions import Condition, CostLimit, IdleTimeout, MaxToolCalls, MaxTurns, Timeout, TokenLimit
from monitor.core.limited_run import Limits
from monitor.events import LimitWarning, event_codec
from monitor.outcome import RunState
from monitor.verdicts import Met, Stop


def told(
    condition: Condition | None, *states: RunState, budgets: Sequence[Budget] = ()
) -> list[list[tuple[str, float]]]:
    """What one run is warned of at each of these looks."""
    limits = Limits(condition, budgets=budgets)
    return [[(warning.source, warning.value) for warning in limits.warnings(state)] for state in states]


def test_a_limit_is_told_at_four_fifths_and_once():
    turns = [RunState(turns=number) for number in (1, 23, 24, 25, 30)]
    assert told(MaxTurns(30), *turns) == [[], [], [("max_turns", 24)], [], []]


def test_a_warning_says_when_and_of_what():
    (warning,) = Limits(Timeout(600)).warnings(RunState(elapsed_s=500, paused_s=15))
    assert warning == LimitWarning(500, "timeout", 485, 600)
    assert event_codec.loads(event_codec.dumps(warning)) == warning


def test_a_limit_that_is_jumped_over_is_told_when_it_is_seen():
    assert told(MaxToolCalls(100), RunState(tool_calls=1), RunState(tool_calls=99)) == [[], [("max_tool_calls", 99)]]


def test_each_limit_is_told_by_itself():
    condition = MaxTurns(10) | TokenLimit(100, output_tokens=50) | CostLimit(1)
    states = [
        RunState(turns=8, usage=Usage(output_tokens=10, total_tokens=79)),
        RunState(turns=9, usage=Usage(output_tokens=40, total_tokens=79), cost_usd=0.9),
        RunState(turns=9, usage=Usage(output_tokens=40, total_tokens=80), cost_usd=0.9),
    ]
    assert told(condition, *states) == [
        [("max_turns", 8)],
        [("token_limit.output_tokens", 40), ("cost_limit", 0.9)],
        [("token_limit.total_tokens", 80)],
    ]


def test_two_limits_of_one_kind_are_two():
    assert told(MaxTurns(5) | MaxTurns(10), *(RunState(turns=turns) for turns in (4, 5, 8))) == [
        [("max_turns", 4)],
        [],
        [("max_turns", 8)],
    ]


def test_the_budgets_of_the_runs_above_are_told_too():
    above = Budget(tokens=1_000)
    own = above.share(tokens=100, usd=1)
    above.spend(750)
    account = Account([own])
    limits = Limits(None, budgets=account.budgets)
    seen = []
    for tokens, usd in ((79, 0.0), (80, 0.8), (99, 0.9)):
        account.settle(tokens, usd)
        seen.append([(w.source, w.value, w.limit) for w in limits.warnings(RunState())])
    assert seen == [[("Budget.tokens", 829, 1_000)], [("Budget.tokens", 80, 100), ("Budget.usd", 0.8, 1)], []]


@pytest.mark.parametrize("condition", [None, IdleTimeout(5), ~MaxTurns(5), Timeout(0)])
def test_where_nothing_is_used_up_nothing_is_told(condition: Condition | None):
    assert told(condition, RunState(turns=9, elapsed_s=9)) == [[]]


@given(st.integers(1, 10**6))
def test_four_fifths_of_any_number_of_turns_is_exact(fifths: int):
    before, at = told(MaxTurns(5 * fifths), RunState(turns=4 * fifths - 1), RunState(turns=4 * fifths))
    assert (before, len(at)) == ([], 1)


def test_a_limit_beyond_every_float_does_no_harm():
    huge = TokenLimit(10**400)
    assert told(huge, RunState(usage=Usage(total_tokens=9 * 10**399))) == [[("token_limit.total_tokens", 9 * 10**399)]]


@dataclass(frozen=True)
class Words(Condition):
    """A user's condition that tells of itself."""

    value: object

    def evaluate(self, state: RunState) -> Stop | None:
        return None

    def progress(self, state: RunState) -> Sequence[Met]:
        return (Met(self.name, met=False, value=self.value, limit=10),)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [0, -10])
def test_a_limit_that_is_not_above_zero_is_not_nearly_used_up(limit: int):
    class Owed(Condition):
        name = "owed"

        def evaluate(self, state: RunState) -> Stop | None:
            return None

        def progress(self, state: RunState) -> Sequence[Met]:
            return (Met(self.name, met=False, value=-50, limit=limit),)

    assert told(Owed(), RunState()) == [[]]


@pytest.mark.parametrize(("value", "warned"), [(7.9, 0), (8, 1), ("9", 0), (None, 0), (float("nan"), 0)])
def test_a_users_condition_is_warned_of_if_it_tells_numbers(value: object, warned: int):
    assert len(told(Words(value), RunState())[0]) == warned


def test_every_run_is_warned_anew():
    condition, state = MaxTurns(5), RunState(turns=4)
    assert told(condition, state) == told(condition, replace(state)) == [[("max_turns", 4)]]


def test_agents_of_one_run_are_warned_of_its_limit_once_together():
    first, second = Limits(MaxTurns(5)), Limits(MaxTurns(5))
    first.share()
    assert len(first.warnings(RunState(turns=4))) == 1
    second.share(first)
    assert list(second.warnings(RunState(turns=4))) == []
