"""When the conditions of a run must be looked at again: at which moment, and after how much more text."""

from __future__ import annotations

import math

from monitor._tokens import MOST_TOKENS_PER_CHAR
from monitor.conditions.base import Condition
from monitor.conditions.deadlines import split_idle
from monitor.state import RunState

FOLD_CHARS = 512
"""Text is packed, and its tokens are estimated, once in so many characters: far below any sensible limit."""


class Schedule:
    """The next look at a condition. All moments are in the harness's clock; `began` is when the run did."""

    def __init__(self, condition: Condition | None) -> None:
        self.deadline = math.inf
        """Before it, the condition cannot have become true by time alone. Minus infinity: look at once."""
        self.began = 0.0
        self._condition = condition
        self._follows_reads = condition is not None and condition.follows_reads
        self._idle_s: float | None = None
        self._other: Condition | None = None
        if condition is not None and (split := split_idle(condition)) is not None:
            self._idle_s, self._other = split
        self._other_deadline = math.inf
        self._headroom: int | None = None

    def plan(self, state: RunState) -> None:
        """Work the next look out anew."""
        condition = self._condition
        if condition is None:
            return
        self._headroom = condition.token_headroom(state)
        if self._idle_s is None:
            self.deadline = self._moment(condition.deadline(state))
            return
        self._other_deadline = self._moment(self._other.deadline(state) if self._other is not None else None)
        idle_from = math.inf if state.waiting_since_s is None else state.waiting_since_s + self.began
        self.deadline = min(self._other_deadline, idle_from + self._idle_s)

    def exact_deadline(self, waiting_since: float) -> float | None:
        """`deadline` for a read that begins now, without a new plan; `None`: that takes a new plan."""
        if self.deadline == -math.inf or not self._follows_reads:
            return self.deadline
        return None if self._idle_s is None else min(self._other_deadline, waiting_since + self._idle_s)

    def spend(self, tokens: int) -> bool:
        """So many tokens have come since the last call. True: a token limit may have been passed."""
        if self._headroom is None:
            return False
        self._headroom -= tokens
        return self._headroom < 0

    @property
    def fold_chars(self) -> int:
        """Characters that may come before the text must be looked at, so that no token limit is overrun unseen."""
        if self._headroom is None:
            return FOLD_CHARS
        return max(0, min(FOLD_CHARS, int(self._headroom / MOST_TOKENS_PER_CHAR)))

    def _moment(self, at_s: float | None) -> float:
        return math.inf if at_s is None else at_s + self.began
