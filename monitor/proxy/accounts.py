"""The budgets of keys and runs, in a store that all proxies share.

The name of a budget is `proxy/<key>`, or `proxy/<key>/<run>` if runs have a limit: so one limit may
be set for all, one for each key, and one for each run.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from monitor.errors import BudgetUnreachable
from monitor.events import Event
from monitor.harness.runs.budget_hold import BudgetHold
from monitor.harness.streams.clock import Clock
from monitor.shared import BudgetStore, SharedBudget
from monitor.usage import Price

ROOT: Final = "proxy"
WAIT_S: Final = 20.0
"""Seconds that a request waits for its budget: a restart of the store is over by then, and no
client has given up.
"""
_REMEMBERED: Final = 10_000


@dataclass(slots=True)
class Accounts:
    """Opens an account for each request."""

    store: BudgetStore
    root: str = ROOT
    key_tokens: int | None = None
    """The limit of a key that has none in the store yet. `None`: no limit."""
    run_tokens: int | None = None
    """The limit of each run. `None`: no limit."""
    slice_tokens: int = 2_000
    wait_s: float = WAIT_S
    """How long a request may wait for its budget."""
    _known: OrderedDict[str, None] = field(default_factory=OrderedDict[str, None])

    async def open(
        self, key: str, run: str, *, price: Price | None, clock: Clock, emit: Callable[[Event], None], began: float
    ) -> BudgetHold:
        """The part of the budget that one request may use. Raises `BudgetUnreachable`."""
        name = f"{self.root}/{key}"
        await self._limit(name, self.key_tokens)
        if self.run_tokens is not None:
            name = f"{name}/{run}"
            await self._limit(name, self.run_tokens)
        return BudgetHold(
            SharedBudget(self.store, name, slice_tokens=self.slice_tokens, wait_s=self.wait_s),
            run_id=uuid.uuid4().hex,
            price=price,
            clock=clock,
            emit=emit,
            at=lambda: clock.now() - began,
        )

    async def _limit(self, name: str, tokens: int | None) -> None:
        """Give a budget its limit, unless it has one, or has been seen."""
        if tokens is None or name in self._known:
            return
        states = [state for state in await self.store.states(name) if state.name == name]
        if not states or (states[0].tokens is None and states[0].usd is None):
            await self.store.set_limit(name, tokens=tokens)
        self._known[name] = None
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    async def aclose(self) -> None:
        """Close the store that holds the budgets."""
        try:
            await self.store.aclose()
        except BudgetUnreachable:
            return
