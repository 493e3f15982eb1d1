"""Where a history may be cut in two: the part before is summarised, the part after stays unchanged.

A cut stands between messages, so a call and its result are on the same side. It never separates
thinking from the message that continues it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from monitor._util.argument_checks import check_number, is_finite, is_whole
from monitor.chunks import ToolCall
from monitor.context.history import COMPACTION, HistoryEdit, newest_turns
from monitor.context.reduce import Messages, MessageTokens
from monitor.context.tokens import message_tokens
from monitor.errors import ConfigError
from monitor.messages import AssistantMessage, Message, Reasoning, UserMessage


@dataclass(slots=True, frozen=True)
class CutPoint:
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


def cut_by_turns(
    messages: Sequence[Message],
    budget_tokens: int,
    *,
    tail_turns: int | None = 2,
    head: int = 0,
    tokens: MessageTokens = message_tokens,
) -> CutPoint | None:
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


def cut_at(
    messages: Sequence[Message], index: int, *, head: int = 0, tokens: MessageTokens = message_tokens
) -> CutPoint:
    """Keep everything from `index` on, and the messages before it that must not be separated from
    it.
    """
    while head < index < len(messages) and _goes_on(messages[index - 1], messages[index]):
        index -= 1
    return _cut(messages, index, head, sum(map(tokens, messages[index:])))


# --- what the presets keep


class Keep(Protocol):
    """A rule that says where a history is cut for a summary."""

    def cut(self, messages: Messages, /, *, head: int, usable_tokens: int, tokens: MessageTokens) -> CutPoint | None:
        """The cut; `None`: there is nothing to summarise.

        `head`: the number of messages at the beginning that an earlier compaction put there.
        `usable_tokens`: the part of the window that may be used. `tokens` measures a message.
        """
        ...


@dataclass(slots=True, frozen=True)
class KeepTokens:
    """Keeps the newest messages, up to and including the one that fills `tokens`, or `share` of
    what may be used of the window. Source: pi, OpenClaw; the share is ours: their number alone is
    larger than many windows.

    `whole_turns`: keeps from the next beginning of a user turn on. If none follows, the newest turn
    stays whole, however large it is.
    """

    tokens: int = 20_000
    share: float = 0.3
    whole_turns: bool = False

    def __post_init__(self) -> None:
        check_number("tokens", self.tokens, 0)
        _check_share(self.share)

    def cut(
        self, messages: Messages, *, head: int = 0, usable_tokens: int, tokens: MessageTokens = message_tokens
    ) -> CutPoint | None:
        _check_head(head, messages)
        most = min(self.tokens, int(usable_tokens * self.share))
        index, kept = len(messages), 0
        while index > head and (kept < most or index == len(messages)):
            index -= 1
            kept += tokens(messages[index])
        if kept < most:
            return None
        if self.whole_turns:
            newest = newest_turns(messages, 1, head=head)
            index = next((place for place in range(index, newest) if isinstance(messages[place], UserMessage)), newest)
            kept = sum(map(tokens, messages[index:]))
        index, kept = _allowed(messages, index, kept, tokens)
        return None if index <= head else _cut(messages, index, head, kept)


@dataclass(slots=True, frozen=True)
class KeepNewTurns:
    """Keeps the newest user turns, as far as they fit into a share of the window, within bounds; of
    a turn that does not fit, its end. Source: opencode.
    """

    turns: int | None = 2
    share: float = 0.25
    least_tokens: int = 2_000
    most_tokens: int = 8_000

    def __post_init__(self) -> None:
        if self.turns is not None:
            check_number("turns", self.turns, 0)
        _check_share(self.share)
        check_number("least_tokens", self.least_tokens, 0)
        check_number("most_tokens", self.most_tokens, self.least_tokens)

    def cut(
        self, messages: Messages, *, head: int = 0, usable_tokens: int, tokens: MessageTokens = message_tokens
    ) -> CutPoint | None:
        budget = max(self.least_tokens, min(self.most_tokens, int(usable_tokens * self.share)))
        return cut_by_turns(messages, budget, tail_turns=self.turns, head=head, tokens=tokens)


@dataclass(slots=True, frozen=True)
class KeepShare:
    """Keeps the newest `share` of the conversation by its size at most: cuts before the first user
    message behind the others. Source: Gemini CLI.

    Without such a message, all is summarised if the model said the last word; else the cut is
    before the last user message.
    """

    share: float = 0.3

    def __post_init__(self) -> None:
        _check_share(self.share)

    def cut(
        self, messages: Messages, *, head: int = 0, usable_tokens: int = 0, tokens: MessageTokens = message_tokens
    ) -> CutPoint | None:
        """See `Keep`. `None`: there is nothing before the cut."""
        _check_head(head, messages)
        sizes = [tokens(message) for message in messages[head:]]
        before, index = 0, head
        most, found = sum(sizes) * (1 - self.share), False
        for place, size in enumerate(sizes, head):
            if isinstance(messages[place], UserMessage):
                index, found = place, before >= most
                if found:
                    break
            before += size
        if not found and sizes and _is_last_word(messages[-1]):
            index = len(messages)
        return None if index == head else _cut(messages, index, head, sum(sizes[index - head :]))


@dataclass(slots=True, frozen=True)
class KeepMessages:
    """Keeps the newest `messages`, each with its results. Source: the article on Claude Code, which
    keeps five.
    """

    messages: int = 5

    def __post_init__(self) -> None:
        check_number("messages", self.messages, 0)

    def cut(
        self, messages: Messages, *, head: int = 0, usable_tokens: int = 0, tokens: MessageTokens = message_tokens
    ) -> CutPoint | None:
        if len(messages) - head <= self.messages:
            return None
        budget = sum(map(tokens, messages[len(messages) - self.messages :]))
        return cut_by_turns(messages, budget, tail_turns=None, head=head, tokens=tokens)


def _check_share(share: object) -> None:
    if not is_finite(share) or not 0 < share < 1:
        raise ConfigError(f"share is {share!r}; it must be more than 0 and less than 1")


def _is_last_word(message: Message) -> bool:
    return isinstance(message, AssistantMessage) and not any(isinstance(part, ToolCall) for part in message.content)


def _cut(messages: Sequence[Message], index: int, head: int, kept: int) -> CutPoint:
    inside = index < len(messages) and not isinstance(messages[index], UserMessage)
    start = (
        next((place for place in range(index - 1, head, -1) if isinstance(messages[place], UserMessage)), head)
        if inside
        else None
    )
    return CutPoint(index, start, kept)


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
