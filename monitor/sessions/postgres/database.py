"""The connections of a process to one database of sessions, which its sessions share."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from monitor.errors import MissingExtra, SessionTooNew, SessionUnavailable, StoreError
from monitor.sessions.postgres.statements import FORMAT, OLDER_TABLES, TABLES

if TYPE_CHECKING:
    import psycopg

    Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

T = TypeVar("T")

LEASE_S: Final = 15.0
"""Seconds after which the session of a silent owner may be taken. Each step begins them anew."""
MOST_CONNECTIONS: Final = 4
"""Connections of one process. A step is one statement of about a millisecond."""
PATIENCE_S: Final = 20.0
"""Seconds for which a step waits for a server that is restarted, before it is given up."""
_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
_PASSING: Final = ("08", "57P", "40001", "40P01", "53300", "55P03")
"""How the codes of errors begin that are over soon: connections, restarts, conflicts."""
_SETTINGS: Final = {
    "connect_timeout": 5,
    "tcp_user_timeout": 10_000,
    "application_name": "agent-monitor",
    "client_encoding": "utf8",
}
"""Seconds; and milliseconds for which a server may leave what was sent unacknowledged."""


class Plain:
    """A connection that takes the statements of both databases, in which `?` stands for a value."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: Any = ()) -> Any:
        """Carry a statement out."""
        return self._connection.execute(sql.replace("?", "%s").encode(), parameters)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


_databases: Final[dict[str, Database]] = {}
_databases_lock = threading.Lock()


