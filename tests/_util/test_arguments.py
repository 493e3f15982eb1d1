from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor._util.arguments import SHOWN_CHARS, arguments_in, closest, is_blank, shown

NAMES = ["summary", "risk_level", "owner"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"a": 1}, {"a": 1}),
        (None, {}),
        ('{"a": 1}', {"a": 1}),  # encoded twice
    ],
)
def test_arguments_are_read_in_every_form_in_which_they_come(arguments: object, expected: dict[str, Any]):
    assert arguments_in(arguments) == expected


@pytest.mark.parametrize("arguments", ["", "{", "[1]", "1", [1], 3, "[" * 100_000])
def test_arguments_that_are_no_object_are_an_error_for_the_model(arguments: object):
    with pytest.raises(ValueError, match="The arguments"):
        arguments_in(arguments)


@pytest.mark.parametrize("name", ["risk_level", "Risk Level", " risk-level", "RISKLEVEL", "risk_levl", "risklevels"])
def test_the_name_that_was_meant_is_found(name: str):
    assert closest(name, NAMES) == "risk_level"


@pytest.mark.parametrize("name", ["", "weather", None, 3, ["owner"], "x" * 10_000_000])
def test_what_is_like_no_name_is_not_guessed(name: object):
    assert closest(name, NAMES) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
        max_leaves=20,
    )
)
def test_a_value_is_shown_in_few_characters(value: Any):
    assert 0 < len(shown(value)) <= SHOWN_CHARS


def test_a_number_that_python_does_not_write_is_shown_in_hexadecimal_and_cut():
    assert shown(10**5000).startswith('"0x')
    assert len(shown(10**5000)) == SHOWN_CHARS


@given(st.text(st.sampled_from(" \t\n\u00a0\u2003\u3000\u200b\u200d\u2060\ufeff\u00ad") | st.characters(), max_size=20))
def test_a_text_is_blank_if_nothing_of_it_can_be_seen(text: str):
    seen = [char for char in text if not char.isspace() and char not in "\u200b\u200c\u200d\u2060\ufeff\u00ad"]
    assert is_blank(text) is not bool(seen)
