"""A long result is cut so that the model sees how it ended, and the error in its middle."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor import ConfigError
from monitor.tools.base import Bound, Keep
from monitor.tools.results.truncation import shown

KEEPS: tuple[Keep, ...] = ("ends", "head", "tail", "matches")
OWN_CHARS = 420
"""The lines in brackets of a cut result have no more characters."""

TEXTS = st.builds(
    lambda unit, times, end: unit * times + end,
    st.sampled_from(
        ["x", "word ", "a line of some length\n", "\n", "漢字", "\ud83d\ude00", "\x1b[31mred\x1b[0m\n", "Error!\n"]
    ),
    st.integers(0, 3_000),
    st.sampled_from(["", "\n", "Error: boom\nexit code 1", "漢"]),
)


def log(lines: int, *, error_at: int | None = None, error: str = "ValueError: the one and only") -> str:
    return "".join(f"{error if line == error_at else f'step {line} went well'}\n" for line in range(1, lines + 1))


@pytest.mark.feature("GT-13")
def test_the_only_error_in_line_50000_of_100000_is_shown_with_its_number():
    cut = shown(log(100_000, error_at=50_000), status="exit code 1, 3.2 s")
    assert cut.truncated
    assert cut.text.startswith("[exit code 1, 3.2 s; 100,000 lines, ")
    assert "\nline 50000: ValueError: the one and only\n" in cut.text
    assert "\nstep 1 went well\n" in cut.text
    assert "\nstep 100000 went well\n" in cut.text


@pytest.mark.feature("GT-13")
@pytest.mark.parametrize("keep", KEEPS)
def test_a_result_within_the_bound_is_not_touched(keep: Keep):
    text = "x" * 39_000 + "\n" * 999
    assert shown(text, keep=keep).text == text
    assert not shown(text, keep=keep).truncated


@pytest.mark.feature("GT-13")
@pytest.mark.parametrize("keep", KEEPS)
def test_too_many_lines_are_cut_although_there_are_few_characters(keep: Keep):
    cut = shown("\n" * 2_000, keep=keep)
    assert cut.truncated
    assert cut.text.count("\n") <= 2_010


@pytest.mark.feature("GT-13", "CL-11")
@given(TEXTS, st.sampled_from(KEEPS), st.integers(200, 3_000), st.integers(4, 500))
def test_a_cut_result_is_no_longer_than_its_bound_and_its_own_lines(text: str, keep: Keep, chars: int, lines: int):
    bound = Bound(chars, lines)
    cut = shown(text, keep=keep, bound=bound, status="exit code 0", more="read_artifact has all")
    if not cut.truncated:
        assert cut.text == f"exit code 0\n{text}"
        return
    assert len(cut.text) <= chars + OWN_CHARS
    assert cut.text.count("\n") <= lines + 15
    assert cut.text.startswith("[exit code 0; ")
    assert cut.text.endswith("; read_artifact has all]")
    assert "this result was cut when it came" in cut.text.rpartition("\n")[2]


@given(TEXTS, st.sampled_from(KEEPS), st.integers(200, 1_000))
def test_no_character_and_no_escape_sequence_is_cut_in_half(text: str, keep: Keep, chars: int):
    whole = shown(text, keep=keep, bound=Bound(chars, 200)).text
    whole = whole.replace("\ud83d\ude00", "").replace("\x1b[31m", "").replace("\x1b[0m", "")
    assert "\x1b" not in whole
    assert "\ud83d" not in whole
    assert "\ude00" not in whole


@given(TEXTS)
def test_the_end_has_three_times_the_room_of_the_beginning(text: str):
    bound = Bound(400, 1_000)
    cut = shown("a" * 5_000 + "b" * 5_000, bound=bound)
    assert (cut.text.count("a" * 100), cut.text.count("b" * 300)) == (1, 1)
    assert cut.text.count("b") < 320 + OWN_CHARS


def test_a_single_line_of_a_megabyte_is_cut_inside_and_its_error_is_shown():
    text = "x" * 500_000 + " fatal: it broke " + "y" * 500_000
    cut = shown(text)
    assert len(cut.text) < 41_000
    assert "line 1: [" in cut.text
    assert "fatal: it broke" in cut.text


@pytest.mark.feature("GT-13")
def test_a_file_is_shown_from_its_beginning_and_the_model_learns_where_to_go_on():
    text = log(5_000)
    cut = shown(text, keep="head", bound=Bound(40_000, 1_000), more="read_artifact has all")
    assert cut.next_line == 1_001
    assert cut.text.endswith(
        "step 1000 went well\n[this result was cut when it came; continue at line 1001; read_artifact has all]"
    )
    again = shown(text[text.index("step 1001 ") :], keep="head", bound=Bound(40_000, 1_000), first_line=1_001)
    assert "]\nstep 1001 went well" in again.text
    assert again.next_line == 2_001


def test_a_line_that_is_too_long_is_named_and_skipped_so_that_reading_a_file_always_goes_on():
    text = "x" * 100_000 + "\nsecond\n"
    cut = shown(text, keep="head")
    assert cut.next_line == 2
    assert "[line 1 goes on for 60,000 characters]\n[this result was cut when it came; continue at line 2]" in cut.text
    assert shown("x" * 100_000, keep="head").next_line is None


def test_the_tail_of_a_command_is_its_end():
    cut = shown(log(5_000), keep="tail", bound=Bound(40_000, 100))
    assert "[4,900 lines, " in cut.text
    assert cut.text.split("\n")[2] == "step 4901 went well"
    assert "step 5000 went well" in cut.text


def test_a_search_shows_whole_matches_and_cuts_each_long_line():
    text = "".join(f"src/a.py:{number}:{'x' * 2_000}\n" for number in range(100))
    cut = shown(text, keep="matches", bound=Bound(10_000, 2_000))
    body = cut.text.split("\n")[1:-2]
    assert all(line.startswith("src/a.py:") and "[1,5" in line for line in body)
    assert f"[{100 - len(body)} of 100 lines left out" in cut.text


def test_ten_errors_at_most_are_shown_each_kind_once_and_no_line_that_says_there_are_none():
    noise = "".join(f"retry {n}: error, trying again\n0 errors so far\n" for n in range(20_000))
    text = log(3_000) + noise + "KeyError: 'the cause'\n" + log(3_000)
    found = [line for line in shown(text).text.split("\n") if line.startswith("line ")]
    assert found == ["line 3001: retry 0: error, trying again", "line 43001: KeyError: 'the cause'"]
    many = log(3_000) + "".join(f"{chr(97 + n)}: failed\n" for n in range(26)) + log(3_000)
    assert shown(many).text.count(": failed\n") == 10


def test_the_status_is_one_line_and_never_cut():
    status = "exit code 1\nand " + "more " * 100
    first = shown("x" * 100_000, status=status).text.split("\n")[0]
    assert first == "[exit code 1\\nand " + ("more " * 100).strip() + "; 1 line, 100,000 characters]"


@settings(deadline=None)
@given(
    st.sampled_from(
        ["error ", "0 errors\n", "failx", "assert0\n", "İfail", "\x1b[", "fail", "\n", "x", "E\n", "cannot\n"]
    ),
    st.sampled_from(KEEPS),
)
def test_a_cut_takes_linear_time(unit: str, keep: Keep):
    text = unit * (400_000 // len(unit))
    started = time.process_time()
    shown(text, keep=keep)
    assert time.process_time() - started < 1.5


@pytest.mark.parametrize("wrong", [{"max_chars": 199}, {"max_lines": 3}, {"max_chars": True}, {"max_chars": 1e9}])
def test_a_bound_that_shows_nothing_is_refused(wrong: dict[str, int]):
    with pytest.raises(ConfigError, match="whole number"):
        Bound(**wrong)
