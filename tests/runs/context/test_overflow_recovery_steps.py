"""The steps after a refusal, in their order, and the words for a person where nothing helps."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.context.compaction.hooks import CompactionError
from monitor.context.compaction.triggers import Marks
from monitor.context.history import History, HistoryEdit
from monitor.context.overflow import Overflow, OverflowKind, read_failure
from monitor.context.reduce import Reduction
from monitor.context.window import Window
from monitor.errors import CompactionFailure, ConfigError
from monitor.runs.context.compaction import Compaction
from monitor.runs.context.compactor import Compactor
from monitor.runs.context.run_context import OverflowRecovery
from tests.context.talk import IMAGE, ran, said, tokens, user

F = CompactionFailure
TOO_LONG = Overflow(OverflowKind.OVERFLOW, "openai", 210_000, 200_000)
BYTES = Overflow(OverflowKind.BYTES, "anthropic")
HOPELESS = read_failure("Limit: 6000, Requested: 12000 tokens per minute (TPM): Limit 6000, Used 0, Requested 12000")


class Job:
    """A compaction that is over."""

    over = True

    def __init__(self, failure: CompactionFailure | None) -> None:
        self.outcome = None if failure is None else CompactionError(failure, "it failed")


class Compacting:
    """Stands for a compactor: it lists what it was asked to do, and fails as scripted."""

    job = None

    def __init__(self, attempts: int) -> None:
        self.preset = Compaction(attempts=attempts)
        self.marks = Marks(Window(8_000), self.preset.headroom)
        self.history = History((user("look"), said("Yes.")))
        self.done: list[str] = []
        self.failures: list[CompactionFailure] = []

    def relearned(self, window: Window) -> None:
        """The window of these tests stays as it is."""

    def start(self, reason: object, *, harder: int) -> Job:
        self.done.append(f"compact {harder}")
        return Job(self.failures.pop(0) if self.failures else None)

    @property
    def when(self) -> Compacting:
        return self

    def reduced(self, reduction: Reduction) -> None:
        self.done.append(reduction.edit.kind)


class Refused:
    """A run whose requests are refused."""

    def __init__(self, attempts: int = 3) -> None:
        self.compactor = Compacting(attempts)
        self.history = self.compactor.history
        self.rescue = OverflowRecovery(cast("Compactor", self.compactor))

    def by(
        self,
        overflow: Overflow = TOO_LONG,
        *failures: CompactionFailure,
        oversized: bool = False,
        media: bool = False,
        shortened: bool = False,
    ) -> list[str]:
        """What is done about a refusal; the last word is why nothing helps, where nothing does."""
        if oversized:
            self.history.append(ran(tokens(4_000)))
        if media:
            self.history.append(user("and this", IMAGE))
        self.rescue.sent()
        if shortened:
            self.history.commit(HistoryEdit(self.history.version, 0, 1, (user("again"),), "test"))
        self.compactor.done, self.compactor.failures = [], list(failures)
        steps = self.rescue.make_smaller(overflow)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return [*self.compactor.done, *([end.value] if end.value is not None else [])]


def test_an_overflow_every_time_is_three_compactions_each_keeping_less_and_then_an_error():
    run = Refused()
    assert [run.by() for _ in range(3)] == [["compact 0"], ["compact 1"], ["compact 2"]]
    (why,) = run.by()
    assert (
        why == "The request is too long for the model: it has 210,000 tokens, and the model takes 200,000 tokens. Not"
        " enough: 3 compactions. Shorten the instructions or the tools, have tools answer with less, split the task,"
        " use a model with a larger window or allow more than 3 compactions for one refusal."
    )


def test_after_the_compactions_come_one_truncation_and_one_replay_without_media():
    run = Refused()
    steps = [run.by(oversized=True, media=True) for _ in range(6)]
    assert steps[:5] == [["compact 0"], ["compact 1"], ["compact 2"], ["truncate"], ["media"]]
    (why,) = steps[5]
    assert "Not enough: 3 compactions, a truncation of tool results, a replay without media." in why


def test_with_one_compaction_allowed_the_second_overflow_is_an_error_that_says_so():
    run = Refused(attempts=1)
    assert run.by() == ["compact 0"]
    (why,) = run.by()
    assert "allow more than 1 compaction for one refusal" in why


def test_an_answer_ends_the_episode():
    run = Refused(attempts=1)
    for _ in range(2):
        assert [run.by(oversized=True), run.by(oversized=True)] == [["compact 0"], ["truncate"]]
        run.rescue.went_well()


@pytest.mark.parametrize("kind", [OverflowKind.SILENT, OverflowKind.OUTPUT_TRUNCATED, OverflowKind.OVERFLOW])
def test_an_answer_that_did_not_fit_is_recovered_from_like_a_refusal(kind: OverflowKind):
    assert Refused().by(Overflow(kind, "any", 130_000, 128_000)) == ["compact 0"]


# --- what is no matter of the context


def test_a_request_that_is_above_the_limit_of_a_minute_is_never_compacted():
    assert HOPELESS is not None
    assert HOPELESS.kind is OverflowKind.HOPELESS
    (why,) = Refused().by(HOPELESS, oversized=True, media=True)
    assert (
        "asks for 12,000 tokens, and the account may use 6,000 in a minute: neither waiting nor compaction helps."
        in why
    )
    assert "Raise the account's limit per minute" in why


@pytest.mark.parametrize("kind", [OverflowKind.RATE_LIMIT, OverflowKind.OTHER])
def test_a_refusal_of_another_kind_is_not_recovered_from_whatever_came_before(kind: OverflowKind):
    run = Refused()
    assert run.by() == ["compact 0"]
    (why,) = run.by(Overflow(kind, "any"), oversized=True, media=True)
    assert "does not speak of the size" in why


def test_too_many_bytes_are_media_first_then_results_then_the_history():
    run = Refused()
    steps = [run.by(BYTES, oversized=True, media=True) for _ in range(6)]
    assert steps[:5] == [["media"], ["truncate"], ["compact 0"], ["compact 1"], ["compact 2"]]
    (why,) = steps[5]
    assert "too many bytes" in why
    assert "smaller images and files" in why


# --- compactions that fail


def test_nothing_to_compact_is_one_attempt_and_an_error():
    done, why = Refused().by(TOO_LONG, F.NOTHING_TO_COMPACT)
    assert done == "compact 0"
    assert "The last compaction failed (nothing_to_compact)." in why
    assert "Not enough" not in why
    assert "allow more" not in why


@pytest.mark.parametrize("failure", sorted(set(F) - {F.INEFFECTIVE, F.STALE, F.ABORTED}))
def test_a_compaction_that_fails_gives_way_to_a_truncation(failure: CompactionFailure):
    run = Refused()
    assert run.by(TOO_LONG, failure, oversized=True) == ["compact 0", "truncate"]
    assert run.by(oversized=True, media=True) == ["media"], "it is not tried again in this episode"


def test_what_was_skipped_or_failed_is_not_counted_as_tried():
    run = Refused()
    assert run.by() == ["compact 0"]
    _, why = run.by(TOO_LONG, F.NOTHING_TO_COMPACT)
    assert "Not enough: 1 compaction. The last compaction failed (nothing_to_compact)." in why


def test_one_that_did_not_get_far_enough_is_tried_harder():
    *done, why = Refused().by(TOO_LONG, F.INEFFECTIVE, F.INEFFECTIVE, F.INEFFECTIVE)
    assert done == ["compact 0", "compact 1", "compact 2"]
    assert "The last compaction failed (ineffective)." in why


def test_before_it_is_tried_harder_what_is_oversized_is_cut():
    run = Refused()
    assert run.by(TOO_LONG, F.INEFFECTIVE, oversized=True) == ["compact 0", "truncate"]
    assert run.by() == ["compact 1"]


def test_one_that_another_edit_has_overtaken_is_tried_again():
    assert Refused().by(TOO_LONG, F.STALE) == ["compact 0", "compact 1"]


def test_an_aborted_one_ends_the_recovery():
    done, why = Refused().by(TOO_LONG, F.ABORTED, oversized=True)
    assert done == "compact 0"
    assert "(aborted)" in why


# --- what was done meanwhile


def test_what_has_been_made_shorter_meanwhile_is_sent_again_without_a_compaction():
    run = Refused()
    assert run.by(shortened=True) == []
    assert run.by() == ["compact 0"]


def test_sending_again_is_counted():
    run = Refused(attempts=0)
    assert [len(run.by(shortened=True)) for _ in range(2)] == [0, 1]
    run = Refused()
    assert [run.by(shortened=True) for _ in range(4)] == [[], [], [], ["compact 0"]]


@given(
    st.integers(0, 4),
    st.lists(
        st.tuples(*[st.booleans()] * 3, st.lists(st.sampled_from([*F]), max_size=5), st.sampled_from([*OverflowKind])),
        min_size=20,
        max_size=20,
    ),
)
def test_every_episode_comes_to_an_end(attempts: int, seen: list[Any]):
    run = Refused(attempts)
    answers: list[list[str]] = []
    for oversized, media, shortened, failures, kind in seen:
        overflow = Overflow(kind, "any")
        answers.append(run.by(overflow, *failures, oversized=oversized, media=media, shortened=shortened))
    done = [step for answer in answers for step in answer]
    assert sum(step.startswith("compact ") for step in done) <= attempts
    assert done.count("truncate") <= 1
    assert done.count("media") <= 1
    assert answers.count([]) <= max(1, attempts)
    assert all(step.endswith(".") for step in done if " " in step and not step.startswith("compact "))


@pytest.mark.parametrize("attempts", [-1, True, 1.5, None])
def test_a_number_of_attempts_that_is_none_is_refused(attempts: object):
    with pytest.raises(ConfigError, match="attempts"):
        Compaction(attempts=attempts)  # type: ignore[arg-type]
