"""What holds for every store of shared budgets. A new one needs a line in `MAKERS` and nothing
else.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import psycopg
import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitor.errors import BudgetUnreachable, ConfigError
from monitor.shared import Amount, BudgetStore, PostgresBudgets, RedisBudgets, Refused, Reservation, SQLiteBudgets
from monitor.shared.budgets.base import AT_ONCE
from tests import databases

pytestmark = pytest.mark.anyio

LONG_S = 60.0
PAST_S = -1.0
"""A lease that has ended already."""


@pytest.fixture(scope="module")
def servers() -> Iterator[Callable[[str], str]]:
    """The address of a server by its name. It is started at the first use."""
    running: dict[str, str] = {}
    with ExitStack() as open_ones:

        def address(name: str) -> str:
            if name not in running:
                running[name] = open_ones.enter_context(getattr(databases, name)())
            return running[name]

        yield address


MAKERS: dict[str, Callable[[Callable[[str], str], Path], Any]] = {
    "sqlite": lambda _, folder: SQLiteBudgets(folder / "budgets.db"),
    "sqlite in memory": lambda _, __: SQLiteBudgets(":memory:"),
    "valkey": lambda servers, _: RedisBudgets(servers("valkey")),
    "postgres": lambda servers, _: PostgresBudgets(servers("postgres")),
}
STORES: tuple[type[BudgetStore], ...] = (SQLiteBudgets, RedisBudgets, PostgresBudgets)
"""What a type checker proves: each is a whole store."""


@pytest.fixture(params=list(MAKERS))
def make(request: pytest.FixtureRequest, servers: Callable[[str], str], tmp_path: Path) -> Callable[[], Any]:
    return lambda: MAKERS[request.param](servers, tmp_path)


@asynccontextmanager
async def opened(make: Callable[[], Any]) -> AsyncIterator[Any]:
    store = make()
    try:
        yield store
    finally:
        await store.aclose()


def name() -> str:
    """A name that no other test uses: the servers are shared."""
    return f"team-{uuid4().hex}"


async def state_of(store: Any, budget: str) -> tuple[Amount, Amount, int]:
    (one,) = [one for one in await store.states(budget) if one.name == budget]
    return one.spent, one.held, one.holds


async def expire(store: Any) -> None:
    """End all leases in the store, as time would."""
    if isinstance(store, RedisBudgets):
        client = store._client
        for key in client.keys("*:times"):
            for id in client.zrange(key, 0, -1):
                client.zadd(key, {id: 1})
    else:
        await store._database.transaction(lambda execute, _: execute("update monitor_holds set expires_s = 1", ()))


async def held(store: BudgetStore, budget: str, amount: Amount, key: str, lease_s: float = LONG_S) -> Reservation:
    hold = await store.reserve(budget, amount, key=key, lease_s=lease_s)
    assert isinstance(hold, Reservation)
    return hold


# --- one step after another


async def test_what_is_reserved_is_held_until_it_is_settled(make: Any):
    team = name()
    async with opened(make) as store:
        await store.set_limit(team, tokens=1000, usd=1.0)
        hold = await held(store, team, Amount(600, 0.5), "run")
        assert await state_of(store, team) == (Amount(), Amount(600, 0.5), 1)
        await store.settle(hold, Amount(250, 0.25))
        assert await state_of(store, team) == (Amount(250, 0.25), Amount(), 0)


async def test_more_than_is_left_is_refused_and_nothing_is_held(make: Any):
    team = name()
    async with opened(make) as store:
        await store.set_limit(team, tokens=1000)
        await held(store, team, Amount(700), "a")
        assert await store.reserve(team, Amount(301), key="b", lease_s=LONG_S) == Refused(team, Amount(300), 1000, None)
        assert await state_of(store, team) == (Amount(), Amount(700), 1)
        await held(store, team, Amount(300), "c")


async def test_money_is_limited_as_tokens_are(make: Any):
    team = name()
    async with opened(make) as store:
        await store.set_limit(team, usd=0.3)
        for key in "abc":
            await held(store, team, Amount(1, 0.1), key)
        refused = await store.reserve(team, Amount(1, 0.000_000_001), key="d", lease_s=LONG_S)
        assert refused == Refused(team, Amount(0, 0.0), None, 0.3)


async def test_a_hold_is_taken_from_all_levels_or_from_none(make: Any):
    top = name()
    async with opened(make) as store:
        await store.set_limit(top, tokens=100)
        await store.set_limit(f"{top}/a", tokens=1000)
        refused = await store.reserve(f"{top}/a/run", Amount(101), key="r", lease_s=LONG_S)
        assert isinstance(refused, Refused)
        assert refused.name == top
        assert all(one.held == Amount() for one in await store.states(top))
        await held(store, f"{top}/a/run", Amount(100), "r")
        assert [(one.name, one.held.tokens) for one in await store.states(top)] == [
            (top, 100),
            (f"{top}/a", 100),
            (f"{top}/a/run", 100),
        ]
        assert isinstance(await store.reserve(f"{top}/b", Amount(1), key="s", lease_s=LONG_S), Refused)


async def test_a_budget_without_a_limit_only_counts(make: Any):
    team = name()
    async with opened(make) as store:
        hold = await held(store, team, Amount(10**9, 1000.0), "run")
        await store.settle(hold, Amount(5, 0.5))
        assert await state_of(store, team) == (Amount(5, 0.5), Amount(), 0)


async def test_the_same_key_gets_the_same_hold(make: Any):
    team = name()
    async with opened(make) as store:
        first = await held(store, team, Amount(100), "run 1, turn 1")
        again = await held(store, team, Amount(100), "run 1, turn 1")
        assert again == first
        assert await state_of(store, team) == (Amount(), Amount(100), 1)


async def test_a_slice_more_is_held_and_what_was_used_is_spent(make: Any):
    team = name()
    async with opened(make) as store:
        await store.set_limit(team, tokens=1000)
        hold = await held(store, team, Amount(400), "run")
        longer = await store.extend(hold, Amount(200), used=Amount(350), lease_s=LONG_S)
        assert longer == replace(hold, granted=Amount(600), used=Amount(350))
        assert await state_of(store, team) == (Amount(350), Amount(250), 1)
        refused = await store.extend(longer, Amount(401), used=Amount(500), lease_s=LONG_S)
        assert refused == Refused(team, Amount(400), 1000, None, Amount(500))
        assert await state_of(store, team) == (Amount(500), Amount(100), 1)  # used is spent although more was refused


async def test_settling_twice_changes_nothing(make: Any):
    team = name()
    async with opened(make) as store:
        hold = await held(store, team, Amount(100), "run")
        for used in (40, 40, 90):
            await store.settle(hold, Amount(used))
        assert await state_of(store, team) == (Amount(40), Amount(), 0)


async def test_more_than_was_granted_is_spent_too(make: Any):
    team = name()
    async with opened(make) as store:
        await store.set_limit(team, tokens=100)
        hold = await held(store, team, Amount(100), "run")
        await store.settle(hold, Amount(130))
        assert await state_of(store, team) == (Amount(130), Amount(), 0)
        refused = await store.reserve(team, Amount(0), key="next", lease_s=LONG_S)
        assert refused == Refused(team, Amount(0), 100, None, Amount(130))


async def test_a_refusal_says_whether_only_what_others_hold_is_in_the_way(make: Any):
    team = name()
    async with opened(make) as store:
        await store.set_limit(team, tokens=1000, usd=1.0)
        hold = await held(store, team, Amount(900, 0.1), "other")
        await store.extend(hold, Amount(), used=Amount(300, 0.05), lease_s=LONG_S)
        refused = await store.reserve(team, Amount(200, 0.1), key="run", lease_s=LONG_S)
        assert isinstance(refused, Refused)
        assert refused.spent == Amount(300, 0.05)
        assert [refused.may_come_back(need) for need in (Amount(700), Amount(701), Amount(1, 0.96))] == [
            True,
            False,
            False,
        ]


async def test_a_hold_that_is_settled_and_goes_on_is_not_counted_twice(make: Any):
    """As after a settlement whose acknowledgement was lost."""
    team = name()
    async with opened(make) as store:
        await store.set_limit(team, tokens=1000)
        hold = await held(store, team, Amount(100), "run")
        await store.settle(hold, Amount(60))
        longer = await store.extend(hold, Amount(50), used=Amount(80), lease_s=LONG_S)
        assert isinstance(longer, Reservation)
        assert await state_of(store, team) == (Amount(80), Amount(70), 1)
        await store.settle(longer, Amount(90))
        assert await state_of(store, team) == (Amount(90), Amount(), 0)


# --- leases


async def test_the_hold_of_a_dead_process_comes_back(make: Any):
    team = name()
    async with opened(make) as store:
        await store.set_limit(team, tokens=100)
        await held(store, team, Amount(100), "dead", PAST_S)
        await held(store, team, Amount(100), "alive")
        assert await state_of(store, team) == (Amount(), Amount(100), 1)


async def test_what_an_expired_hold_had_used_before_stays_spent(make: Any):
    team = name()
    async with opened(make) as store:
        await store.set_limit(team, tokens=100)
        hold = await held(store, team, Amount(60), "dead")
        assert isinstance(await store.extend(hold, Amount(0), used=Amount(25), lease_s=PAST_S), Reservation)
        assert await state_of(store, team) == (Amount(25), Amount(), 0)


async def test_a_sleeper_that_wakes_up_counts_what_it_has_used(make: Any):
    team = name()
    async with opened(make) as store:
        hold = await held(store, team, Amount(60), "sleeper", PAST_S)
        await held(store, team, Amount(0), "other")
        for _ in range(2):
            await store.settle(hold, Amount(50))
        spent, rest, _ = await state_of(store, team)
        assert (spent, rest) == (Amount(50), Amount())


async def test_an_expired_hold_is_made_anew_if_there_is_room(make: Any):
    team = name()
    async with opened(make) as store:
        await store.set_limit(team, tokens=100)
        hold = await held(store, team, Amount(60), "sleeper", PAST_S)
        other = await held(store, team, Amount(70), "other")
        assert await store.extend(hold, Amount(10), used=Amount(20), lease_s=LONG_S) == Refused(
            team, Amount(10), 100, None, Amount(20)
        )
        await store.settle(other, Amount(0))
        late = replace(hold, used=Amount(20))  # as the store has counted it
        anew = await store.extend(late, Amount(10), used=Amount(30), lease_s=LONG_S)
        assert anew == replace(hold, granted=Amount(70), used=Amount(30))
        assert await state_of(store, team) == (Amount(30), Amount(40), 1)


async def test_more_expired_holds_than_one_step_frees_are_in_nobodys_way(make: Any):
    team = name()
    async with opened(make) as store:
        await store.set_limit(team, tokens=3 * AT_ONCE)
        async with anyio.create_task_group() as group:
            for number in range(3 * AT_ONCE):
                group.start_soon(partial(store.reserve, team, Amount(1), key=str(number), lease_s=LONG_S))
        await expire(store)
        await held(store, team, Amount(3 * AT_ONCE), "alive")
        assert await state_of(store, team) == (Amount(), Amount(3 * AT_ONCE), 1)


# --- limits that come with a hold, and levels that are forgotten


async def test_a_level_without_a_limit_gets_the_one_that_comes_with_a_hold(make: Any):
    team = name()
    async with opened(make) as store:
        await store.set_limit(f"{team}/known", tokens=500)
        for run, most in (("new", 100), ("known", 500)):
            budget = f"{team}/{run}"
            refused = await store.reserve(
                budget, Amount(most + 1), key="k", lease_s=LONG_S, limits={budget: 100, team: 10_000}
            )
            assert refused == Refused(budget, Amount(most), most, None)
            hold = await store.reserve(budget, Amount(most), key="k", lease_s=LONG_S, limits={budget: 100})
            assert isinstance(hold, Reservation)
        assert [(one.name, one.tokens) for one in await store.states(team)] == [
            (team, None),
            (f"{team}/known", 500),
            (f"{team}/new", 100),
        ]
        assert await store.limits(f"{team}/new/below") == {team: (None, None), f"{team}/new": (100, None)}


async def test_a_hold_of_which_nothing_was_used_leaves_no_level(make: Any):
    team = name()
    async with opened(make) as store:
        for key in ("bad", "as bad"):
            hold = await held(store, f"{team}/{key}/run", Amount(100), "k")
            await store.settle(hold, Amount())
            await store.settle(hold, Amount())
        assert not await store.states(team)
        await store.set_limit(f"{team}/set", tokens=5)
        good = await held(store, f"{team}/good", Amount(100), "k")
        for key in ("bad", "good", "set"):
            await store.settle(await held(store, f"{team}/{key}", Amount(1), "k 2"), Amount())
        await store.settle(good, Amount(1))
        assert [one.name for one in await store.states(team)] == [team, f"{team}/good", f"{team}/set"]


async def test_a_level_is_forgotten_after_its_last_use_and_its_spending_stays_above(make: Any):
    team = name()
    async with opened(make) as store:
        await store.set_limit(f"{team}/by hand", tokens=1_000)
        for run, keep_s in (("old", PAST_S), ("new", LONG_S), ("by hand", PAST_S), ("for ever", None)):
            budget = f"{team}/{run}"
            hold = await store.reserve(budget, Amount(10), key="k", lease_s=LONG_S, keep_s=keep_s)
            await held(store, f"{team}/other", Amount(), "k")
            assert budget in {one.name for one in await store.states(team)}, "what is held is not forgotten"
            assert isinstance(hold, Reservation)
            await store.settle(hold, Amount(7))
        states = {one.name: one.spent.tokens for one in await store.states(team)}
        assert states.pop(team) == 28
        assert states == {f"{team}/{run}": 7 for run in ("by hand", "for ever", "new")} | {f"{team}/other": 0}


async def test_a_step_in_sqlite_costs_the_same_with_10_and_with_2_000_known_runs(tmp_path: Path):
    costs: dict[int, int] = {}
    for known in (10, 2_000):
        store = SQLiteBudgets(tmp_path / f"{known}.db")
        await store.set_limit("all", tokens=10**9)
        await store.aclose()
        with closing(sqlite3.connect(store.path)) as db:  # as so many runs have left it
            runs = [f"all/key/{number}" for number in range(known)]
            db.executemany("insert into monitor_budgets (name, root, spent_tokens) values (?, 'all', 5)", zip(runs))
            db.executemany("insert into monitor_passing values (?, 'all', 86400, 9e12)", zip(runs))
            db.executemany(
                "insert into monitor_holds values (?, ?, ?, 'all', 9, 0, 5, 0, ?, 9e12)",
                [(run, run, run, number % 2) for number, run in enumerate(runs)],
            )
            db.commit()
        ticks = 0

        def tick() -> int:
            nonlocal ticks
            ticks += 1
            return 0

        def counted(execute: Any, _: float) -> None:
            execute.__self__.set_progress_handler(tick, 1)

        await store._database.transaction(counted)
        for number in range(5):
            run = f"all/key/{number}"
            hold = await store.reserve(run, Amount(9), key="new", lease_s=LONG_S, limits={run: 99}, keep_s=LONG_S)
            assert isinstance(hold, Reservation)
            longer = await store.extend(hold, Amount(9), used=Amount(8), lease_s=LONG_S)
            assert isinstance(longer, Reservation)
            await store.limits(run)
            await store.settle(longer, Amount(9))
        costs[known] = ticks
        await store.aclose()
    assert costs[10] > 1_000
    assert costs[2_000] < 1.2 * costs[10]


async def test_a_step_in_redis_asks_for_no_whole_tree(servers: Callable[[str], str]):
    client = redis.Redis.from_url(servers("valkey"), decode_responses=True)
    async with opened(lambda: RedisBudgets(servers("valkey"))) as store:
        team = name()
        for number in range(3):
            await held(store, f"{team}/{number}", Amount(1), "k")
        client.config_resetstat()
        hold = await held(store, f"{team}/1", Amount(1), "k 2")
        await store.limits(f"{team}/1")
        await store.settle(hold, Amount(1))
        asked = set(client.info("commandstats"))
    client.close()
    assert "cmdstat_hmget" in asked
    assert not asked & {f"cmdstat_{one}" for one in ("hgetall", "hvals", "hkeys", "smembers", "hscan", "sscan", "scan")}


# --- many at once


async def test_runs_side_by_side_never_get_more_than_there_is(make: Any):
    team = name()
    got: list[Reservation] = []
    async with opened(make) as one, opened(make) as two:
        await one.set_limit(team, tokens=1000)
        await two.set_limit(team, tokens=1000)

        async def ask(store: Any, key: str) -> None:
            hold = await store.reserve(team, Amount(70), key=key, lease_s=LONG_S)
            if isinstance(hold, Reservation):
                got.append(hold)

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(ask, one if number % 2 else two, str(number))
        assert one.__class__ is two.__class__
        together = isinstance(one, SQLiteBudgets) and one.path == ":memory:"  # each has a memory of its own
        assert len(got) == (20 if together else 1000 // 70)


# --- the law: what a store says is what a few lines of arithmetic say


@dataclass
class Book:
    """The same budget in plain numbers: one level below another."""

    limits: dict[str, int | None]
    spent: dict[str, int] = field(default_factory=dict)
    open: dict[str, list[Any]] = field(default_factory=dict)
    """key -> [budget, granted, used, whether its lease lasts]"""

    def at(self, level: str) -> int:
        return self.spent.get(level, 0) + self.held(level)

    def held(self, level: str) -> int:
        holds = (one for one in self.open.values() if one[0] == level or one[0].startswith(f"{level}/"))
        return sum(max(0, granted - used) for _, granted, used, _ in holds)

    def spend(self, budget: str, tokens: int) -> None:
        for level in self.levels(budget):
            self.spent[level] = self.spent.get(level, 0) + tokens

    def levels(self, budget: str) -> list[str]:
        return [level for level in self.limits if budget == level or budget.startswith(f"{level}/")]

    def fits(self, budget: str, tokens: int) -> bool:
        return all(
            limit is None or self.at(level) + tokens <= limit
            for level in self.levels(budget)
            for limit in (self.limits[level],)
        )

    def forget(self) -> None:
        self.open = {key: one for key, one in self.open.items() if one[3]}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "extend", "settle", "look"]),
        st.sampled_from(["r1", "r2", "r3"]),
        st.sampled_from(["", "/a", "/a/b"]),
        st.integers(0, 60),
        st.booleans(),
    ),
    max_size=14,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, limit=st.integers(0, 150) | st.none(), inner=st.integers(0, 150) | st.none())
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_any_order_of_steps_gives_what_arithmetic_gives(make: Any, steps: Any, limit: Any, inner: Any):
    team = name()
    book = Book({team: limit, f"{team}/a": inner, f"{team}/a/b": None})
    async with opened(make) as store:
        for level, most in book.limits.items():
            await store.set_limit(level, tokens=most)
        holds: dict[str, Reservation] = {}
        for step, key, below, tokens, lasts in steps:
            lease_s = LONG_S if lasts else PAST_S
            book.forget()
            if step == "reserve" and key not in holds:
                fits = book.fits(team + below, tokens)
                hold = await store.reserve(team + below, Amount(tokens), key=key, lease_s=lease_s)
                assert isinstance(hold, Reservation) is fits
                if isinstance(hold, Reservation):
                    holds[key] = hold
                    book.open[key] = [team + below, tokens, 0, lasts]
            elif step == "extend" and key in book.open:
                budget, granted, used, _ = book.open[key]
                book.spend(budget, tokens)
                book.open[key][2:] = [used + tokens, lasts]
                fits = book.fits(budget, 10)
                longer = await store.extend(
                    holds[key], Amount(10), used=holds[key].used + Amount(tokens), lease_s=lease_s
                )
                assert isinstance(longer, Reservation) is fits
                holds[key] = (
                    longer if isinstance(longer, Reservation) else replace(holds[key], used=Amount(used + tokens))
                )
                book.open[key][1] = max(granted, used + tokens) + 10 if fits else granted
            elif step == "settle" and key in holds:
                hold = holds.pop(key)
                await store.settle(hold, hold.used + Amount(tokens))
                book.spend(hold.name, tokens)
                book.open.pop(key, None)
            book.forget()
            states = {one.name: one for one in await store.states(team)}
            for level in book.limits:
                assert (states[level].spent.tokens, states[level].held.tokens) == (
                    book.spent.get(level, 0),
                    book.held(level),
                )


# --- what is refused, and what cannot be reached


@pytest.mark.parametrize("wrong", ["", "/", "a//b", " a", "a/ b", "a\nb", "x" * 201, 3])
async def test_what_is_no_name_is_refused(make: Any, wrong: Any):
    async with opened(make) as store:
        with pytest.raises(ConfigError, match="the name of a budget"):
            await store.reserve(wrong, Amount(1), key="k", lease_s=LONG_S)


@pytest.mark.parametrize("wrong", [{"tokens": -1}, {"tokens": 1.5}, {"usd": float("nan")}, {"usd": -0.1}])
async def test_what_is_no_amount_is_refused(make: Any, wrong: Any):
    with pytest.raises(ConfigError):
        Amount(**wrong)
    async with opened(make) as store:
        with pytest.raises(ConfigError, match="a limit"):
            await store.set_limit("a", **wrong)


async def test_a_server_that_is_not_there_is_unreachable(tmp_path: Path):
    gone: list[Any] = [
        RedisBudgets("redis://127.0.0.1:1"),
        PostgresBudgets("postgresql://127.0.0.1:1/none"),
        SQLiteBudgets(tmp_path / "no" / "such" / "folder"),
    ]
    for store in gone:
        with pytest.raises(BudgetUnreachable):
            await store.reserve("a", Amount(1), key="k", lease_s=LONG_S)
        with pytest.raises(BudgetUnreachable):
            await store.states()
        await store.aclose()


@pytest.mark.parametrize("kind", ["valkey", "postgres"])
async def test_a_connection_that_the_server_has_closed_is_made_anew(servers: Callable[[str], str], kind: str):
    """As after a restart while nothing was asked: the first step finds a dead connection."""
    address, team = servers(kind), name()
    async with opened(lambda: MAKERS[kind](servers, Path())) as store:
        await store.set_limit(team, tokens=1_000)
        hold = await held(store, team, Amount(100), "run")
        steps: list[Callable[[], Any]] = [
            lambda: store.extend(hold, Amount(), used=Amount(10), lease_s=LONG_S),
            lambda: store.reserve(team, Amount(5), key="other", lease_s=LONG_S),
            lambda: store.settle(hold, Amount(20)),
            lambda: store.states(team),
        ]
        for step in steps:
            if kind == "valkey":
                redis.Redis.from_url(address).execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            else:
                with psycopg.connect(address) as db:
                    db.execute("select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()")
            await step()
        assert await state_of(store, team) == (Amount(20), Amount(5), 1)


def test_two_processes_share_a_file(tmp_path: Path):
    """Each of four processes asks for 50 times 30 tokens of 3,000."""
    path = tmp_path / "budgets.db"

    async def ask(who: int) -> int:
        store = SQLiteBudgets(path)
        got = 0
        for number in range(50):
            hold = await store.reserve("team", Amount(30), key=f"{who} {number}", lease_s=LONG_S)
            got += isinstance(hold, Reservation)
        await store.aclose()
        return got

    async def limit() -> None:
        store = SQLiteBudgets(path)
        await store.set_limit("team", tokens=3000)
        await store.aclose()

    anyio.run(limit)
    reader, writer = os.pipe()
    children = []
    for who in range(4):
        if (child := os.fork()) == 0:
            try:
                os.write(writer, f"{anyio.run(ask, who)}\n".encode())
            finally:
                os._exit(0)
        children.append(child)
    os.close(writer)
    for child in children:
        os.waitpid(child, 0)
    with os.fdopen(reader) as told:
        assert sum(map(int, told)) == 100
