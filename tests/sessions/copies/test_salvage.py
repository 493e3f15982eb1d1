"""What is readable of a damaged session is saved into a new one."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path

import anyio
import pytest

import monitor
from monitor.errors import MonitorError, StoreError
from monitor.sessions import SessionReader, SQLiteSession, salvage
from monitor.sessions.tables.marked_folder import blobs_path
from monitor.testing import ScriptedModel
from tests.runs.driving import look
from tests.sessions.making import says, user
from tests.sessions.test_files import everything

pytestmark = pytest.mark.feature("CL-12")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A session with every kind of node and record."""
    made = tmp_path / "a.session"
    anyio.run(everything, made)
    return made


def change(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for trigger in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {trigger[0]}")
    for statement in statements:
        connection.execute(statement)
    connection.close()


def test_a_whole_session_is_saved_whole(path: Path, tmp_path: Path):
    into = tmp_path / "b.session"
    saved = salvage(path, into)
    with SessionReader(path) as old, SessionReader(into) as new:
        assert saved.whole
        assert saved.nodes == old.count()
        assert new.nodes() == old.nodes()
        assert new.heads() == old.heads()
        assert new.runs(hidden=True) == old.runs(hidden=True)
        assert new.calls() == old.calls()
        assert new.approvals() == old.approvals()
        assert [one.event for one in new.events()] == [one.event for one in old.events()]
        assert new.chunks() == old.chunks()
        assert new.verify() == ()
        assert (new.id, new.meta["forked_from"]) == (saved.id, old.id)


def test_each_single_damaged_node_costs_that_node_alone(path: Path, tmp_path: Path):
    with SessionReader(path) as old:
        ids = [node.id for node in old.nodes()]
    for seq in range(1, len(ids) + 1):
        for number, harm in enumerate(("body = 'x' || substr(body, 2)", "digest = hex(zeroblob(16))", "body = '{}'")):
            harmed, into = tmp_path / f"h{seq}-{number}.session", tmp_path / f"s{seq}-{number}.session"
            shutil.copy(path, harmed)
            shutil.copytree(blobs_path(path), blobs_path(harmed), dirs_exist_ok=True) if (
                blobs_path(path).is_dir()
            ) else None
            change(harmed, f"UPDATE monitor_nodes SET {harm} WHERE seq = {seq}")
            saved = salvage(harmed, into)
            lost = [problem.seq for problem in saved.lost if problem.seq is not None]
            with SessionReader(into) as new:
                assert new.verify() == ()
                assert [node.id for node in new.nodes()] == [id for at, id in enumerate(ids, 1) if at not in lost]
                assert lost in ([seq], [])
                new.context()


@pytest.mark.anyio
async def test_a_run_goes_on_with_what_was_saved(tmp_path: Path):
    path, into = tmp_path / "a.session", tmp_path / "b.session"
    async with SQLiteSession(path) as session:
        await session.append(*(says(text) for text in ("one", "two", "three")))
    change(path, "UPDATE monitor_nodes SET body = 'not JSON' WHERE seq = 2")
    saved = salvage(path, into)
    assert saved.lost[0].seq == 2
    async with SQLiteSession(into) as session:
        assert [said.content[0] for said in (await session.context()).messages] == [
            *user("one").content,
            *user("three").content,
        ]
        outcome = await monitor.Supervisor(ScriptedModel("Yes."), tools=[look], session=session).run("more")
        assert outcome.ok


def test_whatever_bytes_are_flipped_salvage_saves_a_whole_session_or_says_why_not(path: Path, tmp_path: Path):
    chance, content = random.Random(7), path.read_bytes()
    for number in range(40):
        harmed, into = tmp_path / f"h{number}.session", tmp_path / f"s{number}.session"
        bytes_ = bytearray(content)
        for _ in range(chance.choice((1, 3, 200))):
            bytes_[chance.randrange(100, len(bytes_))] ^= 1 << chance.randrange(8)
        harmed.write_bytes(bytes_)
        try:
            salvage(harmed, into)
        except MonitorError:
            assert not into.exists()
            continue
        with SessionReader(into) as new:
            assert new.verify() == ()


def test_a_session_is_never_salvaged_onto_another(path: Path, tmp_path: Path):
    with pytest.raises(StoreError, match="is there already"):
        salvage(path, path)
    with pytest.raises(StoreError, match="there is no session"):
        salvage(tmp_path / "none.session", tmp_path / "b.session")
