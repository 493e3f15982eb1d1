"""Where processes count together: one SQLite file, one PostgreSQL database, or one server of Redis
or Valkey. What the two databases do differently is said here, and nowhere else.
"""

from __future__ import annotations

import sqlite3
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar

from anyio import to_thread

from monitor.errors import ConfigError, MissingExtra, StoreError

T = TypeVar("T")

WAIT_S: Final = 5.0
"""A transaction waits at most this many seconds for another process that writes. A transaction
takes less than a millisecond.
"""
Execute: TypeAlias = Callable[[str, Sequence[Any]], Any]
"""Runs a statement, in which `?` stands for a value, and returns a cursor."""
Work: TypeAlias = Callable[[Execute, float], T]
"""The work of one transaction. The number: seconds since 1970, by the clock of the store."""
Locks: TypeAlias = Callable[[Execute], Iterable[str]]
"""The names that a transaction locks before it does anything else."""


class SharedDatabase(ABC):
    """A database, opened at the first transaction, in which the same statements mean the same."""

    _failures: type[Exception] | tuple[type[Exception], ...]
    """The exceptions of the database."""

    def __init__(self, place: str, schema: Sequence[str], *, error: type[StoreError], content: str) -> None:
        """`schema`: statements that make the tables if they are not there. `error`: the exception
        for a database that cannot be used. `content`: what it holds, and `place`: where, for the
        message of that exception.
        """
        self._schema = schema
        self._error = error
        self._what = f"the {content} in {place}"
        self._lock = threading.Lock()
        self._db: Any = None

    async def transaction(self, work: Work[T], locks: Locks = lambda _: ()) -> T:
        """Do `work` in a worker thread. Of the transactions of all processes that lock one name,
        only one runs at a time. It may be done twice.
        """
        return await to_thread.run_sync(self.run, work, locks)

    def run(self, work: Work[T], locks: Locks = lambda _: ()) -> T:
        """`transaction` in the thread of the caller."""
        with self._lock:
            try:
                return self._transaction(work, locks)
            except self._failures as error:
                self._failed()
                raise self._error(f"{self._what} cannot be used: {error}") from error

    def close(self) -> None:
        """Close the connection. The next transaction opens another one."""
        with self._lock:
            self._leave()

    @abstractmethod
    def _transaction(self, work: Work[T], locks: Locks) -> T:
        """Do `work` in one transaction, all of it or nothing."""

    def _failed(self) -> None:
        """The database has failed: the next transaction connects again."""
        self._leave()

    @abstractmethod
    def _leave(self) -> None:
        """Close the connection, if there is one."""


