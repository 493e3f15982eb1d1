"""One SQLite file in which the processes of one machine count together."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Callable, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from anyio import to_thread

from monitor.errors import ConfigError, MissingExtra, StoreError

if TYPE_CHECKING:
    import psycopg


T = TypeVar("T")

WAIT_S: Final = 5.0
"""A transaction waits at most this many seconds for another process that writes. A transaction
takes less than a millisecond.
"""


class OneFile:
    """The file `path`, opened at the first transaction. Not for a file on a network disk: SQLite's
    locks do not hold there.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        schema: Sequence[str],
        *,
        synchronous: Literal["full", "normal"],
        error: type[StoreError],
        content: str,
    ) -> None:
        """`schema`: statements that make the tables if they are not there. `synchronous`: `full`
        where a power cut must take nothing. `error`: the exception for a file that cannot be used.
        `content`: what the file holds, for the message of that exception.
        """
        self.path = fspath(path)
        if Path(path).is_dir():
            raise ConfigError(f"{path} is a folder: write a file in it, such as {Path(path, f'{content}.db')}")
        self._opening = ("pragma journal_mode = wal", f"pragma synchronous = {synchronous}", *schema)
        self._error = error
        self._content = content
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None

    async def transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do `work` alone, in a worker thread: no other process writes meanwhile."""
        return await to_thread.run_sync(self._transaction, work)

    def close(self) -> None:
        """Close the file. The next transaction opens it again."""
        with self._lock:
            self._let_go()

    def _transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            try:
                db = self._db = self._db or self._opened()
                db.execute("begin immediate")
                try:
                    done = work(db)
                except BaseException:
                    db.execute("rollback")
                    raise
                db.execute("commit")
            except sqlite3.Error as error:
                if self.path != ":memory:":
                    self._let_go()  # the next transaction opens the file anew
                raise self._error(f"the {self._content} in {self.path} cannot be used: {error}") from error
        return done

    def _opened(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=WAIT_S, isolation_level=None, check_same_thread=False)
        try:
            for statement in self._opening:
                db.execute(statement)
        except BaseException:
            db.close()
            raise
        self._close = weakref.finalize(self, db.close)  # from 3.13 on Python warns of what is left open
        return db

    def _let_go(self) -> None:
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
Execute: TypeAlias = Callable[[str, Sequence[Any]], Any]
"""Runs a statement, in which `?` stands for a value, and returns a cursor."""


class OnePostgres:
    """The database `conninfo`, opened at the first transaction."""

    def __init__(self, conninfo: str, schema: Sequence[str], *, error: type[StoreError], content: str) -> None:
        """`schema`: statements that make the tables if they are not there. `error`: the exception
        for a database that cannot be used. `content`: what it holds, for the message.
        """
        try:
            import psycopg  # noqa: PLC0415 - only who has PostgreSQL needs it
            from psycopg.conninfo import conninfo_to_dict, make_conninfo  # noqa: PLC0415 - as above
        except ImportError:
            raise MissingExtra("psycopg", "postgres") from None
        self._psycopg = psycopg
        given: dict[str, Any] = dict(conninfo_to_dict(conninfo))
        self._conninfo = make_conninfo(**{**_TIMES, **given})
        self._schema = schema
        self._error = error
        self._content = content
        self._lock = threading.Lock()
        self._db: psycopg.Connection[tuple[Any, ...]] | None = None

    async def transaction(self, work: Callable[[Execute], T]) -> T:
        """Do `work` in a worker thread. It may be done twice."""
        return await to_thread.run_sync(self._run, work)

    def close(self) -> None:
        """Close the connection. The next transaction opens another one."""
        with self._lock:
            self._leave()

    def _run(self, work: Callable[[Execute], T]) -> T:
        with self._lock:
            try:
                return self._attempted(work)
            except self._psycopg.Error as error:
                self._leave()  # the next step connects again
                raise self._error(f"the {self._content} in PostgreSQL cannot be used: {error}") from error

    def _attempted(self, work: Callable[[Execute], T]) -> T:
        """Do `work`, a second time on a fresh connection if the first one breaks: a server that
        was restarted has closed it, perhaps long ago.
        """
        connected = self._db is not None
        try:
            return self._transaction(work)
        except self._psycopg.Error:
            if not connected or self._db is None or not self._db.broken:
                raise
            self._leave()
            return self._transaction(work)

    def _transaction(self, work: Callable[[Execute], T]) -> T:
        db = self._opened()

        def execute(sql: str, values: Sequence[Any] = ()) -> psycopg.Cursor[tuple[Any, ...]]:
            return db.execute(sql.replace("?", "%s").encode(), values)

        with db.transaction():
            return work(execute)

    def _opened(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._db is None or self._db.closed:
            self._db = self._psycopg.connect(self._conninfo, autocommit=True)
            with self._db.transaction():
                # Two processes that begin together would make the same table at once.
                self._db.execute("select pg_advisory_xact_lock(hashtextextended('agent-monitor', 1))")
                for statement in self._schema:
                    self._db.execute(statement.encode())
        return self._db

    def _leave(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


def lock(execute: Execute, name: str) -> None:
    """Let no other transaction that locks this name run beside this one."""
    execute("select pg_advisory_xact_lock(hashtextextended(?, 0))", (f"agent-monitor {name}",))


def now_in(execute: Execute) -> float:
    """Seconds since 1970, by the clock of the server."""
    ((now,),) = execute("select extract(epoch from clock_timestamp())::double precision", ())
    return float(now)


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
