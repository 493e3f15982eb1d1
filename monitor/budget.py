"""A purse that runs spend from, alone or together."""

from __future__ import annotations

from collections.abc import Sequence

from monitor._util.checks import ROUNDING_USD, is_finite, is_whole
from monitor.errors import ConfigError
from monitor.reasons import TerminateReason
from monitor.verdicts import Met, Stop

__all__ = ["Budget"]


class Budget:
    """At most so many tokens (input and output together) and US dollars, over all runs that it is
    given to.

    Whoever is given a budget spends from it: hand the same one to several runs and they share it.
    `share` makes one for a nested run, with limits of its own if need be, that spends from this one
    as well. Without a limit it only counts. All its runs belong to one event loop: it takes no
    lock.
    """

    __slots__ = ("_own_tokens", "_own_usd", "chain", "spent_tokens", "spent_usd", "tokens", "usd")

    def __init__(self, *, tokens: int | None = None, usd: float | None = None) -> None:
        if tokens is not None and not (is_whole(tokens) and tokens >= 1):
            raise ConfigError(
                f"Budget.tokens must be a whole number of at least 1, not {tokens!r}; leave it out for no limit"
            )
        if usd is not None and not (is_finite(usd) and usd > 0):
            raise ConfigError(f"Budget.usd must be a finite number above 0, not {usd!r}; leave it out for no limit")
        self.tokens = tokens
        self.usd = usd
        self.spent_tokens = 0
        self.spent_usd = 0.0
        self.chain: tuple[Budget, ...] = (self,)
        """This budget, the one that it is a share of, and so on."""
        self._own_tokens = 0
        self._own_usd = 0.0

    def share(self, *, tokens: int | None = None, usd: float | None = None) -> Budget:
        """A budget for a nested run, bound by this one as well. Its limits may be larger: the
        smallest rest in the chain counts.
        """
        child = Budget(tokens=tokens, usd=usd)
        child.chain = (child, *self.chain)
        return child

    def spend(self, tokens: int = 0, usd: float = 0.0) -> None:
        """Count what was used, here and in every budget that this is a share of.

        Negative numbers take back what an estimate had counted too much. Raises `ConfigError` if
        more is taken back than was spent here, and for what are no numbers.
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
        """Tokens that are left, in the whole chain; `None`: no limit."""
        return min((max(0, b.tokens - b.spent_tokens) for b in self.chain if b.tokens is not None), default=None)

    @property
    def remaining_usd(self) -> float | None:
        """US dollars that are left, in the whole chain; `None`: no limit."""
        return min((max(0.0, b.usd - b.spent_usd) for b in self.chain if b.usd is not None), default=None)

    def exhausted(self) -> Stop | None:
        """A `Stop` if more was spent than there is: of this budget first, then of those that it is
        a share of.
        """
        for budget in self.chain:
            if budget.tokens is not None and budget.spent_tokens > budget.tokens:
                detail = f"{budget.spent_tokens} tokens are used, {self._called(budget)} is {budget.tokens}"
                return Stop(TerminateReason.TOKEN_LIMIT, detail, "Budget", budget.tokens, budget.spent_tokens)
            if budget.usd is not None and budget.spent_usd > budget.usd + ROUNDING_USD:
                detail = f"{budget.spent_usd:.4g} USD are spent, {self._called(budget)} is {budget.usd:g} USD"
                return Stop(TerminateReason.COST_LIMIT, detail, "Budget", budget.usd, budget.spent_usd)
        return None

    def _called(self, budget: Budget) -> str:
        return "the budget" if budget is self else "the budget that is shared with the run above"

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

    def _count(self, tokens: int, usd: float) -> None:
        self.spent_tokens += tokens
        self.spent_usd += usd

    def __repr__(self) -> str:
        limits = [
            f"{name}={value!r}" for name, value in (("tokens", self.tokens), ("usd", self.usd)) if value is not None
        ]
        return f"<Budget({', '.join(limits)}): {self.spent_tokens} tokens and {self.spent_usd:.4g} USD spent>"


class Account:
    """What one run has put on its budgets. It may have several, its own and a share of each of the
    run above.

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
        """The run has used so much since it began, by estimate or by report: bring all budgets up
        to date.
        """
        more_tokens, more_usd = tokens - self._tokens, usd - self._usd
        if more_tokens or more_usd:
            self._tokens, self._usd = tokens, usd
            for budget in self._all:
                budget._count(more_tokens, more_usd)  # noqa: SLF001 - an account is part of its budgets

    def exhausted(self) -> Stop | None:
        """The `Stop` of the first budget that is overdrawn."""
        return next((stop for budget in self.budgets if (stop := budget.exhausted())), None)
