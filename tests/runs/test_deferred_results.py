"""Results that come later, from outside: the run pauses, and goes on when they are there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import monitor
from monitor.errors import ConfigError, ToolErrorKind
from monitor.messages import AssistantMessage, CallState
from monitor.sessions import InMemorySession, RunStage, SessionStore, SQLiteSession, close_run, deliver, waiting_calls
from monitor.testing import ScriptedModel, call
from tests.runs.driving import Reason

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "file"])
async def session(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionStore]:
    if request.param == "memory":
        yield InMemorySession()
        return
    async with SQLiteSession(tmp_path / "s.sqlite") as session:
        yield session


class Office:
    """A tool that sends a question out, and does not wait for its answer."""

    def __init__(self) -> None:
        self.sent: list[str] = []

        @monitor.tool
        async def ask_office(question: str, context: monitor.ToolContext) -> monitor.tools.ToolAnswer:
            """Ask the office. The answer may take days."""
            self.sent.append(context.idempotency_key)
            return monitor.tools.deferred(f"the office: {question}")

        @monitor.tool
        def add(a: int, b: int) -> int:
            """Add."""
            return a + b

        self.tools: list[Any] = [ask_office, add]


def results_of(model: ScriptedModel) -> dict[str, tuple[str, bool]]:
    """The results of the newest answer with calls, as the model has read them last."""
    said = [one for one in model.requests[-1].messages if isinstance(one, AssistantMessage) and one.results]
    return {one.name: (one.text, one.is_error) for one in said[-1].results}


async def paused(session: SessionStore, office: Office) -> monitor.Outcome:
    model = ScriptedModel([call("ask_office", question="May we?"), call("add", a=1, b=2)])
    outcome = await monitor.Supervisor(model, tools=office.tools, session=session).run("go")
    assert outcome.reason is Reason.PAUSED
    assert outcome.detail == "a call waits for its result: the office: May we?"
    return outcome


async def test_a_run_waits_for_a_result_and_goes_on_with_it_in_another_process(session: SessionStore):
    office = Office()
    await paused(session, office)
    (run,) = await session.runs()
    assert run.state is RunStage.WAITING
    (waiting,) = await waiting_calls(session)
    assert (waiting.key, waiting.state) == (office.sent[0], CallState.AWAITING_RESULT)
    assert list(await session.open_calls(run.id)) == [waiting]

    await deliver(session, waiting.key, "yes, you may")
    assert await waiting_calls(session) == []
    model = ScriptedModel("we may")
    outcome = await monitor.Supervisor(model, tools=office.tools, session=session).resume()
    assert (outcome.reason, outcome.text) == (Reason.GOAL, "we may")
    assert results_of(model) == {"ask_office": ("yes, you may", False), "add": ("3", False)}
    assert len(office.sent) == 1
    assert {one.state for one in await session.calls()} == {CallState.DONE}


async def test_a_result_that_is_a_failure_is_an_error_for_the_model(session: SessionStore):
    office = Office()
    await paused(session, office)
    record = await deliver(session, office.sent[0], "nobody is there", is_error=True)
    assert (record.state, record.error_kind) == (CallState.FAILED, ToolErrorKind.EXECUTION_FAILED)
    model = ScriptedModel("too bad")
    await monitor.Supervisor(model, tools=office.tools, session=session).resume()
    assert results_of(model)["ask_office"] == ("nobody is there", True)


async def test_a_run_that_is_resumed_too_early_waits_on_and_sends_nothing_twice(session: SessionStore):
    office = Office()
    await paused(session, office)
    outcome = await monitor.Supervisor(ScriptedModel("never said"), tools=office.tools, session=session).resume()
    assert (outcome.reason, outcome.turns) == (Reason.PAUSED, 1)
    assert len(office.sent) == 1
    await deliver(session, office.sent[0], "yes")
    model = ScriptedModel("we may")
    assert (await monitor.Supervisor(model, tools=office.tools, session=session).resume()).ok
    assert results_of(model)["ask_office"] == ("yes", False)


async def test_a_result_is_delivered_once_and_only_where_somebody_waits_for_it(session: SessionStore):
    office = Office()
    await paused(session, office)
    with pytest.raises(ConfigError, match="there is none"):
        await deliver(session, "nothing", "x")
    first = await deliver(session, office.sent[0], "yes")
    assert await deliver(session, office.sent[0], "yes") == first
    with pytest.raises(ConfigError, match="it is done"):
        await deliver(session, office.sent[0], "no")


async def test_a_run_that_was_closed_takes_no_result(session: SessionStore):
    office = Office()
    await paused(session, office)
    (run,) = await session.runs()
    await close_run(session, run.id, "nobody needs it")
    with pytest.raises(ConfigError, match="it is unknown"):
        await deliver(session, office.sent[0], "yes")


async def test_without_a_session_the_call_fails_and_says_why():
    office = Office()
    model = ScriptedModel(call("ask_office", question="May we?"), "no")
    assert (await monitor.Supervisor(model, tools=office.tools).run("go")).ok
    assert "it needs a session" in results_of(model)["ask_office"][0]
