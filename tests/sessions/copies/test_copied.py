"""Sessions go from files into a database and back, whole, and are changed there like files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import monitor
from monitor.errors import SessionBusy, SessionDamaged, StoreError
from monitor.sessions import (
    PostgresSession,
    SQLiteSession,
    copy_session,
    exported,
    fork,
    found_in,
    imported,
    remove,
    trim,
)
from monitor.sessions.postgres.postgres_session import owner_at, reader_at
from monitor.testing import ScriptedModel, call
from tests import databases

pytestmark = pytest.mark.anyio

SECRET = "swordfish"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """What differs between the two backends is tested with the stores."""
    return "asyncio"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with databases.postgres() as address:
        yield address


@pytest.fixture
def place(address: str) -> str:
    return f"{address}#{uuid4().hex}"


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A session in a file: two runs, a long result, a nested run, chunks, and two branches."""

    def look(at: str) -> str:
        """Look."""
        return f"{at}: {SECRET} " + "line of a text\n" * 6_000

    nested = monitor.Supervisor(ScriptedModel("Nested."))
    tools: list[Any] = [look, nested.as_tool(name="ask", description="Asks.")]
    path = tmp_path / "a.session"
    async with SQLiteSession(path, chunks=True) as session:
        model = ScriptedModel([call("look", at="here"), call("ask", task="go")], "Done.")
        await monitor.Supervisor(model, tools=tools, session=session, results=monitor.runs.Results(bound=None)).run(
            "Look."
        )
        await session.switch_node((await session.nodes())[0].id, branch="other")
        await monitor.Supervisor(ScriptedModel("Again."), session=session).run(f"Say {SECRET}.")
    return path


def lines(place: str | Path) -> list[str]:
    with reader_at(place) as session:
        assert session.verify() == ()
        return [*exported(session)]


async def test_a_copy_in_a_database_and_one_of_it_in_a_file_have_the_same_lines(path: Path, place: str, tmp_path: Path):
    copy_session(path, place)
    back = tmp_path / "back.session"
    copy_session(place, back)
    assert lines(path) == lines(place) == lines(back)
    for into in (place, back, f"{place}-2"):
        with pytest.raises(StoreError, match="already"):
            copy_session(path, into)
    async with PostgresSession(*place.split("#")) as session:  # it is free, and goes on
        await monitor.Supervisor(ScriptedModel("Once more."), session=session).run("And now?")
        assert await session.verify() == ()


async def test_a_fork_has_an_id_of_its_own_and_may_end_earlier(path: Path, place: str, tmp_path: Path):
    with reader_at(path) as session:
        first = session.active_path()[0].id
    id = fork(path, place, at=first)
    with reader_at(place) as session:
        assert (session.id, [one.id for one in session.active_path()]) == (id, [first])
    with pytest.raises(StoreError, match="no node"):
        fork(place, tmp_path / "b.session", at="f" * 32)
    again = fork(place, f"{place}-fork")
    assert again != id
    assert lines(f"{place}-fork")[1:] == lines(place)[1:]
    remove(f"{place}-fork")
    with pytest.raises(StoreError, match="there is no session"):
        lines(f"{place}-fork")


async def test_a_text_is_erased_in_a_database_and_old_events_go(path: Path, place: str):
    copy_session(path, place)
    assert len([*found_in([place], SECRET.upper())]) == len([*found_in([path], SECRET)]) > 0
    async with owner_at(place) as session:
        with pytest.raises(SessionBusy):
            await trim(place, erase=[SECRET])
        before = await session.context()
    done = await trim(place, erase=[SECRET])
    assert done.erased > 0
    assert 0 < done.bytes_after < done.bytes_before
    assert [*found_in([place], SECRET)] == []
    assert "".join(lines(place)).count(SECRET) == 0
    await trim(place, events_before_s=time.time() + 1)
    async with owner_at(place) as session:
        assert await session.events() == ()
        assert len((await session.context()).messages) == len(before.messages)
        await monitor.Supervisor(ScriptedModel("More."), session=session).run("Go on.")
        assert await session.verify() == ()


@pytest.mark.parametrize(
    "harm", [lambda one: one.replace("Again.", "Never."), lambda one: one[:-9] + "}", lambda _: "{}"]
)
async def test_lines_that_were_changed_make_no_session(path: Path, place: str, harm: Any):
    whole = lines(path)
    number = next(at for at, line in enumerate(whole) if "Again." in line and '"type":"node"' in line)
    whole[number] = harm(whole[number])
    with pytest.raises(SessionDamaged):
        imported(whole, place)
    with pytest.raises(StoreError, match="there is no session"):
        lines(place)
