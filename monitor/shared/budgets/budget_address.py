"""A store of budgets by its address."""

from __future__ import annotations

from monitor._util.explained_options import explains_options
from monitor.errors import ConfigError
from monitor.shared.budgets.base import BudgetStore
from monitor.shared.budgets.postgres import PostgresBudgets
from monitor.shared.budgets.redis import RedisBudgets
from monitor.shared.budgets.sqlite_budgets import SQLiteBudgets

_REDIS = ("redis://", "rediss://", "unix://")
_POSTGRES = ("postgresql://", "postgres://")


@explains_options(example="monitor.shared.budgets_at('budgets.db')")
def budgets_at(address: str) -> BudgetStore:
    """The store at `address`: `redis://`, `rediss://` or `unix://` for Redis and Valkey,
    `postgresql://` or `postgres://` for PostgreSQL, otherwise the path of an SQLite file.

    Raises `ConfigError` for any other URL, and `MissingExtra` if the client is not installed.
    """
    if address.startswith(_REDIS):
        return RedisBudgets(address)
    if address.startswith(_POSTGRES):
        return PostgresBudgets(address)
    if "://" in address or not address:
        known = ", ".join((*_REDIS, *_POSTGRES))
        raise ConfigError(f"{address!r} is no store of budgets: give the path of a file, or a URL with {known}")
    return SQLiteBudgets(address)
