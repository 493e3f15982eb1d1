"""Where the user's turns begin, and where the conversation itself does.

A user turn is a user message with everything up to the next one. What a compaction put at the head
of a history begins no turn, and neither does what the program put there (rules, files): both are
its *head*, counted in messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from monitor.context.history import History
from monitor.messages import AssistantMessage, Message, UserMessage

COMPACTION: Final = "compaction"
"""The kind of an edit that replaces messages by a summary."""


def head_of(history: History) -> int:
    """How many messages at the beginning are the newest compaction's, or older than it."""
    head = 0
    for done in history.edits:
        stop = done.start + len(done.edit.replacement)
        if done.edit.kind == COMPACTION:
            head = stop
        elif done.stop <= head:
            head += stop - done.stop
        else:
            head = min(head, done.start)
    return head


def user_turns(messages: Sequence[Message], *, head: int = 0) -> list[range]:
    """The indices of each user turn after the first `head` messages, oldest first.

    What follows the head without a user message is the rest of a turn whose beginning was
    summarised, and counts as one.
    """
    starts = [
        index for index in range(head, len(messages)) if index == head or isinstance(messages[index], UserMessage)
    ]
    return [range(start, stop) for start, stop in pairwise([*starts, len(messages)])]


def newest_turns(messages: Sequence[Message], turns: int, *, head: int = 0) -> int:
    """Where the newest `turns` user turns begin; the number of messages for none."""
    index = len(messages)
    while turns > 0 and index > head:
        index -= 1
        if index == head or isinstance(messages[index], UserMessage):
            turns -= 1
    return index


def unread_from(messages: Sequence[Message], *, head: int = 0) -> int | None:
    """Where the newest turn stands, if it has results that no answer of the model follows; `None`:
    the model has answered to all results.

    By the messages alone: behind results that the model has read stands what it said then.
    """
    for index in range(len(messages) - 1, head - 1, -1):
        message = messages[index]
        if isinstance(message, AssistantMessage):
            return index if message.results else None
    return None
