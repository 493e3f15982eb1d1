"""When the conditions of a run must be looked at again: at which moment, and after how much more text."""

from __future__ import annotations

import math
import sys

from monitor._tokens import MOST_EIGHTHS_PER_CHAR
from monitor.conditions.base import Condition
from monitor.conditions.deadlines import split_idle
from monitor.state import RunState


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
        self._headroom_eighths: int | None = None

    def plan(self, state: RunState) -> None:
        """Work the next look out anew."""
        condition = self._condition
        if condition is None:
            return
        headroom = condition.token_headroom(state)
        self._headroom_eighths = None if headroom is None else 8 * headroom
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

    def spend(self, eighths: int) -> bool:
        """So many eighths of a token have come since the last call. True: a token limit may have been passed."""
        if self._headroom_eighths is None:
            return False
        self._headroom_eighths -= eighths
        return self._headroom_eighths < 0

    @property
    def free_chars(self) -> int:
        """Characters that may come before the text must be looked at, so that no token limit is overrun unseen."""
        if self._headroom_eighths is None:
            return sys.maxsize
        return max(0, self._headroom_eighths // MOST_EIGHTHS_PER_CHAR)

    def _moment(self, at_s: float | None) -> float:
        return math.inf if at_s is None else at_s + self.began
