"""How many turns of a conversation are sent, by the kind of session. For conversations without an
end: a chat, a channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal, TypeAlias

from monitor._util.argument_checks import check_number
from monitor.context.reduce.reduction import Messages
from monitor.context.turns import user_turns
from monitor.errors import ConfigError

SessionKind: TypeAlias = Literal["direct", "channel", "group"]
"""The partners of a session. They decide how many turns are kept."""


@dataclass(slots=True, frozen=True)
class KeepTurns:
    """Keeps the newest user turns. Older turns are not sent; the history keeps them as originals.

    Turns are dropped in batches of half of `turns`, as soon as there are more than one and a half
    times `turns`. So the head of the request, and the provider's cache of it, stays the same for
    many turns. That holds for committed edits, and also if every request cuts the whole history
    anew. Source: OpenClaw.
    """

    name = "limit"

    turns: int

    def __post_init__(self) -> None:
        check_number("turns", self.turns, 1)

    def reduce(self, messages: Messages, *, head: int = 0) -> Messages:
        """See `Reducer`. A second time it does nothing."""
        turns = user_turns(messages, head=head)
        if 2 * len(turns) <= 3 * self.turns:
            return messages
        batch = (self.turns + 1) // 2
        kept = self.turns + (len(turns) - self.turns) % batch
        return messages[:head] + messages[turns[-kept].start :]


@dataclass(slots=True, frozen=True)
class HistoryLimits:
    """The number of user turns that are sent, by the kind of session; `None`: all."""

    _: KW_ONLY
    direct: int | None = None
    channel: int | None = None
    group: int | None = None
    users: Mapping[str, int | None] = field(default_factory=dict)
    """Limits for direct sessions with single users, by their id; they replace `direct`."""

    def __post_init__(self) -> None:
        named = {"direct": self.direct, "channel": self.channel, "group": self.group}
        for name, turns in [*named.items(), *((f"users[{user!r}]", turns) for user, turns in self.users.items())]:
            if turns is not None:
                check_number(name, turns, 1)

    def of(self, kind: SessionKind, user: str | None = None) -> KeepTurns | None:
        """The reducer for a session of `kind`, with `user`; `None` where there is no limit."""
        match kind:
            case "direct":
                turns = self.users[user] if user is not None and user in self.users else self.direct
            case "channel":
                turns = self.channel
            case "group":
                turns = self.group
            case _:
                raise ConfigError(f"unknown kind of session {kind!r}; known: direct, channel, group")
        return None if turns is None else KeepTurns(turns)
