"""Where user turns begin, and where the conversation begins.

A user turn is a user message with everything up to the next one. The messages that a compaction or
the program put before the conversation (a summary, rules, files) begin no turn: they are the
*head*, counted in messages.
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
    """How many messages at the beginning belong to the newest compaction, or stand before it."""
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

    Messages after the head without a user message are the rest of a turn whose beginning was
    summarised. They count as a turn.
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
    """The index of the newest turn, if its results are unread: the model has said nothing after
    them. `None`: the model has answered to all results.

    Only the messages decide: after results that the model has read stands its answer.
    """
    for index in range(len(messages) - 1, head - 1, -1):
        message = messages[index]
        if isinstance(message, AssistantMessage):
            return index if message.results else None
    return None
