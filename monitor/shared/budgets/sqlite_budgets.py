"""Shared budgets in one SQLite file, for the processes of one machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from os import PathLike
from typing import TypeVar

from monitor._util.explained_options import explained
from monitor.errors import BudgetUnreachable
from monitor.shared.budgets.sql_budgets import SCHEMA, BudgetTransaction, SQLBudgets
from monitor.shared.one_file import OneFile

T = TypeVar("T")


@explained(example="monitor.shared.SQLiteBudgets('budgets.db')")
class SQLiteBudgets(SQLBudgets):
    """Shared budgets in the file `path`. `":memory:"`: for the runs of one process.

    Not for a file on a network disk: SQLite's locks do not hold there.
    """

    def __init__(self, path: str | PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        """`clock`: returns seconds since 1970."""
        self._file = OneFile(path, SCHEMA, synchronous="full", error=BudgetUnreachable, content="budgets")
        self.path = self._file.path
        self._clock = clock

    async def aclose(self) -> None:
        self._file.close()

    async def _step(self, name: str | None, step: Callable[[BudgetTransaction], T]) -> T:
        return await self._file.transaction(lambda db: step(BudgetTransaction(db.execute, self._clock())))
