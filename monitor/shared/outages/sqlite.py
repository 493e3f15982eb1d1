"""Outages in one SQLite file, for the processes of one machine."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from os import PathLike, fspath
from typing import Final, TypeVar

from anyio import to_thread

from monitor.errors import StoreError
from monitor.outage import OutageRule, Trouble
from monitor.shared.outages.base import Step

T = TypeVar("T")

WAIT_S: Final = 5.0
"""Seconds to wait for another process that writes. A change takes less than a millisecond."""
_SCHEMA: Final = """create table if not exists monitor_outages (
    subject text primary key, trouble text not null, is_open boolean not null, changed_s double precision not null)"""


class SQLiteOutages:
    """Counts the failures of the runs of many processes, in the file `path`.

    Not for a file on a network disk: SQLite's locks do not hold there.
    """

    look_s = 1.0

    def __init__(self, path: str | PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        """`clock`: returns seconds since 1970."""
        self.path = fspath(path)
        self.now = clock
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None

    async def change(self, subject: str, step: Step[T], rule: OutageRule) -> T:
        """See `OutageStore.change`."""

        def work(db: sqlite3.Connection) -> T:
            now = self.now()
            row = db.execute("select trouble from monitor_outages where subject = ?", (subject,)).fetchone()
            trouble = Trouble() if row is None else Trouble.from_dict(json.loads(row[0]))
            answer = step(trouble, now)
            db.execute("delete from monitor_outages where not is_open and changed_s < ?", (now - rule.window_s,))
            if rule.is_over(trouble, now):
                db.execute("delete from monitor_outages where subject = ?", (subject,))
            else:
                text = json.dumps(trouble.to_dict(), separators=(",", ":"))
                row = subject, text, trouble.outage is not None, trouble.changed_s
                db.execute("insert or replace into monitor_outages values (?, ?, ?, ?)", row)
            return answer

        return await to_thread.run_sync(self._alone, work)

    async def known(self) -> Mapping[str, Trouble]:
        """See `OutageStore.known`."""

        def work(db: sqlite3.Connection) -> Mapping[str, Trouble]:
            rows = db.execute("select subject, trouble from monitor_outages").fetchall()
            return {subject: Trouble.from_dict(json.loads(text)) for subject, text in rows}

        return await to_thread.run_sync(self._alone, work)

    async def aclose(self) -> None:
        """See `OutageStore.aclose`."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def _alone(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do `work` in a transaction of its own."""
        with self._lock:
            try:
                db = self._db = self._db or _opened(self.path)
                db.execute("begin immediate")
                try:
                    done = work(db)
                except BaseException:
                    db.execute("rollback")
                    raise
                db.execute("commit")
            except sqlite3.Error as error:
                raise StoreError(f"the outages in {self.path} cannot be used: {error}") from error
        return done


def _opened(path: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None, check_same_thread=False)
    try:
        db.execute("pragma journal_mode = wal")
        db.execute("pragma synchronous = normal")  # what a power cut takes is counted again
        db.execute(_SCHEMA)
    except BaseException:
        db.close()
        raise
    return db
