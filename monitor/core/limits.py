"""The limits of a run: what is used, when to check again, which limits are nearly reached, which
are exceeded.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence

from monitor._util.text import MOST_EIGHTHS_PER_CHAR
from monitor.budget import Account, Budget
from monitor.chunks import NO_COST, NO_USAGE, AskCost, Price, Usage
from monitor.conditions.condition import Condition, limits_of
from monitor.conditions.limits import Timeout, silence_limits
from monitor.events import Limit, LimitWarning
from monitor.outcome import RunState
from monitor.verdicts import Stop

_NONE: tuple[Usage, float | None] = (NO_USAGE, 0.0)


class Spending:
    """What one run has used. `price`: of the model's tokens; `None`: their cost is not known.
    `budgets`: the budgets that the run spends from.

    A nested run spends from its own budgets, and from those of this run only through a share. Here
    its usage is only added up.
    """

    __slots__ = (
        "_account",
        "_closed",
        "_open",
        "_own",
        "_own_usd",
        "_price",
        "budgets",
        "compactions",
        "estimated",
        "judges",
    )

    def __init__(self, price: Price | None = None, budgets: Sequence[Budget] = ()) -> None:
        self.budgets = tuple(budgets)
        self.estimated = False
        """Whether part of the usage is an estimate."""
        self.judges: AskCost = NO_COST
        """The cost of all judges, whether it counts for the run or not."""
        self.compactions: AskCost = NO_COST
        self._price = price
        self._account = Account(budgets) if budgets else None
        self._own = NO_USAGE
        self._own_usd = 0.0
        self._closed = _NONE
        self._open: dict[int, tuple[Usage, float | None]] = {}

    def settle(self, usage: Usage, *, estimated: bool) -> None:
        """Add `usage` of a turn, or of a question to a model, that is over."""
        self._own += usage
        self._own_usd += self._cost(usage)
        self.estimated |= estimated

    def charge_judge(self, cost: AskCost, *, counts: bool) -> None:
        """A judge was asked. `counts`: its tokens count for the run."""
        self.judges += cost
        if counts:
            self.settle(cost.usage, estimated=cost.estimated)

    def charge_compaction(self, cost: AskCost) -> None:
        """A model has summarised the history, or a result of a tool."""
        self.compactions += cost
        self.settle(cost.usage, estimated=cost.estimated)

    def take_up(
        self, run: str, requests: Iterable[Usage], nested: Sequence[tuple[Usage, float | None]], *, estimated: bool
    ) -> None:
        """The run `run` goes on in another process: what its requests and its nested runs have
        used.
        """
        for usage in requests:
            self.settle(usage, estimated=estimated)
        for one in nested:
            self._closed = _sum(self._closed, one)
        if self._account is not None:
            self._account.take_up(run, self._own.total_tokens, self._own_usd)

    def part(self, run: str, *, goes_on: bool) -> None:
        """The run `run` has ended. `goes_on`: it may be taken up again."""
        if self._account is not None:
            self._account.part(run, goes_on=goes_on)

    def nested(self, run: int, usage: Usage, usd: float | None) -> None:
        """Note all that the nested run `run` has used so far."""
        self._open[run] = (usage, usd)

    def nested_ended(self, run: int) -> None:
        """The nested run `run` has ended and will use no more."""
        self._closed = _sum(self._closed, self._open.pop(run, _NONE))

    def take_over(self, usage: Usage, usd: float | None, *, estimated: bool) -> None:
        """Add what another agent of this run has used, which has ended."""
        self._closed = _sum(self._closed, (usage, usd))
        self.estimated |= estimated

    def total(self, running: Usage = NO_USAGE) -> tuple[Usage, float | None]:
        """Tokens and US dollars up to now. `None`: some of the tokens have no known price.
        `running`: usage of the turn that is not over.
        """
        usage = self._own + running
        known = self._price is not None or not usage.total_tokens
        total: tuple[Usage, float | None] = (usage, self._own_usd + self._cost(running) if known else None)
        if self._closed is not _NONE or self._open:
            for nested in (self._closed, *self._open.values()):
                total = _sum(total, nested)
        return total

    def post(self, running: Usage = NO_USAGE) -> Stop | None:
        """Update the budgets with what this run itself has used by now. Answers the stop of the
        first exhausted one.
        """
        if self._account is None:
            return None
        tokens = self._own.total_tokens + running.total_tokens
        self._account.settle(tokens, self._own_usd + self._cost(running))
        return self._account.exhausted()

    def _cost(self, usage: Usage) -> float:
        return self._price.cost(usage) if self._price is not None else 0.0


def _sum(one: tuple[Usage, float | None], other: tuple[Usage, float | None]) -> tuple[Usage, float | None]:
    """Tokens and US dollars together. The dollars are known if both are."""
    usd = None if one[1] is None or other[1] is None else one[1] + other[1]
    return one[0] + other[0], usd


BUDGET_LOOK_TOKENS = 256
"""Others may spend from the same budget, so it is checked at least once in this many tokens.
Together n runs exceed a budget by at most n times this. A check costs microseconds; 256 tokens are
seconds of a stream.
"""


class Schedule:
    """When the condition and the budgets must be checked again."""

    __slots__ = (
        "_budgets",
        "_condition",
        "_headroom_eighths",
        "deadline_s",
        "nested",
        "price",
    )

    def __init__(
        self,
        condition: Condition | None,
        price: Price | None = None,
        budgets: Sequence[Budget] = (),
        *,
        nested: bool = False,
    ) -> None:
        """`nested`: this run's usage also counts for a run above, whose limits are checked whenever
        this run checks its own.
        """
        self.deadline_s = math.inf
        """Until this moment, in seconds since the run began, the condition cannot become true by
        time alone.
        """
        self.price = price
        """Price of the running model, which converts dollars into tokens. Without a price, cost
        limits cause no check.
        """
        self._condition = condition
        self._budgets = tuple(budgets)
        self.nested = nested
        """Whether this usage counts for another run too, or another run's usage for this one."""
        self._headroom_eighths: int | None = None

    def plan(self, state: RunState) -> None:
        """Plan the next check from `state`, whose usage the budgets must already contain."""
        if self._condition is None and not self._budgets and not self.nested:
            return
        headrooms: list[int | None] = [BUDGET_LOOK_TOKENS] if self.nested else []
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
        """How many output tokens `usd` buys: a stream writes output."""
        dearest = self.price.dearest_output if self.price is not None else 0
        if usd is None or dearest <= 0:
            return None
        tokens = usd / dearest * 1_000_000
        return math.floor(tokens) if tokens < sys.maxsize else None

    def spend(self, eighths: int) -> bool:
        """Count `eighths` of a token that have come. True: a limit may have been passed."""
        if self._headroom_eighths is None:
            return False
        self._headroom_eighths -= eighths
        return self._headroom_eighths < 0

    @property
    def free_chars(self) -> int:
        """The number of characters that may still come before the limits must be checked."""
        if self._headroom_eighths is None:
            return sys.maxsize
        return max(0, self._headroom_eighths // MOST_EIGHTHS_PER_CHAR)


WARN_AT = 0.8
"""The share of a limit at which a warning is given: of 30 turns, six are then left to finish in
order.
"""


class Warner:
    """Gives the limit warnings of one run, each once."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: tuple[tuple[int, int], ...] = ()

    def look(self, condition: Condition | None, budgets: Sequence[Budget], state: RunState) -> list[LimitWarning]:
        """The limits that have reached `WARN_AT` since the last call. Call it when nothing ends the
        run.
        """
        sources = [
            condition.progress(state) if condition is not None else (),
            *(budget.progress() for budget in budgets),
        ]
        found: list[LimitWarning] = []
        for source, used in enumerate(sources):
            for place, met in enumerate(used):
                value, limit = met.value, met.limit
                if not isinstance(value, _NUMBER) or not isinstance(limit, _NUMBER) or limit <= 0:
                    continue
                if value / limit >= WARN_AT and (source, place) not in self._told:
                    self._told += ((source, place),)
                    found.append(LimitWarning(state.elapsed_s, met.condition, value, limit))
        return found


_NUMBER = (int, float)
"""The types stand in a tuple, which `isinstance` asks in half the time of a union."""


ASK_AGAIN_S = 0.001
"""Seconds between two checks of a condition that is not true at its own deadline, as a caller's
condition may be.
"""


class Limits:
    """Condition and budgets of one run. `nested`: the run is a tool of another run, whose limits
    count as well.

    A condition may be the caller's code. What it raises is raised here too, and `name` says which
    part raised.
    """

    __slots__ = ("_condition", "_nested", "_price", "_schedule", "_warner", "spending")

    def __init__(
        self,
        condition: Condition | None,
        *,
        price: Price | None = None,
        budgets: Sequence[Budget] = (),
        nested: bool = False,
    ) -> None:
        self.spending = Spending(price, budgets)
        self._price = price
        self._nested = nested
        self._warner = Warner()
        self.replace(condition)

    def replace(self, condition: Condition | None) -> None:
        """Use another condition from now on. Budgets stay."""
        self._condition = condition
        self._schedule = Schedule(condition, self._price, self.spending.budgets, nested=self._nested)

    def share(self, first: Limits | None = None) -> None:
        """Several agents of one run have these limits, and use them up together. `first`: the
        limits of the first agent, which has given some of the warnings.
        """
        self._nested = bool(self)
        self._schedule.nested = self._nested
        if first is not None:
            self._warner = first._warner  # noqa: SLF001 - the same class

    def only(self, timeout: Timeout) -> None:
        """Use only `timeout` from now on, and the condition's limits on silence. Budgets stay."""
        silence = silence_limits(self._condition)
        self.replace(timeout if silence is None else timeout | silence)

    def __bool__(self) -> bool:
        """Whether there is anything to check."""
        return self._condition is not None or self._nested or bool(self.spending.budgets)

    @property
    def name(self) -> str:
        """The name of the part that is checked, for errors that it raises."""
        return self.condition_name or "budget"

    @property
    def condition_name(self) -> str | None:
        """The condition's name. `None`: there is no condition."""
        return self._condition.name if self._condition is not None else None

    @property
    def timed(self) -> bool:
        """Whether a limit may be exceeded by time alone."""
        return self._condition is not None

    def look(self, state: RunState, overspent: Stop | None, *, plan: bool = True) -> Stop | None:
        """Check the limits. `overspent`: the stop of the budgets. If no limit is exceeded, the next
        check is planned if `plan` says so. `state` may be changed.
        """
        stop = (self._condition.evaluate(state) if self._condition is not None else None) or overspent
        if stop is None:
            if not plan:
                return None
            if state.phase == "streaming" and state.waiting_since_s is None:
                # The next read begins now at the earliest: planning from now gives a lower bound.
                object.__setattr__(state, "waiting_since_s", state.elapsed_s)  # a copy would cost as much as a look
            self._schedule.plan(state)
        elif not isinstance(stop, Stop):
            raise TypeError(f"expected a Stop or None, got {stop!r}")
        return stop

    @property
    def deadline_s(self) -> float:
        """Until this moment, in seconds since the run began, no limit can be exceeded by time
        alone.
        """
        return self._schedule.deadline_s

    def exact_deadline_s(self, state: RunState) -> float:
        """`deadline_s`, exact for the read that `state` waits for. Never raises."""
        try:
            self._schedule.plan(state)
            due_s = self._schedule.deadline_s
            if due_s <= state.elapsed_s and self._condition is not None and self._condition.evaluate(state) is None:
                return state.elapsed_s + ASK_AGAIN_S
        except Exception:  # noqa: BLE001 - the look that follows meets the same error, and names it
            return -math.inf
        return due_s

    def all(self) -> tuple[Limit, ...]:
        """The limits that can be used up. Never raises: a condition that raises is named by the
        first check.
        """
        try:
            found = limits_of(self._condition) if self._condition is not None else ()
        except Exception:  # noqa: BLE001 - a condition may be the caller's code
            found = ()
        used = [met for budget in self.spending.budgets for met in budget.progress()]
        return (*found, *(Limit(met.condition, met.limit) for met in used if isinstance(met.limit, int | float)))

    def warnings(self, state: RunState) -> Sequence[LimitWarning]:
        """Warnings for limits that are nearly used up, each given once."""
        return self._warner.look(self._condition, self.spending.budgets, state)

    def spend(self, eighths: int) -> bool:
        """Count `eighths` of an output token that have come. True: a limit may have been passed."""
        return self._schedule.spend(eighths)

    @property
    def free_chars(self) -> int:
        """The number of characters that may still come before the limits must be checked."""
        return self._schedule.free_chars
