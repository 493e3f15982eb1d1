"""The digests of the tables: every change shows, and a lost log is said."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import monitor
from monitor.errors import SessionDamaged, StoreError
from monitor.sessions import InMemorySession, SessionReader, SQLiteSession, exported, fork, salvage
from monitor.sessions.tables.marked_folder import blobs_path
from monitor.sessions.tables.seal import SEALED, row_digest
from monitor.testing import ScriptedModel, call
from monitor.tools import PendingApprovals
from tests.examples import every_second
from tests.runs.driving import look

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.session"


async def run_in(session: Any, *, waits: bool = True) -> None:
    """A run with a nested run, a long result and a call that waits for an approval."""

    @monitor.tool(needs_approval=True)
    def pay(n: int) -> str:
        """Pay."""
        return f"paid {n}"

    def read() -> str:
        """Read something long."""
        return "ab" * 40_000

    inner = monitor.Supervisor(ScriptedModel(call("look", q="x"), "Found."), tools=[look])
    ends = [call("pay", n=1)] if waits else ["All is done."]
    supervisor = monitor.Supervisor(
        ScriptedModel([call("look", q="a"), call("sub", task="deep")], call("read"), *ends),
        tools=[look, read, pay, inner.as_tool(name="sub", description="Dig.")],
        calls=monitor.runs.ToolCalls(approver=PendingApprovals()),
        results=monitor.runs.Results(bound=None),
        session=session,
    )
    await supervisor.run("do it")


async def test_every_table_has_its_digest_and_none_differs(path: Path):
    async with SQLiteSession(path, chunks=True) as session:
        await run_in(session)
        await run_in(session, waits=False)  # it closes the run that waits
        await session.switch_node(None)
        await session.switch_node((await session.nodes())[0].id, branch="other")
        assert await session.verify() == ()
    with sqlite3.connect(path) as connection:
        filled = {table for table, rows in SEALED.items() if connection.execute(rows, (1,)).fetchone() is not None}
    connection.close()
    assert filled == SEALED.keys()
    memory = InMemorySession(chunks=True)
    await run_in(memory)
    assert await memory.verify() == ()


async def test_no_flipped_bit_gives_other_data_in_silence(path: Path, anyio_backend_name: str):
    async with SQLiteSession(path, chunks=True) as session:
        await run_in(session)
    with SessionReader(path) as reader:
        whole = [*exported(reader)]
    data, chance = path.read_bytes(), random.Random(7)
    copy = path.with_name("copy.session")
    shutil.copytree(blobs_path(path), blobs_path(copy))
    flips = [(chance.randrange(len(data)), 1 << chance.randrange(8)) for _ in range(100)]
    for place, bit in every_second(flips, odd=anyio_backend_name == "trio"):
        harmed = bytearray(data)
        harmed[place] ^= bit
        copy.write_bytes(harmed)
        try:
            with SessionReader(copy) as reader:
                assert reader.verify() or [*exported(reader)] == whole
        except StoreError:
            pass  # it is said when the session is opened


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE monitor_calls SET state = 'intended' WHERE number = 1",
        "UPDATE monitor_runs SET state = 'ended'",
        "UPDATE monitor_heads SET node = (SELECT id FROM monitor_nodes)",
        "UPDATE monitor_approvals SET answer = request",
        "UPDATE monitor_sessions SET created_ms = 1",
        "DELETE FROM monitor_approvals",
        "UPDATE monitor_sessions SET seal = NULL",
        "UPDATE monitor_sessions SET seal = '{}'",
        "DROP INDEX monitor_nodes_by_run",
    ],
)
async def test_a_change_by_another_program_shows(path: Path, change: str):
    async with SQLiteSession(path) as session:
        await run_in(session)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(change)
    connection.close()
    with SessionReader(path) as reader:
        assert reader.verify() != ()


async def test_a_lost_log_is_said_when_the_session_is_opened_and_what_is_left_is_saved(path: Path):
    copy, part = path.with_name("copy.session"), path.with_name("part.session")
    async with SQLiteSession(path) as session:
        await run_in(session, waits=False)
        copy.write_bytes(path.read_bytes())  # what cp makes of an open session
        fork(path, part)
    with pytest.raises(SessionDamaged, match=r"in use, and its log copy\.session-wal is not there"):
        SessionReader(copy)
    with pytest.raises(SessionDamaged, match="agent-monitor sessions salvage"):
        await SQLiteSession(copy).__aenter__()
    with SessionReader(path) as reader, SessionReader(part) as forked:
        assert reader.verify() == forked.verify() == ()
        assert reader.meta["in_use"] == 0
        assert forked.meta["in_use"] == 0
    saved = salvage(copy, path.with_name("saved.session"))
    assert any("its log" in one.what for one in saved.lost)


async def test_a_session_whose_owner_died_is_not_complained_of(path: Path):
    session = SQLiteSession(path)
    await session.__aenter__()
    await run_in(session, waits=False)
    for name in (path, path.with_name(f"{path.name}-wal")):
        shutil.copy(name, name.with_name(name.name.replace("a.session", "died.session")))
    shutil.copytree(blobs_path(path), blobs_path(path.with_name("died.session")))
    await session.aclose()
    async with SQLiteSession(path.with_name("died.session")) as other:
        assert await other.verify() == ()  # it only looks
    async with SQLiteSession(path.with_name("died.session")) as other:
        await run_in(other, waits=False)
        assert await other.verify() == ()


def test_a_digest_tells_the_values_and_their_kinds_apart():
    rows: list[tuple[Any, ...]] = [
        ("a", "bc"), ("ab", "c"), ("ab", b"c"), ("1", None), (1, None), (None, 1), (None, ""), (None, b""),
    ]  # fmt: skip
    assert len({row_digest("call", row) for row in rows}) == len(rows)
    assert row_digest("call", rows[0]) != row_digest("run", rows[0])
