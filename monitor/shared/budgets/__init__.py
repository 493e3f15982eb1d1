"""Budgets that many processes spend from, and the stores that keep them."""

from __future__ import annotations

from monitor._util.explained_options import explains_options
from monitor.shared.budgets.base import BudgetStore
from monitor.shared.budgets.redis import RedisBudgets
from monitor.shared.budgets.sql_budgets import PostgresBudgets, SQLiteBudgets
from monitor.shared.stores import store_at


@explains_options(example="monitor.shared.budgets_at('budgets.db')")
def budgets_at(address: str) -> BudgetStore:
    """The store of budgets at `address`: `redis://`, `rediss://` or `unix://` for Redis and Valkey,
    `postgresql://` or `postgres://` for PostgreSQL, otherwise the path of an SQLite file.

    Raises `ConfigError` for any other URL, and `MissingExtra` if the client is not installed.
    """
    store: BudgetStore = store_at(address, "budgets", redis=RedisBudgets, postgres=PostgresBudgets, file=SQLiteBudgets)
    return store
