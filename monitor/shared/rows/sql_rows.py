"""Shared rows in SQL: one file of SQLite, or PostgreSQL, by the same statements."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Final

from monitor.errors import StoreError
from monitor.shared.one_file import OneFile
from monitor.shared.one_postgres import Execute, OnePostgres, lock, now_in
from monitor.shared.rows.base import RowNews, SharedRow

_SCHEMA: Final = (
    """create table if not exists monitor_rows (
        room text not null, name text not null, value text not null, version bigint not null,
        at_s double precision not null, primary key (room, name))""",
    "create index if not exists monitor_rows_by_version on monitor_rows (room, version)",
    "create index if not exists monitor_rows_by_time on monitor_rows (room, at_s)",
)


class SQLiteRows:
    """Shared rows in the file `path`, for the processes of one machine."""

    def __init__(self, path: str | PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        """`clock`: returns seconds since 1970."""
        self._file = OneFile(path, _SCHEMA, synchronous="normal", error=StoreError, content="rows")
        self._clock = clock

    async def swap(self, room: str, written: Mapping[str, str], *, after: int, keep_s: float, most: int) -> RowNews:
        return await self._file.transaction(
            lambda db: _swap(db.execute, room, written, after=after, keep_s=keep_s, most=most, now=self._clock())
        )

    async def aclose(self) -> None:
        self._file.close()


class PostgresRows:
    """Shared rows in the database `conninfo`. The clock is that of the server."""

    def __init__(self, conninfo: str) -> None:
        self._database = OnePostgres(conninfo, _SCHEMA, error=StoreError, content="rows")

    async def swap(self, room: str, written: Mapping[str, str], *, after: int, keep_s: float, most: int) -> RowNews:
        def work(execute: Execute) -> RowNews:
            lock(execute, f"rows {room}")  # so a higher version is never seen before a lower one
            return _swap(execute, room, written, after=after, keep_s=keep_s, most=most, now=now_in(execute))

        return await self._database.transaction(work)

    async def aclose(self) -> None:
        self._database.close()


def _swap(
    execute: Execute, room: str, written: Mapping[str, str], *, after: int, keep_s: float, most: int, now: float
) -> RowNews:
    highest = "select coalesce(max(version), 0) from monitor_rows where room = ?"
    ((version,),) = execute(highest, (room,)).fetchall()
    after = after if after <= version else 0  # the store was emptied since
    for name, value in written.items():
        version += 1
        execute(
            "insert into monitor_rows (room, name, value, version, at_s) values (?, ?, ?, ?, ?)"
            " on conflict (room, name) do update set value = excluded.value, version = excluded.version,"
            " at_s = excluded.at_s",
            (room, name, value, version, now),
        )
    # The newest row stays: by it the versions go on.
    execute("delete from monitor_rows where room = ? and at_s < ? and version < ?", (room, now - keep_s, version))
    if written:
        execute(
            "delete from monitor_rows where room = ? and version <="
            " (select version from monitor_rows where room = ? order by version desc limit 1 offset ?)",
            (room, room, most),
        )
    rows = execute(
        "select name, value, version, at_s from monitor_rows where room = ? and version > ? order by version",
        (room, after),
    ).fetchall()
    return RowNews([SharedRow(*row) for row in rows], version, now)
