from __future__ import annotations

import json
import subprocess
import sys
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor._util import hashing
from monitor._util.hashing import canonical_json, identity

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def shuffled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(list(value))}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


def test_containers_that_hold_themselves_have_one_form_whatever_the_order_and_no_end_is_looked_for():
    shared = {"id": 1}
    one: dict[str, Any] = {"first": shared, "second": shared, "list": []}
    other: dict[str, Any] = {"list": [], "second": {"id": 1}, "first": {"id": 1}}
    for circle in (one, other):
        circle["self"] = circle["again"] = circle
        circle["list"] += [circle, circle["list"]]
    assert canonical_json(one) == canonical_json(other)
    other["list"].pop()
    assert canonical_json(one) != canonical_json(other)


@pytest.mark.feature("GL-01")
@given(JSON)
def test_the_order_of_keys_does_not_matter(value: Any):
    assert canonical_json(shuffled(value)) == canonical_json(value)


@given(JSON)
def test_the_quick_way_writes_what_the_thorough_one_does(value: Any):
    assert canonical_json(value) == hashing._write(hashing._plain(value, ()))


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1.0, "b": [2**63, -(2**64), 2**5000]},
        {"e\u0301": "e\u0301"},
        {"text": "\\u0041", "\x00": 1},
        {1: "a", "1": "b"},
        {"a": ("x", b"y")},
        {"a": float("nan")},
    ],
)
def test_what_is_not_simple_is_written_thoroughly(value: object):
    assert canonical_json(value) == hashing._write(hashing._plain(value, ()))


@pytest.mark.parametrize("depth", [62, 63, 64, 65, 66, 5_000])
def test_the_quick_way_goes_as_deep_as_the_thorough_one(depth: int):
    value: Any = "end"
    for _ in range(depth):
        value = [value]
    assert canonical_json(value) == hashing._write(hashing._plain(value, ()))


@given(JSON)
def test_the_form_is_one_line_of_json(value: Any):
    line = canonical_json(value)
    json.loads(line)
    assert line.isascii()
    assert "\n" not in line


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (0, -0.0),
        (10**20, 1e20),
        ([1, (2, 3)], [1, [2, 3]]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 2, "b": 1}}),
        ({"a": 1}, MappingProxyType({"a": 1})),
        ({1, 2}, {2, 1}),
        ("caf\u00e9", "cafe\u0301"),
        ({"\u00e9": ["\u00e9"]}, {"e\u0301": ["e\u0301"]}),
        ({"\u00e9": 1, "e\u0301": 2}, {"e\u0301": 2, "\u00e9": 1}),
        (json.loads('{"n": [1, 2.0, 3e0]}'), json.loads('{"n": [1.0, 2, 30e-1]}')),
        (float("nan"), float("nan")),
    ],
)
def test_equal_values_have_one_form(one: object, other: object):
    assert canonical_json(one) == canonical_json(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (0, False),
        (1, "1"),
        (None, "None"),
        (None, "null"),
        ({"a": None}, {}),
        ({1: 1}, {"1": 1}),
        ([1, 2], [2, 1]),
        ("\u00e9", "e"),
        ({"\u00e9": 1, "e\u0301": 2}, {"\u00e9": 2}),
        (float("nan"), "nan"),
        (float("nan"), None),
        (float("inf"), float("-inf")),
        (b"a", "a"),
        (float("nan"), {"\x00": "float", "value": "nan"}),
        (0.1, 0.2),
    ],
)
def test_different_values_have_different_forms(one: object, other: object):
    assert canonical_json(one) != canonical_json(other)


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def test_nothing_makes_it_raise():
    endless: dict[str, Any] = {}
    endless["self"] = endless
    for value in (
        "\ud800",
        {"\udfff": "\x00"},
        Hostile(),
        {Hostile(): 1},
        nested(100_000),
        endless,
        10**10_000,
        object,
        {1: 2, "a": 3},
        1e308,
    ):
        assert len(identity(canonical_json(value))) == 16


def test_identity_is_the_same_in_every_process():
    assert identity("loop") == identity("loop") != identity("Loop")
    assert len(identity("\ud800\x00")) == 16
    program = "from monitor._util.hashing import identity; print(identity('loop'))"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == identity("loop")
