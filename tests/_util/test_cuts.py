"""A text is never cut inside a character or an escape sequence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor._util.text import cut_after, cut_before

SEQUENCES = ["\x1b[31m", "\x1b[0m", "\x1b[38;5;208m", "\x1b]0;a title\x07", "\x1b]8;;http://x\x1b\\", "\x1b(B", "\x1bM"]
PIECES = st.lists(st.sampled_from(["a", "\n", "漢", "\ud83d\ude00", *SEQUENCES]), max_size=12)


@given(PIECES, st.integers(0, 120))
def test_a_cut_falls_between_the_pieces_of_a_text(pieces: list[str], at: int):
    text = "".join(pieces)
    edges, place = {0}, 0
    for piece in pieces:
        place += len(piece)
        edges.add(place)
    before, after = cut_before(text, at), cut_after(text, at)
    assert before in edges
    assert after in edges
    wanted = min(at, len(text))
    assert before == max(edge for edge in edges if edge <= wanted)
    assert after == min(edge for edge in edges if edge >= wanted)


@given(st.text(st.characters() | st.sampled_from("\x1b[]\\\x07;0m\ud800\udc00"), max_size=60), st.integers(-5, 70))
def test_any_text_can_be_cut_and_nothing_of_it_is_lost(text: str, at: int):
    before, after = cut_before(text, at), cut_after(text, at)
    assert 0 <= before <= max(min(at, len(text)), 0) <= after <= len(text)


@pytest.mark.parametrize("begun", ["\x1b", "\x1b[", "\x1b]0;never ends", "\x1b[" + "1" * 400])
def test_what_is_no_whole_sequence_does_not_move_a_cut(begun: str):
    assert cut_before(begun, len(begun) - 1) == len(begun) - 1
