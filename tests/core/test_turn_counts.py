from __future__ import annotations

import math
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor._util.text import eighths_of_tokens, estimate_tokens
from monitor.chunks import ToolCall, TurnFinished, Usage, UsageReport
from monitor.core.turn import BLOCK_PIECES, KeptText, RunningTurn, keep_limit
from monitor.errors import FinishReason, TerminateReason
from monitor.models import ErrorKind, ModelError
from monitor.outcome import Turn
from monitor.verdicts import Stop


def tally(keep_chars: float = math.inf) -> RunningTurn:
    return RunningTurn(number=3, keep_chars=keep_chars, started_at=12.5)


def ended(turn: RunningTurn) -> Turn:
    return turn.ended(stopped=None, error=None, model_error=None)


def told(turn: RunningTurn, *pieces: str) -> str:
    """Text comes, and is taken in and counted, as the core does it."""
    turn.parts.extend(pieces)
    text = turn.take_text()
    turn.count(text)
    return text


def tokens(count: int) -> str:
    """Text that is estimated at so many tokens."""
    return "four" * count


# --- text


@given(st.lists(st.lists(st.text(max_size=8), max_size=4), max_size=6), st.none() | st.integers(0, 40))
def test_the_first_characters_are_kept_however_the_text_was_cut(takes: list[list[str]], keep: int | None):
    turn = tally(keep_limit(keep))
    for pieces in takes:
        assert told(turn, *pieces) == "".join(pieces)
    whole = "".join(piece for pieces in takes for piece in pieces)
    assert ended(turn).text == whole[:keep]
    assert ended(turn).text_chars == len(whole)
    assert ended(turn).text_truncated is (keep is not None and len(whole) > keep)


@given(st.integers(0, 3), st.lists(st.integers(1, 900), max_size=4), st.integers(0, 2_000))
def test_a_text_of_many_pieces_is_whole_also_after_an_attempt_that_is_void(void: int, sizes: list[int], keep: int):
    kept = KeptText(keep)
    for _ in range(void * BLOCK_PIECES + void):
        kept.add("void")
    kept.clear()
    pieces = [str(number % 10) for number in range(sum(sizes))]
    for piece in pieces:
        kept.add(piece)
    assert str(kept) == "".join(pieces)[:keep]
    assert (kept.chars, kept.truncated) == (len(pieces), len(pieces) > keep)


def test_a_kept_text_weighs_little_more_than_its_characters_however_small_its_pieces():
    kept = KeptText(math.inf)
    tracemalloc.start()
    for number in range(50_000):
        kept.add(f"{number % 1_000:04}")
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(str(kept)) == 200_000
    assert held < 1.2 * 200_000


def test_text_is_taken_once():
    turn = tally()
    assert told(turn, "a", "b") == "ab"
    assert turn.take_text() == ""


@pytest.mark.parametrize(("keep", "limit"), [(None, math.inf), (0, 0), (8192, 8192)])
def test_none_is_no_limit(keep: int | None, limit: float):
    assert keep_limit(keep) == limit


# --- tokens


@given(st.lists(st.text(st.characters(), max_size=20), max_size=6))
def test_output_costs_the_same_in_one_piece_and_in_many(pieces: list[str]):
    turn = tally()
    assert sum(map(turn.count, pieces)) == eighths_of_tokens("".join(pieces))
    assert turn.usage.output_tokens == turn.usage.total_tokens == estimate_tokens("".join(pieces))


def test_without_a_report_all_usage_is_an_estimate():
    turn = tally()
    turn.count(tokens(7))
    assert turn.usage == Usage(output_tokens=7, total_tokens=7)
    assert turn.usage_estimated


def test_a_turn_of_which_nothing_is_known_is_estimated_too():
    assert tally().usage == Usage()
    assert tally().usage_estimated


def test_a_report_replaces_the_estimate_of_what_came_before_it():
    turn = tally()
    turn.count(tokens(7))
    turn.report(UsageReport(input_tokens=100, output_tokens=5, total_tokens=105))
    assert turn.usage == Usage(100, 5, total_tokens=105)
    assert not turn.usage_estimated


def test_what_comes_after_a_report_counts_on_top_of_it():
    turn = tally()
    turn.report(UsageReport(input_tokens=100, output_tokens=5))
    turn.count(tokens(3))
    assert turn.usage == Usage(100, 8, total_tokens=108)
    assert turn.usage_estimated


def test_a_report_that_says_nothing_of_the_output_leaves_the_estimate():
    turn = tally()
    turn.count(tokens(7))
    turn.report(UsageReport(input_tokens=100))
    assert turn.usage == Usage(100, 7, total_tokens=107)
    assert turn.usage_estimated


def test_reports_are_running_totals():
    turn = tally()
    for output in (2, 5, 9):
        turn.report(UsageReport(input_tokens=100, output_tokens=output))
    assert turn.usage == Usage(100, 9, total_tokens=109)


# --- a retried attempt


def test_a_void_attempt_leaves_no_text_no_calls_and_no_end():
    turn = tally()
    told(turn, "half an ans")
    turn.add_call(ToolCall("a", "look", {}))
    turn.finish = TurnFinished(FinishReason.LENGTH)
    turn.restart()
    told(turn, "the answer")
    assert ended(turn) == Turn(number=3, text="the answer", text_chars=10, usage=turn.usage, usage_estimated=True)


def test_a_void_attempt_gives_back_the_room_for_text():
    turn = tally(4)
    told(turn, "half")
    turn.restart()
    told(turn, "whole")
    assert ended(turn).text == "whol"


@pytest.mark.parametrize("reported", [True, False], ids=["reported", "estimated"])
def test_the_tokens_of_a_void_attempt_were_spent(*, reported: bool):
    """The second attempt's report is a running total of the second attempt: it says nothing of the
    first.
    """
    turn = tally()
    if reported:
        turn.report(UsageReport(input_tokens=10, output_tokens=100))
    else:
        turn.count(tokens(100))
    turn.restart()
    assert turn.usage.output_tokens == 100
    turn.report(UsageReport(input_tokens=10, output_tokens=50))
    assert turn.usage.output_tokens == 150
    assert turn.usage.input_tokens == (20 if reported else 10)
    assert turn.usage_estimated is not reported


# --- the turn


def test_the_turn_says_what_came_and_how_it_ended():
    turn = tally()
    told(turn, "so far")
    call = ToolCall("a", "look", {"at": 1})
    turn.add_call(call)
    turn.finish = TurnFinished(FinishReason.BLOCKED, "SAFETY")
    stop = Stop(TerminateReason.BLOCKED, "a filter", "provider")
    failure, error = ModelError(ErrorKind.NETWORK, "gone"), OSError("gone")
    assert turn.ended(stopped=stop, error=error, model_error=failure) == Turn(
        number=3,
        text="so far",
        text_chars=6,
        tool_calls=(call,),
        usage=turn.usage,
        usage_estimated=True,
        finish_reason=FinishReason.BLOCKED,
        raw_finish_reason="SAFETY",
        stopped=stop,
        model_error=failure,
        error=error,
    )


@pytest.mark.parametrize("field", ["finish_reason", "raw_finish_reason", "stopped", "model_error", "error"])
def test_a_turn_that_was_never_closed_has_no_reason(field: str):
    value: Any = getattr(ended(tally()), field)
    assert value is None


def test_a_turn_that_has_ended_does_not_change_any_more():
    turn = tally()
    told(turn, "before")
    first = ended(turn)
    told(turn, " after")
    turn.add_call(ToolCall("a", "look", {}))
    assert (first.text, first.tool_calls) == ("before", ())
