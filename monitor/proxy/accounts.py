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
    own_tokens: Callable[[str], int | None] = lambda _: None
    """The limit of a key that has one of its own, by its name."""
    slice_tokens: int = 2_000
    wait_s: float = WAIT_S
    """How long a request may wait for its budget."""

    def __post_init__(self) -> None:
        self.check("key_tokens", self.key_tokens)
        self.check("run_tokens", self.run_tokens)

    def check(self, name: str, tokens: int | None) -> None:
        """Raises `ConfigError` for a limit by which no request could be paid."""
        if tokens is not None and tokens < self.slice_tokens:
            raise ConfigError(
                f"{name} is {tokens}, but a request holds slice_tokens, {self.slice_tokens}, for its answer: none"
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
        own = self.own_tokens(key)
        most = self.key_tokens if own is None else own
        limits = {} if most is None else {name: most}
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

    async def set_tokens(self, key: str, tokens: int) -> None:
        """Set the limit of a key in tokens. Its limit in US dollars stays."""
        name = f"{self.root}/{key}"
        usd = next((one.usd for one in await self.store.states(name) if one.name == name), None)
        await self.store.set_limit(name, tokens=tokens, usd=usd)

    async def aclose(self) -> None:
        """Close the store that holds the budgets."""
        try:
            await self.store.aclose()
        except BudgetUnreachable:
            return
