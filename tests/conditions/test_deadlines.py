from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.chunks import TextDelta, TurnFinished
from monitor.conditions import AllOf, AnyOf, Condition, FirstChunkTimeout, IdleTimeout, MaxToolCalls, Not, Timeout
from monitor.conditions.limits import ROUNDING_S
from monitor.core.run import RunCore
from monitor.errors import ConfigError, FinishReason, TerminateReason
from monitor.outcome import Phase, RunState
from monitor.policy import ObserveOnly
from monitor.verdicts import Stop

PHASES: tuple[Phase, ...] = get_args(Phase)
TIMED = (Timeout, IdleTimeout, FirstChunkTimeout)
READING = RunState(elapsed_s=10, phase="streaming", stream_started_s=7, waiting_since_s=8)
"""Ten seconds into the run; the stream was asked for at seven, the pending read began at eight."""


def told(stop: Stop | None) -> tuple[Any, ...] | None:
    """What a stop says, without the sentence."""
    return None if stop is None else (stop.reason, stop.limit, stop.value, stop.source)


# --- the whole run


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(("elapsed_s", "stops"), [(0, False), (4.999, False), (5, True), (5.001, True), (1e9, True)])
def test_a_run_may_last_so_long_in_every_phase(phase: Phase, elapsed_s: float, *, stops: bool):
    stop = Timeout(5).evaluate(RunState(elapsed_s=elapsed_s, phase=phase))
    assert told(stop) == ((TerminateReason.TIMEOUT, 5, elapsed_s, "timeout") if stops else None)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_the_deadline_of_a_run_does_not_move(seconds: float, elapsed_s: float):
    assert Timeout(seconds).deadline(RunState(elapsed_s=elapsed_s)) == seconds


def test_no_time_at_all_is_a_limit_too():
    assert Timeout(0).evaluate(RunState()) is not None


@pytest.mark.parametrize("began", [0.0, 1.1, 86_400.3, 1.7e9])
@given(seconds=st.floats(0, 1e5))
def test_a_clock_that_started_long_ago_does_not_cost_the_deadline(began: float, seconds: float):
    """The harness wakes at `began + deadline`; what it then subtracts may miss the limit by a
    rounding.
    """
    woken = began + seconds
    assert Timeout(seconds).evaluate(RunState(elapsed_s=woken - began)) is not None


# --- the provider's silence


@pytest.mark.parametrize(("elapsed_s", "stops"), [(8, False), (12.999, False), (13, True), (14, True)])
def test_the_provider_may_be_silent_so_long(elapsed_s: float, *, stops: bool):
    stop = IdleTimeout(5).evaluate(replace(READING, elapsed_s=elapsed_s))
    assert told(stop) == ((TerminateReason.IDLE_TIMEOUT, 5, elapsed_s - 8, "idle_timeout") if stops else None)


def test_an_idle_deadline_moves_with_every_read():
    assert [IdleTimeout(5).deadline(replace(READING, waiting_since_s=since)) for since in (0, 8, 9.5)] == [5, 13, 14.5]


def test_the_callers_own_time_between_chunks_is_not_the_providers_silence():
    at_work = RunState(elapsed_s=1e6, phase="streaming", stream_started_s=7, first_chunk_seen=True)
    assert IdleTimeout(5).evaluate(at_work) is None
    assert IdleTimeout(5).deadline(at_work) is None


# --- the first chunk


@pytest.mark.parametrize(("elapsed_s", "stops"), [(7, False), (11.999, False), (12, True), (13, True)])
def test_the_first_chunk_may_take_so_long(elapsed_s: float, *, stops: bool):
    stop = FirstChunkTimeout(5).evaluate(replace(READING, elapsed_s=elapsed_s))
    assert told(stop) == ((TerminateReason.IDLE_TIMEOUT, 5, elapsed_s - 7, "first_chunk_timeout") if stops else None)


@pytest.mark.parametrize("change", [{"first_chunk_seen": True}, {"stream_started_s": None, "phase": "after_call"}])
def test_the_first_chunk_is_waited_for_only_until_it_comes(change: dict[str, Any]):
    state = replace(READING, elapsed_s=1e6, **change)
    assert FirstChunkTimeout(5).deadline(state) is None
    assert FirstChunkTimeout(5).evaluate(state) is None


def test_opening_counts_as_waiting_for_the_first_chunk():
    """The read began a second after the stream was asked for: the SDK was retrying."""
    assert FirstChunkTimeout(5).deadline(READING) == 12


# --- while a person is asked


ASKED = RunState(elapsed_s=100, phase="after_call", paused_s=70, paused=True)
"""A hundred seconds into the run, seventy of which somebody has been asked, and still is."""


@pytest.mark.parametrize(("paused_s", "stops"), [(0, True), (69.999, True), (70.001, False), (95, False)])
def test_time_in_which_a_person_is_asked_does_not_count(paused_s: float, *, stops: bool):
    stop = Timeout(30).evaluate(RunState(elapsed_s=100, paused_s=paused_s))
    assert told(stop) == ((TerminateReason.TIMEOUT, 30, 100 - paused_s, "timeout") if stops else None)


def test_while_a_person_is_asked_no_deadline_comes_closer():
    assert Timeout(40).deadline(ASKED) is None
    assert Timeout(40).evaluate(ASKED) is None
    an_hour_later = replace(ASKED, elapsed_s=3_700, paused_s=3_670)
    assert Timeout(40).evaluate(an_hour_later) is None


def test_after_the_answer_the_run_has_what_was_left():
    answered = replace(ASKED, paused=False)
    assert Timeout(40).deadline(answered) == 110
    assert Timeout(40).evaluate(replace(answered, elapsed_s=109.9)) is None
    assert told(Timeout(40).evaluate(replace(answered, elapsed_s=110))) == (TerminateReason.TIMEOUT, 40, 40, "timeout")