class OneFile(SharedDatabase):
    """The file `path` of SQLite, for the processes of one machine. Not for a file on a network
    disk: SQLite's locks do not hold there.
    """

    _failures = sqlite3.Error

    def __init__(
        self,
        path: str | PathLike[str],
        schema: Sequence[str],
        *,
        synchronous: Literal["full", "normal"],
        error: type[StoreError],
        content: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`synchronous`: `full` where a power cut must take nothing. `clock`: returns seconds
        since 1970.
        """
        self.path = fspath(path)
        if Path(path).is_dir():
            raise ConfigError(f"{path} is a folder: write a file in it, such as {Path(path, f'{content}.db')}")
        opening = ("pragma journal_mode = wal", f"pragma synchronous = {synchronous}", *schema)
        super().__init__(self.path, opening, error=error, content=content)
        self._clock = clock

    def _transaction(self, work: Work[T], locks: Locks) -> T:
        db = self._db = self._db or self._opened()
        db.execute("begin immediate")  # no other process writes meanwhile, so no name need be locked
        try:
            done = work(db.execute, self._clock())
        except BaseException:
            db.execute("rollback")
            raise
        db.execute("commit")
        return done

    def _opened(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=WAIT_S, isolation_level=None, check_same_thread=False)
        try:
            for statement in self._schema:
                db.execute(statement)
        except BaseException:
            db.close()
            raise
        self._close = weakref.finalize(self, db.close)  # from 3.13 on Python warns of what is left open
        return db

    def _failed(self) -> None:
        if self.path != ":memory:":
            self._leave()

    def _leave(self) -> None:
        if self._db is not None:
            self._close()
            self._db = None


# --------------------------------------------------------------------------------------------------
# One PostgreSQL database in which the processes of many machines count together. Needs the extra
# `postgres`.

ANSWER_S: Final = 5
"""Whole seconds that a server may take for a connection, and Redis for an answer."""
_TIMES: Final = {"connect_timeout": ANSWER_S, "tcp_user_timeout": 2_000 * ANSWER_S}
"""How long a server may be silent that does not even acknowledge; the second one in milliseconds.
The operating system waits for a quarter of an hour.
"""


class OnePostgres(SharedDatabase):
    """The database `conninfo`. The clock is that of the server."""

    def __init__(self, conninfo: str, schema: Sequence[str], *, error: type[StoreError], content: str) -> None:
        try:
            import psycopg  # noqa: PLC0415 - only who has PostgreSQL needs it
            from psycopg.conninfo import conninfo_to_dict, make_conninfo  # noqa: PLC0415 - as above
        except ImportError:
            raise MissingExtra("psycopg", "postgres") from None
        super().__init__("PostgreSQL", schema, error=error, content=content)
        self._psycopg = psycopg
        self._failures = psycopg.Error
        given: dict[str, Any] = dict(conninfo_to_dict(conninfo))
        self._conninfo = make_conninfo(**{**_TIMES, **given})

    def _transaction(self, work: Work[T], locks: Locks) -> T:
        """Do `work`, a second time on a fresh connection if the first one breaks: a server that
        was restarted has closed it, perhaps long ago.
        """
        connected = self._db is not None
        try:
            return self._attempt(work, locks)
        except self._psycopg.Error:
            if not connected or self._db is None or not self._db.broken:
                raise
            self._leave()
            return self._attempt(work, locks)

    def _attempt(self, work: Work[T], locks: Locks) -> T:
        if self._db is None or self._db.closed:
            self._connect()
        db: Any = self._db

        def execute(sql: str, values: Sequence[Any]) -> Any:
            return db.execute(sql.replace("?", "%s").encode(), values)

        with db.transaction():
            for name in locks(execute):
                execute("select pg_advisory_xact_lock(hashtextextended(?, 0))", (f"agent-monitor {name}",))
            ((now,),) = execute("select extract(epoch from clock_timestamp())::double precision", ())
            return work(execute, float(now))

    def _connect(self) -> None:
        self._db = self._psycopg.connect(self._conninfo, autocommit=True)
        with self._db.transaction():
            # Two processes that begin together would make the same table at once.
            self._db.execute("select pg_advisory_xact_lock(hashtextextended('agent-monitor', 1))")
            for statement in self._schema:
                self._db.execute(statement.encode())

    def _leave(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


# --------------------------------------------------------------------------------------------------
# One server of Redis or Valkey in which the processes of many machines count together. Needs the
# extra `redis`.


class OneRedis:
    """The server at `url`, asked for the first time at the first step."""

    def __init__(self, url: str, *, error: type[StoreError], content: str) -> None:
        """`error`: the exception for a server that cannot be used. `content`: what it holds, for
        the message.
        """
        try:
            import redis  # noqa: PLC0415 - only who has Redis needs it
        except ImportError:
            raise MissingExtra("redis", "redis") from None
        self._failures = redis.RedisError
        self._broken = redis.ConnectionError
        self._error = error
        self._content = content
        self.client: Any = redis.Redis.from_url(
            url, decode_responses=True, socket_timeout=ANSWER_S, socket_connect_timeout=ANSWER_S, retry=None
        )
        """The client of the package `redis`."""

    def asked(self, step: Callable[[], T]) -> T:
        """Do `step`, a second time on a fresh connection if the first one breaks."""
        try:
            try:
                return step()
            except self._broken:
                self.client.connection_pool.disconnect()
                return step()
        except self._failures as error:
            raise self._error(f"the {self._content} in Redis cannot be used: {error}") from error


# --------------------------------------------------------------------------------------------------
# Stores by their address.

_REDIS: Final = ("redis://", "rediss://", "unix://")
_POSTGRES: Final = ("postgresql://", "postgres://")
Opens: TypeAlias = Callable[[str], Any]
"""Opens one kind of store at an address."""


def store_at(address: str, content: str, *, redis: Opens, postgres: Opens, file: Opens) -> Any:
    """The store at `address`: `redis://`, `rediss://` or `unix://` for Redis and Valkey,
    `postgresql://` or `postgres://` for PostgreSQL, otherwise the path of an SQLite file. Raises
    `ConfigError` for any other URL.
    """
    if address.startswith(_REDIS):
        return redis(address)
    if address.startswith(_POSTGRES):
        return postgres(address)
    if "://" in address or not address:
        known = ", ".join((*_REDIS, *_POSTGRES))
        raise ConfigError(f"{address!r} is no store of {content}: give the path of a file, or a URL with {known}")
    return file(address)
