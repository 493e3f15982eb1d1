"""A read costs what is asked for, however much else the session holds."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from monitor.chunks import TextDelta
from monitor.events import FirstChunk
from monitor.messages import CallState
from monitor.sessions import Changes, RunRecord, SQLiteSession, TurnChunks, compaction
from tests.sessions.making import call, says, summary

pytestmark = pytest.mark.anyio

LAST = "run 0"
READS: dict[str, Callable[[SQLiteSession], Awaitable[Any]]] = {
    "the newest nodes": lambda one: one.active_path(last=5),
    "the nodes of the last run": lambda one: one.active_path(run=LAST),
    "its events": lambda one: one.events(LAST),
    "its calls": lambda one: one.calls(LAST),
    "its open calls": lambda one: one.open_calls(LAST),
    "what is shown behind a compaction": lambda one: one.context(),
}


async def steps(path: Path, runs: int) -> dict[str, int]:
    """The work of each read, in tens of steps of SQLite's machine. The session has `runs` runs."""
    done = 0

    def count() -> int:
        nonlocal done
        done += 1
        return 0

    def connect(path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None, timeout=0)
        connection.set_progress_handler(count, 10)
        return connection

    found: dict[str, int] = {}
    async with SQLiteSession(path, connect=connect) as session:
        for number in reversed(range(runs)):
            run = f"run {number}"
            made = call(f"c{number}", run=run)
            nodes = [says(f"{number}", run=run) for _ in range(4)]
            happened = [FirstChunk(0.0, 1, 0.0) for _ in range(4)]
            chunks = [TurnChunks(run, 1, ((0.0, TextDelta("a")),))]
            if number == 1:
                nodes.append(compaction(summary(None), run=run))
            await session.commit(
                Changes(
                    nodes=nodes,
                    runs=[RunRecord(id=run)],
                    calls=[made, call(made.call_id, run=run, state=CallState.RUNNING, attempt=1)],
                    events=happened,
                    events_run=run,
                    chunks=chunks,
                )
            )
        for what, read in READS.items():
            done = 0
            assert await read(session)
            found[what] = done
    return found


async def test_a_read_costs_the_same_in_a_session_of_thirty_times_the_size(tmp_path: Path):
    few, many = await steps(tmp_path / "few.session", 5), await steps(tmp_path / "many.session", 150)
    assert {what: number for what, number in many.items() if number > 1.2 * few[what] + 3} == {}