def test_a_run_that_was_late_before_the_question_stays_late():
    assert Timeout(30).evaluate(ASKED) is not None
    assert Timeout(30).deadline(ASKED) is None


@pytest.mark.parametrize("condition", [IdleTimeout(5), FirstChunkTimeout(5)])
def test_a_provider_is_not_late_while_a_person_is_asked(condition: Condition):
    state = replace(READING, elapsed_s=1_000)
    assert condition.evaluate(state) is not None
    assert condition.evaluate(replace(state, paused=True, paused_s=990)) is None
    assert condition.deadline(replace(state, paused=True, paused_s=990)) is None


# --- waiting for another attempt


def test_retry_delays_count_unless_they_are_excluded():
    state = RunState(elapsed_s=100, retry_delay_s=60)
    assert told(Timeout(50).evaluate(state)) == (TerminateReason.TIMEOUT, 50, 100, "timeout")
    assert Timeout(50).deadline(state) == 50
    assert Timeout(50, exclude_retry_delays=True).evaluate(state) is None
    assert Timeout(50, exclude_retry_delays=True).deadline(state) == 110
    assert told(Timeout(40, exclude_retry_delays=True).evaluate(state)) == (TerminateReason.TIMEOUT, 40, 40, "timeout")


def test_pauses_and_retry_delays_are_both_excluded():
    assert (
        Timeout(10, exclude_retry_delays=True).deadline(RunState(elapsed_s=100, retry_delay_s=60, paused_s=35)) == 105
    )


def test_the_sentence_says_how_much_did_not_count():
    stop = Timeout(20, exclude_retry_delays=True).evaluate(RunState(elapsed_s=100, retry_delay_s=60, paused_s=15))
    assert stop is not None
    assert stop.detail == "the run took 25 s (75 s of waiting do not count), the limit is 20 s"


@pytest.mark.parametrize("value", [1, 0, None, "yes"])
def test_the_option_is_a_truth_value(value: Any):
    with pytest.raises(ConfigError, match="exclude_retry_delays"):
        Timeout(5, exclude_retry_delays=value)


def test_options_are_named():
    with pytest.raises(ConfigError, match="too many positional arguments"):
        Timeout(5, True)  # type: ignore[call-arg]


# --- all of them


@pytest.mark.parametrize("condition", TIMED)
@given(seconds=st.floats(0, 1e6))
def test_a_timed_condition_is_true_from_its_deadline_on_and_not_before(condition: type[Timeout], seconds: float):
    state = replace(READING, waiting_since_s=8.0, stream_started_s=7.0)
    deadline = condition(seconds).deadline(state)
    assert deadline is not None
    assert condition(seconds).evaluate(replace(state, elapsed_s=deadline)) is not None
    assert condition(seconds).evaluate(replace(state, elapsed_s=deadline - 2 * ROUNDING_S)) is None


@pytest.mark.parametrize("value", [-1, -0.001, math.nan, math.inf, -math.inf, "5", None, True, [5], 5j], ids=repr)
@pytest.mark.parametrize("condition", TIMED)
def test_what_are_no_seconds_is_refused_by_name(condition: Any, value: object):
    with pytest.raises(ConfigError, match=condition.__name__) as refused:
        condition(value)
    assert repr(value) in str(refused.value)


@pytest.mark.parametrize("condition", TIMED)
def test_more_seconds_than_a_float_can_hold_are_refused_by_name(condition: Any):
    with pytest.raises(ConfigError, match=condition.__name__):
        condition(10**400)


# --- the cheap way to the same deadline


TICKS = st.integers(0, 40).map(lambda halves: halves / 2)
LEAVES = st.one_of(
    st.builds(Timeout, TICKS),
    st.builds(IdleTimeout, TICKS),
    st.builds(FirstChunkTimeout, TICKS),
    st.builds(MaxToolCalls, st.integers(1, 3)),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: AnyOf(tuple(parts))),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: AllOf(tuple(parts))),
        st.builds(Not, inner),
    ),
    max_leaves=6,
)


# --- a whole run, decided without a clock


def core(stop_when: Condition) -> RunCore:
    run = RunCore(stop_when=stop_when, policy=ObserveOnly(), emit=lambda event: None)
    run.begin(100.0)
    return run


@pytest.mark.feature("ST-02")
def test_the_run_time_is_checked_before_the_model_call():
    on_time, late = core(Timeout(5)), core(Timeout(5))
    assert on_time.begin_turn(104.9)
    assert not late.begin_turn(105.0)
    assert told(late.stop) == (TerminateReason.TIMEOUT, 5, 5.0, "timeout")


@pytest.mark.feature("ST-02")
def test_the_run_time_is_checked_while_the_model_call_streams():
    run = core(Timeout(5))
    assert run.begin_turn(101.0)
    run.feed(TextDelta("so far"), 104.0)
    assert run.deadline == 105.0
    assert not run.must_stop(104.9)
    assert run.must_stop(105.0)
    assert told(run.stop) == (TerminateReason.TIMEOUT, 5, 5.0, "timeout")


@pytest.mark.feature("ST-02")
def test_the_run_time_is_checked_after_the_model_call():
    run = core(Timeout(5))
    assert run.begin_turn(101.0)
    run.feed(TurnFinished(FinishReason.DONE), 102.0)
    run.end_turn(102.0, finished=True)
    assert not isinstance(run.check(104.9), Stop)
    verdict = run.check(105.5)
    assert isinstance(verdict, Stop)
    assert told(verdict) == (TerminateReason.TIMEOUT, 5, 5.5, "timeout")
