"""The heartbeats of workers, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests import databases

pytest.importorskip("sqlalchemy")

import sqlalchemy

from monitor.integrations._fleet_runs import Heartbeats, engine_at, keep_alive

pytestmark = pytest.mark.asyncio
LONG_S = 3_600.0


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with databases.postgres() as address:
        yield address


@pytest.fixture(params=["sqlite", "postgresql"])
def beats(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Heartbeats]:
    sqlite = f"sqlite:///{tmp_path / 'fleet.db'}"
    made = Heartbeats(engine_at(sqlite if request.param == "sqlite" else request.getfixturevalue("server")))
    made._run("delete from monitor_workers")
    yield made
    made._engine.dispose()


def let_silent(beats: Heartbeats, worker: str) -> None:
    """As if the worker had been silent for two hours."""
    beats._run("update monitor_workers set beat_s = beat_s - 7200 where name = :worker", worker=worker)


async def test_a_worker_is_silent_when_its_last_heartbeat_is_too_old(beats: Heartbeats):
    for worker in ("dead", "alive"):
        beats.beat(worker)
    assert beats.silent(LONG_S) == []
    let_silent(beats, "dead")
    assert beats.silent(LONG_S) == ["dead"]
    beats.forget("alive", LONG_S)
    beats.beat("dead")
    assert beats.silent(LONG_S) == []
    let_silent(beats, "dead")
    beats.forget("dead", LONG_S)
    assert [name for (name,) in beats._run("select name from monitor_workers")] == ["alive"]


async def test_a_worker_that_has_left_is_silent_at_once(beats: Heartbeats):
    beats.beat("left")
    beats.end("left")
    assert beats.silent(LONG_S) == ["left"]


async def test_the_runs_of_silent_workers_are_recovered_and_the_empty_ones_forgotten(
    beats: Heartbeats, monkeypatch: pytest.MonkeyPatch
):
    runs = {"dead": 2, "empty": 0, "alive": 1, "me": 1}
    asked: list[str] = []
    for worker in runs:
        beats.beat(worker)
    for worker in ("dead", "empty"):
        let_silent(beats, worker)
    done = anyio.Event()

    def recover(worker: str) -> bool:
        asked.append(worker)
        left, runs[worker] = runs[worker], 0
        if asked.count("dead") > 1:
            anyio.from_thread.run_sync(done.set)
        return bool(left)

    async with anyio.create_task_group() as group:
        with anyio.fail_after(60):
            silent = beats.silent
            monkeypatch.setattr(beats, "silent", lambda _: silent(LONG_S))  # an hour, but looked at all the time
            group.start_soon(keep_alive, beats, "me", 0.01, recover)
            await done.wait()
        group.cancel_scope.cancel()
    assert set(asked) == {"dead", "empty"}
    assert asked.count("empty") == 1
    assert silent(LONG_S) == []


async def test_a_database_that_is_away_for_a_while_is_asked_again(
    beats: Heartbeats, caplog: Any, monkeypatch: pytest.MonkeyPatch
):
    failed, done = [0], anyio.Event()

    def beat(_: str) -> None:
        failed[0] += 1
        if failed[0] == 1:
            raise sqlalchemy.exc.OperationalError("select", {}, Exception("it is restarted"))
        anyio.from_thread.run_sync(done.set)

    monkeypatch.setattr(beats, "beat", beat)
    async with anyio.create_task_group() as group:
        with anyio.fail_after(60):
            group.start_soon(keep_alive, beats, "me", 0.01, lambda _: False)
            await done.wait()
        group.cancel_scope.cancel()
    assert "the heartbeat of the worker me failed" in caplog.text
