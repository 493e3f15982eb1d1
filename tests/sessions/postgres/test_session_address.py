"""A run opens the session at an address, and closes it when it ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import anyio
import pytest

import monitor
from monitor.errors import ConfigError, SessionBusy
from monitor.sessions import PostgresSession
from monitor.sessions.postgres.postgres_reader import without_password
from monitor.sessions.postgres.postgres_session import session_at
from monitor.testing import ScriptedModel, call
from tests import databases

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with databases.postgres() as address:
        yield address


@pytest.fixture
def address(server: str) -> str:
    return f"{server}#{uuid4().hex}"


def stored(address: str, **options: Any) -> PostgresSession:
    where, _, name = address.partition("#")
    return PostgresSession(where, name, **options)


async def test_a_supervisor_goes_on_with_the_conversation_at_its_address(address: str):
    supervisor = monitor.Supervisor(ScriptedModel("Ada.", "Lovelace."), session=address)
    assert (await supervisor.run("What is her first name?")).text == "Ada."
    assert (await supervisor.run("And her last one?")).text == "Lovelace."
    async with stored(address) as session:
        assert [run.state.value for run in await session.runs()] == ["ended", "ended"]
        assert len((await session.context()).messages) == 4


async def test_a_run_owns_its_session_while_it_goes_on(address: str):
    seen: list[str] = []

    async def look() -> str:
        """Look."""
        try:
            await stored(address).__aenter__()
        except SessionBusy as error:
            seen.append(error.session)
        return "seen"

    supervisor = monitor.Supervisor(ScriptedModel(call("look"), "Done."), tools=[look], session=address)
    async with supervisor.stream("Look") as run:
        async for _ in run:
            pass
    assert seen == [address.partition("#")[2]]
    async with stored(address):  # it was given back
        pass


async def test_a_run_whose_process_has_died_is_resumed_by_its_address(address: str):
    made: list[str] = []

    def send(to: str) -> str:
        """Send a letter."""
        made.append(to)
        return f"sent to {to}"

    first = monitor.Supervisor(ScriptedModel(call("send", to="Ada"), "unread"), tools=[send], session=address)
    run = first.stream("Write to Ada")
    run.hand_over(at_turn=1)
    async with run:
        async for _ in run:
            pass
    assert made == ["Ada"]
    second = monitor.Supervisor(ScriptedModel("The letter is sent."), tools=[send])
    assert (await second.resume(address)).text == "The letter is sent."
    assert made == ["Ada"]


async def test_runs_side_by_side_share_one_opening(address: str):
    session = session_at(address)
    await session.use()
    await session.use()
    await session.leave()
    assert await session.nodes() == ()
    with pytest.raises(SessionBusy):
        await stored(address).__aenter__()
    await session.leave()
    async with stored(address):
        pass


async def test_a_run_that_cannot_begin_gives_its_session_back(address: str):
    async with stored(address) as session:
        await session.commit(monitor.sessions.Changes(runs=[monitor.sessions.RunRecord(id="r")]))
    supervisor = monitor.Supervisor(
        ScriptedModel("a"), session=address, calls=monitor.runs.ToolCalls(unfinished="refuse")
    )
    with pytest.raises(ConfigError):
        await supervisor.run("Go on")
    with anyio.fail_after(60):
        async with stored(address):
            pass


def test_an_address_without_a_name_is_refused_and_shows_no_password():
    with pytest.raises(ConfigError, match=r"'postgresql://ada@host/db' names no session") as raised:
        monitor.Supervisor(ScriptedModel("a"), session="postgresql://ada:secret@host/db")
    assert "secret" not in str(raised.value)
    assert without_password("postgresql://host/db") == "postgresql://host/db"
