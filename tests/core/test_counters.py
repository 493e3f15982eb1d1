"""A run, counted."""

from __future__ import annotations

from monitor.chunks import UsageReport
from monitor.core.counters import Counters
from monitor.core.limits import Spending
from monitor.core.turn import TurnTally
from monitor.state import RunState
from monitor.usage import Usage


def seen(counters: Counters, now: float, *, void: bool = False, waiting_since: float | None = None) -> RunState:
    tally = TurnTally(number=1, keep_chars=0, started_at=104.0)
    tally.report(UsageReport(input_tokens=7, output_tokens=3))
    return counters.state(now, tally=tally, spending=Spending(), goal=None, void=void, waiting_since=waiting_since)


def begun() -> Counters:
    counters = Counters()
    counters.began = 100.0
    counters.turns = 2
    return counters


def test_times_count_from_the_beginning_of_the_run():
    counters = begun()
    counters.phase = "streaming"
    state = seen(counters, 110.0, waiting_since=109.0)
    assert (state.elapsed_s, state.stream_started_s, state.waiting_since_s) == (10.0, 4.0, 9.0)
    assert counters.at(110.0) == 10.0


def test_what_a_stream_has_used_counts_while_it_runs():
    counters = begun()
    assert seen(counters, 110.0).usage == Usage()
    counters.phase = "streaming"
    assert seen(counters, 110.0).usage.total_tokens == 10


def test_nothing_is_waited_for_where_no_stream_runs():
    counters = begun()
    counters.phase = "after_call"
    state = seen(counters, 110.0, waiting_since=109.0)
    assert (state.stream_started_s, state.waiting_since_s) == (None, None)


def test_a_failed_attempt_is_no_turn_yet():
    assert seen(begun(), 110.0, void=True).turns == 1


def test_a_tool_that_answers_twice_stands_there_once():
    counters = begun()
    for name in ("search", "read", "search"):
        counters.tool_answered(name)
    assert seen(counters, 110.0).tools_called == ("search", "read")
