"""How many user turns are sent, by the kind of session."""

from __future__ import annotations

from typing import Any

import pytest

from monitor import ConfigError
from monitor.context import History, HistoryLimits, KeepTurns, propose_edit
from monitor.context.history import user_turns
from monitor.messages import Message
from tests.context.talk import ran, said, user, words


def turns(count: int) -> tuple[Message, ...]:
    return tuple(message for n in range(count) for message in (user(f"{n}"), ran("seen"), said("done")))


@pytest.mark.feature("CL-02")
def test_the_limit_is_by_kind_of_session_and_by_user_before_that():
    limits = HistoryLimits(direct=20, channel=50, group=30, users={"ada": 5, "bob": None})
    assert [limits.of(kind) for kind in ("direct", "channel", "group")] == [KeepTurns(20), KeepTurns(50), KeepTurns(30)]
    assert (limits.of("direct", "ada"), limits.of("direct", "bob"), limits.of("direct", "eve")) == (
        KeepTurns(5),
        None,
        KeepTurns(20),
    )
    assert limits.of("group", "ada") == KeepTurns(30)
    assert HistoryLimits().of("channel") is None


@pytest.mark.feature("CL-02")
def test_turns_go_with_all_that_belongs_to_them():
    kept = KeepTurns(2).reduce(turns(5))
    assert words(kept) == ["3", "", "done", "4", "", "done"]


@pytest.mark.feature("CL-02")
def test_what_stands_at_the_head_stays_and_counts_as_no_turn():
    messages = (user("summary"), *turns(5))
    assert KeepTurns(2).reduce(messages, head=1) == (messages[0], *turns(5)[-6:])


def test_nothing_goes_up_to_one_and_a_half_times_the_limit():
    assert [len(user_turns(KeepTurns(10).reduce(turns(n)))) for n in (10, 15, 16, 17, 20, 21)] == [
        10,
        15,
        11,
        12,
        10,
        11,
    ]
    assert [len(user_turns(KeepTurns(1).reduce(turns(n)))) for n in (1, 2, 9)] == [1, 1, 1]


def test_the_head_of_the_request_moves_once_in_half_the_limit():
    heads = [words(KeepTurns(10).reduce(turns(n)))[0] for n in range(16, 36)]
    assert [heads.count(head) for head in dict.fromkeys(heads)] == [4, 5, 5, 5, 1]


def test_committed_turn_by_turn_the_head_moves_as_seldom():
    history, moved = History(), 0
    for n in range(100):
        for message in (user(f"{n}"), said("done")):
            history.append(message)
        reduction = propose_edit(history, KeepTurns(10))
        if reduction is not None:
            assert reduction.breaks_at == 0
            history.commit(reduction.edit)
            moved += 1
        assert min(n + 1, 10) <= len(user_turns(history.messages)) <= 15
    assert moved == 17
    assert len(history.originals) == 200


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: KeepTurns(0),
        lambda: HistoryLimits(direct=-1),
        lambda: HistoryLimits(users={"ada": 0}),
        lambda: HistoryLimits().of("dm"),  # type: ignore[arg-type]
    ],
)
def test_limits_that_make_no_sense_are_errors(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        wrong()
