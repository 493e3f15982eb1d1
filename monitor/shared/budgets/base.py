"""The protocol of a store of shared budgets, and the words for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from monitor._util.argument_checks import check_kind, is_finite, is_whole
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
