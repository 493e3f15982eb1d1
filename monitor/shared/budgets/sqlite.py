"""Shared budgets in one SQLite file, for the processes of one machine."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from os import PathLike, fspath
from typing import Any, Final, TypeVar

from anyio import to_thread

from monitor.errors import BudgetUnreachable
from monitor.shared.budgets.base import Amount, BudgetState, Refused, Reservation, check_limits
from monitor.shared.budgets.sql import SCHEMA, Steps

T = TypeVar("T")

WAIT_S: Final = 5.0
"""Seconds to wait for another process that writes. A step takes less than a millisecond."""


class SQLiteBudgets:
    """Shared budgets in the file `path`. `":memory:"`: for the runs of one process.

    Not for a file on a network disk: SQLite's locks do not hold there.
    """

    def __init__(self, path: str | PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        """`clock`: returns seconds since 1970."""
        self.path = fspath(path)
        self._clock = clock
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None

    async def set_limit(self, name: str, *, tokens: int | None = None, usd: float | None = None) -> None:
        """See `BudgetStore.set_limit`."""
        whole, nano = check_limits(tokens, usd)
        await self._step(lambda steps: steps.set_limit(name, whole, nano))

    async def reserve(self, name: str, amount: Amount, *, key: str, lease_s: float) -> Reservation | Refused:
        """See `BudgetStore.reserve`."""
        return await self._step(lambda steps: steps.reserve(name, amount, key, lease_s))

    async def extend(self, hold: Reservation, more: Amount, *, used: Amount, lease_s: float) -> Reservation | Refused:
        """See `BudgetStore.extend`."""
        return await self._step(lambda steps: steps.extend(hold, more, used, lease_s))

    async def settle(self, hold: Reservation, used: Amount) -> None:
        """See `BudgetStore.settle`."""
        await self._step(lambda steps: steps.settle(hold, used))

    async def states(self, name: str | None = None) -> Sequence[BudgetState]:
        """See `BudgetStore.states`."""
        return await self._step(lambda steps: [*steps.states(name)])

    async def aclose(self) -> None:
        """See `BudgetStore.aclose`."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    async def _step(self, step: Callable[[Steps], T]) -> T:
        return await to_thread.run_sync(self._run, step)

    def _run(self, step: Callable[[Steps], T]) -> T:
        with self._lock:
            try:
                if self._db is None:
                    self._db = _opened(self.path)
                self._db.execute("begin immediate")
                try:
                    done = step(Steps(_Rows(self._db), self._clock()))
                except BaseException:
                    self._db.execute("rollback")
                    raise
                self._db.execute("commit")
            except sqlite3.Error as error:
                raise BudgetUnreachable(f"the budgets in {self.path} cannot be used: {error}") from error
        return done


class _Rows:
    """A `Connection` of `_sql` over SQLite."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def rows(self, sql: str, *values: Any) -> Sequence[Sequence[Any]]:
        return self._db.execute(sql, values).fetchall()

    def run(self, sql: str, *values: Any) -> None:
        self._db.execute(sql, values)


def _opened(path: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None, check_same_thread=False)
    try:
        db.execute("pragma journal_mode = wal")
        db.execute("pragma synchronous = full")
        for statement in SCHEMA:
            db.execute(statement)
    except BaseException:
        db.close()
        raise
    return db
