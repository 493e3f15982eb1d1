"""Texts and old events are removed from the inside of a session, and the rest is as it was."""

from __future__ import annotations

import json
import time
from pathlib import Path

import anyio
import pytest
from typer.testing import CliRunner

import monitor
from monitor.cli.app import app
from monitor.errors import ConfigError, SessionBusy
from monitor.sessions import SessionReader, SQLiteSession, exported, trim
from monitor.sessions.copies.json_lines import ERASED
from monitor.sessions.tables.marked_folder import blobs_path
from monitor.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio
SECRET = "hunter2"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.session"


def read(file: str) -> str:
    """Read a file."""
    return f"{SECRET} " + "ab" * 40_000


async def fill(path: Path) -> None:
    """Two runs that have ended; a long result has a secret."""
    async with SQLiteSession(path, chunks=True) as session:
        for task in (f"the password is {SECRET}", "and again"):
            model = ScriptedModel(["I read. ", call("read", file=f"{SECRET}.txt")], f"It is {SECRET}.")
            supervisor = monitor.Supervisor(
                model, tools=[read], session=session, results=monitor.runs.Results(bound=None)
            )
            assert (await supervisor.run(task)).ok


def everything(path: Path) -> bytes:
    """The bytes of the session and of its long texts."""
    return b"".join(one.read_bytes() for one in [path, *blobs_path(path).iterdir()])


async def test_an_erased_text_stands_nowhere_any_more_and_the_session_goes_on(path: Path):
    await fill(path)
    with SessionReader(path) as session:
        id, nodes, events = session.id, session.nodes(), len(session.events())
    done = await trim(path, erase=[SECRET])
    assert done.erased > 6
    assert SECRET.encode() not in everything(path)
    with SessionReader(path) as session:
        assert session.verify() == ()
        assert session.id == id
        assert [one.id for one in session.nodes()] == [one.id for one in nodes]
        assert (len(session.events()), session.chunks()) == (events, ())
        assert ERASED in session.nodes()[0].body
    async with SQLiteSession(path) as session:
        outcome = await monitor.Supervisor(ScriptedModel("Yes."), session=session).run("more")
        assert outcome.ok
        assert await session.verify() == ()


async def test_events_of_old_runs_go_and_their_conversation_stays(path: Path):
    await fill(path)
    with SessionReader(path) as session:
        lines, events = [*exported(session)], len(session.events())
    assert (await trim(path, events_before_s=0.0)).events == 0
    with SessionReader(path) as session:
        assert [*exported(session)] == lines
    done = await trim(path, events_before_s=time.time() + 1)
    assert done.events == events
    assert done.pieces > 0
    assert done.bytes_after < done.bytes_before
    with SessionReader(path) as session:
        assert (session.events(), session.verify(), len(session.runs())) == ((), (), 2)
        assert len(session.context().messages) == 6


async def test_a_session_in_use_is_refused_and_so_is_nothing_to_do(path: Path):
    await fill(path)
    async with SQLiteSession(path):
        with pytest.raises(SessionBusy):
            await trim(path, erase=["x"])
    for nothing in ({}, {"erase": [""]}):
        with pytest.raises(ConfigError):
            await trim(path, **nothing)  # type: ignore[arg-type]
    assert sorted(one.name for one in path.parent.iterdir()) == ["a.session", "a.session.blobs", "a.session.lock"]


def test_the_command_does_the_same(path: Path):
    anyio.run(fill, path)
    told = CliRunner().invoke(app, ["sessions", "trim", str(path), "--erase", SECRET, "--json"])
    assert told.exit_code == 0, told.output
    done = json.loads(told.output)
    assert done["erased"] > 6
    assert done["events"] == 0
    assert SECRET.encode() not in everything(path)
    old = CliRunner().invoke(app, ["sessions", "trim", str(path), "--events-older-than", "30"])
    assert old.output.startswith("0 events and 0 rows with pieces of answers removed")
    assert CliRunner().invoke(app, ["sessions", "trim", str(path)]).exit_code == 2
