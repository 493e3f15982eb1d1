"""How a stream ended, and what that means for its run."""

from __future__ import annotations

import pytest

from monitor.chunks import TurnFinished
from monitor.core.ending import SPOKEN_OVER, StreamEnd, end_of, ended, failed, left
from monitor.core.turn import RunningTurn
from monitor.errors import FinishReason, TerminateReason
from monitor.models import ErrorKind, ModelError
from monitor.outcome import Turn
from tests.core.finding import LOOP

TOO_MANY = ModelError(ErrorKind.RATE_LIMITED, "slow down", status=429)


def tally(text: str = "", *, finish: FinishReason | None = FinishReason.DONE, thought: int = 0) -> RunningTurn:
    made = RunningTurn(number=1, keep_chars=100, started_at=0.0)
    made.parts.append(text)
    made.take_text()
    made.reasoning_chars = thought
    made.finish = TurnFinished(finish) if finish is not None else None
    return made


def test_a_failed_call_is_a_failed_attempt_with_its_error():
    error = ConnectionResetError("gone")
    end = failed(error, ModelError(ErrorKind.RATE_LIMITED, "slow down", retry_after_s=7, status=429))
    assert end.failure is not None
    assert (end.failure.reason, end.failure.value) == (TerminateReason.RATE_LIMITED, 429)
    assert end.failure.detail == "slow down; it asks to wait 7 s"
    assert (end.void, end.error) == (True, error)


def test_a_stream_that_the_caller_left_says_so():
    end = left(None)
    assert end.failure is not None
    assert (end.failure.reason, end.left, end.void) == (TerminateReason.CLOSED_BY_CALLER, True, False)


def test_a_stream_that_was_left_for_its_loop_may_go_on():
    end = left(LOOP)
    assert end.failure is not None
    assert (end.failure.reason, end.failure.evidence) == (TerminateReason.LOOP_DETECTED, LOOP)
    assert (end.may_go_on, end.void) == (True, False)


def test_a_stream_without_an_end_is_a_failed_attempt_where_it_should_have_one():
    assert ended(tally("half", finish=None), must_finish=False, blank=False).failure is None
    end = ended(tally("half", finish=None), must_finish=True, blank=False)
    assert end.failure is not None
    assert (end.failure.reason, end.void) == (TerminateReason.TRUNCATED, True)


@pytest.mark.parametrize(
    ("finish", "reason", "void", "may_go_on"),
    [
        (FinishReason.LENGTH, TerminateReason.TRUNCATED, False, True),
        (FinishReason.MALFORMED, TerminateReason.INVALID_STREAM, True, False),
        (FinishReason.BLOCKED, TerminateReason.BLOCKED, False, False),
        (FinishReason.INTERRUPTED, TerminateReason.TRUNCATED, False, True),
        (FinishReason.UNKNOWN, TerminateReason.TRUNCATED, False, True),
    ],
)
def test_a_bad_finish_is_classed(finish: FinishReason, reason: TerminateReason, *, void: bool, may_go_on: bool):
    end = ended(tally("text", finish=finish), must_finish=True, blank=False)
    assert end.failure is not None
    assert (end.failure.reason, end.void, end.may_go_on) == (reason, void, may_go_on)


def test_an_unknown_finish_is_as_good_as_none_where_there_need_not_be_one():
    end = ended(tally("text", finish=FinishReason.UNKNOWN), must_finish=False, blank=False)
    assert end == ended(tally("text", finish=None), must_finish=False, blank=False) == StreamEnd()


def test_an_answer_that_cannot_be_seen_is_a_failed_attempt():
    end = ended(tally(" "), must_finish=True, blank=True)
    assert end.failure is not None
    assert (end.failure.reason, end.void) == (TerminateReason.INVALID_STREAM, True)
    assert ended(tally(" "), must_finish=True, blank=False).failure is None


def test_thoughts_alone_are_no_answer_and_the_reason_says_so():
    end = ended(tally("", thought=99), must_finish=True, blank=True)
    assert end.failure is not None
    assert "it thought, and said nothing" in end.failure.detail


@pytest.mark.parametrize(
    ("end", "stored"),
    [
        (StreamEnd(), Turn(number=1, finish_reason=FinishReason.DONE)),
        (left(LOOP), Turn(number=1, stopped=left(LOOP).failure)),
        (left(None), Turn(number=1, stopped=left(None).failure)),
        (StreamEnd(SPOKEN_OVER, may_go_on=True), Turn(number=1, stopped=SPOKEN_OVER)),
        (failed(None, TOO_MANY), Turn(number=1, stopped=failed(None, TOO_MANY).failure, model_error=TOO_MANY)),
        *(
            (end, Turn(number=1, stopped=end.failure, finish_reason=finish))
            for finish in (*(one for one in FinishReason if one is not FinishReason.DONE), None)
            for end in [ended(tally("text", finish=finish), must_finish=True, blank=False)]
        ),
        *(
            (end, Turn(number=1, stopped=end.failure, finish_reason=FinishReason.DONE))
            for end in [ended(tally(" "), must_finish=True, blank=True)]
        ),
    ],
)
def test_a_stored_turn_has_the_end_of_its_stream(end: StreamEnd, stored: Turn):
    assert end_of(stored) == end
