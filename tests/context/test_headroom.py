"""When a context is too full, by the formulas of known agents; and what those get wrong at the
edges.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.context.window import (
    CLAUDE_CODE,
    DEFAULT,
    GEMINI_CLI,
    OPENCLAW,
    OPENCODE,
    PI,
    UNKNOWN,
    Headroom,
    Window,
)
from monitor.errors import ConfigError

SIZES = st.integers(1, 2_000_000)
PRESETS = {
    "default": DEFAULT,
    "opencode": OPENCODE,
    "pi": PI,
    "openclaw": OPENCLAW,
    "claude code": CLAUDE_CODE,
    "gemini cli": GEMINI_CLI,
}


def full(headroom: Headroom, window: Window, tokens: int) -> bool:
    usable = headroom.usable(window)
    return usable is not None and tokens >= usable


@pytest.mark.parametrize(
    ("headroom", "window", "usable"),
    [
        (OPENCODE, Window(200_000, 32_000), 168_000),
        (OPENCODE, Window(400_000, 128_000, 272_000), 252_000),  # input limit - min(20,000, max output)
        (OPENCODE, Window(400_000, 8_000, 272_000), 264_000),
        (OPENCODE, Window(200_000), 180_000),  # nobody knows the greatest answer: 20,000
        (OPENCODE, Window(32_000), 12_000),
        (OPENCODE, Window(16_000), 4_000),  # never more than three quarters
        (OPENCODE, Window(200_000, 100), 190_000),  # never less than a twentieth
        (PI, Window(200_000, 64_000), 183_616),
        (OPENCLAW, Window(200_000), 180_000),
        (OPENCLAW, Window(80_000), 60_000),
        (OPENCLAW, Window(40_000), 30_000),  # never more than a quarter
        (CLAUDE_CODE, Window(200_000, 64_000), 184_000),
        (GEMINI_CLI, Window(1_048_576, 65_536), 734_003),
        (DEFAULT, Window(200_000, 32_000), 142_800),
        (DEFAULT, Window(200_000, 128_000), 127_500),
    ],
)
@pytest.mark.feature("OC-03")
def test_what_may_be_used_by_the_formula_of_each(headroom: Headroom, window: Window, usable: int):
    assert headroom.usable(window) == usable
    assert full(headroom, window, usable)
    assert not full(headroom, window, usable - 1)


@given(st.integers(16_000, 2_000_000), st.one_of(st.none(), st.integers(1, 200_000)))
@pytest.mark.parametrize("headroom", PRESETS.values(), ids=PRESETS)
def test_every_formula_leaves_room_for_an_answer_whether_the_greatest_is_known_or_not(
    headroom: Headroom, window: int, output: int | None
):
    usable = headroom.usable(Window(window, output))
    assert usable is not None
    assert window - usable >= min(window // 20, 16_000)


@pytest.mark.parametrize("wrong", [{"least_reserved": -0.1}, {"least_reserved": 0.3}, {"unknown_reserve_tokens": -1}])
def test_what_is_no_reserve_is_refused(wrong: dict[str, Any]):
    with pytest.raises(ConfigError, match="reserve"):
        Headroom(**wrong)


def test_pi_with_a_reserve_of_ten_thousand():
    """T1"""
    headroom = Headroom(reserve_tokens=10_000)
    assert full(headroom, Window(100_000), 95_000)
    assert not full(headroom, Window(100_000), 89_000)


@pytest.mark.feature("OC-03")
def test_opencodes_rows():
    """T4, T5, T7, T8"""
    assert not full(OPENCODE, Window(200_000, 32_000), 110_000)
    assert full(OPENCODE, Window(100_000, 32_000), 60_000 + 10_000 + 10_000)
    assert full(OPENCODE, Window(200_000, 32_000, 200_000), 198_000)
    for tokens in (160_000, 167_999, 168_000, 170_000, 199_999):
        assert full(OPENCODE, Window(200_000, 32_000, 200_000), tokens) == full(
            OPENCODE, Window(200_000, 32_000), tokens
        )


@pytest.mark.feature("OC-03")
@pytest.mark.parametrize("headroom", PRESETS.values(), ids=PRESETS)
def test_a_window_that_is_not_known_is_never_full(headroom: Headroom):
    assert headroom.usable(UNKNOWN) is None
    assert not full(headroom, UNKNOWN, 10**12)


@pytest.mark.parametrize("headroom", PRESETS.values(), ids=PRESETS)
@pytest.mark.parametrize(
    "window", [Window(32_768, 32_768), Window(8_192, 100_000), Window(262_144, 262_144), Window(20_000, 20_000, 20_000)]
)
def test_an_answer_as_large_as_the_window_leaves_a_part_of_it(headroom: Headroom, window: Window):
    usable, tokens = headroom.usable(window), window.tokens
    assert usable is not None
    assert tokens is not None
    assert tokens * 0.2 <= usable < tokens


@given(SIZES, st.none() | SIZES, st.none() | SIZES, st.sampled_from(list(PRESETS.values())))
def test_every_formula_gives_something_inside_the_window_and_no_less_for_a_larger_one(
    context: int, output: int | None, prompt: int | None, headroom: Headroom
):
    window = Window(context, output, prompt)
    usable, larger = headroom.usable(window), headroom.usable(Window(context + 1000, output, prompt))
    assert usable is not None
    assert larger is not None
    assert 1 <= usable <= (window.tokens or 0)
    assert usable <= larger


def test_headrooms_that_make_no_sense_are_refused():
    for share in (0, 1.1, float("nan"), True):
        with pytest.raises(ConfigError, match="shares of a window"):
            Headroom(share)
    with pytest.raises(ConfigError, match="a reserve is a number"):
        Headroom(reserve_tokens=-1)
    with pytest.raises(ConfigError, match="below 1"):
        Headroom(most_reserved=1)
