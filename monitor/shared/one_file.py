"""One SQLite file in which the processes of one machine count together."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Callable, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Final, Literal, TypeVar

from anyio import to_thread

from monitor.errors import ConfigError, StoreError

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
