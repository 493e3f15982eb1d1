"""When a conversation has come to what may be used of its window: seen before a call, and when an
answer has come (OC-04).
"""

from __future__ import annotations

import pytest

from monitor import FinishReason, Window
from monitor.chunks import Usage
from monitor.context import Headroom, History, HistoryEdit, OverflowKind
from monitor.context.overflow import Full, Fullness
from monitor.errors import TerminateReason
from monitor.models import ErrorKind, ModelError, ToolSpec
from monitor.outcome import Turn
from monitor.verdicts import Stop
from tests.context.talk import said, tokens, user

pytestmark = pytest.mark.feature("OC-04")

WINDOW = Window(100_000)
HALF = Headroom(0.5, reserve_tokens=0)
"""50,000 may be used."""


def usage(read: int, written: int = 0) -> Usage:
    return Usage(read, written, total_tokens=read + written)


def answered(counted: Usage, *, well: bool = True, finish_reason: FinishReason = FinishReason.DONE) -> Turn:
    stopped = None if well else Stop(TerminateReason.TRUNCATED, "it failed", "test")
    return Turn(number=1, usage=counted, finish_reason=finish_reason, stopped=stopped)


def test_before_a_call_it_is_estimated():
    history = History([user(tokens(40_000))])
    fullness = Fullness(history, WINDOW, HALF)
    assert fullness.before_call(None, ()) is None
    history.append(said(tokens(10_000)))
    full = fullness.before_call(None, ())
    assert full is not None
    assert (full.tokens, full.usable_tokens) == (50_008, 50_000)
    assert "the next request has about 50,008 tokens" in full.detail
    assert "50,000 of the window's 100,000 may be used" in full.detail


def test_instructions_and_tools_count():
    fullness = Fullness(History([user(tokens(40_000))]), WINDOW, HALF)
    assert fullness.before_call(tokens(9_000), ()) is None
    assert fullness.before_call(tokens(9_000), (ToolSpec("look", tokens(1_000), {}),)) is not None


def test_when_an_answer_has_come_it_goes_by_the_provider_s_count():
    fullness = Fullness(History([user("short")]), WINDOW, HALF)
    assert fullness.before_call(None, ()) is None
    assert fullness.after_turn(answered(usage(49_000, 999))) is None
    assert fullness.before_call(None, ()) is None
    full = fullness.after_turn(answered(usage(49_000, 1_000)))
    assert full is not None
    assert (full.tokens, full.detail.partition(";")[0]) == (
        50_000,
        "the provider counted 50,000 tokens, the answer included",
    )


def test_what_was_reported_counts_before_the_next_call_too():
    history = History([user("short")])
    fullness = Fullness(history, WINDOW, HALF)
    fullness.before_call(None, ())
    assert fullness.after_turn(answered(usage(45_000, 100))) is None
    history.append(said(tokens(100)))
    history.append(user(tokens(5_000)))
    assert fullness.before_call(None, ()) is not None


def test_it_is_told_once_until_the_context_has_been_made_smaller():
    history = History([user(tokens(50_000)), said("ok"), user("and?")])
    fullness = Fullness(history, WINDOW, HALF)
    assert fullness.before_call(None, ()) is not None
    assert fullness.after_turn(answered(usage(60_000, 10))) is None
    history.append(said("so"))
    assert fullness.before_call(None, ()) is None
    history.commit(HistoryEdit(history.version, 0, 1, (user("short"),), "compaction"))
    assert fullness.before_call(None, ()) is None
    history.append(user(tokens(50_000)))
    assert fullness.before_call(None, ()) is not None


def test_an_answer_that_comes_of_a_prompt_beyond_the_window_is_said_as_that():
    fullness = Fullness(History([user("short")]), WINDOW, HALF)
    fullness.before_call(None, ())
    silent = fullness.after_turn(answered(usage(100_001, 5), finish_reason=FinishReason.DONE))
    told = "the provider answered a prompt that fills the window: it may not have read all of it"
    assert silent == Full(100_006, 50_000, told, OverflowKind.SILENT)
    cut = fullness.after_turn(answered(usage(99_000, 1_000), well=False, finish_reason=FinishReason.LENGTH))
    assert cut is not None
    assert cut.detail == "the answer was cut off at the end of the window"


def test_a_failed_call_says_nothing_of_the_size():
    fullness = Fullness(History([user("short")]), WINDOW, HALF)
    fullness.before_call(None, ())
    assert fullness.after_turn(answered(usage(60_000), well=False)) is None
    assert fullness.before_call(None, ()) is None
    assert fullness.after_turn(answered(Usage(output_tokens=60_000, total_tokens=60_000))) is None


def test_in_a_window_that_is_not_known_nothing_is_full():
    fullness = Fullness(History([user(tokens(5_000_000))]), Window(None))
    assert fullness.before_call(None, ()) is None
    assert fullness.after_turn(answered(usage(9_000_000))) is None


@pytest.mark.parametrize(("before", "usable"), [(WINDOW, 32_000), (Window(None), 32_000), (Window(50_000), 25_000)])
def test_a_refusal_that_states_the_limit_lowers_the_window(before: Window, usable: int):
    fullness = Fullness(History([user(tokens(40_000))]), before, HALF)
    said_of_it = "This model's maximum context length is 64000 tokens. However, you requested 70000 tokens."
    refused = Turn(number=1, model_error=ModelError(ErrorKind.OVERFLOW, said_of_it, status=400))
    assert fullness.after_turn(refused) is None
    assert fullness.window.tokens == min(64_000, before.tokens or 64_000)
    full = fullness.before_call(None, ())
    assert full is not None
    assert full.usable_tokens == usable


@pytest.mark.parametrize(
    "error",
    [
        ModelError(ErrorKind.OVERFLOW, "prompt is too long"),
        ModelError(ErrorKind.OVERFLOW, "maximum context length is 0 tokens"),
        ModelError(ErrorKind.RATE_LIMITED, "maximum context length is 5 tokens"),
    ],
)
def test_a_refusal_that_does_not_teaches_nothing(error: ModelError):
    fullness = Fullness(History(), WINDOW, HALF)
    assert fullness.after_turn(Turn(number=1, model_error=error)) is None
    assert fullness.window is WINDOW
