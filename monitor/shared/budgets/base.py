"""The protocol of a store of shared budgets, and the words for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from monitor._util.argument_checks import check_kind, check_number, check_part, check_seconds, is_finite, is_whole
from monitor._util.checked_words import checked
from monitor._util.explained_options import explained
from monitor.errors import ConfigError

NANO: Final = 1_000_000_000
"""Stores count money in whole billionths of a US dollar: sums of floats drift."""
KEPT_S: Final = 3_600.0
"""Seconds for which a store remembers a settled hold, so that settling it again changes nothing."""
LONGEST_NAME: Final = 200
"""The most characters of a name."""
AT_ONCE: Final = 64
"""Expired holds, and forgotten levels, that one step looks at: no step is long."""
ROUNDS: Final = 16
"""Times that a step which would be refused frees `AT_ONCE` more: the rest is waited for."""
NO_LIMITS: Final[Mapping[str, int]] = {}


@dataclass(frozen=True, slots=True)
class Amount:
    """Tokens (input and output together) and US dollars. Neither is below 0."""

    tokens: int = 0
    usd: float = 0.0

    def __post_init__(self) -> None:
        if not is_whole(self.tokens) or self.tokens < 0:
            raise ConfigError(f"Amount.tokens must be a whole number of at least 0, not {self.tokens!r}")
        if not is_finite(self.usd) or self.usd < 0:
            raise ConfigError(f"Amount.usd must be a finite number of at least 0, not {self.usd!r}")

    @property
    def nano_usd(self) -> int:
        """The costs in billionths of a US dollar."""
        return round(self.usd * NANO)

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.tokens + other.tokens, self.usd + other.usd)

    def __sub__(self, other: Amount) -> Amount:
        """The difference. What would be below 0 is 0."""
        return Amount(max(0, self.tokens - other.tokens), max(0.0, self.usd - other.usd))

    def __str__(self) -> str:
        return f"{self.tokens} tokens and {self.usd:.4g} USD" if self.usd else f"{self.tokens} tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A part of a budget that is reserved for one run, until it is settled or its lease ends."""

    id: str
    key: str
    """The holder, e.g. the id of the run. The same key gets the same hold."""
    name: str
    """The budget. A hold counts in each level of it: `a/b` also in `a`."""
    granted: Amount
    """All that was ever granted to this hold."""
    used: Amount = Amount()
    """The part of it that is counted as spent already."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The budget `name` has less left than was asked for. Nothing was reserved."""

    name: str
    left: Amount
    """The amount that is neither spent nor held. The field that has no limit is 0."""
    tokens: int | None
    """The limit of tokens. `None`: no limit."""
    usd: float | None
    """The limit in US dollars. `None`: no limit."""
    spent: Amount = Amount()
    """The amount that is spent. Others hold the rest of the limit, beside what is left."""

    def may_come_back(self, need: Amount) -> bool:
        """Whether the spent sum would allow `need`: only what others hold is in its way."""
        tokens = self.tokens is None or self.spent.tokens + need.tokens <= self.tokens
        return tokens and (self.usd is None or self.spent.nano_usd + need.nano_usd <= round(self.usd * NANO))


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetState:
    """One budget as its store sees it now."""

    name: str
    tokens: int | None
    """The limit. `None`: no limit, and the budget only counts."""
    usd: float | None
    spent: Amount
    held: Amount
    """The amount that running processes have reserved beside what they have spent."""
    holds: int
    """Holds that are open here and in the budgets below."""


LEVEL_FIELDS: Final = ("limit_tokens", "limit_nano", "spent_tokens", "spent_nano", "held_tokens", "held_nano")
"""What a store keeps of each level, for `state_of`."""


