"""The connections of a fleet to its database. Needs SQLAlchemy, which DBOS has.

Failure answered: a server was restarted, and for some seconds its name or its socket was gone. DBOS
waits only for a port that is closed, so every run failed.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import psycopg
import sqlalchemy
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from monitor.errors import ConfigError, SessionUnavailable

T = TypeVar("T")

PATIENCE_S: Final = 20.0
"""Seconds for which the first connection waits for a server that is restarted."""
_PAUSE_S: Final = 0.5
_WAITED_FOR: Final = "connection failed"
"""DBOS asks again after an error of this text. So psycopg calls a port that is closed."""


def check_sqlite(database: str) -> None:
    """Raise `ConfigError` where DBOS cannot run on this SQLite."""
    if database.startswith("sqlite") and sys.version_info >= (3, 12) and sqlite3.sqlite_version_info < (3, 42):
        raise ConfigError(
            f"DBOS on Python {sys.version_info[0]}.{sys.version_info[1]} needs SQLite 3.42, and this Python has"
            f" {sqlite3.sqlite_version}: use PostgreSQL, Python 3.11, or a newer SQLite"
        )


def is_postgres(database: str) -> bool:
    """Whether the address names PostgreSQL."""
    return sqlalchemy.make_url(database).get_backend_name() == "postgresql"


def engine_at(database: str) -> sqlalchemy.Engine:
    """The connections to `database`, an address as DBOS takes it. Whatever is in the way of a new
    connection to PostgreSQL is an error for which DBOS asks again.
    """
    if not is_postgres(database):
        return sqlalchemy.create_engine(database)
    address = sqlalchemy.make_url(database).set(drivername="postgresql+psycopg")
    engine = sqlalchemy.create_engine(
        address, pool_size=20, max_overflow=0, pool_pre_ping=True, connect_args={"connect_timeout": 10}
    )

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Any, _: Any, arguments: Any, options: Any) -> Any:
        try:
            return dialect.connect(*arguments, **options)
        except psycopg.OperationalError as error:
            if _WAITED_FOR in str(error):
                raise
            raise psycopg.OperationalError(f"{_WAITED_FOR}: {error}") from error

    return engine


def reached(work: Callable[[], T]) -> T:
    """Do `work`, and do it again while the database is away. Raises `SessionUnavailable` if it
    stays away for 20 seconds.
    """
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return work()
        except DBAPIError as error:
            if time.monotonic() >= until:
                raise SessionUnavailable(f"the database of the fleet cannot be reached: {error.orig}") from error
        time.sleep(_PAUSE_S)
