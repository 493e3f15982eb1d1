"""What the model calls of a recorded run cost: as the recording says, else by list prices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from monitor.prices import list_price
from monitor.transcripts.base import RecordedMessage
from monitor.transcripts.entries import RunTotals


@dataclass(slots=True, frozen=True)
class RunCost:
    """The cost of model calls in US dollars."""

    usd: float | None = None
    """`None`: no call has a known cost."""
    partial: bool = False
    """Some of the tokens have no known price, so the cost is at least `usd`."""
    listed: bool = False
    """Part of `usd` was worked out by the list prices of the package."""

    def plus(self, message: RecordedMessage, model: str) -> RunCost:
        """The cost with that of one more message. `model`: of the run, where the message names
        none.
        """
        if message.cost_usd is not None:
            return RunCost((self.usd or 0.0) + message.cost_usd, self.partial, self.listed)
        if message.usage is None or not message.usage.total_tokens:
            return self
        price = list_price(message.model or model, at_s=message.at)
        if price is None:
            return RunCost(self.usd, partial=True, listed=self.listed)
        return RunCost((self.usd or 0.0) + price.cost(message.usage), self.partial, listed=True)

    @classmethod
    def of_totals(cls, totals: RunTotals, model: str, at_s: float | None) -> RunCost:
        """The cost of a run that its recording sums up. `model`: of the run. `at_s`: the time of
        its last message, for the prices of that day.
        """
        if totals.cost_usd is not None:
            return cls(totals.cost_usd)
        cost = cls()
        for name, usage in totals.usage:
            cost = cost.plus(RecordedMessage("assistant", usage=usage, model=name, at=at_s), model)
        return cost

    def since(self, then: RunCost) -> float | None:
        """US dollars of the calls after `then`. `None`: the cost of none of them is known."""
        if self.usd is None or (self.usd == then.usd and self.partial):
            return None
        return self.usd - (then.usd or 0.0)


UNKNOWN_COST = RunCost()
_Number = TypeVar("_Number", int, float)


def known_sum(one: _Number | None, other: _Number | None) -> _Number | None:
    """The sum of the numbers that are known. `None`: neither is."""
    if one is None or other is None:
        return other if one is None else one
    return one + other
