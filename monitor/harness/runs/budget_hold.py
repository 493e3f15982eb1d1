"""The part of a shared budget that one run holds: reserved before each call, extended while the
answer streams, settled at the end.

Failure answered: two hundred runs look at one counter, each sees that there is room, and all spend.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import anyio

from monitor.budget import Grant
from monitor.errors import BudgetUnreachable, ConfigError
from monitor.events import BudgetLost, Event
from monitor.harness.streams.background import Background
from monitor.harness.streams.clock import Clock
from monitor.reasons import TerminateReason
from monitor.shared.budgets.base import Amount, Refused, Reservation, levels
from monitor.shared.budgets.shared_budget import SharedBudget
from monitor.usage import Price, Usage
from monitor.verdicts import Stop

_SOURCE: Final = "SharedBudget"
_RENEWALS: Final = 3
"""Renewals of a lease in the time that it lasts: two may fail."""
_SETTLE_S: Final = 10.0
"""Seconds that settling may take at the end of a run. A hold that is not settled expires."""


class BudgetHold:
    """Keeps the hold of one run in its store."""

    def __init__(
        self,
        shared: SharedBudget,
        *,
        run_id: str,
        price: Price | None,
        clock: Clock,
        emit: Callable[[Event], None],
        at: Callable[[], float],
    ) -> None:
        """`at`: the seconds since the run began, for its events."""
        usd = price.cost(Usage(output_tokens=shared.slice_tokens)) if price is not None else 0.0
        self.grant: Grant = Grant(shared.slice_tokens, usd)
        self._slice = Amount(shared.slice_tokens, usd)
        self._shared = shared
        self._run_id = run_id
        self._price = price
        self._clock = clock
        self._emit = emit
        self._at = at
        self._hold: Reservation | None = None
        self._before = Amount()
        """The use of the hold when this process took it up."""
        self._then = Amount()
        """The spending of this run by then: a run that is resumed knows what it has used before."""
        self._lost = False
        self._news = anyio.Event()
        self._keeper: Background | None = None
        self._lock = anyio.Lock()

    async def before_call(self, input_tokens: int) -> Stop | None:
        """Hold what the next call may use. A `Stop`: the budget cannot pay it."""
        if self._lost and self._shared.fail == "open":
            return None
        need = self._slice + Amount(input_tokens)
        if self._price is not None:
            need += Amount(usd=self._price.cost(Usage(input_tokens=input_tokens)))
        self.grant.closed = ""
        try:
            answer = await self._ask(need)
        except BudgetUnreachable as error:
            self._unreachable(error)
            if self._shared.fail == "open":
                return None
            return Stop(TerminateReason.TOKEN_LIMIT, f"no call without its shared budget: {error}", _SOURCE)
        if isinstance(answer, Refused):
            return _stop(answer, need)
        if self._keeper is None:
            self.grant.wanted = self._wake
            self._keeper = Background(self._keep, "agent-monitor shared budget")
        return None

    async def close(self) -> None:
        """Settle the hold, bounded in time: the used part is spent, the rest comes back."""
        keeper, self._keeper = self._keeper, None
        hold, self._hold = self._hold, None
        with anyio.move_on_after(_SETTLE_S, shield=True):
            if keeper is not None:
                keeper.cancel()
                await keeper.wait()
            if hold is not None:
                try:
                    await self._shared.store.settle(hold, self._used())
                except BudgetUnreachable as error:
                    self._unreachable(error)

    # ------------------------------------------------------------------ the keeper

    async def _keep(self) -> None:
        """Beside the run: a slice more when it is needed, and a new lease from time to time."""
        while True:
            self._news = anyio.Event()
            alarm = self._clock.call_at(self._clock.now() + self._shared.lease_s / _RENEWALS, self._wake)
            try:
                if not self.grant.wants:
                    await self._news.wait()
            finally:
                alarm.cancel()
            try:
                answer = await self._ask(self._slice if self.grant.wants else Amount())
            except BudgetUnreachable as error:
                self._unreachable(error)
                self.grant.wants = False
            else:
                if isinstance(answer, Refused):
                    self.grant.wants = False
                    self.grant.closed = _said(answer)

    def _wake(self) -> None:
        self._news.set()

    async def _ask(self, need: Amount) -> Reservation | Refused:
        """Hold at least `need` beside what is used."""
        store, shared = self._shared.store, self._shared
        async with self._lock:
            used = self._used()
            if self._hold is None:
                await self._check_price()
                answer = await store.reserve(shared.name, need, key=self._run_id, lease_s=shared.lease_s)
                if isinstance(answer, Reservation):  # perhaps that of a process that died in this run
                    self._before, self._then = answer.used, self._spent
                    used = self._used()
            else:
                answer = self._hold
            if isinstance(answer, Reservation):
                more = Amount(
                    max(0, used.tokens + need.tokens - answer.granted.tokens),
                    max(0.0, used.usd + need.usd - answer.granted.usd),
                )
                if self._hold is not None or more.tokens or more.usd:
                    answer = await store.extend(answer, more, used=used, lease_s=shared.lease_s)
            if isinstance(answer, Reservation):
                self._hold = answer
                granted = answer.granted + self._then - self._before
                self.grant.take(granted.tokens, granted.usd)
            elif self._hold is not None:
                self._hold = replace(self._hold, used=used)
            return answer

    async def _check_price(self) -> None:
        """A limit in US dollars needs the price of the model."""
        if self._price is not None:
            return
        above = levels(self._shared.name)
        for state in await self._shared.store.states(above[0]):
            if state.name in above and state.usd is not None:
                raise ConfigError(
                    f"the shared budget {state.name!r} has a limit in US dollars: give prices=, or the run cannot keep"
                    " it"
                )

    def _used(self) -> Amount:
        return self._before + (self._spent - self._then)

    @property
    def _spent(self) -> Amount:
        """The spending of this run, by estimate or by report."""
        return Amount(self.grant.spent_tokens, max(0.0, self.grant.spent_usd) if self._slice.usd else 0.0)

    def _unreachable(self, error: BudgetUnreachable) -> None:
        if self._shared.fail == "open":
            self.grant.open_up()
        else:
            self.grant.closed = f"its store does not answer ({error})"
        if not self._lost:
            self._lost = True
            self._emit(BudgetLost(self._at(), self._shared.name, str(error), self._shared.fail == "open"))


def _stop(refused: Refused, need: Amount) -> Stop:
    short = refused.tokens is not None and need.tokens > refused.left.tokens
    reason = TerminateReason.TOKEN_LIMIT if short else TerminateReason.COST_LIMIT
    detail = f"{_said(refused)}, and the next call may need {need}"
    limit = refused.tokens if short else refused.usd
    left = refused.left.tokens if short else refused.left.usd
    return Stop(reason, detail, _SOURCE, limit, None if limit is None else limit - left)


def _said(refused: Refused) -> str:
    left = [f"{refused.left.tokens} of {refused.tokens} tokens"] if refused.tokens is not None else []
    if refused.usd is not None:
        left.append(f"{refused.left.usd:.4g} of {refused.usd:g} USD")
    return f"the shared budget {refused.name!r} has {' and '.join(left)} left"
