"""Shared budgets in PostgreSQL, for processes on many machines. Needs the extra `postgres`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from anyio import to_thread

from monitor.errors import BudgetUnreachable, MissingExtra
from monitor.shared.budgets.base import ANSWER_S, levels
from monitor.shared.budgets.sql_budgets import SCHEMA, BudgetTransaction, SQLBudgets

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

_TIMES: Final = {"connect_timeout": ANSWER_S, "tcp_user_timeout": 2_000 * ANSWER_S}
"""How long a server may be silent that does not even acknowledge; the second one in milliseconds.
The operating system waits for a quarter of an hour.
"""


class PostgresBudgets(SQLBudgets):
    """Shared budgets in the database `conninfo`, e.g. `"postgresql://user@host/db"`. The clock is
    that of the server. The tables `monitor_budgets` and `monitor_holds` are made if needed.
    """

    def __init__(self, conninfo: str) -> None:
        try:
            import psycopg  # noqa: PLC0415 - only who has PostgreSQL needs it
            from psycopg.conninfo import conninfo_to_dict, make_conninfo  # noqa: PLC0415 - as above
        except ImportError:
            raise MissingExtra("psycopg", "postgres") from None
        self._psycopg = psycopg
        given: dict[str, Any] = dict(conninfo_to_dict(conninfo))
        self._conninfo = make_conninfo(**{**_TIMES, **given})
        self._lock = threading.Lock()
        self._db: psycopg.Connection[tuple[Any, ...]] | None = None

    async def aclose(self) -> None:
        with self._lock:
            self._leave()

    async def _step(self, name: str | None, step: Callable[[BudgetTransaction], T]) -> T:
        return await to_thread.run_sync(self._run, name, step)

    def _run(self, name: str | None, step: Callable[[BudgetTransaction], T]) -> T:
        with self._lock:
            try:
                return self._attempted(name, step)
            except self._psycopg.Error as error:
                self._leave()  # the next step connects again
                raise BudgetUnreachable(f"the budgets in PostgreSQL cannot be used: {error}") from error

    def _attempted(self, name: str | None, step: Callable[[BudgetTransaction], T]) -> T:
        """Do `step`, a second time on a fresh connection if the first one breaks: a server that
        was restarted has closed it, perhaps long ago. Each step may be done twice.
        """
        connected = self._db is not None
        try:
            return self._transaction(name, step)
        except self._psycopg.Error:
            if not connected or self._db is None or not self._db.broken:
                raise
            self._leave()
            return self._transaction(name, step)

    def _transaction(self, name: str | None, step: Callable[[BudgetTransaction], T]) -> T:
        db = self._opened()

        def execute(sql: str, values: Sequence[Any] = ()) -> psycopg.Cursor[tuple[Any, ...]]:
            return db.execute(sql.replace("?", "%s").encode(), values)

        with db.transaction():
            # One step at a time in one tree: the first level is locked before anything is read.
            roots = "select distinct root from monitor_budgets order by root"
            for root in [levels(name)[0]] if name is not None else [root for (root,) in execute(roots)]:
                execute("select pg_advisory_xact_lock(hashtextextended(?, 0))", (f"agent-monitor {root}",))
            ((now,),) = execute("select extract(epoch from clock_timestamp())::double precision")
            return step(BudgetTransaction(execute, now))

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
