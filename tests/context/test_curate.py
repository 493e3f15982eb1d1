"""What of a recorded history is worth sending and keeping: the rules of Gemini CLI."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from monitor import UserMessage
from monitor.chunks import ToolCall, ToolResult
from monitor.context import RawMessage, curated, read_history, recorded, repair
from monitor.context.repairs import SILENT
from monitor.messages import Reasoning, Text
from tests.context.dirty import histories


def user(text: str) -> RawMessage:
    return RawMessage("user", (Text(text),))


def said(*parts: Any, **more: Any) -> RawMessage:
    return RawMessage("assistant", tuple(Text(part) if isinstance(part, str) else part for part in parts), **more)


CALL, RESULT = ToolCall("1", "look", {}), RawMessage("tool", (ToolResult("1", "look", "seen"),))


@pytest.mark.feature("GZ-02")
@pytest.mark.parametrize("bad", [{"parts": []}, {"parts": [{}]}, {"parts": [{"text": ""}]}])
def test_a_run_of_the_model_is_kept_only_if_every_record_of_it_is_valid(bad: dict[str, Any]) -> None:
    contents = [
        {"role": "user", "parts": [{"text": ""}]},
        {"role": "model", "parts": [{"text": "one"}]},
        {"role": "model", "parts": [{"text": "", "thought": True}, {"text": "two"}]},
        {"role": "user", "parts": [{"text": "and?"}]},
        {"role": "model", "parts": [{"text": "three"}]},
        {"role": "model", **bad},
        {"role": "user", "parts": [{"text": "well?"}]},
    ]
    history = list(read_history("gemini", contents))
    assert list(curated(history)) == [history[0], history[1], history[2], history[3], history[6]]


@pytest.mark.feature("GZ-02")
def test_the_results_of_a_run_that_is_dropped_go_with_it_in_the_repair():
    messages, _ = repair(curated([user("go"), said(CALL, ""), RESULT, user("well?")]))
    assert messages == (UserMessage((Text("go"),)), UserMessage((Text("well?"),)))


@pytest.mark.feature("GZ-06")
def test_what_the_user_said_is_recorded_once_though_it_was_sent_again():
    assert list(recorded([user("go"), user("go"), said("Yes."), user("go")])) == [user("go"), said("Yes."), user("go")]


@pytest.mark.feature("GZ-06")
def test_thoughts_are_not_recorded_unless_the_provider_wants_them_back():
    signed = Reasoning("hm", "c2ln")
    assert list(recorded([user("go"), said(Reasoning("hm"), signed, "Yes.")])) == [user("go"), said(signed, "Yes.")]


@pytest.mark.feature("GZ-06")
def test_text_in_pieces_is_recorded_as_one_text_and_calls_in_pieces_of_their_own_are_all_kept():
    pieces = [
        said("I ", partial=True),
        said("look.", Reasoning("hm"), partial=True),
        said("", CALL, partial=True),
        said(CALL),
    ]
    assert list(recorded([user("go"), *pieces])) == [user("go"), said("I look.", CALL, CALL)]


@pytest.mark.feature("GZ-06")
def test_a_placeholder_stands_where_the_model_said_nothing():
    assert list(recorded([user("go"), said(Reasoning("hm")), user("well?")])) == [
        user("go"),
        said(SILENT),
        user("well?"),
    ]
    assert list(recorded([user("go"), said(CALL), RESULT, user("stop")])) == [
        user("go"),
        said(CALL),
        RESULT,
        said(SILENT),
        user("stop"),
    ]
    assert list(recorded([user("go"), said("")])) == [user("go"), said(SILENT)]


def test_the_first_and_the_last_record_count_as_well():
    assert list(recorded([])) == []
    assert list(recorded([said("", Reasoning("hm"))])) == [said(SILENT)]
    assert list(recorded([RawMessage("system"), user("go")])) == [RawMessage("system"), user("go")]


@given(histories)
def test_a_record_is_a_record_of_itself(history: Any) -> None:
    raw = [message for message in history if isinstance(message, RawMessage)]
    once = list(recorded(raw))
    assert list(recorded(once)) == once
