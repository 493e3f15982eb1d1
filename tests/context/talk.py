"""Histories in few words."""

from __future__ import annotations

from typing import Any

from monitor import AssistantMessage, UserMessage
from monitor.chunks import ToolCall, ToolResult
from monitor.messages import Media, Message, Text

IMAGE = Media("image/png", data="iVBORw0KGgo=", name="chart.png")


def user(*parts: str | Media) -> UserMessage:
    return UserMessage(tuple(Text(part) if isinstance(part, str) else part for part in parts))


def said(text: str) -> AssistantMessage:
    return AssistantMessage((Text(text),))


def ran(*results: str, name: str = "look", arguments: Any = None, is_error: bool = False) -> AssistantMessage:
    """A turn with one call for each result."""
    calls = tuple(ToolCall(str(n), name, {} if arguments is None else arguments) for n in range(len(results)))
    return AssistantMessage(calls, tuple(ToolResult(str(n), name, text, is_error) for n, text in enumerate(results)))


def tokens(number: int) -> str:
    """A text that is estimated at `number` tokens."""
    return "word" * number


def results(messages: tuple[Message, ...]) -> list[str]:
    return [result.text for message in messages if isinstance(message, AssistantMessage) for result in message.results]


def words(messages: tuple[Message, ...]) -> list[str]:
    """The visible texts, one a message."""
    return ["".join(part.text for part in message.content if isinstance(part, Text)) for message in messages]
