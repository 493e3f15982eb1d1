"""How full is too full, and how empty is empty enough."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.chunks import UsageReport
from monitor.context.compaction.triggers import Hysteresis, Marks
from monitor.context.history import History, HistoryEdit
from monitor.context.tokens import ContextMeter
from monitor.context.window import CLAUDE_CODE, DEFAULT, OPENCODE, UNKNOWN, Headroom, Window
from monitor.errors import PRESSING, CompactionFailure, CompactionReason
from monitor.messages import AssistantMessage, Text, UserMessage

R, F = CompactionReason, CompactionFailure
RESERVE = Headroom(reserve_tokens=10_000)
MARKS = Marks(Window(100_000), RESERVE)
"""high 90,000, low 54,000, warn 81,000, ceiling 95,000; growth 5,000."""


def test_the_marks_of_a_window():
    assert (MARKS.high, MARKS.low, MARKS.warn, MARKS.ceiling) == (90_000, 54_000, 81_000, 95_000)
    assert Marks(Window(100_000), CLAUDE_CODE, low_water=0.5).low == 46_000


def test_a_window_that_is_not_known_has_no_marks():
    marks = Marks(UNKNOWN, DEFAULT)
    assert (marks.high, marks.low, marks.warn, marks.ceiling) == (None, None, None, None)
    state = Hysteresis(marks)
    assert state.due(10**9) is None
    assert not state.warn(10**9)


@given(
    st.integers(16_000, 2_000_000),
    st.integers(1, 200_000),
    st.floats(0.05, 0.95),
    st.sampled_from([DEFAULT, OPENCODE, CLAUDE_CODE, RESERVE]),
)
def test_the_marks_stand_in_order(window: int, output: int, low_water: float, headroom: Headroom):
    marks = Marks(Window(window, output), headroom, low_water)
    assert marks.low is not None
    assert marks.warn is not None
    assert marks.high is not None
    assert marks.ceiling is not None
    assert 0 < marks.low < marks.high <= marks.ceiling <= window
    assert marks.warn < marks.high


# --- when it is due


@pytest.mark.parametrize(
    ("tokens", "due"),
    [
        (89_000, None),
        (89_999, None),
        (90_000, R.HIGH_WATER),
        (94_999, R.HIGH_WATER),
        (95_000, R.CEILING),
        (10**7, R.CEILING),
    ],
)
def test_it_is_due_at_the_high_water_mark_and_the_run_waits_at_the_ceiling(tokens: int, due: CompactionReason | None):
    assert Hysteresis(MARKS).due(tokens) is due


def test_a_large_answer_and_a_limit_of_the_prompt_keep_their_room():
    roomy = Hysteresis(Marks(Window(200_000, 32_000), OPENCODE))
    assert roomy.due(110_000) is None
    limited = Hysteresis(Marks(Window(200_000, 32_000, 200_000), OPENCODE))
    assert limited.due(198_000) is not None


def answered(history: History, tokens: int) -> ContextMeter:
    """A conversation whose last call was counted by its provider."""
    meter = ContextMeter(history)
    meter.sent()
    meter.reported(UsageReport(input_tokens=tokens, output_tokens=10))
    meter.answered()
    history.append(AssistantMessage((Text("done"),)))
    return meter


def test_a_call_that_failed_leaves_the_count_before_it_which_is_due():
    history = History([UserMessage((Text("word " * 30_000),))])
    meter = answered(history, 91_000)
    history.append(UserMessage((Text("go on"),)))
    meter.sent()  # and an error follows
    assert Hysteresis(MARKS).due(meter.count().tokens) is R.HIGH_WATER


def test_a_count_from_before_a_compaction_is_not_due():
    history = History([UserMessage((Text("word " * 30_000),))])
    meter = answered(history, 91_000)
    state = Hysteresis(MARKS)
    assert state.due(meter.count().tokens) is R.HIGH_WATER
    history.commit(
        HistoryEdit(history.version, 0, 1, (UserMessage((Text("the summary"),), synthetic=True),), "compaction")
    )
    state.accepted()
    assert state.due(meter.count().tokens) is None


# --- the warning


def test_a_warning_comes_once_before_the_mark_and_again_after_a_compaction():
    state = Hysteresis(MARKS)
    assert [state.warn(tokens) for tokens in (80_999, 81_000, 82_000, 91_000)] == [False, True, False, False]
    state.accepted()
    assert [state.warn(tokens) for tokens in (50_000, 81_000, 90_000)] == [False, True, False]


# --- what is accepted


def test_at_the_high_water_mark_the_low_one_is_to_be_reached():
    assert MARKS.target(R.HIGH_WATER, 91_000) == 54_000


@pytest.mark.parametrize("before", [100, 20_000, 90_000])
def test_by_hand_a_context_may_become_a_twentieth_smaller_at_any_fill(before: int):
    assert MARKS.target(R.MANUAL, before) == before * 95 // 100 + 1
    assert Marks(UNKNOWN, DEFAULT).target(R.MANUAL, before) == before * 95 // 100 + 1


@pytest.mark.parametrize("reason", sorted(PRESSING))
def test_where_the_run_cannot_go_on_whatever_is_smaller_and_below_the_mark_is_accepted(reason: CompactionReason):
    assert MARKS.target(reason, 130_000) == 90_001
    # the estimate is below the mark, and the provider refused all the same
    assert MARKS.target(reason, 36_600) == 36_600


@pytest.mark.parametrize("reason", sorted(PRESSING))
def test_where_nobody_knows_the_window_more_than_half_is_taken_off(reason: CompactionReason):
    assert Marks(UNKNOWN, DEFAULT).target(reason, 100_000) == 45_000


@given(
    st.sampled_from(list(R)), st.integers(1, 10**7), st.sampled_from([Window(100_000), Window(16_000, 8_000), UNKNOWN])
)
def test_what_is_as_large_as_before_is_never_accepted(reason: CompactionReason, before: int, window: Window):
    marks = Marks(window, DEFAULT)
    if reason is not R.HIGH_WATER or marks.high is None or before >= marks.high:
        assert marks.target(reason, before) <= before


# --- failures


def opens(state: Hysteresis, failure: CompactionFailure, reason: CompactionReason, tokens: int) -> bool:
    """Whether this failure opens the breaker."""
    before = state.open
    state.failed(failure, reason, tokens)
    return state.open and not before


def test_one_that_failed_is_not_due_again_until_the_context_has_grown():
    state = Hysteresis(MARKS)
    assert state.due(90_000) is R.HIGH_WATER
    assert not opens(state, F.PROVIDER, R.HIGH_WATER, 90_000)
    assert [state.due(tokens) for tokens in (90_100, 94_999)] == [None, None]
    assert state.due(95_000) is R.CEILING
    roomy = Hysteresis(Marks(Window(200_000), Headroom(0.8)))
    roomy.failed(F.INEFFECTIVE, R.HIGH_WATER, 160_000)
    assert roomy.due(169_999) is None
    assert roomy.due(170_000) is R.HIGH_WATER


def test_a_ceiling_that_failed_waits_for_growth_too():
    state = Hysteresis(MARKS)
    state.failed(F.TIMEOUT, R.CEILING, 95_000)
    assert [state.due(tokens) for tokens in (95_500, 99_999, 100_000)] == [None, None, R.CEILING]


def test_one_that_had_nothing_to_compact_waits_for_a_change_or_for_much_growth():
    state = Hysteresis(Marks(Window(100_000), Headroom(0.5)))
    state.failed(F.NOTHING_TO_COMPACT, R.HIGH_WATER, 50_000)
    assert [state.due(tokens) for tokens in (55_000, 60_000, 74_999)] == [None, None, None]
    state.changed()
    assert state.due(60_000) is R.HIGH_WATER
    state.failed(F.NOTHING_TO_COMPACT, R.HIGH_WATER, 50_000)
    assert state.due(75_000) is R.CEILING
    low = Hysteresis(Marks(Window(100_000), Headroom(0.1)))
    low.failed(F.NOTHING_TO_COMPACT, R.HIGH_WATER, 10_000)
    assert [low.due(tokens) for tokens in (34_999, 35_000)] == [None, R.HIGH_WATER]


def test_only_nothing_to_compact_is_forgotten_for_a_change():
    state = Hysteresis(MARKS)
    state.failed(F.PROVIDER, R.HIGH_WATER, 90_000)
    state.changed()
    assert state.due(90_000) is None


def test_what_was_made_smaller_by_something_else_and_fills_again_has_grown():
    state = Hysteresis(MARKS)
    state.failed(F.PROVIDER, R.HIGH_WATER, 92_000)
    assert state.due(50_000) is None
    assert state.due(90_000) is R.HIGH_WATER


def test_one_that_another_edit_has_overtaken_is_due_at_once():
    state = Hysteresis(MARKS)
    state.failed(F.STALE, R.HIGH_WATER, 90_000)
    assert state.due(90_000) is R.HIGH_WATER


def test_two_that_did_not_help_open_the_breaker_and_the_ceiling_still_asks():
    state = Hysteresis(MARKS)
    assert [opens(state, F.INEFFECTIVE, R.HIGH_WATER, 90_000) for _ in range(2)] == [False, True]
    assert state.open
    assert state.due(50_000) is None
    assert state.due(94_000) is None
    assert state.due(96_000) is R.CEILING


def test_three_failures_in_a_row_open_the_breaker_and_a_success_resets_them():
    state = Hysteresis(MARKS)
    assert [opens(state, failure, R.HIGH_WATER, 90_000) for failure in (F.PROVIDER, F.TIMEOUT)] == [False, False]
    state.accepted()
    assert [opens(state, F.EMPTY, R.HIGH_WATER, 90_000) for _ in range(4)] == [False, False, True, False]


@pytest.mark.parametrize("reason", [R.MANUAL, R.CEILING, R.OVERFLOW, R.SILENT_OVERFLOW])
def test_one_that_is_accepted_closes_the_breaker(reason: CompactionReason):
    state = Hysteresis(MARKS)
    for _ in range(2):
        state.failed(F.INEFFECTIVE, R.CEILING if reason in PRESSING else R.HIGH_WATER, 96_000)
    before = state.open
    state.accepted()
    assert (before, state.open) == (True, False)
    assert state.due(90_000) is R.HIGH_WATER


def test_one_that_had_to_do_without_a_summary_counts_as_a_failure_and_the_model_is_asked_each_fifth_time():
    state = Hysteresis(MARKS)
    asked = []
    for _ in range(16):
        asked.append(state.asks_model)
        state.accepted(made_do=True)
    assert asked == [True, True, True, False, False, True, *[False] * 4, True, *[False] * 4, True]
    assert state.due(90_000) is None
    assert state.due(95_000) is R.CEILING
    state.accepted()
    assert (state.open, state.asks_model, state.due(90_000)) == (False, True, R.HIGH_WATER)


def test_a_failure_between_two_that_did_not_help_does_not_make_them_help():
    state = Hysteresis(MARKS)
    assert [opens(state, failure, R.HIGH_WATER, 90_000) for failure in (F.INEFFECTIVE, F.TIMEOUT, F.INEFFECTIVE)] == [
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("failure", [F.NOTHING_TO_COMPACT, F.CANCELLED, F.ABORTED, F.STALE])
def test_what_was_not_tried_to_its_end_opens_no_breaker(failure: CompactionFailure):
    state = Hysteresis(MARKS)
    assert not any(opens(state, failure, R.HIGH_WATER, 90_000) for _ in range(10))


def test_what_fails_by_hand_opens_no_breaker_and_holds_nothing_up():
    state = Hysteresis(MARKS)
    assert not any(opens(state, F.INEFFECTIVE, R.MANUAL, 20_000) for _ in range(10))
    assert state.due(90_000) is R.HIGH_WATER


def test_a_window_that_turns_out_smaller_has_its_marks_lower_and_is_tried_anew():
    state = Hysteresis(MARKS)
    state.failed(F.PROVIDER, R.HIGH_WATER, 60_000)
    state.relearned(Window(100_000).learned(64_000))
    assert state.marks.high == 54_000
    assert state.due(55_000) is R.HIGH_WATER


def test_by_hand_a_context_that_is_too_full_must_get_below_the_mark():
    marks = Marks(Window(100_000), Headroom(0.8, reserve_tokens=0))
    assert marks.target(CompactionReason.MANUAL, 50_000) == 47_501
    assert marks.target(CompactionReason.MANUAL, 750_000) == 80_001
