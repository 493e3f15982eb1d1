"""A budget of tokens and US dollars that one run, or several together, spend from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from monitor._util.argument_checks import ROUNDING_USD, is_finite, is_whole
from monitor._util.explained_options import explains_options
from monitor.errors import ConfigError, TerminateReason
from monitor.verdicts import Met, Stop

__all__ = ["Budget"]

WORDS: Final = {
    **dict.fromkeys(("cost", "dollars", "max_cost", "max_usd", "money"), "usd"),
    **dict.fromkeys(("limit", "max_tokens", "token_limit", "total_tokens"), "tokens"),
}
"""The options in other words."""


class Budget:
    """At most `tokens` (input and output together) and `usd` US dollars, over all runs that use it.

    Give one budget to several runs, and they share it. `share` makes a budget for a nested run,
    which spends from this one as well. A budget without a limit only counts. All its runs belong to
    one event loop: a budget takes no lock.
    """

    __slots__ = ("_open_runs", "_own_tokens", "_own_usd", "chain", "spent_tokens", "spent_usd", "tokens", "usd")

    @explains_options(example="monitor.Budget(tokens=200_000)", words=WORDS)
    def __init__(self, *, tokens: int | None = None, usd: float | None = None) -> None:
        if tokens is not None and tokens < 1:
            raise ConfigError(
                f"Budget.tokens must be a whole number of at least 1, not {tokens!r}; leave it out for no limit"
            )
        if usd is not None and (usd <= 0 or not is_finite(usd)):
            raise ConfigError(f"Budget.usd must be a finite number above 0, not {usd!r}; leave it out for no limit")
        self.tokens: int | None = tokens
        self.usd: float | None = usd
        self.spent_tokens: int = 0
        self.spent_usd: float = 0.0
        self.chain: tuple[Budget, ...] = (self,)
        """The budget itself, then the budget it is a share of, and so on up to the first."""
        self._own_tokens = 0
        self._own_usd = 0.0
        self._open_runs: set[str] = set()
        """Runs that may go on later, and whose use is counted here."""

    def share(self, *, tokens: int | None = None, usd: float | None = None) -> Budget:
        """A budget for a nested run. This budget counts and limits it as well: the smallest rest in
        the chain counts, so the limits of the share may be larger.
        """
        child = Budget(tokens=tokens, usd=usd)
        child.chain = (child, *self.chain)
        return child

    def spend(self, tokens: int = 0, usd: float = 0.0) -> None:
        """Count what was used, here and in every budget that this one is a share of.

        Negative numbers take back what an estimate counted too much. Raises `ConfigError` if more
        is taken back than was spent here, and if `tokens` or `usd` is not a number.
        """
        if not is_whole(tokens) or not is_finite(usd):
            raise ConfigError(
                f"Budget.spend takes a whole number of tokens and a finite number of US dollars, not {tokens!r} and"
                f" {usd!r}"
            )
        if self._own_tokens + tokens < 0 or self._own_usd + usd < -ROUNDING_USD:
            raise ConfigError(f"Budget.spend cannot take back {tokens} tokens and {usd:g} USD: less was spent here")
        self._own_tokens += tokens
        self._own_usd += usd
        for budget in self.chain:
            budget._count(tokens, usd)  # noqa: SLF001 - of the same class

    @property
    def remaining_tokens(self) -> int | None:
        """Tokens left in the whole chain. `None`: no limit."""
        return min((max(0, b.tokens - b.spent_tokens) for b in self.chain if b.tokens is not None), default=None)

    @property
    def remaining_usd(self) -> float | None:
        """US dollars left in the whole chain. `None`: no limit."""
        return min((max(0.0, b.usd - b.spent_usd) for b in self.chain if b.usd is not None), default=None)

    def exhausted(self) -> Stop | None:
        """A `Stop` if more was spent than a limit allows: of this budget first, then of those above
        it in the chain.
        """
        for budget in self.chain:
            called = "the budget" if budget is self else "the budget that is shared with the run above"
            if (stop := budget.overdrawn(called)) is not None:
                return stop
        return None

    def overdrawn(self, called: str) -> Stop | None:
        """A `Stop` if more was spent than a limit of this budget itself allows. `called`: what its
        message calls it.
        """
        if self.tokens is not None and self.spent_tokens > self.tokens:
            detail = f"{self.spent_tokens} tokens are used, {called} is {self.tokens}"
            return Stop(TerminateReason.TOKEN_LIMIT, detail, "Budget", self.tokens, self.spent_tokens)
        if self.usd is not None and self.spent_usd > self.usd + ROUNDING_USD:
            detail = f"{self.spent_usd:.4g} USD are spent, {called} is {self.usd:g} USD"
            return Stop(TerminateReason.COST_LIMIT, detail, "Budget", self.usd, self.spent_usd)
        return None

    def progress(self) -> Sequence[Met]:
        """How far each limit of the chain is used up, as `Condition.progress`."""
        used: list[Met] = []
        for budget in self.chain:
            if budget.tokens is not None:
                used.append(
                    Met(
                        "Budget.tokens",
                        met=budget.spent_tokens > budget.tokens,
                        value=budget.spent_tokens,
                        limit=budget.tokens,
                    )
                )
            if budget.usd is not None:
                met = budget.spent_usd > budget.usd + ROUNDING_USD
                used.append(Met("Budget.usd", met=met, value=budget.spent_usd, limit=budget.usd))
        return used

    def state(self) -> list[Any]:
        """The numbers that change while a run spends from this budget, as JSON data."""
        return [self.spent_tokens, self.spent_usd]

    def set_state(self, state: Sequence[Any]) -> None:
        """The inverse of `state`."""
        self.spent_tokens, self.spent_usd = state

    def _count(self, tokens: int, usd: float) -> None:
        self.spent_tokens += tokens
        self.spent_usd += usd

    def __repr__(self) -> str:
        limits = [
            f"{name}={value!r}" for name, value in (("tokens", self.tokens), ("usd", self.usd)) if value is not None
        ]
        return f"<Budget({', '.join(limits)}): {self.spent_tokens} tokens and {self.spent_usd:.4g} USD spent>"


class Grant(Budget):
    """The amount that one run may spend of a budget that is kept in a store, until it asks the
    store again.

    The harness asks. Here stands only what the run may decide by itself.
    """

    __slots__ = ("closed", "obstacle", "slice_tokens", "slice_usd", "wanted", "wants")

    def __init__(self, slice_tokens: int, slice_usd: float = 0.0) -> None:
        """Each request to the store asks for `slice_tokens` tokens, which cost `slice_usd` dollars.

        `slice_usd` of 0 means that the grant does not limit money.
        """
        super().__init__()
        self.slice_tokens = slice_tokens
        self.slice_usd = slice_usd
        self.closed: str = ""
        """Why the store grants no more. Empty: it may."""
        self.obstacle: TerminateReason | None = None
        """A reason that may be over soon, for which the store grants no more now. `None`: if it is
        closed, it is used up.
        """
        self.wants: bool = False
        """Less than half a slice is left."""
        self.wanted: Callable[[], object] = _nobody
        """Called when less than half a slice is left."""

    def take(self, tokens: int, usd: float) -> None:
        """All that the run may have spent by now."""
        self.tokens, self.usd = tokens, usd if self.slice_usd else None
        self.wants = False
        self.close("")

    def close(self, why: str, obstacle: TerminateReason | None = None) -> None:
        """The store grants no more: `why`, and the reason if it may be over soon."""
        self.closed, self.obstacle = why, obstacle

    def open_up(self) -> None:
        """Nothing limits this run any more."""
        self.tokens = self.usd = None

    @property
    def is_used_up(self) -> bool:
        """Whether nearly all is used, and the store may grant more soon: reading on would exceed
        the budget. While the store is being asked, the run may use a slice more.
        """
        if self.closed and self.obstacle is None:
            return False
        rest = 4 if self.closed else 0
        tokens = self.spent_tokens + (self.slice_tokens // rest if rest else 0)
        usd = self.spent_usd + (self.slice_usd / rest if rest else 0.0)
        over = self.tokens is not None and tokens > self.tokens
        return over or (self.usd is not None and usd > self.usd + ROUNDING_USD)

    def overdrawn(self, called: str) -> Stop | None:
        """The stop of a `Budget`, but the run may use a slice more while the store is asked."""
        final = bool(self.closed) and self.obstacle is None
        more_tokens, more_usd = (0, 0.0) if self.closed else (self.slice_tokens, self.slice_usd)
        why = self.closed or "the store of the budget has not answered yet"
        passing = None if final else self.obstacle or TerminateReason.BUDGET_UNREACHABLE
        if self.tokens is not None and self.spent_tokens > self.tokens + more_tokens:
            detail = f"{self.spent_tokens} tokens are used, {self.tokens} were granted by {called}: {why}"
            reason = passing or TerminateReason.TOKEN_LIMIT
            return Stop(reason, detail, "SharedBudget", self.tokens, self.spent_tokens)
        if self.usd is not None and self.spent_usd > self.usd + more_usd + ROUNDING_USD:
            detail = f"{self.spent_usd:.4g} USD are spent, {self.usd:.4g} were granted by {called}: {why}"
            return Stop(passing or TerminateReason.COST_LIMIT, detail, "SharedBudget", self.usd, self.spent_usd)
        return None

    def state(self) -> list[Any]:
        """The state of a `Budget`, and what the store has granted."""
        return [*super().state(), self.tokens, self.usd, self.closed, self.obstacle and self.obstacle.value]

    def set_state(self, state: Sequence[Any]) -> None:
        """The inverse of `state`, also of a record that has no obstacle."""
        spent_tokens, spent_usd, self.tokens, self.usd, self.closed, *obstacle = state
        self.obstacle = TerminateReason(obstacle[0]) if obstacle and obstacle[0] else None
        super().set_state((spent_tokens, spent_usd))

    def _count(self, tokens: int, usd: float) -> None:
        super()._count(tokens, usd)
        low = self.tokens is not None and self.spent_tokens + self.slice_tokens // 2 > self.tokens
        low_usd = self.usd is not None and self.spent_usd + self.slice_usd / 2 > self.usd
        if (low or low_usd) and not self.wants and not self.closed:
            self.wants = True
            self.wanted()


def _nobody() -> None:
    """Does nothing: a grant that no harness holds tells nobody."""


class Account:
    """The amounts that one run has spent from its budgets: its own, and a share of each budget of
    the run above.

    A budget that stands in several of their chains counts the run once.
    """

    __slots__ = ("_all", "_tokens", "_usd", "budgets")

    def __init__(self, budgets: Sequence[Budget]) -> None:
        for budget in budgets:
            if not isinstance(budget, Budget):
                raise ConfigError(f"a run spends from Budgets, not from {budget!r}")
        self.budgets = tuple(budgets)
        self._all = tuple(dict.fromkeys(member for budget in budgets for member in budget.chain))
        self._tokens = 0
        self._usd = 0.0

    def settle(self, tokens: int, usd: float) -> None:
        """Bring all budgets up to date. `tokens` and `usd`: all that the run has used since it
        began, by estimate or by report.
        """
        more_tokens, more_usd = tokens - self._tokens, usd - self._usd
        if more_tokens or more_usd:
            self._tokens, self._usd = tokens, usd
            for budget in self._all:
                budget._count(more_tokens, more_usd)  # noqa: SLF001 - an account is part of its budgets

    def take_up(self, run: str, tokens: int, usd: float) -> None:
        """The run goes on, and had used this before. A budget that counts it already, because it
        served the run before its pause, does not count it twice.
        """
        self._tokens, self._usd = tokens, usd
        for budget in self._all:
            if run not in budget._open_runs:  # noqa: SLF001 - as above
                budget._open_runs.add(run)  # noqa: SLF001
                budget._count(tokens, usd)  # noqa: SLF001

    def part(self, run: str, *, goes_on: bool) -> None:
        """The run has ended. `goes_on`: it may be taken up again."""
        for budget in self._all:
            (budget._open_runs.add if goes_on else budget._open_runs.discard)(run)  # noqa: SLF001 - as above

    def exhausted(self) -> Stop | None:
        """The `Stop` of the first budget that is overdrawn."""
        return next((stop for budget in self.budgets if (stop := budget.exhausted())), None)
