"""Where user turns begin, and what belongs to none."""

from __future__ import annotations

import pytest

from monitor.context import History, HistoryEdit, KeepTurns, cut_by_turns, head_of, propose_edit
from monitor.context.history import COMPACTION, user_turns
from tests.context.talk import ran, said, user

TALK = (user("a"), ran("x"), said("A"), user("b"), user("c"), said("C"))


@pytest.mark.feature("OC-05")
def test_a_turn_is_a_user_message_up_to_the_next_one():
    assert user_turns(TALK) == [range(3), range(3, 4), range(4, 6)]
    assert user_turns(()) == []


@pytest.mark.feature("OC-05")
def test_a_summary_and_what_the_program_put_at_the_head_begin_no_turn():
    assert user_turns((user("rules"), user("summary"), *TALK), head=2) == [range(2, 5), range(5, 6), range(6, 8)]
    assert user_turns(TALK, head=6) == []


def test_the_rest_of_a_turn_whose_beginning_was_summarised_is_a_turn():
    assert user_turns((user("summary"), ran("x"), said("A"), user("b")), head=1) == [range(1, 3), range(3, 4)]


def test_the_head_is_what_the_newest_compaction_put_there():
    history = History(TALK)
    assert head_of(history) == 0
    history.commit(HistoryEdit(0, 0, 3, (user("summary"), user("files")), COMPACTION))
    assert head_of(history) == 2
    history.commit(HistoryEdit(1, 3, 4, (user("b, shorter"),), "truncate"))
    history.append(user("d"))
    assert head_of(history) == 2
    history.commit(HistoryEdit(history.version, 0, 4, (user("new summary"),), COMPACTION))
    assert head_of(history) == 1


def test_rules_before_a_summary_belong_to_the_head():
    history = History((user("rules"), *TALK))
    history.commit(HistoryEdit(0, 1, 4, (user("summary"),), COMPACTION))
    assert head_of(history) == 2


def test_the_head_follows_other_edits_of_it():
    history = History(TALK)
    history.commit(HistoryEdit(0, 0, 3, (user("summary"), user("files")), COMPACTION))
    history.commit(HistoryEdit(1, 0, 0, (user("rules"),), "rules"))
    assert head_of(history) == 3
    history.commit(HistoryEdit(2, 1, 4, (user("all in one"),), "by hand"))
    assert head_of(history) == 1


@pytest.mark.feature("OC-13")
def test_after_a_compaction_the_model_sees_the_summary_the_tail_newer_messages_and_nothing_older():
    history = History(TALK)
    cut = cut_by_turns(history.messages, 2_000, tail_turns=1)
    assert cut is not None
    version = history.version
    history.append(said("meanwhile"))
    history.commit(cut.edit(version, (user("summary"),)))
    assert history.messages == (user("summary"), user("c"), said("C"), said("meanwhile"))
    assert history.originals == (*TALK, said("meanwhile"))


def test_of_two_compactions_only_the_latest_is_shown_and_stands_for_everything_before():
    """C6, C12, C13: the earlier summary goes, and is not kept as if somebody had said it."""
    history = History(TALK)
    history.commit(HistoryEdit(0, 0, 3, (user("summary"),), COMPACTION))
    history.append(user("d"))
    assert history.behind(0, 1) == TALK[:3]
    history.commit(HistoryEdit(history.version, 0, 2, (user("newer summary"),), COMPACTION))
    assert history.messages == (user("newer summary"), user("c"), said("C"), user("d"))
    assert head_of(history) == 1
    assert history.behind(0, 1) == TALK[: 3 + 2 - 1]
    assert user("summary") not in history.originals


def test_reducers_leave_the_head_of_a_compacted_history_alone():
    history = History(TALK)
    history.commit(HistoryEdit(0, 0, 3, (user("summary"),), COMPACTION))
    reduction = propose_edit(history, KeepTurns(1))
    assert reduction is not None
    history.commit(reduction.edit)
    assert history.messages == (user("summary"), user("c"), said("C"))
