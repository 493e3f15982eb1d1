"""Reads of the history in a request: which run it is, and what its turns were.

Every request carries its history. So a proxy that was restarted, or one of ten, judges as the first
one does, and keeps nothing for it.

Rules:

- Only the turns after the user's last task count: what came before is over. A message of the user
  begins a task if the model had finished, that is if its last message made no call.
- A message behind results may also be a reminder that the client's program adds to every turn. So
  it begins no task. If the turn before had none, it is news (`has_news`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from monitor.chunks import ToolCall
from monitor.messages import AssistantMessage, Message, Text, UserMessage, message_codec

_ID_DIGITS: Final = 16


def run_of(instructions: str | None, messages: Sequence[Message]) -> str:
    """The run of a request that names none: a hash of all up to the first message of the user,
    which every later request of the run repeats.
    """
    digest = hashlib.sha256((instructions or "").encode("utf-8", "surrogatepass"))
    for message in messages:
        digest.update(b"\0" + message_codec.dumps(message).encode("utf-8", "surrogatepass"))
        if isinstance(message, UserMessage):
            break
    return digest.hexdigest()[:_ID_DIGITS]


def task_turns(messages: Sequence[Message]) -> Sequence[AssistantMessage]:
    """The turns of the task that goes on, oldest first."""
    turns: list[AssistantMessage] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            turns.append(message)
        elif turns and not calls_of(turns[-1]):
            turns.clear()
    return turns


def task_text(messages: Sequence[Message]) -> str:
    """The text of the user's last task: their messages before the first of its turns."""
    texts: list[str] = []
    answered = True
    for message in messages:
        if isinstance(message, AssistantMessage):
            answered = not calls_of(message)
        elif answered:
            texts = [part.text for part in message.content if isinstance(part, Text)]
    return "\n".join(texts)


def has_news(messages: Sequence[Message]) -> bool:
    """Whether the last turn was followed by a message of the user, and the one before was not."""
    from_user = [isinstance(message, UserMessage) for message in messages]
    if not from_user or not from_user[-1] or all(from_user):
        return False
    last = len(from_user) - 1 - from_user[::-1].index(False)
    return last == 0 or not from_user[last - 1] or all(from_user[:last])


def calls_of(turn: AssistantMessage) -> list[ToolCall]:
    """The calls that the model made in a turn."""
    return [part for part in turn.content if isinstance(part, ToolCall)]
