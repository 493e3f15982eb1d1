"""The file: what is acknowledged is stored, many tasks share a sync, any changed bit is found."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from monitor.errors import StoreError
from monitor.sessions import (
    Changes,
    RunRecord,
    SessionReader,
    SQLiteSession,
    compaction,
    context_edit,
    marker,
    message,
)
from monitor.sessions.tables.marked_folder import blobs_path
from tests.sessions.making import assistant, result, says, summary, user
from tests.sessions.test_faults import Failing

pytestmark = [pytest.mark.anyio, pytest.mark.feature("AC-01")]

ROOT = Path(__file__).parents[2]


class Slow:
    """A connection whose commits wait until they are let through."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self.held = threading.Event()
        self.go = threading.Event()
        self.slow = False

    def execute(self, sql: str, parameters: Any = ()) -> Any:
        if sql == "COMMIT" and self.slow:
            self.held.set()
            assert self.go.wait(20)
        return self._connection.execute(sql, parameters)

    def close(self) -> None:
        self._connection.close()


async def slow_session(path: Path) -> tuple[SQLiteSession, Slow]:
    made: list[Slow] = []

    def connect(file: Path) -> Slow:
        made.append(Slow(file))
        return made[-1]

    session = await SQLiteSession(path, connect=connect).__aenter__()
    await session.append(says("first"))
    made[-1].slow = True
    return session, made[-1]


async def test_what_is_acknowledged_is_read_by_others_at_once(path: Path):
    async with SQLiteSession(path) as session:
        with SessionReader(path) as reader:
            for number in range(5):
                (node,) = await session.append(says(f"{number}"))
                assert reader.nodes()[-1] == node
                assert reader.context() == await session.context()
            assert (reader.id, reader.heads()) == (session.id, await session.heads())


async def test_tasks_that_write_at_once_share_a_sync(path: Path):
    async with SQLiteSession(path) as session:

        async def write(name: str) -> None:
            for _ in range(5):
                await session.append(says("a"), branch=name)

        async with anyio.create_task_group() as group:
            for number in range(40):
                group.start_soon(write, f"{number}")
        assert len(await session.nodes()) == 200
        assert session.commits < 60


async def test_a_step_that_is_refused_leaves_its_neighbours_in_the_transaction_as_they_are(path: Path):
    session, slow = await slow_session(path)
    outcomes: list[str] = []

    async def write(changes: Changes) -> None:
        try:
            await session.commit(changes)
            outcomes.append("stored")
        except StoreError:
            outcomes.append("refused")

    async with anyio.create_task_group() as group:
        group.start_soon(write, Changes(nodes=[says("holds the thread")]))
        await anyio.to_thread.run_sync(slow.held.wait)
        for number in range(10):
            drafts = [says(f"{number}"), *([message(result("no call"))] if number % 2 else [])]
            group.start_soon(write, Changes(nodes=drafts, branch=f"{number}"))
        await anyio.wait_all_tasks_blocked()
        slow.slow = False
        slow.go.set()
    assert sorted(outcomes) == ["refused"] * 5 + ["stored"] * 6
    assert session.commits == 3
    assert sorted(await session.heads()) == ["0", "2", "4", "6", "8", "active"]
    assert await session.verify() == ()
    await session.aclose()


async def test_a_scope_that_is_cancelled_during_a_commit_still_learns_what_was_stored(path: Path):
    session, slow = await slow_session(path)
    answers: list[Any] = []

    async def write() -> None:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            answers.append(await session.append(says("second")))
            await anyio.lowlevel.checkpoint()
            answers.append("went on")

    scopes: list[anyio.CancelScope] = []
    async with anyio.create_task_group() as group:
        group.start_soon(write)
        await anyio.to_thread.run_sync(slow.held.wait)
        scopes[0].cancel()
        await anyio.wait_all_tasks_blocked()
        assert answers == []
        slow.go.set()
    assert len(answers) == 1  # the answer came, then the cancellation
    assert (await session.nodes())[-1] == answers[0][0]
    await session.aclose()


