"""Tool results that are too long are cut to what the model can read, and the cut says so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor import ConfigError
from monitor._util.text import estimate_tokens
from monitor.context import ClipResults, oversized_chars
from monitor.context.reduce import clip
from tests.context.talk import IMAGE, ran, results, said, user

TEXTS = st.builds(
    lambda unit, times, end: unit * times + end,
    st.sampled_from(["x", "word ", "a line of some length\n", "п", "漢字", "😀\n", "\ud800\x00"]),
    st.integers(0, 3_000),
    st.sampled_from(["", "\n", "Error: boom\nexit code 1", "漢"]),
)


@pytest.mark.feature("OC-01")
def test_a_result_in_a_request_is_cut_to_2000_characters_with_the_number_omitted():
    (text,) = results(ClipResults().reduce((user("go"), ran("x" * 12_345))))
    assert text == "x" * 2_000 + "\n[10345 of 12345 characters left out]"


def test_a_text_that_a_cut_would_not_make_shorter_is_left_as_it_is():
    messages = (user("go"), ran("x" * 2_040, "y"), said("x" * 9_000))
    assert ClipResults().reduce(messages) is messages


@pytest.mark.feature("CL-08")
@pytest.mark.parametrize(
    ("window", "limit"),
    [(None, 400_000), (1_000_000, 400_000), (200_000, 240_000), (100_000, 120_000), (32_000, 38_400), (1, 0)],
)
def test_the_limit_is_30_percent_of_the_window_at_4_characters_a_token_and_at_most_400_000(
    window: int | None, limit: int
):
    assert oversized_chars(window) == limit


@pytest.mark.feature("CL-08")
@pytest.mark.parametrize(("window", "limit"), [(None, 400_000), (100_000, 120_000), (10_000, 12_000)])
def test_an_oversized_result_is_no_longer_than_the_limit_and_one_at_the_limit_is_not_touched(
    window: int | None, limit: int
):
    oversized = ClipResults.oversized(window)
    at_the_limit = (user("go"), ran("x" * limit))
    assert oversized.reduce(at_the_limit) is at_the_limit
    (text,) = results(oversized.reduce((user("go"), ran("x" * (limit + 1)))))
    assert len(text) <= limit


@pytest.mark.feature("CL-08")
@pytest.mark.parametrize("window", [1, 100, 1_000])
def test_however_small_the_window_a_result_keeps_2000_characters(window: int):
    long = "x" * 1_900 + "\n" + "y" * 3_000
    (text,) = results(ClipResults.oversized(window).reduce((user("go"), ran(long))))
    assert text.startswith(long[:2_000])
    assert len(text) < 2_200


@pytest.mark.feature("CL-08")
def test_the_cut_is_at_the_end_of_a_line_if_one_ends_in_the_last_fifth():
    text = "x" * 8_500 + "\n" + "y" * 20_000
    assert clip(text, 10_000).startswith("x" * 8_500 + "\n[")
    early = "x" * 7_900 + "\n" + "y" * 20_000
    assert clip(early, 10_000).split("\n")[1] == "y" * 2_099


@pytest.mark.feature("CL-08")
def test_the_cut_tells_the_model_how_much_is_missing_and_what_to_do():
    (text,) = results(ClipResults.oversized(10_000).reduce((user("go"), ran("x" * 50_000))))
    assert text.endswith(" of 50000 characters left out; ask for a smaller part if you need more]")


@pytest.mark.feature("CL-08")
def test_the_limit_is_for_each_result_by_itself():
    clipped = results(ClipResults.oversized(10_000).reduce((user("go"), ran("a" * 11_000, "b" * 11_000, "c" * 13_000))))
    assert clipped[:2] == ["a" * 11_000, "b" * 11_000]
    assert len(clipped[2]) <= 12_000


def test_an_ending_that_says_how_it_ended_is_kept_too():
    log = "step\n" * 20_000 + "Traceback (most recent call last):\nValueError: boom\nexit code 1"
    (text,) = results(ClipResults.oversized(10_000).reduce((user("go"), ran(log))))
    assert text.endswith("ValueError: boom\nexit code 1")
    assert text.startswith("step\nstep\n")
    assert len(text) <= 12_000
    assert clip("step\n" * 20_000, 10_000).endswith(" left out]")


def test_k13_a_share_of_the_end_can_be_asked_for():
    text = clip("a" * 100_000 + "b" * 70_000, 40_000, ending=0.8)
    begin, note, end = text.split("\n")
    assert (len(begin), len(end)) == (8_000, 32_000)
    assert note == "[130000 of 170000 characters left out]"


@pytest.mark.feature("CL-10")
def test_whether_cutting_may_help_is_answered_from_a_snapshot():
    oversized = ClipResults.oversized(10_000)
    short, long = (user("x" * 50_000), ran("x" * 12_000), said("x" * 50_000)), (user("go"), ran("ok", "x" * 12_001))
    assert oversized.reduce(short) is short
    assert (less := oversized.reduce(long)) is not long
    assert oversized.reduce(long, head=2) is long
    assert oversized.reduce(less) is less


def test_in_memory_only_the_message_with_the_long_result_is_another_object():
    messages = (user("go", IMAGE), ran("ok"), ran("x" * 5_000), said("done"))
    clipped = ClipResults().reduce(messages)
    assert [new is old for new, old in zip(clipped, messages, strict=True)] == [True, True, False, True]
    assert results(messages)[1] == "x" * 5_000


@given(TEXTS, st.integers(1, 5_000), st.sampled_from([None, 0.0, 0.2, 0.8, 1.0]), st.sampled_from(["", "ask for less"]))
def test_clipping_never_makes_a_text_larger_and_clipping_twice_is_clipping_once(
    text: str, most: int, ending: Any, advice: str
) -> None:
    once = clip(text, most, ending=ending, advice=advice)
    assert len(once) <= len(text)
    assert estimate_tokens(once) <= estimate_tokens(text)
    assert clip(once, most, ending=ending, advice=advice) is once


@pytest.mark.parametrize(
    "wrong",
    [lambda: ClipResults(0), lambda: ClipResults(True), lambda: ClipResults(9, ending=1.5), lambda: oversized_chars(0)],
)
def test_numbers_that_make_no_sense_are_errors(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        wrong()
