"""Whatever is changed in the tables of a session without its owner, `verify` finds it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import monitor
from monitor.messages import ApprovalAnswer, CallState
from monitor.sessions import Changes, PostgresReader, PostgresSession, RunRecord
from monitor.sessions.postgres.statements import FORMAT
from monitor.sessions.tables.schema import COLUMNS
from monitor.testing import ScriptedModel
from monitor.testing import call as calls
from tests import databases
from tests.sessions.making import call, request, says

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """What differs between the two backends is tested with the stores."""
    return "asyncio"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with databases.postgres() as address:
        yield address


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock files of owners stand in a folder of the test."""
    monkeypatch.setenv("AGENT_MONITOR_SESSIONS", str(tmp_path))


def look(at: str) -> str:
    """Look."""
    return f"nothing at {at}"


async def written(session: PostgresSession) -> None:
    """Write rows into every table, and change those that change."""
    model = ScriptedModel([calls("look", at="a"), calls("look", at="b")], "Done.")
    await monitor.Supervisor(model, tools=[look], session=session).run("Look.")
    await session.commit(Changes(runs=[RunRecord(id="r")], requests=[request("q"), request("open")]))
    await session.commit(Changes(answers=[ApprovalAnswer(id="q", decision="denied")]))
    await session.intend([call("x")])
    await session.advance(call("x", state=CallState.RUNNING, attempt=1))
    await session.append(says("a"), branch="other")
    await session.switch_node(None, branch="other")


def other(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, int):
        return value + 1_000
    return "x" if not value else value[:-1] + ("0" if value[-1] != "0" else "1")


async def test_the_digests_follow_every_step_of_every_owner(address: str):
    name = uuid4().hex
    for _ in range(2):
        async with PostgresSession(address, name, chunks=True) as session:
            await written(session) if not await session.runs() else await session.append(says("more"))
            assert await session.verify() == ()
    with PostgresReader(address, name) as reader:
        assert reader.verify() == ()


async def test_every_changed_column_and_every_missing_row_is_found(address: str):
    name = uuid4().hex
    async with PostgresSession(address, name, chunks=True) as session:
        await written(session)
    found_out: list[str] = []
    silent: list[str] = []
    with psycopg.connect(address) as db, PostgresReader(address, name) as reader:

        def tried(what: str, sql: str, *values: Any) -> None:
            done = db.execute(sql.encode(), values)
            assert done.rowcount == 1, what
            db.commit()
            (found_out if reader.verify() else silent).append(what)

        (number,) = db.execute("select number from monitor_sessions where name = %s", (name,)).fetchone() or (0,)
        for table, columns in COLUMNS.items():
            at = f"ctid = (select min(ctid) from monitor_{table} where session = {number})"
            for column in columns:
                found = db.execute(f"select {column} from monitor_{table} where {at}".encode()).fetchone() or (None,)
                sql = f"update monitor_{table} set {column} = %s where session = {number} and {column} = %s"
                if found[0] is None:
                    continue
                rows = db.execute(
                    f"select count(*) from monitor_{table} where session = {number} and {column} = %s".encode(), found
                )
                if (rows.fetchone() or (0,))[0] != 1:
                    continue
                tried(f"{table}.{column}", sql, other(found[0]), found[0])
                db.execute(sql.encode(), (found[0], other(found[0])))
            tried(f"a row of {table}", f"delete from monitor_{table} where {at}")
        tried("the digests", f"update monitor_sessions set seal = '{{}}' where number = {number}")
    assert silent == []
    assert len(found_out) > 20


async def test_a_session_of_an_older_version_gets_its_digests_with_the_first_step(address: str):
    name = uuid4().hex
    async with PostgresSession(address, name) as session:
        await written(session)
    with psycopg.connect(address, autocommit=True) as db:
        db.execute("update monitor_sessions set seal = 'older' where name = %s", (name,))
        async with PostgresSession(address, name) as session:
            assert await session.verify() == ()
            await session.append(says("after"))
            assert await session.verify() == ()
        db.execute("update monitor_runs set body = body || ' ' where id = 'r'")
    with PostgresReader(address, name) as reader:
        assert [one.what for one in reader.verify()] == ["the table runs is not as it was written: its digest differs"]


async def test_tables_of_an_older_version_are_brought_forward_by_a_reader_too_and_get_their_digests_with_the_first_step(
    address: str,
):
    base, name = f"older_{uuid4().hex}", uuid4().hex
    with psycopg.connect(address, autocommit=True) as db:
        db.execute(f"create database {base}".encode())
    where, _, options = address.partition("?")
    older = f"{where.rsplit('/', 1)[0]}/{base}?{options}"
    async with PostgresSession(older, name) as session:
        await written(session)
    with psycopg.connect(older, autocommit=True) as db:
        db.execute("alter table monitor_sessions drop column seal, drop column forked_from")
        db.execute("alter table monitor_calls drop column approval")
        db.execute("update monitor_sessions_format set format = 1")
    with PostgresReader(older, name) as reader:
        assert reader.verify() == ()
    async with PostgresSession(older, name) as session:
        await session.append(says("after"))
        assert await session.verify() == ()
    with psycopg.connect(older, autocommit=True) as db:
        assert db.execute("select format from monitor_sessions_format").fetchall() == [(FORMAT,)]
        assert db.execute("select count(seal) from monitor_sessions").fetchall() == [(1,)]
