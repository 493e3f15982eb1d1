"""Shared rows in Redis or Valkey. Needs the extra `redis`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from anyio import to_thread

from monitor.errors import StoreError
from monitor.shared.one_redis import OneRedis
from monitor.shared.rows.base import RowNews, SharedRow

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
