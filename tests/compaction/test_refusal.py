"""What to do when a request does not fit, step by step."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.compaction.refusal import CompactAgain, GiveUp, Recovery, RecoveryStep, ReplayWithoutMedia, Retry, Truncate
from monitor.context.overflow import Overflow, OverflowKind, read_failure
from monitor.errors import ConfigError
from monitor.reasons import CompactionFailure

F = CompactionFailure
TOO_LONG = Overflow(OverflowKind.OVERFLOW, "openai", 210_000, 200_000)
BYTES = Overflow(OverflowKind.BYTES, "anthropic")
HOPELESS = read_failure("Limit: 6000, Requested: 12000 tokens per minute (TPM): Limit 6000, Used 0, Requested 12000")


def overflow(recovery: Recovery, found: Overflow | None = TOO_LONG, **facts: bool) -> RecoveryStep:
    known: dict[str, Any] = {"oversized": False, "media": False, **facts}
    return recovery.on_overflow(found, **known)


def kinds(steps: list[RecoveryStep]) -> list[str]:
    return [type(step).__name__ for step in steps]


def gave_up(step: RecoveryStep) -> GiveUp:
    assert isinstance(step, GiveUp)
    return step


# --- the tree


def test_an_overflow_every_time_is_three_compactions_each_keeping_less_and_then_an_error():
    recovery = Recovery()
    steps = [overflow(recovery) for _ in range(4)]
    assert steps[:3] == [CompactAgain(attempt, attempt - 1) for attempt in (1, 2, 3)]
    text = gave_up(steps[3]).text
    assert (
        text
        == "The request is too long for the model: it has 210,000 tokens, and the model takes 200,000. Not enough: 3"
        " compactions. Shorten the instructions or the tools, have tools answer with less, split the task, use a"
        " model with a larger window or allow more than 3 compactions for one refusal."
    )


def test_after_the_compactions_come_one_truncation_and_one_replay_without_media():
    recovery = Recovery()
    steps = [overflow(recovery, oversized=True, media=True) for _ in range(6)]
    assert kinds(steps) == ["CompactAgain", "CompactAgain", "CompactAgain", "Truncate", "ReplayWithoutMedia", "GiveUp"]
    assert "Not enough: 3 compactions, a truncation of tool results, a replay without media." in gave_up(steps[5]).text


def test_with_one_compaction_allowed_the_second_overflow_is_an_error_that_says_so():
    recovery = Recovery(max_compactions=1)
    assert kinds([overflow(recovery), overflow(recovery)]) == ["CompactAgain", "GiveUp"]
    assert "allow more than 1 compaction for one refusal" in gave_up(overflow(recovery)).text


def test_an_answer_ends_the_episode():
    recovery = Recovery(max_compactions=1)
    assert kinds([overflow(recovery, oversized=True), overflow(recovery, oversized=True)]) == [
        "CompactAgain",
        "Truncate",
    ]
    recovery.went_well()
    assert kinds([overflow(recovery, oversized=True), overflow(recovery, oversized=True)]) == [
        "CompactAgain",
        "Truncate",
    ]


@pytest.mark.parametrize("kind", [OverflowKind.SILENT, OverflowKind.OUTPUT_TRUNCATED, OverflowKind.OVERFLOW])
def test_an_answer_that_did_not_fit_is_recovered_from_like_a_refusal(kind: OverflowKind):
    assert overflow(Recovery(), Overflow(kind, "any", 130_000, 128_000)) == CompactAgain(1, 0)


# --- what is no matter of the context


def test_a_request_that_is_above_the_limit_of_a_minute_is_never_compacted():
    assert HOPELESS is not None
    assert HOPELESS.kind is OverflowKind.HOPELESS
    text = gave_up(overflow(Recovery(), HOPELESS, oversized=True, media=True)).text
    assert (
        "asks for 12,000 tokens, and the account may use 6,000 in a minute: neither waiting nor compaction helps."
        in text
    )
    assert "Raise the account's limit per minute" in text


@pytest.mark.parametrize("kind", [OverflowKind.RATE_LIMIT, OverflowKind.OTHER])
def test_a_refusal_of_another_kind_is_not_recovered_from_whatever_came_before(kind: OverflowKind):
    recovery = Recovery()
    assert isinstance(overflow(recovery), CompactAgain)
    assert isinstance(overflow(recovery, Overflow(kind, "any"), oversized=True, media=True), GiveUp)


def test_too_many_bytes_are_media_first_then_results_then_the_history():
    recovery = Recovery()
    steps = [overflow(recovery, BYTES, oversized=True, media=True) for _ in range(6)]
    assert kinds(steps) == ["ReplayWithoutMedia", "Truncate", "CompactAgain", "CompactAgain", "CompactAgain", "GiveUp"]
    assert "too many bytes" in gave_up(steps[5]).text
    assert "smaller images and files" in gave_up(steps[5]).text


# --- compactions that fail


def test_nothing_to_compact_is_one_attempt_and_an_error():
    recovery = Recovery()
    assert isinstance(overflow(recovery), CompactAgain)
    step = gave_up(recovery.compaction_failed(F.NOTHING_TO_COMPACT))
    assert step.failure is F.NOTHING_TO_COMPACT
    assert "The last compaction failed (nothing_to_compact)." in step.text
    assert "allow more" not in step.text


@pytest.mark.parametrize("failure", sorted(set(F) - {F.INEFFECTIVE, F.STALE, F.ABORTED}))
def test_a_compaction_that_fails_gives_way_to_a_truncation(failure: CompactionFailure):
    recovery = Recovery()
    overflow(recovery, oversized=True)
    assert recovery.compaction_failed(failure) == Truncate()
    assert isinstance(overflow(recovery, oversized=True, media=True), ReplayWithoutMedia), (
        "it is not tried again in this episode"
    )


def test_the_failure_of_the_summary_itself_is_not_answered_by_another_summary():
    step = gave_up(Recovery().compaction_failed(F.TOO_LONG))
    assert step.failure is F.TOO_LONG
    assert "Not enough" not in step.text


def test_what_was_skipped_or_failed_is_not_counted_as_tried():
    recovery = Recovery()
    overflow(recovery)
    overflow(recovery)
    text = gave_up(recovery.compaction_failed(F.NOTHING_TO_COMPACT)).text
    assert "Not enough: 1 compaction. The last compaction failed (nothing_to_compact)." in text


def test_one_that_did_not_get_far_enough_is_tried_harder():
    recovery = Recovery()
    overflow(recovery)
    steps = [recovery.compaction_failed(F.INEFFECTIVE) for _ in range(3)]
    assert steps[:2] == [CompactAgain(2, 1), CompactAgain(3, 2)]
    assert isinstance(steps[2], GiveUp)


def test_before_it_is_tried_harder_what_is_oversized_is_cut():
    recovery = Recovery()
    overflow(recovery, oversized=True)
    assert recovery.compaction_failed(F.INEFFECTIVE) == Truncate()
    assert overflow(recovery) == CompactAgain(2, 1)


def test_one_that_another_edit_has_overtaken_is_tried_again():
    recovery = Recovery()
    overflow(recovery)
    assert isinstance(recovery.compaction_failed(F.STALE), CompactAgain)


def test_an_aborted_one_ends_the_recovery():
    recovery = Recovery()
    overflow(recovery, oversized=True)
    assert isinstance(recovery.compaction_failed(F.ABORTED), GiveUp)


# --- what was done meanwhile


def test_what_has_been_made_shorter_meanwhile_is_sent_again_without_a_compaction():
    recovery = Recovery()
    assert overflow(recovery, shortened=True) == Retry()
    assert isinstance(overflow(recovery), CompactAgain)


def test_sending_again_is_counted():
    recovery = Recovery(0)
    assert kinds([overflow(recovery, shortened=True) for _ in range(2)]) == ["Retry", "GiveUp"]
    assert kinds([overflow(Recovery(), shortened=True) for _ in range(2)]) == ["Retry", "Retry"]


@given(
    st.integers(0, 4),
    st.lists(
        st.tuples(*[st.booleans()] * 3, st.sampled_from([None, *F]), st.sampled_from([None, *OverflowKind])),
        min_size=20,
        max_size=20,
    ),
)
def test_every_episode_comes_to_an_end(most: int, seen: list[Any]):
    recovery = Recovery(most)
    steps: list[RecoveryStep] = []
    for oversized, media, shortened, failure, kind in seen:
        found = None if kind is None else Overflow(kind, "any")
        facts = {"oversized": oversized, "media": media, "shortened": shortened}
        steps.append(overflow(recovery, found, **facts))
        while failure is not None and isinstance(steps[-1], CompactAgain):
            steps.append(recovery.compaction_failed(failure))
    assert sum(isinstance(step, CompactAgain) for step in steps) <= most
    assert sum(isinstance(step, Truncate) for step in steps) <= 1
    assert sum(isinstance(step, ReplayWithoutMedia) for step in steps) <= 1
    assert sum(isinstance(step, Retry) for step in steps) <= max(1, most)
    assert all(step.text.endswith(".") for step in steps if isinstance(step, GiveUp))


@pytest.mark.parametrize("most", [-1, True, 1.5, None])
def test_a_number_of_compactions_that_is_none_is_refused(most: object):
    with pytest.raises(ConfigError, match="max_compactions"):
        Recovery(most)  # type: ignore[arg-type]
