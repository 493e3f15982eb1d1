"""Shared budgets in PostgreSQL, for processes on many machines. Needs the extra `postgres`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from anyio import to_thread

from monitor.errors import BudgetUnreachable, MissingExtra
from monitor.shared.budgets.base import Amount, BudgetState, Refused, Reservation, check_limits, levels
from monitor.shared.budgets.sql import SCHEMA, Steps

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")


class PostgresBudgets:
    """Shared budgets in the database `conninfo`, e.g. `"postgresql://user@host/db"`. The clock is
    that of the server. The tables `monitor_budgets` and `monitor_holds` are made if needed.
    """

    def __init__(self, conninfo: str) -> None:
        try:
            import psycopg  # noqa: PLC0415 - only who has PostgreSQL needs it
        except ImportError:
            raise MissingExtra("psycopg", "postgres") from None
        self._psycopg = psycopg
        self._conninfo = conninfo
        self._lock = threading.Lock()
        self._db: psycopg.Connection[tuple[Any, ...]] | None = None

    async def set_limit(self, name: str, *, tokens: int | None = None, usd: float | None = None) -> None:
        """See `BudgetStore.set_limit`."""
        whole, nano = check_limits(tokens, usd)
        await self._step(name, lambda steps: steps.set_limit(name, whole, nano))

    async def reserve(self, name: str, amount: Amount, *, key: str, lease_s: float) -> Reservation | Refused:
        """See `BudgetStore.reserve`."""
        return await self._step(name, lambda steps: steps.reserve(name, amount, key, lease_s))

    async def extend(self, hold: Reservation, more: Amount, *, used: Amount, lease_s: float) -> Reservation | Refused:
        """See `BudgetStore.extend`."""
        return await self._step(hold.name, lambda steps: steps.extend(hold, more, used, lease_s))

    async def settle(self, hold: Reservation, used: Amount) -> None:
        """See `BudgetStore.settle`."""
        await self._step(hold.name, lambda steps: steps.settle(hold, used))

    async def states(self, name: str | None = None) -> Sequence[BudgetState]:
        """See `BudgetStore.states`."""
        return await self._step(name, lambda steps: [*steps.states(name)])

    async def aclose(self) -> None:
        """See `BudgetStore.aclose`."""
        with self._lock:
            self._leave()

    async def _step(self, name: str | None, step: Callable[[Steps], T]) -> T:
        return await to_thread.run_sync(self._run, name, step)

    def _run(self, name: str | None, step: Callable[[Steps], T]) -> T:
        with self._lock:
            try:
                return self._transaction(name, step)
            except self._psycopg.Error as error:
                self._leave()  # the next step connects again
                raise BudgetUnreachable(f"the budgets in PostgreSQL cannot be used: {error}") from error

    def _transaction(self, name: str | None, step: Callable[[Steps], T]) -> T:
        db = self._opened()
        with db.transaction():
            rows = _Rows(db)
            # One step at a time in one tree: the first level is locked before anything is read.
            for root in _roots(rows, name):
                rows.rows("select pg_advisory_xact_lock(hashtextextended(?, 0))", f"agent-monitor {root}")
            ((now,),) = rows.rows("select extract(epoch from clock_timestamp())::double precision")
            return step(Steps(rows, now))

    def _opened(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._db is None or self._db.closed:
            self._db = self._psycopg.connect(self._conninfo, autocommit=True)
            with self._db.transaction():
                # Two processes that begin together would make the same table at once.
                self._db.execute("select pg_advisory_xact_lock(hashtextextended('agent-monitor', 1))")
                for statement in SCHEMA:
                    self._db.execute(statement)
        return self._db

    def _leave(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


class _Rows:
    """A `Connection` of `_sql` over psycopg."""

    def __init__(self, db: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._db = db

    def rows(self, sql: str, *values: Any) -> Sequence[Sequence[Any]]:
        return self._db.execute(_marked(sql), values).fetchall()

    def run(self, sql: str, *values: Any) -> None:
        self._db.execute(_marked(sql), values)


def _roots(rows: _Rows, name: str | None) -> Sequence[str]:
    if name is not None:
        return (levels(name)[0],)
    return [root for (root,) in rows.rows("select distinct root from monitor_budgets order by root")]


def _marked(sql: str) -> Any:
    return sql.replace("?", "%s")
