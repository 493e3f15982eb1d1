"""One PostgreSQL database in which the processes of many machines count together. Needs the extra
`postgres`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from anyio import to_thread

from monitor.errors import MissingExtra, StoreError

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

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
