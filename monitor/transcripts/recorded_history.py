"""A recorded run as a history that can be sent to a model again."""

from __future__ import annotations

from collections.abc import Iterable

from monitor.chunks import ToolCall, ToolResult
from monitor.messages import AssistantMessage, Message, Reasoning, Text, UserMessage
from monitor.transcripts.base import Chunker, RecordedMessage


def history_of(messages: Iterable[RecordedMessage]) -> tuple[Message, ...]:
    """The messages, each result beside its call. A result without a call is left out.

    System messages are left out too: no provider takes them in the middle of a history.
    """
    history: list[Message] = []
    place: dict[str, int] = {}
    chunker = Chunker()
    for message in messages:
        chunks = list(chunker.chunks(message))
        if message.role == "user":
            history.append(UserMessage((Text(message.text),), synthetic=message.synthetic))
        elif message.role == "assistant":
            calls = [chunk for chunk in chunks if isinstance(chunk, ToolCall)]
            parts = [Reasoning(message.reasoning)] if message.reasoning else []
            texts = [Text(message.text)] if message.text else []
            history.append(AssistantMessage((*parts, *texts, *calls)))
            place.update((call.id, len(history) - 1) for call in calls)
        for result in (chunk for chunk in chunks if isinstance(chunk, ToolResult)):
            if (at := place.pop(result.id, None)) is not None:
                history[at] = _answered(history[at], result)
    return tuple(history)


def _answered(message: Message, result: ToolResult) -> Message:
    """`message` with one more result, in the order of its calls."""
    if not isinstance(message, AssistantMessage):
        return message
    order = [part.id for part in message.content if isinstance(part, ToolCall)]
    results = sorted((*message.results, result), key=lambda one: order.index(one.id))
    return AssistantMessage(message.content, tuple(results), message.finish_reason)
