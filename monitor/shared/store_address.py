"""Stores that processes share, by their address."""

from __future__ import annotations

from typing import Final, Literal

from monitor._util.explained_options import explains_options
from monitor.errors import ConfigError
from monitor.shared.budgets.base import BudgetStore
from monitor.shared.budgets.redis import RedisBudgets
from monitor.shared.budgets.sql_budgets import PostgresBudgets, SQLiteBudgets
from monitor.shared.rows import PostgresRows, RedisRows, RowStore, SQLiteRows

_REDIS: Final = ("redis://", "rediss://", "unix://")
_POSTGRES: Final = ("postgresql://", "postgres://")


@explains_options(example="monitor.shared.budgets_at('budgets.db')")
def budgets_at(address: str) -> BudgetStore:
    """The store of budgets at `address`: `redis://`, `rediss://` or `unix://` for Redis and Valkey,
    `postgresql://` or `postgres://` for PostgreSQL, otherwise the path of an SQLite file.

    Raises `ConfigError` for any other URL, and `MissingExtra` if the client is not installed.
    """
    match _kind(address, "budgets"):
        case "redis":
            return RedisBudgets(address)
        case "postgres":
            return PostgresBudgets(address)
        case "file":
            return SQLiteBudgets(address)


def rows_at(address: str) -> RowStore:
    """The store of rows at `address`, which is read as that of `budgets_at`. Raises the same."""
    match _kind(address, "rows"):
        case "redis":
            return RedisRows(address)
        case "postgres":
            return PostgresRows(address)
        case "file":
            return SQLiteRows(address)


def _kind(address: str, content: str) -> Literal["redis", "postgres", "file"]:
    if address.startswith(_REDIS):
        return "redis"
    if address.startswith(_POSTGRES):
        return "postgres"
    if "://" in address or not address:
        known = ", ".join((*_REDIS, *_POSTGRES))
        raise ConfigError(f"{address!r} is no store of {content}: give the path of a file, or a URL with {known}")
    return "file"
