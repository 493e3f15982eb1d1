"""What compactions are recorded as, and what the model is shown by their records."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor import ConfigError
from monitor.context import CompactionError, CompactionRecord
from monitor.context.compaction.hooks import CompactionDetails, CompactionIneffective, compaction_codec, shown
from monitor.context.compaction.pinned import acknowledgement
from monitor.context.history import COMPACTION, CommittedEdit, History, HistoryEdit, head_of
from monitor.errors import PRESSING, RETRYABLE, SKIPPED, CompactionFailure, CompactionReason
from monitor.messages import Message
from tests.context.talk import ran, said, user


def record(first_kept: int, text: str = "short", **options: Any) -> CompactionRecord:
    given: dict[str, Any] = {
        "summary": text,
        "shown": (user(text), acknowledgement()),
        "tokens_before": 9,
        "tokens_after": 5,
        **options,
    }
    return CompactionRecord(first_kept=first_kept, **given)


TALK = tuple(user(f"message {number}") for number in range(6))


@pytest.mark.feature("AC-02", "OC-16")
def test_the_newest_valid_record_says_what_is_shown():
    assert shown(TALK, []) == TALK
    assert shown(TALK, [record(2, "old"), record(4, "new")]) == (user("new"), acknowledgement(), *TALK[4:])
    assert shown(TALK, [record(2, "old"), record(7, "of messages that are not there")]) == (
        user("old"),
        acknowledgement(),
        *TALK[2:],
    )
    assert shown(TALK, [record(7)]) == TALK
    assert shown(TALK, [record(6)]) == (user("short"), acknowledgement())


@pytest.mark.feature("AC-10")
@pytest.mark.parametrize(
    "wrong",
    [
        {"summary": " \n"},
        {"shown": ()},
        {"first_kept": 0},
        {"first_kept": -3},
        {"tokens_before": -1},
        {"tokens_after": -1},
    ],
)
def test_a_record_that_makes_no_sense_cannot_be_made(wrong: dict[str, Any]):
    with pytest.raises(ConfigError):
        record(**{"first_kept": 2, **wrong})


@pytest.mark.feature("AC-02")
def test_a_record_comes_back_from_json():
    details = CompactionDetails(
        files_read=("a.py",), files_modified=("b.py",), artifacts=("https://x",), tool_notes=("denied",)
    )
    one = record(3, preset="pi", reason=CompactionReason.OVERFLOW, summarised_by="extractive", details=details)
    stored = json.loads(json.dumps(compaction_codec.to_dict(one)))
    back = compaction_codec.from_dict(stored)
    assert back == one
    assert shown(TALK, [back]) == shown(TALK, [one])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 100)), max_size=20))
@pytest.mark.feature("AC-02")
def test_what_is_shown_is_the_history_after_any_chain_of_compactions(steps: Sequence[tuple[int, int]]):
    history, records = History(), []
    for number, (new, at) in enumerate(steps):
        for place in range(new):
            history.append(user(f"{number}.{place}") if place % 2 == 0 else ran(f"{number}.{place}"))
        base, length, head = history.version, len(history), head_of(history)
        if length <= head:
            continue
        stop = head + 1 + at % (length - head)
        put: tuple[Message, ...] = (user(f"summary {number}"), said("yes")) if at % 2 else (user(f"summary {number}"),)
        before = history.originals_before(stop)
        history.append(said(f"meanwhile {number}"))
        assert isinstance(history.commit(HistoryEdit(base, 0, stop, put, COMPACTION)), CommittedEdit)
        records.append(record(before, shown=put))
        assert shown(history.originals, records) == history.messages


def test_errors_say_what_became_of_it_also_in_another_process():
    error = CompactionError(CompactionFailure.TIMEOUT, "too slow")
    error.media_removed = True
    back = pickle.loads(pickle.dumps(error))
    assert (back.failure, str(back), back.media_removed, back.retryable) == (
        CompactionFailure.TIMEOUT,
        "too slow",
        True,
        True,
    )
    ineffective = CompactionIneffective("no use", tokens_before=9, tokens_after=8, target_tokens=5)
    back = pickle.loads(pickle.dumps(ineffective))
    assert isinstance(back, CompactionIneffective)
    assert (back.tokens_before, back.tokens_after, back.target_tokens, str(back)) == (9, 8, 5, "no use")
    assert not back.retryable


def test_a_failure_is_no_skip_and_only_some_may_be_tried_again():
    assert not RETRYABLE & SKIPPED
    assert CompactionReason.MANUAL not in PRESSING
    assert CompactionReason.HIGH_WATER not in PRESSING
