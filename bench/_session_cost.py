"""What a session adds to a turn of a supervised run, and the least that a durable turn can cost."""

from __future__ import annotations

import sqlite3
import tempfile
import threading
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

import anyio

import monitor
from monitor.sessions import SQLiteSession
from monitor.testing import ScriptedModel, call

RUNS: Final = 20
WAYS: Final = ("no session", "a session each", "one session, as subagents", "subagents, no session")
STEPS: Final = 2
"""The commits of a turn: before its effects, and after them."""


async def act(n: int) -> str:
    """Act."""
    return f"acted {n}"


async def cost(turns: int, rounds: int) -> list[dict[str, Any]]:
    """For each way, milliseconds of a turn, by the wall and by the processor; with the floor."""
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for number in range(rounds + 1):
        for way in WAYS:
            with tempfile.TemporaryDirectory() as folder:
                took = await _measured(way, Path(folder), turns if number else 2)
                if number:  # the first round imports what is imported at first use
                    found[way].append(took)
    rows = [_row(way, took) for way, took in found.items()]
    return [*rows, _row("raw commits, a file each", [_floor(turns) for _ in range(rounds)])]


def _row(way: str, took: list[tuple[float, float]]) -> dict[str, Any]:
    return {
        "way": way,
        "runs": RUNS,
        "ms": round(median(wall for wall, _ in took), 3),
        "cpu_ms": round(median(cpu for _, cpu in took), 3),
    }


def _script(turns: int) -> list[Any]:
    return [*([f"Turn {n}. ", call("act", n=n)] for n in range(turns - 1)), "Done."]


def _supervisor(turns: int, **options: Any) -> monitor.Supervisor:
    return monitor.Supervisor(ScriptedModel(*_script(turns)), tools=[act], detectors=None, **options)


async def _measured(way: str, folder: Path, turns: int) -> tuple[float, float]:
    async with AsyncExitStack() as stack:
        if "subagents" in way:
            path = None if way.endswith("no session") else folder / "a.session"
            session = await stack.enter_async_context(SQLiteSession(path)) if path else None
            tools = [_supervisor(turns).as_tool(name=f"agent_{number}", description="Works.") for number in range(RUNS)]
            calls = [call(f"agent_{number}", task="go") for number in range(RUNS)]
            runs = [
                monitor.Supervisor(
                    ScriptedModel(calls, "Done."),
                    tools=tools,
                    detectors=None,
                    session=session,
                    calls=monitor.runs.ToolCalls(parallel=RUNS),
                )
            ]
        else:
            sessions: list[SQLiteSession | None] = [None] * RUNS
            if way == "a session each":
                paths = [folder / f"{number}.session" for number in range(RUNS)]
                sessions = [await stack.enter_async_context(SQLiteSession(path)) for path in paths]
            runs = [_supervisor(turns, session=session) for session in sessions]
        wall, cpu = time.perf_counter(), time.process_time()
        async with anyio.create_task_group() as group:
            for run in runs:
                group.start_soon(_ended, run)
        seconds = time.perf_counter() - wall, time.process_time() - cpu
    return seconds[0] * 1000 / RUNS / turns, seconds[1] * 1000 / RUNS / turns


async def _ended(supervisor: monitor.Supervisor) -> None:
    outcome = await supervisor.run("go")
    assert outcome.ok, outcome.detail


def _floor(turns: int) -> tuple[float, float]:
    """The same number of synced commits of four small rows by SQLite alone, a thread for a file."""
    bar = threading.Barrier(RUNS + 1)

    def write(path: Path) -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL").fetchall()
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)")
        bar.wait()
        for _ in range(turns * STEPS):
            connection.execute("BEGIN IMMEDIATE")
            for _ in range(4):
                connection.execute("INSERT INTO t (b) VALUES (?)", ("x" * 150,))
            connection.execute("COMMIT")
        bar.wait()
        connection.close()

    with tempfile.TemporaryDirectory() as folder:
        threads = [threading.Thread(target=write, args=(Path(folder) / f"{n}.db",)) for n in range(RUNS)]
        for thread in threads:
            thread.start()
        bar.wait()
        wall, cpu = time.perf_counter(), time.process_time()
        bar.wait()
        seconds = time.perf_counter() - wall, time.process_time() - cpu
        for thread in threads:
            thread.join()
    return seconds[0] * 1000 / RUNS / turns, seconds[1] * 1000 / RUNS / turns