class Database:
    """The worker threads and connections for the database at one address."""

    def __init__(self, address: str) -> None:
        try:
            import psycopg  # noqa: PLC0415 - only who has PostgreSQL needs it
            from psycopg.conninfo import conninfo_to_dict, make_conninfo  # noqa: PLC0415 - as above
        except ImportError:
            raise MissingExtra("psycopg", "postgres") from None
        self._psycopg = psycopg
        self.pid = os.getpid()
        given: dict[str, Any] = dict(conninfo_to_dict(address))
        self._conninfo = make_conninfo(**{**_SETTINGS, **given})
        self.workers = ThreadPoolExecutor(MOST_CONNECTIONS, "session in PostgreSQL")
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._is_made = False
        self._held: dict[int, int] = {}
        self._ends = threading.Event()
        self._renewing: threading.Thread | None = None
        self.users = 0

    # -------------------------------------------------------------- connections

    def run(self, work: Callable[[Connection], T], *, patience_s: float = PATIENCE_S) -> T:
        """Do `work` with a connection, and again on a fresh one while the server is away. So `work`
        is done at least once. Raises `SessionUnavailable`, or `StoreError` for a value that the
        server refuses.
        """
        until, pauses = time.monotonic() + patience_s, iter(_PAUSES_S)
        while True:
            try:
                return self._once(work)
            except self._psycopg.Error as error:
                code = error.sqlstate or ("08" if isinstance(error, self._psycopg.OperationalError) else "")
                is_known = self._is_made or not isinstance(error, self._psycopg.OperationalError)
                if not is_known or not code.startswith(_PASSING) or time.monotonic() >= until:
                    raise self._typed(error) from error
            time.sleep(next(pauses, _PAUSES_S[-1]))

    def _once(self, work: Callable[[Connection], T]) -> T:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = self.connect()
        try:
            if not self._is_made:
                self._make(connection)
            return work(connection)
        finally:
            if connection.broken or connection.closed:
                connection.close()
            else:
                with self._lock:
                    self._idle.append(connection)

    def connect(self) -> Connection:
        """A new connection. Statements are not prepared: poolers do not keep them."""
        connection = self._psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None)
        connection.execute(
            "select set_config('synchronous_commit', 'on', false)"
            " where current_setting('synchronous_commit') in ('off', 'local')"
        )
        return connection

    def _make(self, connection: Connection) -> None:
        """Make the tables that are not there. Raises `SessionTooNew`."""
        with connection.transaction():
            connection.execute("select pg_advisory_xact_lock(hashtextextended('agent-monitor sessions', 1))")
            for table in TABLES:
                connection.execute(table.encode())
            found = connection.execute("select max(format) from monitor_sessions_format").fetchone()
            if found is None or found[0] is None:
                connection.execute("insert into monitor_sessions_format values (%s)", (FORMAT,))
            elif found[0] > FORMAT:
                raise SessionTooNew("in this database", found[0], FORMAT)
            elif found[0] < FORMAT:
                for statement in OLDER_TABLES:
                    connection.execute(statement.encode())
                connection.execute("update monitor_sessions_format set format = %s", (FORMAT,))
        self._is_made = True

    def connected(self) -> Connection:
        """A connection of the caller's own. Raises `SessionUnavailable`."""
        with self.typing_errors():
            return self.connect()

    def prepared(self) -> Connection:
        """A connection of the caller's own to a database whose tables are there."""
        with self.typing_errors():
            connection = self.connect()
            try:
                self._make(connection)
            except BaseException:
                connection.close()
                raise
            return connection

    @contextlib.contextmanager
    def typing_errors(self) -> Iterator[None]:
        """Errors of the server in this block are raised as a `StoreError`."""
        try:
            yield
        except self._psycopg.Error as error:
            raise self._typed(error) from error

    def _typed(self, error: psycopg.Error) -> StoreError:
        said = " ".join(str(error).split())
        if isinstance(error, self._psycopg.DataError):
            return StoreError(f"PostgreSQL refuses a value of this step, and nothing was stored: {said}")
        return SessionUnavailable(f"the sessions in PostgreSQL cannot be used: {said}")

    # -------------------------------------------------------------- leases

    def hold(self, session: int, token: int) -> None:
        """Renew the lease of a session from now on, until `let_go`."""
        with self._lock:
            self._held[session] = token
            if self._renewing is None:
                self._renewing = threading.Thread(target=self._renew, name="leases of sessions", daemon=True)
                self._renewing.start()

    def let_go(self, session: int) -> None:
        """Renew the lease of a session no more."""
        with self._lock:
            self._held.pop(session, None)

    def _renew(self) -> None:
        while not self._ends.wait(LEASE_S / 3):
            with self._lock:
                held = [{"number": number, "token": token} for number, token in self._held.items()]
            if not held:
                continue
            with contextlib.suppress(StoreError):  # the next steps say it
                self.run(lambda connection: connection.execute(_RENEW, (LEASE_S, json.dumps(held))), patience_s=0)  # noqa: B023 - called at once

    def close(self) -> None:
        """End the threads, and close the connections."""
        self._ends.set()
        self.workers.shutdown()
        if self._renewing is not None:
            self._renewing.join()
        for connection in self._idle:
            connection.close()
        self._idle.clear()


_RENEW: Final = """update monitor_sessions as mine
    set lease_until = clock_timestamp() + %s * interval '1 second'
    from json_to_recordset(%s::json) as held(number bigint, token bigint)
    where mine.number = held.number and mine.token = held.token"""


def database_at(address: str) -> Database:
    """The connections of this process to the database at `address`. Give them back with `leave`."""
    with _databases_lock:
        found = _databases.get(address)
        if found is None or found.pid != os.getpid():  # a fork has neither the threads nor the connections
            found = _databases[address] = Database(address)
        found.users += 1
        return found


def leave(address: str, database: Database) -> None:
    """Close the connections if nobody else in this process uses them."""
    with _databases_lock:
        database.users -= 1
        if database.users or database.pid != os.getpid():
            return
        if _databases.get(address) is database:
            del _databases[address]
    database.close()


def _forked() -> None:
    """A thread that held the lock is not in this process, so nobody would release it."""
    global _databases_lock  # noqa: PLW0603 - every process has its own
    _databases_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
