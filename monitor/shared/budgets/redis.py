"""Shared budgets in Redis or Valkey, for processes on many machines. Needs the extra `redis`."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from anyio import to_thread

from monitor.errors import BudgetUnreachable, ConfigError
from monitor.shared.budgets.base import (
    AT_ONCE,
    KEPT_S,
    LEVEL_FIELDS,
    NANO,
    NO_LIMITS,
    ROUNDS,
    Amount,
    BudgetState,
    Refused,
    Reservation,
    check_limits,
    levels,
    state_of,
)
from monitor.shared.stores import OneRedis

MOST_USD: Final = 90_000
"""In one hold. The script's JSON has 14 digits: billionths of up to 100,000 US dollars."""

_PAGE: Final = 500
"""Budgets that one question for states reads."""

_SCRIPT: Final = """
-- KEYS[1]: the prefix of one tree of budgets; all its keys lie in one slot, by the tag in it.
local prefix, op, given = KEYS[1], ARGV[1], cjson.decode(ARGV[2])
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local holds, by_key, by_time, names = prefix..':holds', prefix..':keys', prefix..':times', prefix..':names'
-- Levels that a hold has made, by the time at which each is forgotten; and how long each is kept.
local passing, keeping = prefix..':passing', prefix..':keeping'
local NEVER, AT_ONCE, ROUNDS = '+inf', tonumber(given.at_once), tonumber(given.rounds)

local function whole(number) return string.format('%.0f', number + 0) end -- + 0: no "-0"
local function row(level) return prefix..':budget:'..level end
local function add(hold, field, tokens, nano)
    for _, level in ipairs(hold.levels) do
        redis.call('HINCRBY', row(level), field..'_tokens', whole(tokens))
        redis.call('HINCRBY', row(level), field..'_nano', whole(nano))
        redis.call('SADD', names, level)
    end
end
local function remove(level)
    redis.call('DEL', row(level))
    redis.call('SREM', names, level)
    redis.call('ZREM', passing, level)
    redis.call('HDEL', keeping, level)
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
local function free()
    local late = redis.call('ZRANGEBYSCORE', by_time, '-inf', '('..string.format('%.6f', now), 'LIMIT', 0, AT_ONCE)
    for _, id in ipairs(late) do
        local hold = stored(id)
        if hold and hold.open then
            local tokens, nano = held(hold)
            add(hold, 'held', -tokens, -nano)
            redis.call('HDEL', by_key, hold.name..'\\n'..hold.key)
        end
        redis.call('HDEL', holds, id)
        redis.call('ZREM', by_time, id)
    end
    return #late > 0
end
local function short(hold, tokens, nano, limits)
    for place, level in ipairs(hold.levels) do
        local r = redis.call('HMGET', row(level), 'limit_tokens', 'limit_nano', 'spent_tokens', 'spent_nano',
            'held_tokens', 'held_nano')
        if not r[1] and not r[2] and limits and limits[place] ~= cjson.null then r[1] = limits[place] end
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
local function refused(hold, tokens, nano, limits)
    local no
    for _ = 1, ROUNDS do -- after more expired holds were freed
        no = short(hold, tokens, nano, limits)
        if not no or not free() then return no end
    end
    return no
end
local function keep(level, keep_s)
    redis.call('ZADD', passing, keep_s and string.format('%.6f', now + keep_s) or NEVER, level)
    if keep_s then redis.call('HSET', keeping, level, keep_s) end
end
local function grant(hold, lease_s, limits, keep_s)
    local tokens, nano = held(hold)
    local no = refused(hold, tokens, nano, limits)
    if no then return no end
    for place, level in ipairs(hold.levels) do
        local keeps_s = level == hold.name and keep_s
        local known = redis.call('EXISTS', row(level)) == 1
        if not known or (keeps_s and redis.call('ZSCORE', passing, level)) then keep(level, keeps_s) end
        if limits and limits[place] ~= cjson.null then
            local r = redis.call('HMGET', row(level), 'limit_tokens', 'limit_nano')
            if not r[1] and not r[2] then redis.call('HSET', row(level), 'limit_tokens', whole(limits[place])) end
        end
    end
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

local more = free()
local soon = '('..string.format('%.6f', now)
for _, level in ipairs(redis.call('ZRANGEBYSCORE', passing, '-inf', soon, 'LIMIT', 0, AT_ONCE)) do
    local r = redis.call('HMGET', row(level), 'held_tokens', 'held_nano')
    if tonumber(r[1] or 0) == 0 and tonumber(r[2] or 0) == 0 then remove(level) end
end

if op == 'limit' then
    local level = row(given.name)
    add(given, 'held', 0, 0)
    for _, name in ipairs(given.levels) do
        redis.call('ZREM', passing, name)
        redis.call('HDEL', keeping, name)
    end
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
    local hold = {id = given.id, key = given.key, name = given.name, levels = given.levels,
        granted = given.granted, used = {0, 0}, open = true}
    return grant(hold, given.lease_s, given.limits, given.keep_s ~= cjson.null and given.keep_s)
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
    local unused = given.now_used[1] == 0 and given.now_used[2] == 0
    if not hold and unused then return cjson.encode(true) end
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
    local keep_s = redis.call('HGET', keeping, hold.name)
    if keep_s then redis.call('ZADD', passing, string.format('%.6f', now + keep_s), hold.name) end
    if unused then -- it leaves no trace
        redis.call('HDEL', holds, hold.id)
        redis.call('ZREM', by_time, hold.id)
        for _, level in ipairs(hold.levels) do
            local r = redis.call('HMGET', row(level), 'spent_tokens', 'spent_nano', 'held_tokens', 'held_nano')
            local empty = redis.call('ZSCORE', passing, level)
            for place = 1, 4 do empty = empty and tonumber(r[place] or 0) == 0 end
            if empty then remove(level) end
        end
    end
    return cjson.encode(true)
elseif op == 'free' then
    return cjson.encode(more)
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
        self._server = OneRedis(url, error=BudgetUnreachable, content="budgets")
        self._client: Any = self._server.client
        self._script: Any = self._client.register_script(_SCRIPT)
        self._prefix = prefix

    async def set_limit(self, name: str, *, tokens: int | None = None, usd: float | None = None) -> None:
        whole, nano = check_limits(tokens, usd)
        await self._step("limit", name, tokens=whole, nano=nano)

    async def reserve(
        self,
        name: str,
        amount: Amount,
        *,
        key: str,
        lease_s: float,
        limits: Mapping[str, int] = NO_LIMITS,
        keep_s: float | None = None,
    ) -> Reservation | Refused:
        given = {"id": uuid.uuid4().hex, "key": key, "granted": _pair(amount), "lease_s": lease_s, "keep_s": keep_s}
        return _answer(await self._step("reserve", name, **given, limits=[*map(limits.get, levels(name))]))

    async def extend(self, hold: Reservation, more: Amount, *, used: Amount, lease_s: float) -> Reservation | Refused:
        given = {**_given(hold), "more": _pair(more), "now_used": _pair(used), "lease_s": lease_s}
        return _answer(await self._step("extend", hold.name, **given))

    async def settle(self, hold: Reservation, used: Amount) -> None:
        await self._step("settle", hold.name, **_given(hold), now_used=_pair(used), kept_s=KEPT_S)

    async def limits(self, name: str) -> Mapping[str, tuple[int | None, float | None]]:
        rows = await to_thread.run_sync(self._rows, levels(name)[0], levels(name))
        states = [state_of(level, row, 0) for level, row in rows]
        return {state.name: (state.tokens, state.usd) for state in states}

    async def states(self, name: str | None = None) -> Sequence[BudgetState]:
        roots = [levels(name)[0]] if name is not None else await to_thread.run_sync(self._roots)
        found = [one for root in roots for one in await to_thread.run_sync(self._tree, root, name)]
        return sorted(found, key=lambda one: one.name)

    async def aclose(self) -> None:
        await to_thread.run_sync(self._client.close)

    async def _step(self, op: str, name: str, **given: Any) -> Any:
        given |= {"name": name, "levels": levels(name)}
        return await to_thread.run_sync(self._run, op, levels(name)[0], given)

    def _run(self, op: str, root: str, given: dict[str, Any]) -> Any:
        given |= {"at_once": AT_ONCE, "rounds": ROUNDS}

        def step() -> Any:
            self._client.sadd(f"{self._prefix}:roots", root)
            return json.loads(self._script(keys=[self._tree_key(root)], args=[op, json.dumps(given)]))

        return self._server.asked(step)

    def _tree_key(self, root: str) -> str:
        return f"{self._prefix}:{{{root}}}"

    def _roots(self) -> Sequence[str]:
        return self._server.asked(lambda: sorted(self._client.smembers(f"{self._prefix}:roots")))

    def _tree(self, root: str, name: str | None) -> Sequence[BudgetState]:
        """The states of a tree, or of a part of it. Each question is short: the server answers
        others meanwhile.
        """
        tree = self._tree_key(root)
        while self._run("free", root, {}):
            pass
        names = self._server.asked(lambda: [*self._client.sscan_iter(f"{tree}:names", count=_PAGE)])
        kept = [one for one in names if name is None or one == name or one.startswith(f"{name}/")]
        stored = self._server.asked(lambda: dict(self._client.hscan_iter(f"{tree}:holds", count=_PAGE)))
        holds = Counter(level for hold in map(json.loads, stored.values()) if hold["open"] for level in hold["levels"])
        pages = (kept[start : start + _PAGE] for start in range(0, len(kept), _PAGE))
        return [state_of(level, row, holds[level]) for page in pages for level, row in self._rows(root, page)]

    def _rows(self, root: str, names: Sequence[str]) -> Sequence[tuple[str, Sequence[Any]]]:
        """The fields of those levels that are known."""

        def read() -> Any:
            with self._client.pipeline(transaction=False) as pipe:
                for name in names:
                    pipe.hmget(f"{self._tree_key(root)}:budget:{name}", LEVEL_FIELDS)
                return pipe.execute()

        return [(name, row) for name, row in zip(names, self._server.asked(read), strict=True) if row[-1] is not None]


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
