"""The last words of a guarded run, for frameworks that end without an exception."""

from __future__ import annotations

import pytest

from monitor.errors import TerminateReason
from monitor.integrations._guarded_requests import last_words
from monitor.outcome import StoppedByGuard, Turn
from monitor.verdicts import Stop

STOP = Stop(TerminateReason.LOOP_DETECTED, "it repeats", "content_repetition")


@pytest.mark.parametrize(
    ("turn", "words"),
    [
        (Turn(number=1, text="It is so. It is so. It is so.", loop_offset=10), "It is so. "),
        (Turn(number=1, text="Half an ans"), "Half an ans"),
        (Turn(number=1, text="again again", loop_offset=0), "loop_detected: it repeats"),
        (Turn(number=1), "loop_detected: it repeats"),
        (None, "loop_detected: it repeats"),
    ],
)
def test_the_last_words_are_the_text_before_the_loop_and_else_the_reason(turn: Turn | None, words: str):
    assert last_words(StoppedByGuard(STOP, turn)) == words
