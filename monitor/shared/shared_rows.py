"""The protocol of a store of rows, by which processes tell each other what they know."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Final, Protocol

from anyio import to_thread

from monitor.errors import StoreError
from monitor.shared.stores import Execute, OneFile, OnePostgres, OneRedis, SharedDatabase, store_at


@dataclass(frozen=True, slots=True)
class SharedRow:
    """One row as its last writer left it."""

    name: str
    value: str
    version: int
    """A later write has a higher number, and no two rows of a room have the same one."""
    at_s: float
    """Seconds since 1970 at which it was written, by the clock of the store."""


@dataclass(frozen=True, slots=True)
class RowNews:
    """The rows that were written since a reader last looked, oldest first."""

    rows: Sequence[SharedRow]
    version: int
    """The highest version in the room. Look for what comes after it the next time."""
    now_s: float
    """Seconds since 1970, by the clock of the store."""


class RowStore(Protocol):
    """Keeps rows by name, in rooms that know nothing of each other. Many processes may use it."""

    async def swap(self, room: str, written: Mapping[str, str], /, *, after: int, keep_s: float, most: int) -> RowNews:
        """Write the values of rows by their names, and return all rows of the room whose version is
        above `after`, the written ones too. One atomic step.

        Rows that nobody has written for `keep_s` seconds are removed, and the oldest ones if the
        room has more than `most`. Raises `StoreError`; whether the rows were written is then not
        known.
        """
        ...

    async def aclose(self) -> None:
        """Close the connections. The rows stay."""
        ...


# --------------------------------------------------------------------------------------------------
# Shared rows in SQL: one file of SQLite, or PostgreSQL, by the same statements.

_SCHEMA: Final = (
    """create table if not exists monitor_rows (
        room text not null, name text not null, value text not null, version bigint not null,
        at_s double precision not null, primary key (room, name))""",
    "create index if not exists monitor_rows_by_version on monitor_rows (room, version)",
    "create index if not exists monitor_rows_by_time on monitor_rows (room, at_s)",
)


class SQLRows:
    """A `RowStore` whose every step is one transaction."""

    def __init__(self, database: SharedDatabase) -> None:
        self._database = database

    async def swap(self, room: str, written: Mapping[str, str], *, after: int, keep_s: float, most: int) -> RowNews:
        return await self._database.transaction(
            lambda execute, now: _swap(execute, room, written, after=after, keep_s=keep_s, most=most, now=now),
            lambda _: [f"rows {room}"],  # so a higher version is never seen before a lower one
        )

    async def aclose(self) -> None:
        self._database.close()


class SQLiteRows(SQLRows):
    """Shared rows in the file `path`, for the processes of one machine."""

    def __init__(self, path: str | PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        """`clock`: returns seconds since 1970."""
        super().__init__(OneFile(path, _SCHEMA, synchronous="normal", error=StoreError, content="rows", clock=clock))


class PostgresRows(SQLRows):
    """Shared rows in the database `conninfo`. The clock is that of the server."""

    def __init__(self, conninfo: str) -> None:
        super().__init__(OnePostgres(conninfo, _SCHEMA, error=StoreError, content="rows"))


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


# --------------------------------------------------------------------------------------------------
# Shared rows in Redis or Valkey. Needs the extra `redis`.

_SCRIPT: Final = """
-- KEYS[1]: the prefix of one room; all its keys lie in one slot, by the tag in it.
local values, versions, times, count = KEYS[1]..':values', KEYS[1]..':versions', KEYS[1]..':times', KEYS[1]..':count'
local after, keep_s, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local clock = redis.call('TIME')
local now = string.format('%.6f', tonumber(clock[1]) + tonumber(clock[2]) / 1000000)
if after > tonumber(redis.call('GET', count) or 0) then after = 0 end -- the store was emptied since
for at = 4, #ARGV, 2 do
    redis.call('HSET', values, ARGV[at], ARGV[at + 1])
    redis.call('ZADD', versions, redis.call('INCR', count), ARGV[at])
    redis.call('ZADD', times, now, ARGV[at])
end
local function remove(names)
    for _, name in ipairs(names) do
        redis.call('HDEL', values, name)
        redis.call('ZREM', versions, name)
        redis.call('ZREM', times, name)
    end
end
remove(redis.call('ZRANGEBYSCORE', times, '-inf', '('..string.format('%.6f', now - keep_s)))
remove(redis.call('ZRANGE', versions, 0, -most - 1))
for _, key in ipairs({values, versions, times, count}) do -- nothing stays when nobody looks any more
    redis.call('EXPIRE', key, math.max(1, math.ceil(keep_s)))
end
local rows = {}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', versions, '('..after, '+inf')) do
    table.insert(rows, {name, redis.call('HGET', values, name), redis.call('ZSCORE', versions, name),
        redis.call('ZSCORE', times, name)})
end
return {redis.call('GET', count) or '0', now, rows}
"""


class RedisRows:
    """Shared rows in the server at `url`. The clock is that of the server."""

    def __init__(self, url: str, *, prefix: str = "agent-monitor") -> None:
        """`prefix`: stands before all keys."""
        self._server = OneRedis(url, error=StoreError, content="rows")
        self._script: Any = self._server.client.register_script(_SCRIPT)
        self._prefix = prefix

    async def swap(self, room: str, written: Mapping[str, str], *, after: int, keep_s: float, most: int) -> RowNews:
        given = [after, keep_s, most, *(text for row in written.items() for text in row)]
        keys = [f"{self._prefix}:rows:{{{room}}}"]
        version, now, rows = await to_thread.run_sync(
            lambda: self._server.asked(lambda: self._script(keys=keys, args=given))
        )
        found = [SharedRow(name, value, int(written_as), float(at)) for name, value, written_as, at in rows]
        return RowNews(found, int(version), float(now))

    async def aclose(self) -> None:
        await to_thread.run_sync(self._server.client.close)


def rows_at(address: str) -> RowStore:
    """The store of rows at `address`, which is read as that of `budgets_at`. Raises the same."""
    store: RowStore = store_at(address, "rows", redis=RedisRows, postgres=PostgresRows, file=SQLiteRows)
    return store
