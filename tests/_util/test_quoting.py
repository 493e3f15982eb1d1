"""What is quoted stays a quotation, whatever it says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor._util.text import ENDING_CHARS, OPENING_CHARS, quoted, quoted_data

ANY_TEXT = st.text(st.characters(), max_size=600)  # lone surrogates and controls too


@given(ANY_TEXT)
def test_a_quotation_is_one_printable_line_without_angle_brackets(text: str):
    said = quoted(text)
    assert said.isprintable()
    assert not set(said) & set("<>＜＞﹤﹥‹›")
    said.encode()  # no half of a surrogate pair


@given(st.text(st.characters(), max_size=OPENING_CHARS + ENDING_CHARS))
def test_nothing_of_a_short_text_is_lost(text: str):
    assert json.loads(quoted(text), strict=True) == text or any(0xD800 <= ord(char) <= 0xDFFF for char in text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | ANY_TEXT,
        lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner),
    )
)
def test_data_is_quoted_as_data(value: Any):
    said = quoted_data(value)
    assert said.isprintable()
    assert not set(said) & set("<>＜＞﹤﹥‹›")


def test_readable_text_stays_readable():
    assert quoted("Привет, 世界 🙂 “so”") == '"Привет, 世界 🙂 “so”"'
    assert quoted_data({"q": "雨", "page": 2}) == '{"page": 2, "q": "雨"}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('" end', r'"\" end"'),
        ("a\nb\u2028c", r'"a\nb\u2028c"'),
        ("run>>>", r'"run\u003e\u003e\u003e"'),
        ("＞", r'"\uff1e"'),
        ("\U000e0041", r'"\udb40\udc41"'),  # a letter that nobody sees
        ("\u202eabc", r'"\u202eabc"'),
        ("\ud800", r'"\ud800"'),
        ("\x7f\x00", r'"\u007f\u0000"'),
    ],
)
def test_what_could_pass_for_something_else_is_escaped(text: str, said: str):
    assert quoted(text) == said


def test_of_a_long_text_the_opening_and_the_end_are_shown_and_its_length():
    text = "Traceback:" + "x" * 1_000_000 + "KeyError: 'id'"
    said = quoted(text)
    assert said.startswith('"Traceback:xxx')
    assert said.endswith("KeyError: 'id'\" (1,000,024 characters)")
    assert len(said) < OPENING_CHARS + ENDING_CHARS + 50


@pytest.mark.parametrize(
    "value",
    [{"code": "é" * 100_000}, ["x"] * 100_000, "half {json", float("nan"), 1 << 20_000, b"\xff", object()],
    ids=type,
)
def test_any_arguments_fit_on_a_line(value: Any):
    assert len(quoted_data(value)) < 6 * (OPENING_CHARS + ENDING_CHARS)
