"""When the conditions of a run must be looked at again: at which moment, and after how much more text."""

from __future__ import annotations

import math
import sys

from monitor._tokens import MOST_EIGHTHS_PER_CHAR
from monitor.conditions.base import Condition
from monitor.state import RunState


class Schedule:
    """The next look at a condition."""

    __slots__ = (
        "_condition",
        "_headroom_eighths",
        "deadline_s",
    )

    def __init__(self, condition: Condition | None) -> None:
        self.deadline_s = math.inf
        """Before it, in seconds since the run began, the condition cannot have become true by time alone."""
        self._condition = condition
        self._headroom_eighths: int | None = None

    def plan(self, state: RunState) -> None:
        """Work the next look out anew."""
        if self._condition is None:
            return
        deadline_s, headroom = self._condition.deadline(state), self._condition.token_headroom(state)
        self.deadline_s = math.inf if deadline_s is None else deadline_s
        self._headroom_eighths = None if headroom is None else 8 * headroom

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
