"""The steps of a store in SQL, for SQLite and PostgreSQL alike. Each runs in one transaction that
has locked the first level of the name, so no two steps of one tree run at once.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any, Final, TypeVar

from monitor._util.explained_options import explained
from monitor.errors import BudgetUnreachable
from monitor.shared.budgets.base import (
    AT_ONCE,
    KEPT_S,
    LEVEL_FIELDS,
    NANO,
    NO_LIMITS,
    ROUNDS,
    Amount,
    BudgetState,
    Refused,
    Reservation,
    check_limits,
    levels,
    state_of,
)
from monitor.shared.stores import Execute, OneFile, OnePostgres, SharedDatabase

# ruff: noqa: S608 - only the names of columns are put into a statement; values are not


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
    # Levels that a hold has made, and no operator. `forget_s`: when one is forgotten; null: never.
    """create table if not exists monitor_passing (
        name text primary key, root text not null, keep_s double precision, forget_s double precision)""",
    "create index if not exists monitor_passing_by_time on monitor_passing (root, forget_s)",
)
_LEVEL: Final = ", ".join(("name", *LEVEL_FIELDS))
_SUMS: Final = ("spent_tokens", "spent_nano", "held_tokens", "held_nano")
_NOTHING: Final = (0, 0, 0, 0)
_HOLD: Final = "id, key, name, granted_tokens, granted_nano, used_tokens, used_nano"


class SQLBudgets:
    """A `BudgetStore` whose every step is one transaction."""

    def __init__(self, database: SharedDatabase) -> None:
        self._database = database

    async def set_limit(self, name: str, *, tokens: int | None = None, usd: float | None = None) -> None:
        whole, nano = check_limits(tokens, usd)
        await self._step(name, lambda transaction: transaction.set_limit(name, whole, nano))

    async def reserve(
        self,
        name: str,
        amount: Amount,
        *,
        key: str,
        lease_s: float,
        limits: Mapping[str, int] = NO_LIMITS,
        keep_s: float | None = None,
    ) -> Reservation | Refused:
        return await self._step(
            name,
            lambda transaction: transaction.reserve(name, amount, key, lease_s=lease_s, limits=limits, keep_s=keep_s),
        )

    async def extend(self, hold: Reservation, more: Amount, *, used: Amount, lease_s: float) -> Reservation | Refused:
        return await self._step(hold.name, lambda transaction: transaction.extend(hold, more, used, lease_s))

    async def settle(self, hold: Reservation, used: Amount) -> None:
        await self._step(hold.name, lambda transaction: transaction.settle(hold, used))

    async def limits(self, name: str) -> Mapping[str, tuple[int | None, float | None]]:
        return await self._step(name, lambda transaction: transaction.limits(name))

    async def states(self, name: str | None = None) -> Sequence[BudgetState]:
        return await self._step(name, lambda transaction: [*transaction.states(name)])

    async def aclose(self) -> None:
        """Close the connection to the store."""
        self._database.close()

    async def _step(self, name: str | None, step: Callable[[BudgetTransaction], T]) -> T:
        """Do `step` in one transaction, in which no other step changes the tree of `name`. It may
        be done twice.

        `name=None`: it is a transaction over all trees.
        """
        return await self._database.transaction(
            lambda execute, now: step(BudgetTransaction(execute, now)), partial(_roots, name)
        )


def _roots(name: str | None, execute: Execute) -> Sequence[str]:
    """The first level of the tree of `name`, or of all trees."""
    if name is not None:
        return levels(name)[:1]
    return [root for (root,) in execute("select distinct root from monitor_budgets order by root", ())]


class BudgetTransaction:
    """The steps of a `BudgetStore`, over one open transaction."""

    def __init__(self, execute: Execute, now: float) -> None:
        """`execute`: runs a statement, in which `?` stands for a value, and returns a cursor.
        `now`: seconds since 1970, by the store's clock.
        """
        self._execute = execute
        self._now = now

    def set_limit(self, name: str, tokens: int | None, nano: int | None) -> None:
        self._change(dict.fromkeys(levels(name), _NOTHING))
        self._run("update monitor_budgets set limit_tokens = ?, limit_nano = ? where name = ?", tokens, nano, name)
        self._run(f"delete from monitor_passing where name in {_marks(levels(name))}", *levels(name))

    def reserve(
        self, name: str, amount: Amount, key: str, *, lease_s: float, limits: Mapping[str, int], keep_s: float | None
    ) -> Reservation | Refused:
        self._free(name)
        known = self._rows(
            f"select {_HOLD} from monitor_holds where root = ? and key = ? and name = ? and is_open",
            levels(name)[0],
            key,
            name,
        )
        if known:
            hold = _hold(known[0])
            self._set(hold, expires_s=self._now + lease_s)
            return hold
        return self._hold(Reservation(id=uuid.uuid4().hex, key=key, name=name, granted=amount), lease_s, limits, keep_s)

    def extend(self, hold: Reservation, more: Amount, used: Amount, lease_s: float) -> Reservation | Refused:
        self._free(hold.name)
        stored = self._stored(hold)
        if stored is None:  # it had expired, or was settled: what was used since then is spent, the rest is held anew
            settled = self._rows(f"select {_HOLD} from monitor_holds where id = ?", hold.id)
            self._spend(hold.name, *_more(_hold(settled[0]).used if settled else hold.used, used))
            self._run("delete from monitor_holds where id = ?", hold.id)
            return self._hold(replace(hold, granted=_at_least(hold.granted, used) + more, used=used), lease_s)
        self._use(stored, used)
        self._set(hold, expires_s=self._now + lease_s)
        if (refused := self._refused(hold.name, more.tokens, more.nano_usd, NO_LIMITS)) is not None:
            return refused
        self._hold_more(hold.name, more.tokens, more.nano_usd)
        granted = _at_least(stored.granted, used) + more
        self._set(hold, granted_tokens=granted.tokens, granted_nano=granted.nano_usd)
        return replace(stored, granted=granted, used=used)

    def settle(self, hold: Reservation, used: Amount) -> None:
        settled = self._rows("select is_open from monitor_holds where id = ?", hold.id)
        if settled and not settled[0][0]:
            return
        stored = self._stored(hold)
        if stored is None:
            if used != Amount():
                self._spend(hold.name, *_more(hold.used, used))
                self._insert(replace(hold, used=used), KEPT_S, is_open=False)
        else:
            self._use(stored, used)
            held = _held(replace(stored, used=used))
            self._hold_more(hold.name, -held.tokens, -held.nano_usd)
            self._set(hold, is_open=False, expires_s=self._now + KEPT_S)
        self._run("update monitor_passing set forget_s = keep_s + ? where name = ?", self._now, hold.name)
        if used == Amount():
            self._leave_no_trace(hold)

    def limits(self, name: str) -> Mapping[str, tuple[int | None, float | None]]:
        return {
            level: (tokens, None if nano is None else nano / NANO)
            for level, (tokens, nano, *_) in self._levels(name).items()
        }

    def states(self, name: str | None) -> Iterator[BudgetState]:
        where, values = ("", ()) if name is None else (" where root = ?", (levels(name)[0],))
        for (root,) in self._rows(f"select distinct root from monitor_budgets{where}", *values):
            while self._free(root):
                pass
        open_ones = Counter(
            level for (held,) in self._rows("select name from monitor_holds where is_open") for level in levels(held)
        )
        for level, *row in self._rows(f"select {_LEVEL} from monitor_budgets{where} order by name", *values):
            if name is None or level == name or level.startswith(f"{name}/"):
                yield state_of(level, row, open_ones[level])

    # ------------------------------------------------------------------ parts of a step

    def _rows(self, sql: str, *values: Any) -> Sequence[Sequence[Any]]:
        rows: Sequence[Sequence[Any]] = self._execute(sql, values).fetchall()
        return rows

    def _run(self, sql: str, *values: Any) -> None:
        self._execute(sql, values)

    def _set(self, hold: Reservation, **columns: object) -> None:
        """Change the row of a hold."""
        changed = ", ".join(f"{column} = ?" for column in columns)
        self._run(f"update monitor_holds set {changed} where id = ?", *columns.values(), hold.id)

    def _levels(self, name: str) -> Mapping[str, Sequence[Any]]:
        """The limits of a level, what is spent, and what is held: of all levels that have a row."""
        here = levels(name)
        rows = self._rows(f"select {_LEVEL} from monitor_budgets where name in {_marks(here)}", *here)
        return {row[0]: row[1:] for row in rows}

    def _change(self, changes: Mapping[str, Sequence[int]]) -> None:
        """Add to the sums of each level what it has spent and what it holds. The level is made if
        it is not there.
        """
        rows = [value for level, sums in changes.items() for value in (level, levels(level)[0], *sums)]
        self._run(
            "insert into monitor_budgets (name, root, spent_tokens, spent_nano, held_tokens, held_nano)"
            f" values {', '.join(['(?, ?, ?, ?, ?, ?)'] * len(changes))} on conflict (name) do update set "
            + ", ".join(f"{one} = monitor_budgets.{one} + excluded.{one}" for one in _SUMS),
            *rows,
        )

    def _free(self, name: str) -> bool:
        """Give back what expired holds of this tree have held, and forget old settled ones and old
        levels: a bounded number of each. Whether there were expired holds.
        """
        root = levels(name)[0]
        late = self._rows(
            f"select {_HOLD}, is_open from monitor_holds where root = ? and expires_s < ? limit {AT_ONCE}",
            root,
            self._now,
        )
        freed: dict[str, list[int]] = {}
        for hold, held in ((_hold(row[:-1]), _held(_hold(row[:-1]))) for row in late if row[-1]):
            for level in levels(hold.name):
                sums = freed.setdefault(level, [*_NOTHING])
                sums[2] -= held.tokens
                sums[3] -= held.nano_usd
        if freed:
            self._change(freed)
        if late:
            self._run(f"delete from monitor_holds where id in {_marks(late)}", *(row[0] for row in late))
        self._forget(root)
        return bool(late)

    def _forget(self, root: str) -> None:
        """Forget levels that nobody has used for as long as they were to be kept. The spending
        stays in the levels above.
        """
        old = [
            name
            for (name,) in self._rows(
                f"select name from monitor_passing where root = ? and forget_s < ? limit {AT_ONCE}", root, self._now
            )
        ]
        if old:
            unheld = "held_tokens = 0 and held_nano = 0"
            self._run(f"delete from monitor_budgets where name in {_marks(old)} and {unheld}", *old)
            gone = "not exists (select 1 from monitor_budgets where monitor_budgets.name = monitor_passing.name)"
            self._run(f"delete from monitor_passing where name in {_marks(old)} and {gone}", *old)

    def _leave_no_trace(self, hold: Reservation) -> None:
        """Nothing was used of a hold: remove it, and the levels that only holds without use have
        made.
        """
        self._run("delete from monitor_holds where id = ?", hold.id)
        here = levels(hold.name)
        passing = self._rows(f"select name from monitor_passing where name in {_marks(here)}", *here)
        rows = self._levels(hold.name)
        empty = [name for (name,) in passing if not any(rows.get(name, (None, None, *_NOTHING))[2:])]
        if empty:
            for table in ("monitor_budgets", "monitor_passing"):
                self._run(f"delete from {table} where name in {_marks(empty)}", *empty)

    def _hold(
        self,
        hold: Reservation,
        lease_s: float,
        limits: Mapping[str, int] = NO_LIMITS,
        keep_s: float | None = None,
    ) -> Reservation | Refused:
        held = _held(hold)
        if (refused := self._refused(hold.name, held.tokens, held.nano_usd, limits)) is not None:
            return refused
        known = self._levels(hold.name)
        self._hold_more(hold.name, held.tokens, held.nano_usd)
        for level in levels(hold.name):
            keeps_s = keep_s if level == hold.name else None
            forget_s = None if keeps_s is None else self._now + keeps_s
            if level not in known:
                row = (level, levels(level)[0], keeps_s, forget_s)
                self._run("insert into monitor_passing values (?, ?, ?, ?) on conflict (name) do nothing", *row)
            elif forget_s is not None:
                self._run(
                    "update monitor_passing set keep_s = ?, forget_s = ? where name = ?", keeps_s, forget_s, level
                )
            if level in limits and not any(one is not None for one in known.get(level, ())[:2]):
                self._run("update monitor_budgets set limit_tokens = ? where name = ?", limits[level], level)
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

    def _refused(self, name: str, tokens: int, nano: int, limits: Mapping[str, int]) -> Refused | None:
        """The first level that has not enough left, after more expired holds were freed."""
        refused = self._short(name, tokens, nano, limits)
        for _ in range(ROUNDS):
            if refused is None or not self._free(name):
                break
            refused = self._short(name, tokens, nano, limits)
        return refused

    def _short(self, name: str, tokens: int, nano: int, limits: Mapping[str, int]) -> Refused | None:
        rows = self._levels(name)
        for level in levels(name):
            most, most_nano, spent, spent_nano, held, held_nano = rows.get(level, (None, None, *_NOTHING))
            if most is None and most_nano is None:
                most = limits.get(level)
            left = None if most is None else most - spent - held
            left_nano = None if most_nano is None else most_nano - spent_nano - held_nano
            if (left is not None and tokens > left) or (left_nano is not None and nano > left_nano):
                rest = Amount(max(0, left or 0), max(0, left_nano or 0) / NANO)
                dollars = None if most_nano is None else most_nano / NANO
                return Refused(level, rest, most, dollars, Amount(spent, spent_nano / NANO))
        return None

    def _hold_more(self, name: str, tokens: int, nano: int) -> None:
        self._change(dict.fromkeys(levels(name), (0, 0, tokens, nano)))

    def _spend(self, name: str, tokens: int, nano: int) -> None:
        self._change(dict.fromkeys(levels(name), (tokens, nano, 0, 0)))

    def _use(self, stored: Reservation, used: Amount) -> None:
        """Count as spent what was used since the last step, and take it from what is held."""
        before, after = _held(stored), _held(replace(stored, used=used))
        freed = after.tokens - before.tokens, after.nano_usd - before.nano_usd
        self._change({level: (*_more(stored.used, used), *freed) for level in levels(stored.name)})
        self._set(stored, used_tokens=used.tokens, used_nano=used.nano_usd)

    def _stored(self, hold: Reservation) -> Reservation | None:
        rows = self._rows(f"select {_HOLD} from monitor_holds where id = ? and is_open", hold.id)
        return _hold(rows[0]) if rows else None


def _marks(values: Sequence[Any]) -> str:
    return f"({', '.join('?' * len(values))})"


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


@explained(example="monitor.shared.SQLiteBudgets('budgets.db')")
class SQLiteBudgets(SQLBudgets):
    """Shared budgets in the file `path`, for the processes of one machine. `":memory:"`: for the
    runs of one process.

    Not for a file on a network disk: SQLite's locks do not hold there.
    """

    def __init__(self, path: str | PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        """`clock`: returns seconds since 1970."""
        file = OneFile(path, SCHEMA, synchronous="full", error=BudgetUnreachable, content="budgets", clock=clock)
        super().__init__(file)
        self.path = file.path


class PostgresBudgets(SQLBudgets):
    """Shared budgets in the database `conninfo`, e.g. `"postgresql://user@host/db"`, for processes
    on many machines. Needs the extra `postgres`. The clock is that of the server. The tables
    `monitor_budgets` and `monitor_holds` are made if needed.
    """

    def __init__(self, conninfo: str) -> None:
        super().__init__(OnePostgres(conninfo, SCHEMA, error=BudgetUnreachable, content="budgets"))
