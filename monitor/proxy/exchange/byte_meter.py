"""Pays for what is not read: four bytes count as one token."""

from __future__ import annotations

from typing import Final

from monitor.harness.runs.budget_hold import BudgetHold
from monitor.verdicts import Stop

BYTES_A_TOKEN: Final = 4
"""The bytes that count as one token, like in the estimates of texts."""


class BudgetSpent(Exception):
    """The budget pays no more of these bytes."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.detail)
        self.stop = stop


class ByteMeter:
    """Spends from the budget of one request as its bytes pass."""

    def __init__(self, holding: BudgetHold) -> None:
        self._holding = holding
        self._bytes = 0
        self.tokens = 0
        """The tokens that were paid."""

    async def passed(self, number: int) -> None:
        """Pay for `number` bytes, which are about to pass. Raises `BudgetSpent`."""
        self._bytes += number
        grant, more = self._holding.grant, self._bytes // BYTES_A_TOKEN - self.tokens
        if more:
            grant.spend(more, more * grant.slice_usd / grant.slice_tokens)
            self.tokens += more
        if grant.is_used_up:
            await self._holding.more()
        if (stop := grant.exhausted()) is not None:
            raise BudgetSpent(stop)