def state_of(name: str, row: Sequence[Any], holds: int) -> BudgetState:
    """The budget whose `LEVEL_FIELDS` are `row`, as whole numbers or as texts of them. A limit that
    is `None` is none, and a sum that is `None` is 0.
    """
    tokens, nano = (None if one is None else int(one) for one in row[:2])
    spent, spent_nano, held, held_nano = (int(one or 0) for one in row[2:])
    return BudgetState(
        name=name,
        tokens=tokens,
        usd=None if nano is None else nano / NANO,
        spent=Amount(spent, spent_nano / NANO),
        held=Amount(held, held_nano / NANO),
        holds=holds,
    )


class BudgetStore(Protocol):
    """Keeps shared budgets. Each method is one atomic step, and may be called from many processes.
    Redis reads the `states` of many budgets one after another.

    All methods raise `BudgetUnreachable` if the store does not answer.
    """

    async def set_limit(self, name: str, /, *, tokens: int | None = None, usd: float | None = None) -> None:
        """Set both limits of a budget. `None`: no limit. Spent and held amounts stay."""
        ...

    async def reserve(
        self,
        name: str,
        amount: Amount,
        /,
        *,
        key: str,
        lease_s: float,
        limits: Mapping[str, int] = NO_LIMITS,
        keep_s: float | None = None,
    ) -> Reservation | Refused:
        """Hold `amount` in the budget and in all levels above it, or in none. It comes back after
        `lease_s` seconds without another call for it.

        A key that has an open hold gets that hold, with a new lease and no further amount.
        `limits`: the most tokens of levels that have no limit in the store; they are stored with
        the hold. `keep_s`: seconds after its last use for which the store remembers `name`,
        unless `set_limit` has made it. `None`: for ever.
        """
        ...

    async def extend(
        self, hold: Reservation, more: Amount, /, *, used: Amount, lease_s: float
    ) -> Reservation | Refused:
        """Add `more` to a hold and renew its lease. `used`: all that was used of it up to now; it
        is counted as spent, also if `more` is refused. A hold that had expired is made anew.
        """
        ...

    async def settle(self, hold: Reservation, used: Amount, /) -> None:
        """End a hold. `used`: all that was used of it, which is spent; the rest comes back. A
        second time changes nothing. A hold that had expired is counted as well.

        A level that only holds have made, and of which nothing was ever used, is removed.
        """
        ...

    async def limits(self, name: str, /) -> Mapping[str, tuple[int | None, float | None]]:
        """The limits of `name` and of the levels above it: tokens and US dollars by the level's
        name. A level that is not in the store is left out.
        """
        ...

    async def states(self, name: str | None = None, /) -> Sequence[BudgetState]:
        """The budget `name` and those below it, or all, by name. The only method that takes longer
        with more budgets.
        """
        ...

    async def aclose(self) -> None:
        """Close the connections. Holds stay."""
        ...


def levels(name: str) -> tuple[str, ...]:
    """`a/b/c` as `a`, `a/b`, `a/b/c`. Raises `ConfigError` for what is no name of a budget."""
    check_kind("the name of a budget", name, str, "a text")
    parts = name.split("/")
    if len(name) > LONGEST_NAME or not all(part and part == part.strip() for part in parts):
        raise ConfigError(
            f"the name of a budget is up to {LONGEST_NAME} characters in parts with / between them, not {name!r}"
        )
    if not name.isprintable():
        raise ConfigError(f"the name of a budget has only printable characters, not {name!r}")
    return tuple("/".join(parts[: end + 1]) for end in range(len(parts)))


def check_limits(tokens: int | None, usd: float | None) -> tuple[int | None, int | None]:
    """The limits as whole numbers: tokens, and billionths of a US dollar."""
    if tokens is not None and not (is_whole(tokens) and tokens >= 0):
        raise ConfigError(f"a limit of tokens is a whole number of at least 0, not {tokens!r}")
    if usd is not None and not (is_finite(usd) and usd >= 0):
        raise ConfigError(f"a limit in US dollars is a finite number of at least 0, not {usd!r}")
    return tokens, None if usd is None else round(usd * NANO)


# --------------------------------------------------------------------------------------------------
# A shared budget as a run is given it.

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
@checked
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
