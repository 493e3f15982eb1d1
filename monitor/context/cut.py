"""Where a history may be cut in two: the part before is summarised, the part after stays unchanged.

A cut stands between messages, so a call and its result are on the same side. It never separates
thinking from the message that continues it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from monitor._util.checks import is_finite, is_whole
from monitor.chunks import ToolCall
from monitor.context.history import HistoryEdit
from monitor.context.reduction import Messages, MessageTokens, check_number
from monitor.context.tokens import message_tokens
from monitor.context.turns import COMPACTION, newest_turns
from monitor.errors import ConfigError
from monitor.messages import AssistantMessage, Message, Reasoning, UserMessage

KEEP_RECENT_TOKENS: Final = 20_000
"""Source: pi, OpenClaw."""
SUMMARISED_SHARE: Final = 0.7
"""Share of the size that is summarised; 30 % stay. Source: Gemini CLI."""


@dataclass(slots=True, frozen=True)
class Cut:
    """The messages from `index` on stay; the messages between the head and `index` are
    summarised.
    """

    index: int
    """Index of the first message that stays; the number of messages if none stays."""
    turn_start: int | None
    """Where the user turn begins that the cut splits; `None`: it splits none. The messages between
    it and `index` may need a summary of their own.
    """
    kept_tokens: int
    """Estimated tokens of the messages that stay."""

    def edit(self, base_version: int, summary: Messages, *, start: int = 0, note: str = "") -> HistoryEdit:
        """The edit that puts `summary` in the place of everything up to the cut. `base_version`:
        the version of the history when the cut was made.

        `start`: how many messages stay before the summary, e.g. rules of the program. By default
        the summary also replaces an earlier one. Raises `ConfigError` if nothing would be replaced.
        Raises it too if a split turn would begin the history with the model, which no provider
        takes.
        """
        if not is_whole(start) or not 0 <= start < self.index:
            raise ConfigError(f"the cut at message {self.index} leaves nothing to replace from message {start!r} on")
        if not summary and start == 0 and self.turn_start is not None:
            raise ConfigError("a turn is split, so a summary must stand before what is left of it")
        return HistoryEdit(base_version, start, self.index, summary, COMPACTION, note)


def tail_budget(usable_tokens: int, *, share: float = 0.25, least: int = 2_000, most: int = 8_000) -> int:
    """How many tokens may stay: a share of the usable window, within bounds. Source: opencode."""
    check_number("usable_tokens", usable_tokens, 0)
    return max(least, min(most, int(usable_tokens * share)))


def cut_by_turns(
    messages: Sequence[Message],
    budget_tokens: int,
    *,
    tail_turns: int | None = 2,
    head: int = 0,
    tokens: MessageTokens = message_tokens,
) -> Cut | None:
    """Keep as much of the newest `tail_turns` user turns (`None`: of all) as fits into
    `budget_tokens`. Of a turn that does not fit, its end stays.

    All is summarised in three cases: `tail_turns` <= 0, not even the last message fits, or nothing
    else would be left to summarise. `None`: there is nothing after the head. Source: opencode.
    """
    check_number("budget_tokens", budget_tokens, 0)
    _check_head(head, messages)
    if head == len(messages):
        return None
    oldest = head if tail_turns is None else newest_turns(messages, tail_turns, head=head)
    index, kept = len(messages), 0
    while index > oldest:
        size = tokens(messages[index - 1])
        if kept + size > budget_tokens:
            break
        index, kept = index - 1, kept + size
    index, kept = _allowed(messages, index, kept, tokens)
    if index == head:
        index, kept = len(messages), 0
    return _cut(messages, index, head, kept)


def cut_by_tokens(
    messages: Sequence[Message],
    keep_recent_tokens: int = KEEP_RECENT_TOKENS,
    *,
    whole_turns: bool = False,
    head: int = 0,
    tokens: MessageTokens = message_tokens,
) -> Cut | None:
    """Keep the newest messages, up to and including the one that fills `keep_recent_tokens`.
    `None`: all stay.

    `whole_turns`: keep from the next beginning of a user turn on. If none follows, the newest turn
    stays whole, however large it is. Source: pi.
    """
    check_number("keep_recent_tokens", keep_recent_tokens, 0)
    _check_head(head, messages)
    index, kept = len(messages), 0
    while index > head and (kept < keep_recent_tokens or index == len(messages)):
        index -= 1
        kept += tokens(messages[index])
    if kept < keep_recent_tokens:
        return None
    if whole_turns:
        newest = newest_turns(messages, 1, head=head)
        aligned = next((place for place in range(index, newest) if isinstance(messages[place], UserMessage)), newest)
        kept = sum(map(tokens, messages[aligned:]))
        index = aligned
    index, kept = _allowed(messages, index, kept, tokens)
    return None if index <= head else _cut(messages, index, head, kept)


def cut_by_share(
    messages: Sequence[Message],
    share: float = SUMMARISED_SHARE,
    *,
    head: int = 0,
    tokens: MessageTokens = message_tokens,
) -> Cut | None:
    """Summarise at least `share` of the size: cut before the first user message behind that share.

    Without such a message, all is summarised if the model said the last word; else the cut is
    before the last user message. `None`: there is nothing before it. Raises `ConfigError` for a
    share that is not between 0 and 1. Source: Gemini CLI.
    """
    if not is_finite(share) or not 0 < share < 1:
        raise ConfigError(f"share is {share!r}; it must be more than 0 and less than 1")
    _check_head(head, messages)
    sizes = [tokens(message) for message in messages[head:]]
    total, before, index = sum(sizes), 0, head
    found = False
    for place, size in enumerate(sizes, head):
        if isinstance(messages[place], UserMessage):
            index, found = place, before >= total * share
            if found:
                break
        before += size
    if not found and sizes and _is_last_word(messages[-1]):
        index = len(messages)
    return None if index == head else _cut(messages, index, head, sum(sizes[index - head :]))


def cut_at(messages: Sequence[Message], index: int, *, head: int = 0, tokens: MessageTokens = message_tokens) -> Cut:
    """Keep everything from `index` on, and the messages before it that must not be separated from
    it.
    """
    while head < index < len(messages) and _goes_on(messages[index - 1], messages[index]):
        index -= 1
    return _cut(messages, index, head, sum(map(tokens, messages[index:])))


def _is_last_word(message: Message) -> bool:
    return isinstance(message, AssistantMessage) and not any(isinstance(part, ToolCall) for part in message.content)


def _cut(messages: Sequence[Message], index: int, head: int, kept: int) -> Cut:
    inside = index < len(messages) and not isinstance(messages[index], UserMessage)
    start = (
        next((place for place in range(index - 1, head, -1) if isinstance(messages[place], UserMessage)), head)
        if inside
        else None
    )
    return Cut(index, start, kept)


def _allowed(messages: Sequence[Message], index: int, kept: int, tokens: MessageTokens) -> tuple[int, int]:
    """`index`, or the next index that separates no thinking from the message that continues it."""
    while 0 < index < len(messages) and _goes_on(messages[index - 1], messages[index]):
        kept -= tokens(messages[index])
        index += 1
    return index, kept


def _goes_on(before: Message, after: Message) -> bool:
    """Whether `after` continues the thinking of `before`: the provider takes both as one."""
    thinking = (
        isinstance(before, AssistantMessage) and bool(before.content) and isinstance(before.content[-1], Reasoning)
    )
    return thinking and isinstance(after, AssistantMessage)


def _check_head(head: int, messages: Sequence[Message]) -> None:
    if not is_whole(head) or not 0 <= head <= len(messages):
        raise ConfigError(f"head is {head!r}; there are {len(messages)} messages")
