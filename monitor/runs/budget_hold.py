"""The part of a shared budget that one run holds: reserved before each call, extended while the
answer streams, settled at the end.

Failure answered: two hundred runs look at one counter, each sees that there is room, and all spend.
Another one: a store is restarted, and every run that asks in these seconds ends for good.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final
from zlib import crc32

import anyio

from monitor.budget import Grant
from monitor.chunks import Price, Usage
from monitor.errors import PASSING_REASONS, BudgetUnreachable, ConfigError, TerminateReason
from monitor.events import BudgetAwaited, BudgetLost, Event
from monitor.guard.streams.wait import Clock
from monitor.shared.budgets.base import Amount, Refused, Reservation, SharedBudget
from monitor.tools.base import Background, wait_until
from monitor.verdicts import Stop

_SOURCE: Final = "SharedBudget"
_RENEWALS: Final = 3
"""Renewals of a lease in the time that it lasts: two may fail."""
_SETTLE_S: Final = 10.0
"""Seconds that settling may take at the end of a run. A hold that is not settled expires."""
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0
"""Pauses between two questions to a store. Each is twice the one before."""
_READS_ON_S: Final = 10.0
"""Seconds for which the reading of an answer waits for a slice more. A longer silence would look to
the provider, and to a limit on idle time, as if somebody had left.
"""
_OPEN_S: Final = 30.0
"""Seconds after which a run that goes on without its store asks it again."""


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
        self._fault = ""
        """Why the store did not answer the last time that it did not."""
        self._open_until: float | None = None
        """The run goes on without its store until then."""
        self._news = anyio.Event()
        self._answered = anyio.Event()
        self._keeper: Background | None = None
        self._lock = anyio.Lock()

    async def before_call(self, input_tokens: int) -> Stop | None:
        """Hold what the next call may use, and wait for it as long as the budget says. A `Stop`:
        the budget cannot pay the call.
        """
        if self._open_until is not None and self._clock.now() < self._open_until:
            return None
        need = self._slice + Amount(input_tokens)
        if self._price is not None:
            need += Amount(usd=self._price.cost(Usage(input_tokens=input_tokens)))
        self.grant.close("")
        until, pause_s = self._clock.now() + self._shared.wait_s, self._spread(_FIRST_PAUSE_S)
        while (stop := await self._attempt(need)) is not None and stop.reason in PASSING_REASONS:
            left = until - self._clock.now()
            if stop.reason is TerminateReason.BUDGET_UNREACHABLE and (left <= 0 or self._shared.fail == "open"):
                self._unreachable(self._fault)
                return None if self._shared.fail == "open" else stop
            if left <= 0:
                return stop
            if stop.reason is TerminateReason.BUDGET_BUSY:
                await self._give_back()
            await self._pause(stop, min(pause_s, left))
            pause_s = min(2 * pause_s, self._spread(_LONGEST_PAUSE_S))
        if stop is None and self._keeper is None:
            self.grant.wanted = self._wake
            self._keeper = Background(self._keep, "agent-monitor shared budget")
        return stop

    async def more(self) -> None:
        """Wait for a slice more in the middle of an answer that has used all it holds, for some
        seconds at most.
        """
        until = self._clock.now() + min(self._shared.wait_s, _READS_ON_S)
        while self._keeper is not None and self.grant.is_used_up and self._clock.now() < until:
            self._answered = anyio.Event()
            self.grant.wants = True
            self._wake()
            await wait_until(self._clock, until, self._answered)

    async def close(self) -> None:
        """Settle the hold, bounded in time: the used part is spent, the rest comes back."""
        keeper, self._keeper = self._keeper, None
        with anyio.move_on_after(_SETTLE_S, shield=True):
            if keeper is not None:
                keeper.cancel()
                await keeper.wait()
            try:
                await self._settle()
            except BudgetUnreachable as error:
                self._unreachable(str(error))

    # ------------------------------------------------------------------ waiting

    async def _attempt(self, need: Amount) -> Stop | None:
        """Ask once. A `Stop`: the call cannot be paid now."""
        try:
            answer = await self._ask(need)
        except BudgetUnreachable as error:
            self._fault = str(error)
            detail = f"no call without its shared budget: {error}"
            return Stop(TerminateReason.BUDGET_UNREACHABLE, detail, _SOURCE)
        return _stop(answer, need) if isinstance(answer, Refused) else None

    async def _give_back(self) -> None:
        """Settle what this run holds while it waits: another run may wait for it."""
        try:
            await self._settle()
        except BudgetUnreachable:
            return  # it comes back when its lease ends, or is settled later

    async def _settle(self) -> None:
        async with self._lock:
            if self._hold is not None:
                await self._shared.store.settle(self._hold, self._used())
                self._hold = None

    async def _pause(self, stop: Stop, seconds: float) -> None:
        self._emit(
            BudgetAwaited(
                at_s=self._at(), budget=self._shared.name, reason=stop.reason, after_s=seconds, detail=stop.detail
            )
        )
        await wait_until(self._clock, self._clock.now() + seconds, anyio.Event())

    def _spread(self, seconds: float) -> float:
        """`seconds` and up to a half more, by the run: two hundred runs do not ask at once."""
        return seconds * (1 + crc32(self._run_id.encode("utf-8", "surrogatepass")) % 512 / 1024)

    # ------------------------------------------------------------------ the keeper

    async def _keep(self) -> None:
        """Beside the run: a slice more when it is needed, and a new lease from time to time."""
        pause_s = renewal_s = self._shared.lease_s / _RENEWALS
        while True:
            self._news = anyio.Event()
            alarm = self._clock.call_at(self._clock.now() + pause_s, self._wake)
            try:
                if not self.grant.wants or self.grant.obstacle is not None:
                    await self._news.wait()
            finally:
                alarm.cancel()
            pause_s = renewal_s if await self._renewed() else min(renewal_s, self._spread(_LONGEST_PAUSE_S))

    async def _renewed(self) -> bool:
        """Ask for a slice if one is wanted, and for a new lease. False: to be asked again soon."""
        need = self._slice if self.grant.wants else Amount()
        try:
            answer = await self._ask(need)
        except BudgetUnreachable as error:
            if self._shared.fail == "closed":
                self.grant.close(f"its store does not answer ({error})", TerminateReason.BUDGET_UNREACHABLE)
                return False
            self._unreachable(str(error))
        else:
            if isinstance(answer, Refused):
                passing = answer.may_come_back(need)
                self.grant.close(_said(answer), TerminateReason.BUDGET_BUSY if passing else None)
                if passing:
                    return False
        self.grant.wants = False
        self._answered.set()
        return True

    def _wake(self) -> None:
        self._news.set()

    async def _ask(self, need: Amount) -> Reservation | Refused:
        """Hold at least `need` beside what is used."""
        store, shared = self._shared.store, self._shared
        async with self._lock:
            used = self._used()
            if self._hold is None:
                await self._check_price()
                answer = await store.reserve(
                    shared.name,
                    need,
                    key=self._run_id,
                    lease_s=shared.lease_s,
                    limits=shared.limits,
                    keep_s=shared.keep_s,
                )
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
            self._open_until = None
            return answer

    async def _check_price(self) -> None:
        """A limit in US dollars needs the price of the model."""
        if self._price is not None:
            return
        for level, (_, usd) in (await self._shared.store.limits(self._shared.name)).items():
            if usd is not None:
                raise ConfigError(
                    f"the shared budget {level!r} has a limit in US dollars: give prices=, or the run cannot keep it"
                )

    def _used(self) -> Amount:
        return self._before + (self._spent - self._then)

    @property
    def _spent(self) -> Amount:
        """The spending of this run, by estimate or by report."""
        return Amount(self.grant.spent_tokens, max(0.0, self.grant.spent_usd) if self._slice.usd else 0.0)

    def _unreachable(self, why: str) -> None:
        goes_on = self._shared.fail == "open"
        if goes_on:
            self.grant.open_up()
            self._open_until = self._clock.now() + _OPEN_S
        if not self._lost:
            self._lost = True
            self._emit(BudgetLost(self._at(), self._shared.name, why, goes_on))


def _stop(refused: Refused, need: Amount) -> Stop:
    short = refused.tokens is not None and need.tokens > refused.left.tokens
    reason = TerminateReason.TOKEN_LIMIT if short else TerminateReason.COST_LIMIT
    detail = f"{_said(refused)}, and the next call may need {need}"
    if refused.may_come_back(need):
        reason, detail = TerminateReason.BUDGET_BUSY, f"{detail}: other runs hold the rest"
    limit = refused.tokens if short else refused.usd
    left = refused.left.tokens if short else refused.left.usd
    return Stop(reason, detail, _SOURCE, limit, None if limit is None else limit - left)


def _said(refused: Refused) -> str:
    left = [f"{refused.left.tokens} of {refused.tokens} tokens"] if refused.tokens is not None else []
    if refused.usd is not None:
        left.append(f"{refused.left.usd:.4g} of {refused.usd:g} USD")
    return f"the shared budget {refused.name!r} has {' and '.join(left)} left"
