"""The steps of a store in SQL, for SQLite and PostgreSQL alike. Each runs in one transaction that
has locked the first level of the name, so no two steps of one tree run at once.
"""

# ruff: noqa: S608 - only the names of columns are put into a statement; values are not

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from monitor.shared.budgets.base import (
    KEPT_S,
    NANO,
    Amount,
    BudgetState,
    Refused,
    Reservation,
    check_limits,
    levels,
)

T = TypeVar("T")

SCHEMA: Final = (
    """create table if not exists monitor_budgets (
        name text primary key, root text not null, limit_tokens bigint, limit_nano bigint,
        spent_tokens bigint not null default 0, spent_nano bigint not null default 0,
        held_tokens bigint not null default 0, held_nano bigint not null default 0)""",
    """create table if not exists monitor_holds (
        id text primary key, key text not null, name text not null, root text not null,
        granted_tokens bigint not null, granted_nano bigint not null,
        used_tokens bigint not null default 0, used_nano bigint not null default 0,
        is_open boolean not null, expires_s double precision not null)""",
    "create index if not exists monitor_holds_by_time on monitor_holds (root, expires_s)",
    "create index if not exists monitor_holds_by_key on monitor_holds (root, key)",
)
_HOLD: Final = "id, key, name, granted_tokens, granted_nano, used_tokens, used_nano"


class SQLBudgets(ABC):
    """A `BudgetStore` whose every step is one transaction."""

    async def set_limit(self, name: str, *, tokens: int | None = None, usd: float | None = None) -> None:
        whole, nano = check_limits(tokens, usd)
        await self._step(name, lambda transaction: transaction.set_limit(name, whole, nano))

    async def reserve(self, name: str, amount: Amount, *, key: str, lease_s: float) -> Reservation | Refused:
        return await self._step(name, lambda transaction: transaction.reserve(name, amount, key, lease_s))

    async def extend(self, hold: Reservation, more: Amount, *, used: Amount, lease_s: float) -> Reservation | Refused:
        return await self._step(hold.name, lambda transaction: transaction.extend(hold, more, used, lease_s))

    async def settle(self, hold: Reservation, used: Amount) -> None:
        await self._step(hold.name, lambda transaction: transaction.settle(hold, used))

    async def states(self, name: str | None = None) -> Sequence[BudgetState]:
        return await self._step(name, lambda transaction: [*transaction.states(name)])

    @abstractmethod
    async def aclose(self) -> None:
        """Close the connection to the store."""

    @abstractmethod
    async def _step(self, name: str | None, step: Callable[[BudgetTransaction], T]) -> T:
        """Do `step` in one transaction, in which no other step changes the tree of `name`.

        `name=None`: it is a transaction over all trees.
        """


