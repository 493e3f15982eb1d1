"""A shared budget as a run is given it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from monitor._util.argument_checks import check_number, check_part, check_seconds, is_finite
from monitor._util.explained_options import explained
from monitor.errors import ConfigError
from monitor.shared.budgets.base import BudgetStore, check_limits, levels

SLICE_TOKENS: Final = 2_000
"""Output that a run holds at once. It bounds what a run may use beyond the budget. 2,000 tokens are
some 20 seconds of a stream, so the store is seldom asked.
"""
LEASE_S: Final = 60.0
"""Seconds after which the hold of a dead process comes back."""
WAIT_S: Final = 90.0
"""Seconds that a call may wait: longer than a lease, so that the hold of a dead process is back."""


@explained(example="monitor.shared.SharedBudget(monitor.shared.SQLiteBudgets('budgets.db'), 'research')")
@dataclass(frozen=True, slots=True)
class SharedBudget:
    """The budget `name` in `store`, from which runs of many processes spend.

        budget = SharedBudget(SQLiteBudgets("budgets.db"), "research/night")
        supervisor = Supervisor(model, task, budget=budget)

    Before each model call a run holds what the request needs, and `slice_tokens` for the answer.
    While the answer streams it holds a slice more before the last one is used up. A call that the
    budget cannot pay is not made: the run ends with `token_limit` or `cost_limit`. A run exceeds
    the budget by one slice at most, beside what an estimate of its input is wrong by.

    If the store does not answer, or only other runs hold the rest, the run asks again for `wait_s`
    seconds. Then it ends with `budget_unreachable` or `budget_busy`.
    """

    store: BudgetStore
    name: str
    """Levels have `/` between them, as in `team/alice`. A run is counted in each level."""
    slice_tokens: int = field(default=SLICE_TOKENS, kw_only=True)
    lease_s: float = field(default=LEASE_S, kw_only=True)
    """The lease is renewed while the run lives."""
    fail: Literal["closed", "open"] = field(default="closed", kw_only=True)
    """The consequence if the store does not answer. `closed`: a running answer may use what it
    holds, and no further call is made. `open`: the run goes on without the budget, and asks again
    before a later call.
    """
    wait_s: float = field(default=WAIT_S, kw_only=True)
    """How long one call may wait for the budget. 0: it does not wait."""
    limits: Mapping[str, int] = field(default_factory=dict[str, int], kw_only=True, hash=False)
    """The most tokens of levels that have no limit in the store, by the level's name."""
    keep_s: float | None = field(default=None, kw_only=True)
    """Seconds after its last use for which the store remembers `name`, unless its limit was set by
    hand. What it has spent stays in the levels above. `None`: for ever.
    """

    def __post_init__(self) -> None:
        check_part("store", self.store, "reserve")
        levels(self.name)
        check_number("slice_tokens", self.slice_tokens, 1)
        check_seconds("lease_s", self.lease_s)
        if not is_finite(self.wait_s) or self.wait_s < 0:
            raise ConfigError(f"wait_s is a number of seconds of at least 0, not {self.wait_s!r}")
        for level, tokens in self.limits.items():
            if level not in levels(self.name):
                raise ConfigError(f"limits has {level!r}, which is neither {self.name!r} nor a level above it")
            check_limits(tokens, None)
            if tokens < self.slice_tokens:
                raise ConfigError(
                    f"the limit of {level!r}, {tokens} tokens, is below slice_tokens, {self.slice_tokens}: no call"
                    " could be paid"
                )
        if self.keep_s is not None and (not is_finite(self.keep_s) or self.keep_s < self.lease_s):
            raise ConfigError(f"keep_s is a number of seconds of at least lease_s, not {self.keep_s!r}")
        if self.fail not in {"closed", "open"}:
            raise ConfigError(f'fail is "closed" or "open", not {self.fail!r}')
