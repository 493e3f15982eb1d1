"""A state is its fields: copies of it, and the same as JSON data."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor._util.state import copied, from_json, to_json


class Key(NamedTuple):
    hash: str
    length: int


@dataclass(slots=True)
class Streak:
    key: Key = field(default_factory=lambda: Key("", 0))
    offsets: list[int] = field(default_factory=list[int])


@dataclass(slots=True, frozen=True)
class Seen:
    at: int
    waits: float | None = None


@dataclass(slots=True)
class State:
    streak: Streak = field(default_factory=Streak)
    others: dict[str, Streak] = field(default_factory=dict[str, Streak])
    rows: list[Streak] = field(default_factory=list[Streak])
    seen: list[Seen] = field(default_factory=list[Seen])
    by_index: dict[int, tuple[float, tuple[int, ...]]] = field(default_factory=dict[int, tuple[float, tuple[int, ...]]])
    newest: Seen | None = None
    told: bool = False


KEYS = st.builds(Key, st.text(max_size=3), st.integers())
STREAKS = st.builds(Streak, KEYS, st.lists(st.integers(), max_size=3))
SEEN = st.builds(Seen, st.integers(), st.none() | st.floats(allow_nan=False))
STATES = st.builds(
    State,
    STREAKS,
    st.dictionaries(st.text(max_size=2), STREAKS, max_size=2),
    st.lists(STREAKS, max_size=2),
    st.lists(SEEN, max_size=2),
    st.dictionaries(
        st.integers(), st.tuples(st.floats(allow_nan=False), st.lists(st.integers()).map(tuple)), max_size=2
    ),
    st.none() | SEEN,
    st.booleans(),
)


@given(STATES)
def test_a_state_goes_through_json_and_comes_back_the_same(state: State):
    assert from_json(State, json.loads(json.dumps(to_json(state)))) == state


@given(STATES)
def test_what_is_changed_in_a_copy_is_not_changed_in_the_state(state: State):
    before = to_json(state)
    copy = copied(state)
    assert copy == state
    copy.streak.offsets.append(1)
    copy.others["new"] = Streak()
    for streak in (*copy.others.values(), *copy.rows):
        streak.offsets.append(2)
    copy.rows.append(Streak())
    copy.seen.append(Seen(1))
    copy.by_index[0] = (0.0, ())
    copy.told = not copy.told
    assert to_json(state) == before


@pytest.mark.parametrize("data", [[], [1, 2], "state", None, [[["", 0, 1], []], {}, [], [], {}, None, False]])
def test_other_data_is_an_error(data: object):
    with pytest.raises((TypeError, ValueError)):
        from_json(State, data)
