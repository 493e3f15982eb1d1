"""A stored history on its way to a provider: cleaned, limited, paired, in this order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor import AssistantMessage, UserMessage
from monitor.chunks import ToolCall, ToolResult
from monitor.context import RawMessage, prepare, validate
from monitor.messages import Message, RepairKind, Text
from tests.context.dirty import histories
from tests.context.wire import builder

GO = UserMessage((Text("go"),))
TURN = AssistantMessage((ToolCall("1", "look", {}),), (ToolResult("1", "look", "seen"),))


@pytest.mark.feature("CL-03")
def test_the_limit_sees_a_clean_history_and_what_it_leaves_is_repaired():
    seen: list[tuple[Message, ...]] = []

    def without_results(messages: tuple[Message, ...]) -> list[Message]:
        seen.append(messages)
        return [AssistantMessage(one.content) if isinstance(one, AssistantMessage) else one for one in messages]

    orphan = RawMessage("tool", (ToolResult("9", "look", "lost"),))
    messages, report = prepare([orphan, RawMessage("user"), GO, TURN], form="anthropic", limit=without_results)
    assert seen == [(GO, TURN)]
    assert isinstance(messages[1], AssistantMessage)
    assert messages[1].results[0].is_error
    assert [one.kind for one in report.repairs] == [
        RepairKind.RESULT_ORPHANED,
        RepairKind.MESSAGE_DROPPED,
        RepairKind.RESULT_ADDED,
    ]


def test_without_a_limit_a_clean_history_is_the_same_object():
    history = (GO, TURN)
    assert prepare(history)[0] is history
    assert prepare(history, limit=lambda messages: messages)[0] is history


@pytest.mark.feature("CL-03")
@given(histories, st.integers(1, 6))
def test_a_limit_that_cuts_anywhere_leaves_a_history_that_is_valid(history: Any, last: int) -> None:
    messages, _ = prepare((*history, GO), form="gemini", limit=lambda messages: messages[-last:])
    assert validate("gemini", builder("gemini")(messages)) == []
