"""A session that lasts as long as the program."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from monitor.errors import SessionDamaged, StoreError
from monitor.sessions import faults
from monitor.sessions.sql_session import SqlSession, id_at
from monitor.sessions.tables.migrations import migrate
from monitor.sessions.tables.owner_memory import Memory
from monitor.sessions.tables.schema import check_sqlite
from monitor.sessions.tables.seal import seal_anew
from monitor.sessions.writer import Work


class InMemorySession(SqlSession):
    """A session that lasts as long as the program, with the same methods as `SQLiteSession`. It has
    the same tables too, in an SQLite without a file.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time, chunks: bool = False) -> None:
        """`clock`: returns seconds since 1970. `chunks`: runs store their chunks as well, so that
        they can be replayed.
        """
        check_sqlite()
        super().__init__(blobs=_Bodies(), clock=clock, memory=Memory())
        self.keeps_chunks: bool = chunks
        self.id = id_at(round(clock() * 1000))
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA foreign_keys=ON")
        migrate(self._connection)
        seal_anew(self._connection)
        weakref.finalize(self, self._connection.close)
        self._lock = threading.Lock()
        self._open = True

    async def _run(self, work: Work[Any], *, writes: bool) -> Any:
        with self._lock:  # a program may use it from several threads
            try:
                return self._written(work) if writes else work(self._connection)
            except sqlite3.Error as error:
                raise faults.typed(error, Path("the session in memory")) from error

    def _written(self, work: Work[Any]) -> Any:
        if not self._open:
            raise StoreError("the session is closed")
        self._connection.execute("BEGIN")
        try:
            result = work(self._connection)
            self._connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise
        return result

    async def aclose(self) -> None:
        """Close the session. After that nothing can be written, and everything can be read."""
        self._open = False


class _Bodies:
    """Long bodies, by the digests of their content."""

    def __init__(self) -> None:
        self._bodies: dict[str, bytes] = {}

    def put(self, data: bytes, /) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self._bodies[digest] = data
        return digest

    def get(self, digest: str, /) -> bytes:
        if digest not in self._bodies:
            raise SessionDamaged(f"the long text {digest} is not there")
        return self._bodies[digest]