@pytest.mark.parametrize("fails", [True, False])
async def test_a_task_that_is_cancelled_during_a_commit_is_told_its_fate(path: Path, anyio_backend: Any, fails: Any):
    """Asyncio's own cancellation goes through every shield: it is held up, and says what became of
    the step.
    """
    if anyio_backend == "trio":
        pytest.skip("trio has no cancellation but that of scopes")
    session, slow = await slow_session(path)
    task = asyncio.create_task(session.append(message(result("no call")) if fails else says("second")))
    await anyio.lowlevel.checkpoint()
    if not fails:
        await anyio.to_thread.run_sync(slow.held.wait)
    for _ in range(3):
        task.cancel()
        await anyio.lowlevel.checkpoint()
    slow.go.set()
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await task
    notes = getattr(cancelled.value, "__notes__", [])
    assert notes == [f"session: the step {'was not' if fails else 'is'} stored"]
    assert len(await session.nodes()) == (1 if fails else 2)
    await session.aclose()


async def test_closing_writes_what_waits(path: Path):
    session, slow = await slow_session(path)
    async with anyio.create_task_group() as group:
        group.start_soon(session.append, says("second"))
        await anyio.to_thread.run_sync(slow.held.wait)
        group.start_soon(session.append, says("third"))
        await anyio.wait_all_tasks_blocked()
        group.start_soon(session.aclose)
        await anyio.wait_all_tasks_blocked()
        slow.go.set()
    with SessionReader(path) as reader:
        assert len(reader.nodes()) == 3
    assert not [one for one in threading.enumerate() if one.name == "session a"]


