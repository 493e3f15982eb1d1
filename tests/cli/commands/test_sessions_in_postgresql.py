"""The commands read, write and remove sessions in PostgreSQL, by their addresses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest
from typer.testing import CliRunner

from monitor.cli.app import app
from monitor.sessions import Changes, PostgresSession, RunRecord
from tests import databases
from tests.sessions.making import call, request, says


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with databases.postgres() as address:
        yield address


@pytest.fixture
def address(server: str) -> str:
    return f"{server}#{uuid4().hex}"


def said(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == code, done.output
    return done.output


def fill(session: Any) -> str:
    async def filled() -> str:
        async with session:
            step = Changes(
                nodes=[says("Why is the sky blue?", run="r", turn=1)],
                runs=[RunRecord(id="r")],
                calls=[call("c")],
                requests=[request("q")],
            )
            await session.commit(step)
            return str(session.id)

    return anyio.run(filled)


def stored(address: str) -> PostgresSession:
    where, _, name = address.partition("#")
    return PostgresSession(where, name)


def test_a_session_is_listed_shown_verified_and_removed(server: str, address: str):
    id, name = fill(stored(address)), address.partition("#")[2]
    (row,) = map(json.loads, said("sessions", "list", "--database", server, "--json").splitlines())
    assert (row["name"], row["id"], row["nodes"], row["owner"]) == (name, id, 1, None)
    assert row["title"] == "user: Why is the sky blue?"
    assert name[:8] in said("sessions", "list", "--database", server)
    shown = json.loads(said("sessions", "show", address, "--json"))
    assert (shown["id"], shown["nodes"], len(shown["open_calls"])) == (id, 1, 1)
    assert "Why is the sky blue?" in said("sessions", "tree", address)
    assert "as written" in said("sessions", "verify", address)
    assert "would be removed" in said("sessions", "rm", address, "--dry-run")
    assert "1 session removed" in said("sessions", "rm", address)
    assert "there is no session" in said("sessions", "show", address, code=2)


def test_sessions_in_a_database_are_removed_by_age(server: str, address: str):
    fill(stored(address))
    assert "0 sessions removed" in said("sessions", "rm", "--database", server, "--older-than", "1")
    assert address.partition("#")[2] in said("sessions", "rm", "--database", server, "--over", "0", "--dry-run")
    assert "name the sessions" in said("sessions", "rm", "--database", server, code=2)
    assert "by its address" in said("sessions", "rm", "work", "--database", server, code=2)
    said("sessions", "rm", address)


def test_a_session_in_use_is_read_and_not_removed(server: str, address: str):
    async def in_use() -> None:
        async with stored(address) as session:
            await session.append(says("a"))
            (row,) = json.loads(f"[{said('sessions', 'list', '--database', server, '--json')}]")
            assert row["owner"].startswith("process ")
            assert "in use by process" in said("sessions", "rm", address, code=2)
            assert len(await session.nodes()) == 1

    anyio.run(in_use)
    said("sessions", "rm", address)


def test_a_session_is_exported_as_from_a_file_and_imported_into_one(address: str, tmp_path: Path):
    fill(stored(address))
    lines = said("sessions", "export", address)
    (tmp_path / "a.jsonl").write_text(lines)
    said("sessions", "import", str(tmp_path / "a.jsonl"), "--name", "a", "--folder", str(tmp_path))
    assert said("sessions", "export", str(tmp_path / "a.session")) == lines
    said("sessions", "rm", address)


def test_a_session_is_copied_forked_searched_and_trimmed_there(server: str, address: str, tmp_path: Path):
    fill(stored(address))
    name = address.partition("#")[2]
    lines = tmp_path / "a.jsonl"
    assert "copied to" in said("sessions", "copy", address, "back", "--folder", str(tmp_path))
    assert "already" in said("sessions", "copy", str(tmp_path / "back.session"), address, code=2)
    assert json.loads(said("sessions", "fork", address, "--json"))["name"] == f"{name}-2"
    assert "as written" in said("sessions", "verify", address, f"{address}-2", str(tmp_path / "back.session"))

    def found() -> set[str]:
        lines = said("sessions", "find", "SKY", "--database", server, "--json").splitlines()
        return {json.loads(line)["path"].partition("#")[2] for line in lines}

    assert found() == {name, f"{name}-2"}
    assert "a text erased in 1 rows" in said("sessions", "trim", address, "--erase", "sky")
    assert found() == {f"{name}-2"}
    lines.write_text(said("sessions", "export", f"{address}-2"))
    assert "already" in said("sessions", "import", str(lines), "--database", server, "--name", "new", code=2)
    assert "there is no session" in said("sessions", "rm", f"{address}-2", f"{address}-9", code=2)
    said("sessions", "rm", f"{address}-2")
    said("sessions", "import", str(lines), "--database", server, "--name", "new")
    assert said("sessions", "export", f"{server}#new") == lines.read_text()
    assert "not compacted" in said("sessions", "compact", address, "--window", "200000", code=1)
    said("sessions", "rm", address, f"{server}#new")


def test_its_questions_are_listed_and_answered_there(server: str, address: str):
    fill(stored(address))
    (row,) = map(json.loads, said("sessions", "inbox", "--database", server, "--json").splitlines())
    assert (row["path"].partition("#")[2], row["state"]) == (address.partition("#")[2], "waiting")
    assert "May look be called?" in said("sessions", "inbox", address)
    assert said("sessions", "inbox", address, "--yes").startswith(
        "approved; agent-monitor sessions resume postgresql://"
    )
    assert "no question is open" in said("sessions", "inbox", address, "--yes", code=2)
    said("sessions", "rm", address)


def test_a_run_is_told_something_and_goes_on_by_its_address(address: str):
    said("run", "--demo", "--session", address)
    assert "has ended" in said("sessions", "tell", address, "Stop there.", code=2)
    assert "is over" in said("sessions", "resume", address, code=2)
    assert "goal" in said("sessions", "replay", address)
    said("sessions", "rm", address)


def test_commands_of_files_say_that_a_session_is_in_a_database():
    done = said("sessions", "salvage", "postgresql://ada:secret@host/db#a", code=2)
    assert "is in a database, and this command takes a file" in " ".join(done.split())
    assert "secret" not in done


def test_an_empty_database_has_no_session(server: str):
    assert "0 sessions in postgresql://" in said("sessions", "list", "--database", server)
