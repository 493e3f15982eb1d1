"""What stays of a conversation beside the summary: the rules of the presets, on the cuts of
`monitor.context.cut`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from monitor._util.checks import is_finite
from monitor.context.cut import KEEP_RECENT_TOKENS, Cut, cut_by_share, cut_by_tokens, cut_by_turns, tail_budget
from monitor.context.reduction import Messages, MessageTokens, check_number
from monitor.errors import ConfigError


class Keep(Protocol):
    """Says where a history is cut."""

    def cut(self, messages: Messages, /, *, head: int, usable_tokens: int, tokens: MessageTokens) -> Cut | None:
        """Where what stays begins. `usable_tokens`: of the window; `None`: there is nothing to
        summarise.
        """
        ...


@dataclass(slots=True, frozen=True)
class KeepTokens:
    """The newest `tokens`, and not more than `share` of what may be used of the window. Source: pi,
    OpenClaw; the share is ours: their number alone is larger than many windows.
    """

    tokens: int = KEEP_RECENT_TOKENS
    share: float = 0.3
    whole_turns: bool = False

    def __post_init__(self) -> None:
        check_number("tokens", self.tokens, 0)
        _check_share(self.share)

    def cut(self, messages: Messages, *, head: int, usable_tokens: int, tokens: MessageTokens) -> Cut | None:
        """See `Keep`."""
        keep = min(self.tokens, int(usable_tokens * self.share))
        return cut_by_tokens(messages, keep, whole_turns=self.whole_turns, head=head, tokens=tokens)


@dataclass(slots=True, frozen=True)
class KeepNewTurns:
    """The newest user turns, as far as they fit into a share of the window, within bounds; of one
    that does not, its end.

    Source: opencode.
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

    def cut(self, messages: Messages, *, head: int, usable_tokens: int, tokens: MessageTokens) -> Cut | None:
        """See `Keep`."""
        budget = tail_budget(usable_tokens, share=self.share, least=self.least_tokens, most=self.most_tokens)
        return cut_by_turns(messages, budget, tail_turns=self.turns, head=head, tokens=tokens)


@dataclass(slots=True, frozen=True)
class KeepShare:
    """The newest `share` of the conversation by its size, from the beginning of a user turn on.
    Source: Gemini CLI.
    """

    share: float = 0.3

    def __post_init__(self) -> None:
        _check_share(self.share)

    def cut(self, messages: Messages, *, head: int, usable_tokens: int, tokens: MessageTokens) -> Cut | None:
        """See `Keep`."""
        return cut_by_share(messages, 1 - self.share, head=head, tokens=tokens)


@dataclass(slots=True, frozen=True)
class KeepMessages:
    """The newest `messages`, each with its results. Source: the article on Claude Code, which keeps
    five.
    """

    messages: int = 5

    def __post_init__(self) -> None:
        check_number("messages", self.messages, 0)

    def cut(self, messages: Messages, *, head: int, usable_tokens: int, tokens: MessageTokens) -> Cut | None:
        """See `Keep`."""
        if len(messages) - head <= self.messages:
            return None
        budget = sum(map(tokens, messages[len(messages) - self.messages :]))
        return cut_by_turns(messages, budget, tail_turns=None, head=head, tokens=tokens)


def _check_share(share: object) -> None:
    if not is_finite(share) or not 0 < share < 1:
        raise ConfigError(f"share is {share!r}; it must be more than 0 and less than 1")
