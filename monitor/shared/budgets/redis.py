"""Shared budgets in Redis or Valkey, for processes on many machines. Needs the extra `redis`."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from anyio import to_thread

from monitor.errors import BudgetUnreachable, ConfigError, MissingExtra
from monitor.shared.budgets.base import (
    ANSWER_S,
    KEPT_S,
    NANO,
    Amount,
    BudgetState,
    Refused,
    Reservation,
    check_limits,
    levels,
)

T = TypeVar("T")

MOST_USD: Final = 90_000
"""In one hold. The script's JSON has 14 digits: billionths of up to 100,000 US dollars."""

_SCRIPT: Final = """
-- KEYS[1]: the prefix of one tree of budgets; all its keys lie in one slot, by the tag in it.
local prefix, op, given = KEYS[1], ARGV[1], cjson.decode(ARGV[2])
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local holds, by_key, by_time, names = prefix..':holds', prefix..':keys', prefix..':times', prefix..':names'

local function whole(number) return string.format('%.0f', number + 0) end -- + 0: no "-0"
local function row(level) return prefix..':budget:'..level end
local function add(hold, field, tokens, nano)
    for _, level in ipairs(hold.levels) do
        redis.call('HINCRBY', row(level), field..'_tokens', whole(tokens))
        redis.call('HINCRBY', row(level), field..'_nano', whole(nano))
    end
end
local function held(hold)
    return math.max(0, hold.granted[1] - hold.used[1]), math.max(0, hold.granted[2] - hold.used[2])
end
local function raised(granted, used, more)
    return {math.max(granted[1], used[1]) + more[1], math.max(granted[2], used[2]) + more[2]}
end
local function stored(id)
    local text = redis.call('HGET', holds, id)
    return text and cjson.decode(text)
end
local function store(hold, until_s)
    redis.call('HSET', holds, hold.id, cjson.encode(hold))
    redis.call('ZADD', by_time, string.format('%.6f', until_s), hold.id)
end
local function refused(hold, tokens, nano)
    for _, level in ipairs(hold.levels) do
        local r = redis.call('HMGET', row(level), 'limit_tokens', 'limit_nano', 'spent_tokens', 'spent_nano',
            'held_tokens', 'held_nano')
        local left = r[1] and r[1] - (r[3] or 0) - (r[5] or 0)
        local left_nano = r[2] and r[2] - (r[4] or 0) - (r[6] or 0)
        if (left and tokens > left) or (left_nano and nano > left_nano) then
            return cjson.encode({refused = level,
                left = math.max(0, left or 0), left_nano = math.max(0, left_nano or 0),
                spent = {tonumber(r[3] or 0), tonumber(r[4] or 0)},
                tokens = r[1] and tonumber(r[1]) or cjson.null, nano = r[2] and tonumber(r[2]) or cjson.null})
        end
    end
end
local function grant(hold, lease_s)
    local tokens, nano = held(hold)
    local no = refused(hold, tokens, nano)
    if no then return no end
    add(hold, 'held', tokens, nano)
    store(hold, now + lease_s)
    redis.call('HSET', by_key, hold.name..'\\n'..hold.key, hold.id)
    return cjson.encode(hold)
end
local function use(hold, used)
    local tokens, nano = held(hold)
    add(hold, 'spent', used[1] - hold.used[1], used[2] - hold.used[2])
    hold.used = used
    local left, left_nano = held(hold)
    add(hold, 'held', left - tokens, left_nano - nano)
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', by_time, '-inf', '('..string.format('%.6f', now))) do
    local hold = stored(id)
    if hold and hold.open then
        local tokens, nano = held(hold)
        add(hold, 'held', -tokens, -nano)
        redis.call('HDEL', by_key, hold.name..'\\n'..hold.key)
    end
    redis.call('HDEL', holds, id)
    redis.call('ZREM', by_time, id)
end
for _, level in ipairs(given.levels or {}) do redis.call('SADD', names, level) end

if op == 'limit' then
    local level = row(given.name)
    redis.call('HDEL', level, 'limit_tokens', 'limit_nano')
    if given.tokens ~= cjson.null then redis.call('HSET', level, 'limit_tokens', whole(given.tokens)) end
    if given.nano ~= cjson.null then redis.call('HSET', level, 'limit_nano', whole(given.nano)) end
    return cjson.encode(true)
elseif op == 'reserve' then
    local id = redis.call('HGET', by_key, given.name..'\\n'..given.key)
    local known = id and stored(id)
    if known then
        store(known, now + given.lease_s)
        return cjson.encode(known)
    end
    given.used, given.open = {0, 0}, true
    local lease_s = given.lease_s
    given.lease_s = nil
    return grant(given, lease_s)
elseif op == 'extend' then
    local hold = stored(given.id)
    if not (hold and hold.open) then -- it had expired, or was settled
        given.used = hold and hold.used or given.used
        hold = {id = given.id, key = given.key, name = given.name, levels = given.levels, open = true}
        add(hold, 'spent', given.now_used[1] - given.used[1], given.now_used[2] - given.used[2])
        hold.used = given.now_used
        hold.granted = raised(given.granted, hold.used, given.more)
        return grant(hold, given.lease_s)
    end
    use(hold, given.now_used)
    store(hold, now + given.lease_s)
    local no = refused(hold, given.more[1], given.more[2])
    if no then return no end
    add(hold, 'held', given.more[1], given.more[2])
    hold.granted = raised(hold.granted, hold.used, given.more)
    store(hold, now + given.lease_s)
    return cjson.encode(hold)
elseif op == 'settle' then
    local hold = stored(given.id)
    if hold and not hold.open then return cjson.encode(true) end
    if not hold then
        hold = {id = given.id, key = given.key, name = given.name, levels = given.levels,
            granted = given.granted, used = given.now_used}
        add(hold, 'spent', given.now_used[1] - given.used[1], given.now_used[2] - given.used[2])
    else
        use(hold, given.now_used)
        local tokens, nano = held(hold)
        add(hold, 'held', -tokens, -nano)
        redis.call('HDEL', by_key, hold.name..'\\n'..hold.key)
    end
    hold.open = false
    store(hold, now + given.kept_s)
    return cjson.encode(true)
elseif op == 'states' then
    local open = {}
    for _, text in ipairs(redis.call('HVALS', holds)) do
        local hold = cjson.decode(text)
        if hold.open then for _, level in ipairs(hold.levels) do open[level] = (open[level] or 0) + 1 end end
    end
    local found = {}
    for _, level in ipairs(redis.call('SMEMBERS', names)) do
        local r = redis.call('HMGET', row(level), 'limit_tokens', 'limit_nano', 'spent_tokens', 'spent_nano',
            'held_tokens', 'held_nano')
        found[#found + 1] = {level, r, open[level] or 0}
    end
    return cjson.encode(found)
end
"""


