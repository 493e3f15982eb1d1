"""Shared budgets in PostgreSQL, for processes on many machines. Needs the extra `postgres`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from monitor.errors import BudgetUnreachable
from monitor.shared.budgets.base import levels
from monitor.shared.budgets.sql_budgets import SCHEMA, BudgetTransaction, SQLBudgets
from monitor.shared.one_postgres import Execute, OnePostgres, lock, now_in

T = TypeVar("T")


class PostgresBudgets(SQLBudgets):
    """Shared budgets in the database `conninfo`, e.g. `"postgresql://user@host/db"`. The clock is
    that of the server. The tables `monitor_budgets` and `monitor_holds` are made if needed.
    """

    def __init__(self, conninfo: str) -> None:
        self._database = OnePostgres(conninfo, SCHEMA, error=BudgetUnreachable, content="budgets")

    async def aclose(self) -> None:
        self._database.close()

    async def _step(self, name: str | None, step: Callable[[BudgetTransaction], T]) -> T:
        """Each step may be done twice."""

        def work(execute: Execute) -> T:
            # One step at a time in one tree: the first level is locked before anything is read.
            roots = "select distinct root from monitor_budgets order by root"
            for root in [levels(name)[0]] if name is not None else [root for (root,) in execute(roots, ())]:
                lock(execute, root)
            return step(BudgetTransaction(execute, now_in(execute)))

        return await self._database.transaction(work)
