"""When the limits of a run must be looked at again: at which moment, and after how much more text."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

from monitor._tokens import MOST_EIGHTHS_PER_CHAR
from monitor.budget import Budget
from monitor.conditions.base import Condition
from monitor.prices import Price
from monitor.state import RunState

BUDGET_LOOK_TOKENS = 256
"""Others may spend from the same budget meanwhile, so it is looked at at least this often. n runs overdraw it together by at
most n times as much; a look costs a few microseconds, and 256 tokens are seconds of a stream.
"""


class Schedule:
    """The next look at a condition and at budgets."""

    __slots__ = (
        "_budgets",
        "_condition",
        "_headroom_eighths",
        "_nested",
        "deadline_s",
        "price",
    )

    def __init__(
        self, condition: Condition | None, price: Price | None = None, budgets: Sequence[Budget] = (), *, nested: bool = False
    ) -> None:
        """`nested`: what this run uses counts for a run above as well, whose limits are looked at when this one looks."""
        self.deadline_s = math.inf
        """Before it, in seconds since the run began, the condition cannot have become true by time alone."""
        self.price = price
        """Of the model that streams: what turns dollars into tokens. Without one no cost is counted down."""
        self._condition = condition
        self._budgets = tuple(budgets)
        self._nested = nested
        self._headroom_eighths: int | None = None

    def plan(self, state: RunState) -> None:
        """Work the next look out anew. What `state` has used must be counted in the budgets already."""
        if self._condition is None and not self._budgets and not self._nested:
            return
        headrooms: list[int | None] = [BUDGET_LOOK_TOKENS] if self._nested else []
        if self._condition is not None:
            deadline_s = self._condition.deadline(state)
            self.deadline_s = math.inf if deadline_s is None else deadline_s
            headrooms.append(self._condition.token_headroom(state))
            if self.price is not None:
                headrooms.append(self._tokens_for(self._condition.cost_headroom(state)))
        for budget in self._budgets:
            tokens, usd = budget.remaining_tokens, budget.remaining_usd
            if tokens is not None or usd is not None:
                headrooms += [tokens, self._tokens_for(usd), BUDGET_LOOK_TOKENS]
        headroom = min([room for room in headrooms if room is not None], default=None)
        self._headroom_eighths = None if headroom is None else 8 * headroom

    def _tokens_for(self, usd: float | None) -> int | None:
        """Output tokens that so many dollars buy: a stream writes output."""
        if usd is None or self.price is None or self.price.output <= 0:
            return None
        tokens = usd / self.price.output * 1_000_000
        return math.floor(tokens) if tokens < sys.maxsize else None

    def spend(self, eighths: int) -> bool:
        """So many eighths of a token have come since the last call. True: a limit may have been passed."""
        if self._headroom_eighths is None:
            return False
        self._headroom_eighths -= eighths
        return self._headroom_eighths < 0

    @property
    def free_chars(self) -> int:
        """Characters that may come before the text must be looked at, so that no limit is overrun unseen."""
        if self._headroom_eighths is None:
            return sys.maxsize
        return max(0, self._headroom_eighths // MOST_EIGHTHS_PER_CHAR)
