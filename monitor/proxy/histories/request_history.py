"""Reads of the history in a request: which run it is, and what its turns were.

Every request carries its history. So a proxy that was restarted, or one of ten, judges as the first
one does. A history that is kept saves time, and changes no verdict.

Rules:

- Only the turns after the user's last task count: what came before is over. A message of the user
  begins a task if the model had finished, that is if its last message made no call.
- A message behind results may also be a reminder that the client's program adds to every turn. So
  it begins no task. If the turn before had none, it is news (`has_news`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from monitor.chunks import ToolCall
from monitor.messages import AssistantMessage, Message, Text, UserMessage, message_codec

_ID_DIGITS: Final = 16


def opening_of(messages: Sequence[Message]) -> bytes:
    """A hash of all up to the first message of the user, which every later request repeats."""
    digest = hashlib.sha256()
    for message in messages:
        digest.update(b"\0" + message_codec.dumps(message).encode("utf-8", "surrogatepass"))
        if isinstance(message, UserMessage):
            break
    return digest.digest()


def run_of(instructions: str | None, opening: bytes) -> str:
    """The run of a request that names none: a hash of its instructions and its opening."""
    said = (instructions or "").encode("utf-8", "surrogatepass")
    return hashlib.sha256(hashlib.sha256(said).digest() + opening).hexdigest()[:_ID_DIGITS]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlace:
    """The place in a history up to which it was read."""

    turns: int = 0
    """The turns of the task that goes on."""
    calls: bool = False
    """The last turn made a call, so a message of the user begins no task."""
    text: str = ""
    """The text of the user's last task: their messages before the first of its turns."""
    answered: bool = False
    """The history has a turn."""
    said: bool = False
    """The user has said something since the last turn."""
    said_before: bool = False
    """The user has said something between the last two turns."""

    @property
    def has_news(self) -> bool:
        """Whether a message of the user followed the last turn, and none the turn before."""
        return self.answered and self.said and not self.said_before


def read_task(messages: Iterable[Message], place: TaskPlace) -> tuple[TaskPlace, list[AssistantMessage]]:
    """Read on from `place`. Returns the new place, and those of its task's turns that `messages`
    have, oldest first.
    """
    turns: list[AssistantMessage] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            turns.append(message)
            place = replace(
                place,
                turns=place.turns + 1,
                calls=bool(calls_of(message)),
                answered=True,
                said=False,
                said_before=place.answered and place.said,
            )
        elif place.calls:
            place = replace(place, said=True)
        else:
            turns.clear()
            text = "\n".join([part.text for part in message.content if isinstance(part, Text)])
            place = replace(place, turns=0, text=text, said=True)
    return place, turns


def calls_of(turn: AssistantMessage) -> list[ToolCall]:
    """The calls that the model made in a turn."""
    return [part for part in turn.content if isinstance(part, ToolCall)]
