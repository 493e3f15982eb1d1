"""The budgets of keys and runs, in a store that all proxies share.

The name of a budget is `proxy/<key>`, or `proxy/<key>/<run>` if runs have a limit: so one limit may
be set for all, one for each key, and one for each run.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from monitor.errors import BudgetUnreachable, ConfigError
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
KEEP_S: Final = 30 * 86_400.0
"""Seconds after its last request for which the spending of a run is kept apart from that of its
key. A conversation may rest over a holiday.
"""


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

    def __post_init__(self) -> None:
        for name in ("key_tokens", "run_tokens"):
            most = getattr(self, name)
            if most is not None and most < self.slice_tokens:
                raise ConfigError(
                    f"{name} is {most}, but a request holds slice_tokens, {self.slice_tokens}, for its answer: none"
                    " could be paid"
                )

    def open(
        self, key: str, run: str, *, price: Price | None, clock: Clock, emit: Callable[[Event], None], began: float
    ) -> BudgetHold:
        """The part of the budget that one request may use."""
        return BudgetHold(
            self._shared(key, run),
            run_id=uuid.uuid4().hex,
            price=price,
            clock=clock,
            emit=emit,
            at=lambda: clock.now() - began,
        )

    def _shared(self, key: str, run: str) -> SharedBudget:
        name = f"{self.root}/{key}"
        limits = {} if self.key_tokens is None else {name: self.key_tokens}
        if self.run_tokens is not None:
            name = f"{name}/{run}"
            limits[name] = self.run_tokens
        return SharedBudget(
            self.store,
            name,
            slice_tokens=self.slice_tokens,
            wait_s=self.wait_s,
            limits=limits,
            keep_s=None if self.run_tokens is None else KEEP_S,
        )

    async def aclose(self) -> None:
        """Close the store that holds the budgets."""
        try:
            await self.store.aclose()
        except BudgetUnreachable:
            return