class RedisBudgets:
    """Shared budgets in the server at `url`, e.g. `"redis://localhost:6379/0"`. The clock is that
    of the server. Each step is one script, which the server runs alone.

    The server must keep what it has acknowledged (`appendonly yes`, `appendfsync always`), or a
    crash of it forgets what was spent.
    """

    def __init__(self, url: str, *, prefix: str = "agent-monitor") -> None:
        """`prefix`: stands before all keys."""
        try:
            import redis  # noqa: PLC0415 - only who has Redis needs it
        except ImportError:
            raise MissingExtra("redis", "redis") from None
        self._error = redis.RedisError
        self._broken = redis.ConnectionError
        self._client: Any = redis.Redis.from_url(
            url, decode_responses=True, socket_timeout=ANSWER_S, socket_connect_timeout=ANSWER_S, retry=None
        )
        self._script: Any = self._client.register_script(_SCRIPT)
        self._prefix = prefix

    async def set_limit(self, name: str, *, tokens: int | None = None, usd: float | None = None) -> None:
        whole, nano = check_limits(tokens, usd)
        await self._step("limit", name, tokens=whole, nano=nano)

    async def reserve(self, name: str, amount: Amount, *, key: str, lease_s: float) -> Reservation | Refused:
        granted = _pair(amount)
        return _answer(
            await self._step("reserve", name, id=uuid.uuid4().hex, key=key, granted=granted, lease_s=lease_s)
        )

    async def extend(self, hold: Reservation, more: Amount, *, used: Amount, lease_s: float) -> Reservation | Refused:
        given = {**_given(hold), "more": _pair(more), "now_used": _pair(used), "lease_s": lease_s}
        return _answer(await self._step("extend", hold.name, **given))

    async def settle(self, hold: Reservation, used: Amount) -> None:
        await self._step("settle", hold.name, **_given(hold), now_used=_pair(used), kept_s=KEPT_S)

    async def states(self, name: str | None = None) -> Sequence[BudgetState]:
        roots = [levels(name)[0]] if name is not None else await to_thread.run_sync(self._roots)
        found = [_state(row) for root in roots for row in await self._step("states", root, adds=False)]
        kept = (one for one in found if name is None or one.name == name or one.name.startswith(f"{name}/"))
        return sorted(kept, key=lambda one: one.name)

    async def aclose(self) -> None:
        await to_thread.run_sync(self._client.close)

    async def _step(self, op: str, name: str, *, adds: bool = True, **given: Any) -> Any:
        given |= {"name": name, "levels": levels(name) if adds else ()}
        return await to_thread.run_sync(self._run, op, levels(name)[0], given)

    def _run(self, op: str, root: str, given: dict[str, Any]) -> Any:
        def step() -> Any:
            if given["levels"]:
                self._client.sadd(f"{self._prefix}:roots", root)
            return json.loads(self._script(keys=[f"{self._prefix}:{{{root}}}"], args=[op, json.dumps(given)]))

        return self._asked(step)

    def _roots(self) -> Sequence[str]:
        return self._asked(lambda: sorted(self._client.smembers(f"{self._prefix}:roots")))

    def _asked(self, step: Callable[[], T]) -> T:
        """Do `step`, a second time on a fresh connection if the first one breaks."""
        try:
            try:
                return step()
            except self._broken:
                self._client.connection_pool.disconnect()
                return step()
        except self._error as error:
            raise BudgetUnreachable(f"the budgets in Redis cannot be used: {error}") from error


