"""Outages in one SQLite file, for the processes of one machine."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Final, TypeVar

from monitor.errors import StoreError
from monitor.outage import OutageRule, Trouble
from monitor.shared.one_file import OneFile
from monitor.shared.outages.base import Change

T = TypeVar("T")

_SCHEMA: Final = """create table if not exists monitor_outages (
    subject text primary key, trouble text not null, is_open boolean not null, changed_s double precision not null)"""


class SQLiteOutages:
    """Counts the failures of the runs of many processes, in the file `path`.

    Not for a file on a network disk: SQLite's locks do not hold there.
    """

    look_s = 1.0

    def __init__(self, path: str | PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        """`clock`: returns seconds since 1970."""
        # What a power cut takes is counted again.
        self._file = OneFile(path, (_SCHEMA,), synchronous="normal", error=StoreError, content="outages")
        self.path = self._file.path
        self.now = clock

    async def change(self, subject: str, step: Change[T], rule: OutageRule) -> T:

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

        return await self._file.transaction(work)

    async def known(self) -> Mapping[str, Trouble]:

        def work(db: sqlite3.Connection) -> Mapping[str, Trouble]:
            rows = db.execute("select subject, trouble from monitor_outages").fetchall()
            return {subject: Trouble.from_dict(json.loads(text)) for subject, text in rows}

        return await self._file.transaction(work)

    async def aclose(self) -> None:
        self._file.close()