class BudgetTransaction:
    """The steps of a `BudgetStore`, over one open transaction."""

    def __init__(self, execute: Callable[[str, Sequence[Any]], Any], now: float) -> None:
        """`execute`: runs a statement, in which `?` stands for a value, and returns a cursor.
        `now`: seconds since 1970, by the store's clock.
        """
        self._execute = execute
        self._now = now

    def set_limit(self, name: str, tokens: int | None, nano: int | None) -> None:
        self._add(name)
        self._run("update monitor_budgets set limit_tokens = ?, limit_nano = ? where name = ?", tokens, nano, name)

    def reserve(self, name: str, amount: Amount, key: str, lease_s: float) -> Reservation | Refused:
        self._add(name)
        self._free(name)
        root = levels(name)[0]
        known = self._rows(
            f"select {_HOLD} from monitor_holds where root = ? and key = ? and name = ? and is_open", root, key, name
        )
        if known:
            hold = _hold(known[0])
            self._run("update monitor_holds set expires_s = ? where id = ?", self._now + lease_s, hold.id)
            return hold
        return self._hold(Reservation(id=uuid.uuid4().hex, key=key, name=name, granted=amount), lease_s)

    def extend(self, hold: Reservation, more: Amount, used: Amount, lease_s: float) -> Reservation | Refused:
        self._free(hold.name)
        stored = self._stored(hold)
        if stored is None:  # it had expired, or was settled: what was used since then is spent, the rest is held anew
            settled = self._rows(f"select {_HOLD} from monitor_holds where id = ?", hold.id)
            self._spend(hold.name, *_more(_hold(settled[0]).used if settled else hold.used, used))
            self._run("delete from monitor_holds where id = ?", hold.id)
            return self._hold(replace(hold, granted=_at_least(hold.granted, used) + more, used=used), lease_s)
        self._use(stored, used)
        self._run("update monitor_holds set expires_s = ? where id = ?", self._now + lease_s, hold.id)
        if (refused := self._refused(hold.name, more.tokens, more.nano_usd)) is not None:
            return refused
        self._hold_more(hold.name, more.tokens, more.nano_usd)
        granted = _at_least(stored.granted, used) + more
        self._run(
            "update monitor_holds set granted_tokens = ?, granted_nano = ? where id = ?",
            granted.tokens,
            granted.nano_usd,
            hold.id,
        )
        return replace(stored, granted=granted, used=used)

    def settle(self, hold: Reservation, used: Amount) -> None:
        settled = self._rows("select is_open from monitor_holds where id = ?", hold.id)
        if settled and not settled[0][0]:
            return
        stored = self._stored(hold)
        if stored is None:
            self._add(hold.name)
            self._spend(hold.name, *_more(hold.used, used))
            self._insert(replace(hold, used=used), KEPT_S, is_open=False)
            return
        self._use(stored, used)
        held = _held(replace(stored, used=used))
        self._hold_more(hold.name, -held.tokens, -held.nano_usd)
        self._run("update monitor_holds set is_open = false, expires_s = ? where id = ?", self._now + KEPT_S, hold.id)

    def states(self, name: str | None) -> Iterator[BudgetState]:
        where, values = ("", ()) if name is None else (" where root = ?", (levels(name)[0],))
        for (root,) in self._rows(f"select distinct root from monitor_budgets{where}", *values):
            self._free(root)
        open_ones = [levels(held) for (held,) in self._rows("select name from monitor_holds where is_open")]
        for row in self._rows(
            "select name, limit_tokens, limit_nano, spent_tokens, spent_nano, held_tokens, held_nano"
            f" from monitor_budgets{where} order by name",
            *values,
        ):
            if name is None or row[0] == name or row[0].startswith(f"{name}/"):
                yield BudgetState(
                    name=row[0],
                    tokens=row[1],
                    usd=None if row[2] is None else row[2] / NANO,
                    spent=Amount(row[3], row[4] / NANO),
                    held=Amount(row[5], row[6] / NANO),
                    holds=sum(row[0] in held for held in open_ones),
                )

    # ------------------------------------------------------------------ parts of a step

    def _rows(self, sql: str, *values: Any) -> Sequence[Sequence[Any]]:
        rows: Sequence[Sequence[Any]] = self._execute(sql, values).fetchall()
        return rows

    def _run(self, sql: str, *values: Any) -> None:
        self._execute(sql, values)

    def _add(self, name: str) -> None:
        """Make the rows of a name and of the levels above it, if they are not there."""
        for level in levels(name):
            self._run(
                "insert into monitor_budgets (name, root) values (?, ?) on conflict (name) do nothing",
                level,
                levels(name)[0],
            )

    def _free(self, name: str) -> None:
        """Give back what expired holds of this tree have held, and forget old settled ones."""
        root = levels(name)[0]
        late = (root, self._now)
        for row in self._rows(f"select {_HOLD} from monitor_holds where root = ? and expires_s < ? and is_open", *late):
            hold = _hold(row)
            held = _held(hold)
            self._hold_more(hold.name, -held.tokens, -held.nano_usd)
        self._run("delete from monitor_holds where root = ? and expires_s < ?", *late)

    def _hold(self, hold: Reservation, lease_s: float) -> Reservation | Refused:
        held = _held(hold)
        if (refused := self._refused(hold.name, held.tokens, held.nano_usd)) is not None:
            return refused
        self._hold_more(hold.name, held.tokens, held.nano_usd)
        self._insert(hold, lease_s, is_open=True)
        return hold

    def _insert(self, hold: Reservation, lasts_s: float, *, is_open: bool) -> None:
        self._run(
            f"insert into monitor_holds ({_HOLD}, root, is_open, expires_s) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *_row(hold),
            levels(hold.name)[0],
            is_open,
            self._now + lasts_s,
        )

    def _refused(self, name: str, tokens: int, nano: int) -> Refused | None:
        for level in levels(name):
            ((most, most_nano, spent, spent_nano, held, held_nano),) = self._rows(
                "select limit_tokens, limit_nano, spent_tokens, spent_nano, held_tokens, held_nano"
                " from monitor_budgets where name = ?",
                level,
            )
            left = None if most is None else most - spent - held
            left_nano = None if most_nano is None else most_nano - spent_nano - held_nano
            if (left is not None and tokens > left) or (left_nano is not None and nano > left_nano):
                rest = Amount(max(0, left or 0), max(0, left_nano or 0) / NANO)
                dollars = None if most_nano is None else most_nano / NANO
                return Refused(level, rest, most, dollars, Amount(spent, spent_nano / NANO))
        return None

    def _hold_more(self, name: str, tokens: int, nano: int) -> None:
        for level in levels(name):
            self._run(
                "update monitor_budgets set held_tokens = held_tokens + ?, held_nano = held_nano + ? where name = ?",
                tokens,
                nano,
                level,
            )

    def _spend(self, name: str, tokens: int, nano: int) -> None:
        for level in levels(name):
            self._run(
                "update monitor_budgets set spent_tokens = spent_tokens + ?, spent_nano = spent_nano + ?"
                " where name = ?",
                tokens,
                nano,
                level,
            )

    def _use(self, stored: Reservation, used: Amount) -> None:
        """Count as spent what was used since the last step, and take it from what is held."""
        before, after = _held(stored), _held(replace(stored, used=used))
        self._spend(stored.name, *_more(stored.used, used))
        self._hold_more(stored.name, after.tokens - before.tokens, after.nano_usd - before.nano_usd)
        self._run(
            "update monitor_holds set used_tokens = ?, used_nano = ? where id = ?",
            used.tokens,
            used.nano_usd,
            stored.id,
        )

    def _stored(self, hold: Reservation) -> Reservation | None:
        rows = self._rows(f"select {_HOLD} from monitor_holds where id = ? and is_open", hold.id)
        return _hold(rows[0]) if rows else None


def _hold(row: Sequence[Any]) -> Reservation:
    id, key, name, granted, granted_nano, used, used_nano = row
    return Reservation(
        id=id, key=key, name=name, granted=Amount(granted, granted_nano / NANO), used=Amount(used, used_nano / NANO)
    )


def _row(hold: Reservation) -> tuple[Any, ...]:
    granted, used = hold.granted, hold.used
    return hold.id, hold.key, hold.name, granted.tokens, granted.nano_usd, used.tokens, used.nano_usd


def _held(hold: Reservation) -> Amount:
    """The amount that a hold takes from its budget beside what is spent."""
    return hold.granted - hold.used


def _at_least(granted: Amount, used: Amount) -> Amount:
    """The amount that counts as granted, after more may have been used."""
    return Amount(max(granted.tokens, used.tokens), max(granted.usd, used.usd))


def _more(before: Amount, after: Amount) -> tuple[int, int]:
    return after.tokens - before.tokens, after.nano_usd - before.nano_usd