def _pair(amount: Amount) -> tuple[int, int]:
    if amount.usd > MOST_USD:
        raise ConfigError(f"one hold in Redis is at most {MOST_USD:,} USD, not {amount.usd:,.2f}")
    return amount.tokens, amount.nano_usd


def _amount(pair: Sequence[float]) -> Amount:
    return Amount(int(pair[0]), pair[1] / NANO)


def _given(hold: Reservation) -> dict[str, Any]:
    return {"id": hold.id, "key": hold.key, "granted": _pair(hold.granted), "used": _pair(hold.used)}


def _answer(said: dict[str, Any]) -> Reservation | Refused:
    if "refused" in said:
        tokens, nano = said["tokens"], said["nano"]
        return Refused(
            said["refused"],
            Amount(int(said["left"]), said["left_nano"] / NANO),
            None if tokens is None else int(tokens),
            None if nano is None else nano / NANO,
            _amount(said["spent"]),
        )
    return Reservation(
        id=said["id"],
        key=said["key"],
        name=said["name"],
        granted=_amount(said["granted"]),
        used=_amount(said["used"]),
    )


def _state(row: Any) -> BudgetState:
    name, (tokens, nano, spent, spent_nano, held, held_nano), holds = row
    return BudgetState(
        name=name,
        tokens=int(tokens) if tokens else None,
        usd=int(nano) / NANO if nano else None,
        spent=Amount(int(spent or 0), int(spent_nano or 0) / NANO),
        held=Amount(int(held or 0), int(held_nano or 0) / NANO),
        holds=int(holds),
    )
