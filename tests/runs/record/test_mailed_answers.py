"""A person answers from another process while the program of the run has its session open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest

import monitor
from monitor.errors import ConfigError
from monitor.messages import ApprovalRequest
from monitor.runs.record.session_reading import LOOK_S
from monitor.sessions import InMemorySession, PostgresSession, SQLiteSession, answer, inbox
from monitor.testing import FakeClock, ScriptedModel, call
from monitor.tools import PendingApprovals
from tests import databases

pytestmark = pytest.mark.anyio
STORES = ("a file", "PostgreSQL")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with databases.postgres() as address:
        yield address


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    """A file, or the address of a session."""
    if request.param == "a file":
        return tmp_path / "a.session"
    return f"{request.getfixturevalue('address')}#{uuid4().hex}"


def opened(place: str | Path) -> Any:
    return SQLiteSession(place) if isinstance(place, Path) else PostgresSession(*place.split("#"))


def where(place: str | Path) -> str | Path:
    return place.parent if isinstance(place, Path) else place.partition("#")[0]


@monitor.tool(needs_approval=True)
def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


def results(outcome: monitor.Outcome[Any]) -> list[str]:
    return [one.text for message in outcome.history for one in getattr(message, "results", ())]


@pytest.mark.parametrize("place", STORES, indirect=True)
async def test_the_answer_to_a_paused_run_waits_for_the_program_that_has_the_session(place: str | Path):
    options: dict[str, Any] = {"tools": [send], "calls": monitor.runs.ToolCalls(approver=PendingApprovals())}
    async with opened(place) as session:
        asks = ScriptedModel([call("send", to="Ada"), call("send", to="Bob")])
        await monitor.Supervisor(asks, session=session, **options).run("Write.")
        (waits,) = [one for one in inbox(where(place)) if str(one.session) == str(place)]
        first, second = sorted(waits.questions, key=lambda asked: asked.arguments["to"])  # trio asks in any order
        await answer(waits.session, first.id, "approved", by="Ada")
        with pytest.raises(ConfigError, match="no open question"):
            await answer(waits.session, first.id, "denied")
        (waits,) = [one for one in inbox(where(place)) if str(one.session) == str(place)]
        assert waits.questions == (second,)
        await answer(waits.session, second.id, "denied", reason="Not Bob.")
        outcome = await monitor.Supervisor(ScriptedModel("Done."), session=session, **options).resume()
        assert results(outcome)[0] == "sent to Ada"
        assert "Not Bob." in results(outcome)[1]
        assert await session.verify() == ()
        await session.mailbox.look()
        assert session.mailbox.answers() == []


async def test_a_run_that_asks_somebody_takes_the_answer_of_another_process(tmp_path: Path):
    path, clock = tmp_path / "a.session", FakeClock()
    asked, gone = anyio.Event(), anyio.Event()

    async def nobody(_: ApprovalRequest) -> bool:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            gone.set()
        return False

    async def person() -> None:
        await asked.wait()
        (waits,) = inbox(tmp_path)
        await answer(path, waits.questions[0].id, "approved", by="Ada")
        clock.advance(LOOK_S)

    model = ScriptedModel([call("send", to="Ada")], "Done.")
    async with SQLiteSession(path) as session, anyio.create_task_group() as tasks:
        tasks.start_soon(person)
        supervisor = monitor.Supervisor(
            model, tools=[send], calls=monitor.runs.ToolCalls(approver=nobody), session=session, clock=clock
        )
        outcome = await supervisor.run("Write.")
        assert (results(outcome), gone.is_set()) == (["sent to Ada"], True)
        assert [one.answer.by for one in await session.approvals() if one.answer] == ["Ada"]
        assert session.mailbox is not None
        assert session.mailbox.answers() == []


@pytest.mark.parametrize("make", [SQLiteSession, lambda _: InMemorySession()])
async def test_an_approver_that_raises_refuses_with_or_without_a_mailbox(tmp_path: Path, make: Callable[[Path], Any]):
    async def broken(_: ApprovalRequest) -> bool:
        raise LookupError("no terminal")

    async with make(tmp_path / "a.session") as session:
        model = ScriptedModel([call("send", to="Ada")], "Done.")
        await monitor.Supervisor(
            model, tools=[send], calls=monitor.runs.ToolCalls(approver=broken), session=session
        ).run("Write.")
        (asked,) = await session.approvals()
        assert asked.answer.reason == "approver_failed: LookupError: no terminal"
