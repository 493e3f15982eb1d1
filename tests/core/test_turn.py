"""The turn that runs."""

from __future__ import annotations

from typing import Literal

import pytest

from monitor.chunks import ReasoningDelta, ToolCall
from monitor.core.turn import RunningTurn, is_written_loop
from monitor.messages import Reasoning, Text
from monitor.verdicts import Channel, Detection, Evidence


def running(*, text_before: int = 0, keeps_message: bool = True) -> RunningTurn:
    offsets: dict[Channel, int] = {"text": text_before, "reasoning": 0}
    return RunningTurn(number=3, keep_chars=1_000, started_at=0.0, offsets=offsets, keeps_message=keeps_message)


def loop(channel: Channel = "text", level: Literal["suspect", "loop"] = "loop") -> Detection:
    return Detection(
        detector="content_repetition",
        kind="block",
        channel=channel,
        level=level,
        count=3,
        threshold=3,
        start_offset=12,
        offset=30,
        evidence=Evidence("again ", "0" * 16, 6, offsets=(12, 18, 24)),
        message="it repeats itself",
    )


def test_the_message_has_its_parts_in_order_and_is_taken_once():
    turn = running()
    turn.add_reasoning(ReasoningDelta("Hm."))
    turn.parts.append("I look.")
    turn.take_text()
    call, _ = turn.add_call(ToolCall("", "search", {}))
    assert turn.take_message("trim") == (Reasoning("Hm."), Text("I look."), call)
    assert turn.take_message("trim") == ()
    assert call.id


def test_a_turn_that_keeps_no_message_leaves_calls_as_they_are():
    turn = running(keeps_message=False)
    given = ToolCall("", "search", {})
    assert turn.add_call(given)[0] is given


@pytest.mark.parametrize(("text", "seen"), [("", False), (" \n", False), ("\u200b\u2060", False), ("0", True)])
def test_a_turn_is_blank_if_nothing_of_it_can_be_seen(text: str, *, seen: bool):
    for turn in (running(), running(keeps_message=False)):
        turn.add_reasoning(ReasoningDelta("Hm."))
        turn.parts.append(text)
        turn.take_text()
        assert turn.is_blank(must_finish=True) is not seen
        turn.add_call(ToolCall("", "search", {}))
        assert not turn.is_blank(must_finish=True)
        turn.restart()
        assert turn.is_blank(must_finish=True)


def test_a_stream_of_the_callers_own_owes_no_answer_in_their_loop():
    assert not running(keeps_message=False).is_blank(must_finish=False)
    assert running(keeps_message=True).is_blank(must_finish=False)


def test_a_result_belongs_to_the_call_of_its_id_or_to_the_oldest():
    turn = running()
    for id in "abc":
        turn.add_call(ToolCall(id, "search", {}))
    assert [call.id for id in ("b", None, None) if (call := turn.take_call(id))] == ["b", "a", "c"]
    assert turn.take_call(None) is None


def test_an_attempt_that_is_void_leaves_nothing():
    turn = running()
    turn.parts.append("I look.")
    turn.add_call(ToolCall("a", "search", {}))
    turn.loop = loop()
    turn.restart()
    left = [turn.open_calls, turn.loop, turn.take_text(), turn.calls]
    assert not any(left)
    assert turn.is_blank(must_finish=False)


def test_the_turn_says_where_its_text_began_to_loop():
    turn = running(text_before=10)
    assert turn.ended(stopped=None, error=None, model_error=None).loop_offset is None
    turn.loop = loop("reasoning")
    assert turn.ended(stopped=None, error=None, model_error=None).loop_offset is None
    turn.loop = loop()
    assert turn.ended(stopped=None, error=None, model_error=None).loop_offset == 8


def test_the_next_turn_begins_where_this_one_ends():
    turn = running(text_before=10)
    turn.parts.append("I look.")
    turn.take_text()
    turn.add_reasoning(ReasoningDelta("Hm."))
    assert turn.next_offsets == {"text": 17, "reasoning": 3}


@pytest.mark.parametrize(
    ("detection", "written"),
    [(loop(), True), (loop("arguments"), True), (loop("messages"), False), (loop(level="suspect"), False)],
)
def test_only_a_loop_in_what_is_written_goes_on_with_the_stream(detection: Detection, written: bool):
    assert is_written_loop(detection) is written