async def test_a_program_that_forgets_to_close_ends_and_loses_nothing(path: Path):
    program = (
        "import anyio, sys\nfrom monitor.sessions import SQLiteSession\nfrom tests.sessions.making import says\n"
        "async def main():\n    session = await SQLiteSession(sys.argv[1]).__aenter__()\n"
        "    await session.append(says('a'))\nanyio.run(main)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], cwd=ROOT, check=True, timeout=250)
    async with SQLiteSession(path) as session:
        assert len(await session.nodes()) == 1


async def everything(path: Path) -> int:
    """A session with nodes of every kind. How many."""
    async with SQLiteSession(path) as session:
        await session.commit(Changes(runs=[RunRecord(id="r")]))
        first, *_ = await session.append(says("a", run="r", turn=1, tokens=5), says("b"))
        said, _ = await session.append(message(assistant("c", "1")), message(result("1")))
        await session.append(context_edit(first.id, user("short")), marker("m", {"x": 1}))
        await session.append(compaction(summary(said.id)), says("long " * 20_000), says("after"))
        return len(await session.nodes())


COLUMNS = ("id", "parent", "kind", "run", "turn", "at_ms", "tokens", "digest", "body")


@pytest.mark.parametrize("column", COLUMNS)
async def test_verify_finds_a_flipped_bit_in_any_field_of_any_node(path: Path, column: Any):
    count = await everything(path)
    chance = random.Random(column)
    connection = sqlite3.connect(path, isolation_level=None)
    (trigger,) = connection.execute(
        "SELECT sql FROM sqlite_schema WHERE name = 'monitor_nodes_kept_from_update'"
    ).fetchone()
    connection.execute("DROP TRIGGER monitor_nodes_kept_from_update")
    connection.execute("PRAGMA foreign_keys=OFF")
    connection.execute("PRAGMA ignore_check_constraints=1")
    with SessionReader(path) as reader:
        (open_to_change,) = reader.verify()
    assert open_to_change.what == "the tables are not those that were made: a trigger or an index was changed"
    for seq in range(1, count + 1):
        (value,) = connection.execute(f"SELECT {column} FROM monitor_nodes WHERE seq = ?", (seq,)).fetchone()
        connection.execute(f"UPDATE monitor_nodes SET {column} = ? WHERE seq = ?", (flipped(value, chance), seq))
        with SessionReader(path) as reader:
            assert {*reader.verify()} - {open_to_change}, (column, seq)
        connection.execute(f"UPDATE monitor_nodes SET {column} = ? WHERE seq = ?", (value, seq))
    connection.execute(trigger)
    connection.close()
    with SessionReader(path) as reader:
        assert reader.verify() == ()


def flipped(value: Any, chance: random.Random) -> Any:
    match value:
        case None:
            return 1
        case int():
            return value ^ (1 << chance.randrange(3))
        case bytes():
            data = bytearray(value)
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            return bytes(data)
        case str():
            data = bytearray(value.encode())
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(4)
            return data.decode("utf-8", "replace")
    raise AssertionError(value)


async def test_verify_finds_a_node_that_is_missing(path: Path):
    count = await everything(path)
    for seq in range(1, count + 1):
        copy = path.with_name(f"copy{seq}.session")
        copy.write_bytes(path.read_bytes())
        connection = sqlite3.connect(copy, isolation_level=None)
        connection.execute("DROP TRIGGER monitor_nodes_kept_from_delete")
        connection.execute("DELETE FROM monitor_nodes WHERE seq = ?", (seq,))
        connection.close()
        with SessionReader(copy) as reader:
            assert reader.verify() != ()


async def test_a_flipped_bit_anywhere_in_the_file_never_passes_for_another_message(path: Path):
    """SQLite has no sums of its own: the chain finds what its own check does not."""
    await everything(path)
    with SessionReader(path) as reader:
        whole = reader.nodes()
    data, chance = path.read_bytes(), random.Random(5)
    found = 0
    for number in range(60):
        harmed = bytearray(data)
        harmed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        copy = path.with_name(f"copy{number}.session")
        copy.write_bytes(harmed)
        for blob in blobs_path(path).iterdir():
            blobs_path(copy).mkdir(exist_ok=True)
            (blobs_path(copy) / blob.name).write_bytes(blob.read_bytes())
        try:
            with SessionReader(copy) as reader:
                problems = reader.verify()
                found += bool(problems)
                if not problems:
                    assert reader.nodes() == whole
        except StoreError:
            found += 1
    assert found


async def test_a_fault_reaches_every_task_as_an_error_of_its_own(path: Path):
    async with SQLiteSession(path) as session:
        await session.append(says("a"))

    errors: list[BaseException] = []
    session = SQLiteSession(path, connect=lambda file: Failing(file, 12, sqlite3.SQLITE_IOERR))
    async with session:

        async def write() -> None:
            with pytest.raises(StoreError) as raised:
                await session.append(says("b"))
            errors.append(raised.value)

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(write)
    assert len({id(error) for error in errors}) == 5


async def test_an_id_that_is_none_is_refused(path: Path):
    async with SQLiteSession(path) as session:
        with pytest.raises(StoreError, match="no id of a node"):
            await session.find_node("not hexadecimal")
        with pytest.raises(StoreError):
            await session.switch_node("xyz")


async def test_what_is_not_open_says_how_it_is_opened(path: Path):
    session = SQLiteSession(path)
    with pytest.raises(StoreError, match="async with"):
        await session.append(says("a"))
    await session.aclose()
    assert session.commits == 0


async def test_a_session_that_cannot_be_opened_says_why_once_and_leaves_no_thread_or_lock(path: Path):
    opened = 0

    def connect(file: Path) -> sqlite3.Connection:
        nonlocal opened
        opened += 1
        raise sqlite3.OperationalError("it failed")

    with pytest.raises(StoreError, match="it failed"):
        await SQLiteSession(path, connect=connect).__aenter__()
    assert opened == 1
    assert not [one for one in threading.enumerate() if one.name == "session a"]
    async with SQLiteSession(path) as session:
        await session.append(says("a"))
