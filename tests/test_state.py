"""A moment of a run."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace

import pytest

from monitor.state import Draft, RunState, frozen
from monitor.usage import Usage

VALUES = {
    field.name: getattr(RunState(turns=3, usage=Usage(1, 2), phase="streaming"), field.name)
    for field in fields(RunState)
}


def test_a_moment_is_a_run_state_like_any_other():
    made = frozen(Draft(**VALUES))
    assert type(made) is RunState
    assert made == RunState(**VALUES)
    assert hash(made) == hash(RunState(**VALUES))
    assert replace(made, turns=4).turns == 4


def test_a_moment_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        frozen(Draft(**VALUES)).turns = 9  # type: ignore[misc]


def test_a_moment_has_every_field():
    with pytest.raises(TypeError, match="task_done"):
        frozen(Draft(**{name: value for name, value in VALUES.items() if name != "task_done"}))
