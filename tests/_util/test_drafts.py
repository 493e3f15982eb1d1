"""A moment of a run, a turn and an outcome, made as the core makes them."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest

from monitor._util.part_options import frozen
from monitor.chunks import Usage
from monitor.errors import TerminateReason
from monitor.outcome import Outcome, OutcomeDraft, RunState, StateDraft, Turn, TurnDraft

MOMENT = RunState(turns=3, usage=Usage(1, 2), phase="streaming")
TURN = Turn(number=3, text="words", text_chars=5, usage=Usage(1, 2))
OUTCOME: Outcome[Any] = Outcome(ok=True, reason=TerminateReason.GOAL, detail="done", source="caller", turns=3)
MADE = pytest.mark.parametrize(
    ("draft", "like"), [(StateDraft, MOMENT), (TurnDraft, TURN), (OutcomeDraft, OUTCOME)], ids=["state", "turn", "end"]
)


def values(like: Any) -> dict[str, Any]:
    return {field.name: getattr(like, field.name) for field in fields(like)}


@MADE
def test_what_is_made_of_a_draft_is_like_any_other(draft: Any, like: Any) -> None:
    made = frozen(draft(**values(like)), type(like))
    assert type(made) is type(like)
    assert made == like
    assert repr(made) == repr(like)
    name = fields(like)[0].name
    assert getattr(replace(made, **{name: 9}), name) == 9


@MADE
def test_it_cannot_be_changed(draft: Any, like: Any) -> None:
    made = frozen(draft(**values(like)), type(like))
    with pytest.raises(FrozenInstanceError):
        setattr(made, fields(like)[0].name, 9)


@MADE
def test_it_has_every_field(draft: Any, like: Any) -> None:
    name = fields(like)[-1].name
    with pytest.raises(TypeError, match=name):
        draft(**{key: value for key, value in values(like).items() if key != name})


def test_a_moment_and_a_turn_are_hashed_as_any_other() -> None:
    assert hash(frozen(StateDraft(**values(MOMENT)), RunState)) == hash(MOMENT)
    assert hash(frozen(TurnDraft(**values(TURN)), Turn)) == hash(TURN)
