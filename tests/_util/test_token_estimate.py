from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor._util.text import MOST_EIGHTHS_PER_CHAR, eighths_of_tokens, estimate_tokens

ANY_TEXT = st.text(st.characters(), max_size=60)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("four", 1),
        ("fours", 2),
        ("a" * 400, 100),
        ("\x00" * 8, 2),
        ("ж" * 8, 5),
        ("漢" * 8, 8),
        ("😀" * 8, 11),
        ("\ud800" * 8, 8),  # three bytes, if a lone surrogate could be written
        ("code, ж und 漢", 5),
    ],
    ids=ascii,
)
def test_a_character_costs_about_what_its_bytes_do(text: str, tokens: int):
    assert estimate_tokens(text) == tokens


@given(ANY_TEXT)
def test_no_character_costs_more_than_is_promised(text: str):
    assert all(2 <= eighths_of_tokens(character) <= MOST_EIGHTHS_PER_CHAR for character in text)


@given(ANY_TEXT)
def test_a_text_costs_what_its_characters_do_rounded_up_once(text: str):
    assert eighths_of_tokens(text) == sum(map(eighths_of_tokens, text))
    assert 8 * (estimate_tokens(text) - 1) < eighths_of_tokens(text) <= 8 * estimate_tokens(text)


@given(ANY_TEXT)
def test_text_is_never_free(text: str):
    assert estimate_tokens(text) >= len(text) / 4


@given(ANY_TEXT, ANY_TEXT)
def test_more_text_never_costs_less(text: str, more: str):
    assert estimate_tokens(text) <= estimate_tokens(text + more)


@given(st.lists(ANY_TEXT, min_size=1, max_size=8))
def test_pieces_cost_what_the_whole_does_up_to_one_token_each(pieces: list[str]):
    whole = estimate_tokens("".join(pieces))
    assert whole <= sum(map(estimate_tokens, pieces)) < whole + len(pieces)
