"""What a run has used: its own turns, and the runs that its tools started. Budgets are told of it as it grows."""

from __future__ import annotations

from collections.abc import Sequence

from monitor.budget import Account, Budget
from monitor.prices import Price
from monitor.state import Usage
from monitor.verdicts import Stop

NOTHING = Usage()
_NONE: tuple[Usage, float] = (NOTHING, 0.0)


class Spending:
    """`price`: what the model's tokens cost; without one, they cost nothing. `budgets`: what the run spends from.

    A nested run spends from its own budgets, and from those of this one if it was given a share: here it is only added up.
    """

    __slots__ = ("_account", "_closed", "_open", "_own", "_price", "budgets", "estimated")

    def __init__(self, price: Price | None = None, budgets: Sequence[Budget] = ()) -> None:
        self.budgets = tuple(budgets)
        self.estimated = False
        """Part of it is an estimate."""
        self._price = price
        self._account = Account(budgets)
        self._own = NOTHING
        self._closed = _NONE
        self._open: dict[int, tuple[Usage, float]] = {}

    def settle(self, usage: Usage, *, estimated: bool) -> None:
        """A turn is over."""
        self._own += usage
        self.estimated |= estimated

    def nested(self, run: int, usage: Usage, usd: float) -> None:
        """All that a nested run has used so far."""
        self._open[run] = (usage, usd)

    def nested_ended(self, run: int) -> None:
        """It will use no more."""
        usage, usd = self._open.pop(run, _NONE)
        self._closed = (self._closed[0] + usage, self._closed[1] + usd)

    def total(self, running: Usage = NOTHING) -> tuple[Usage, float]:
        """Tokens and US dollars up to now. `running`: of the turn that is not over."""
        usage = self._own if running is NOTHING else self._own + running
        usd = self._cost(usage)
        if self._closed is not _NONE or self._open:
            for nested_usage, nested_usd in (self._closed, *self._open.values()):
                usage += nested_usage
                usd += nested_usd
        return usage, usd

    def post(self, running: Usage = NOTHING) -> Stop | None:
        """Tell the budgets what this run itself has used by now; which of them is exhausted?"""
        if not self.budgets:
            return None
        usage = self._own + running
        self._account.settle(usage.total_tokens, self._cost(usage))
        return self._account.exhausted()

    def _cost(self, usage: Usage) -> float:
        return self._price.cost(usage) if self._price is not None else 0.0
