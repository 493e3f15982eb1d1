"""What holds for every store of outages. A new one needs a line in `MAKERS` and nothing else."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from monitor.errors import ConfigError, StoreError
from monitor.shared import Failure, InMemoryOutages, OutageRule, Outages, OutageStore, SQLiteOutages

pytestmark = pytest.mark.anyio

RULE = OutageRule(runs=4, probe_every_s=10.0)
FAILURE = Failure("tool search", "tool search", "503", "the index answered 503")
STORES: tuple[type[OutageStore], ...] = (InMemoryOutages, SQLiteOutages)
"""What a type checker proves: each is a whole store."""


class Time:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


MAKERS: dict[str, Callable[[Path, Time], Any]] = {
    "memory": lambda _, time: InMemoryOutages(clock=time),
    "sqlite": lambda folder, time: SQLiteOutages(folder / "outages.db", clock=time),
}


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture(params=list(MAKERS))
def store(request: pytest.FixtureRequest, tmp_path: Path, time: Time) -> Any:
    return MAKERS[request.param](tmp_path, time)


async def test_failures_side_by_side_are_told_once(store: Any):
    outages, told = Outages(store, rule=RULE), []

    async def one(number: int) -> None:
        told.append((await outages.failed([FAILURE], f"run-{number}")).finding)

    async with anyio.create_task_group() as group:
        for number in range(12):
            group.start_soon(one, number)
    (finding,) = [one for one in told if one is not None]
    assert finding.runs == RULE.runs
    (listed,) = await outages.outages()
    assert (listed.outage, listed.runs, listed.failures) == (finding.outage, 12, 12)
    await outages.aclose()


async def test_one_run_is_let_through_and_its_success_lets_all_go_on(store: Any, time: Time):
    outages = Outages(store, rule=RULE)
    for number in range(4):
        await outages.failed([FAILURE], f"run-{number}")
    assert not (await outages.ask(["tool search"], "a")).may_go
    time.now_s += 10.0
    assert [(await outages.ask(["tool search"], run)).may_go for run in ("a", "b", "a")] == [True, False, True]
    began_s = time.now_s
    time.now_s += 2.0
    (ended,) = await outages.succeeded(["tool search", "call search 1"], "a", began_s)
    assert ended.ended_s == time.now_s
    assert (await outages.ask(["tool search"], "b")) == (None, True)
    assert await outages.outages() == []
    assert await store.known() == {}
    await outages.aclose()


async def test_the_wider_thing_takes_the_failures_of_its_outage(store: Any):
    outages = Outages(store, rule=RULE)
    narrow = FAILURE._replace(subject="call search 1", what="call search")
    told = [(await outages.failed([FAILURE, narrow], f"run-{number}")).finding for number in range(9)]
    assert [one.what for one in told if one is not None] == ["tool search"]
    await outages.aclose()


async def test_what_nobody_reports_any_more_is_forgotten(store: Any, time: Time):
    outages = Outages(store, rule=RULE)
    await outages.failed([FAILURE], "a")
    time.now_s += RULE.window_s + 1.0
    await outages.failed([FAILURE._replace(subject="tool other")], "a")
    assert set(await store.known()) <= {"tool search", "tool other"}
    await outages.succeeded(["tool search", "tool other"], "a", time.now_s)
    assert await store.known() == {}
    await outages.aclose()


async def test_two_processes_count_in_one_file(tmp_path: Path, time: Time):
    one, other = (Outages(SQLiteOutages(tmp_path / "outages.db", clock=time), rule=RULE) for _ in range(2))
    told = [(await (one, other)[number % 2].failed([FAILURE], f"run-{number}")).finding for number in range(4)]
    assert [finding is not None for finding in told] == [False, False, False, True]
    assert not (await one.ask(["tool search"], "a")).may_go
    assert not (await other.ask(["tool search"], "b")).may_go
    time.now_s += 10.0
    assert (await one.ask(["tool search"], "a")).may_go
    time.now_s += 2.0
    assert not (await other.ask(["tool search"], "b")).may_go
    await one.succeeded(["tool search"], "a", time.now_s - 1.0)
    time.now_s += 1.0
    assert (await other.ask(["tool search"], "b")).may_go
    await one.aclose()
    await other.aclose()


async def test_a_file_that_is_no_database_is_a_store_error(tmp_path: Path):
    (tmp_path / "outages.db").write_text("no database, and long enough to be read as one" * 100)
    outages = Outages(SQLiteOutages(tmp_path / "outages.db"))
    with pytest.raises(StoreError, match="cannot be used"):
        await outages.failed([FAILURE], "a")


async def test_a_file_of_another_process_is_read_by_any_sqlite(tmp_path: Path):
    outages = Outages(SQLiteOutages(tmp_path / "outages.db"), rule=RULE)
    await outages.failed([FAILURE], "a")
    await outages.aclose()
    with sqlite3.connect(tmp_path / "outages.db") as db:
        rows = db.execute("select subject, is_open from monitor_outages").fetchall()
    db.close()
    assert rows == [("tool search", 0)]


@pytest.mark.parametrize("wrong", [{"store": "outages.db"}, {"rule": 8}, {"hold_s": 0}, {"hold_s": "long"}])
def test_what_is_no_option_is_refused(wrong: dict[str, Any]):
    with pytest.raises(ConfigError):
        Outages(**wrong)
