"""A run, counted."""

from __future__ import annotations

import pytest

from monitor.chunks import Usage, UsageReport
from monitor.core.counters import Counters, ErrorStreak, Spending
from monitor.core.turn import RunningTurn
from monitor.outcome import RunState


def seen(counters: Counters, now: float, *, void: bool = False, waiting_since: float | None = None) -> RunState:
    running = RunningTurn(number=1, keep_chars=0, started_at=104.0)
    running.report(UsageReport(input_tokens=7, output_tokens=3))
    return counters.state(now, running=running, spending=Spending(), goal=None, void=void, waiting_since=waiting_since)


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


def test_the_counts_of_an_agent_that_has_ended_are_the_runs():
    counters = begun()
    counters.model_calls, counters.tool_calls = 3, 4
    counters.tool_answered("read")
    counters.take_over(RunState(turns=5, model_calls=6, tool_calls=7, tools_called=("write", "read")))
    state = seen(counters, 110.0)
    assert (state.turns, state.model_calls, state.tool_calls) == (2 + 5, 3 + 6, 4 + 7)
    assert state.tools_called == ("read", "write")
    assert counters.turns == 2  # its own turns keep their numbers


@pytest.mark.parametrize(
    ("turns", "streak"),
    [
        (["e", "e", "e"], 3),
        (["ee", "e"], 2),  # a turn counts once
        (["e", "eo", "e"], 1),  # a success ends the streak,
        (["e", "oe", "e"], 1),  # also before a failure of its turn
        (["e", "", "e"], 1),  # and so does a turn without any failure
        (["e", "o"], 0),
    ],
)
def test_errors_in_a_row_are_turns_in_a_row_that_only_failed(turns: list[str], streak: int):
    errors = ErrorStreak()
    for results in turns:
        errors.turn_started()
        for result in results:
            errors.add(is_error=result == "e")
    assert errors.count == streak


def test_a_copy_counts_on_by_itself():
    counters = begun()
    copied = counters.copy()
    copied.turns += 1
    copied.errors.add(is_error=True)
    copied.pauses.begin(105.0)
    assert (counters.turns, counters.errors.count, counters.pauses.running) == (2, 0, False)
