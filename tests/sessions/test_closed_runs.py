"""A run that nobody goes on with ends, with its calls, its questions and its record."""

from __future__ import annotations

from typing import Any

import pytest

import monitor
from monitor.errors import StoreError
from monitor.messages import ApprovalAnswer, AssistantMessage, CallState
from monitor.sessions import SUPERSEDED, InMemorySession, RunStage, close_run
from monitor.testing import ScriptedModel, call
from monitor.tools import PendingApprovals
from tests.runs.record.kills import Kill, KilledStore, World, agreement

pytestmark = pytest.mark.anyio


def supervisor(world: World, *answers: Any, **options: Any) -> monitor.Supervisor:
    tools = world.tools(["put", "act", "pay", "look"])
    options.setdefault("calls", monitor.runs.ToolCalls(approver=PendingApprovals()))
    return monitor.Supervisor(ScriptedModel(*answers), tools=tools, **options)


async def killed(store: InMemorySession, world: World, at: int, *answers: Any) -> None:
    """A run whose process dies after its commit number `at`."""
    outcome = await supervisor(world, *answers, session=KilledStore(store, [], [Kill(at, after=True)])).run(
        "go", run_id="old"
    )
    assert outcome.reason is monitor.TerminateReason.ERROR


def results(messages: Any) -> list[monitor.chunks.ToolResult]:
    return [one for message in messages if isinstance(message, AssistantMessage) for one in message.results]


async def states(store: InMemorySession) -> dict[str, str]:
    return {one.call_id: one.state.value for one in await store.calls("old")}


async def test_a_run_in_a_session_with_a_dead_one_supersedes_it():
    store, world = InMemorySession(), World()
    await killed(store, world, 1, [call("act", n=1), call("pay", n=2)])
    model = ScriptedModel("I see.")
    outcome = await monitor.Supervisor(model, session=store).run("Something else.")
    assert outcome.ok
    old, new = await store.runs()
    assert (old.state, old.data["reason"], old.data["ok"]) == (RunStage.ENDED, SUPERSEDED, False)
    assert new.state is RunStage.ENDED
    assert "another run" in old.data["detail"]
    assert sorted((await states(store)).values()) == ["cancelled", "unknown"]
    acted, paid = results(model.requests[0].messages)
    assert "unknown" in acted.text
    assert "was not made" in paid.text
    assert world.effects == {}
    (question,) = await store.approvals()
    assert question.answer is not None
    assert question.answer.decision == "withdrawn"
    assert await agreement(store) == []
    assert (await store.context()).messages == outcome.history
    assert await store.verify() == ()


async def test_a_paused_run_is_superseded_and_an_approved_call_that_was_not_made_is_told():
    store, world = InMemorySession(), World()
    paused = await supervisor(world, call("pay", n=1), session=store).run("go", run_id="old")
    approver = PendingApprovals(requests=paused.pending)
    approver.answer(ApprovalAnswer(id=paused.pending[0].id, decision="approved"))
    # the answer is stored, and the process dies before the call begins
    dies = monitor.Supervisor(
        ScriptedModel(),
        tools=world.tools(["pay"]),
        calls=monitor.runs.ToolCalls(approver=approver),
        session=KilledStore(store, [], [Kill(3, after=True)]),
    )
    await dies.resume()
    assert [one.answer.decision for one in await store.approvals() if one.answer] == ["approved"]
    model = ScriptedModel("I see.")
    await monitor.Supervisor(
        model, tools=world.tools(["pay"]), session=store, calls=monitor.runs.ToolCalls(approver=approver)
    ).run("Then not.")
    (told,) = results(model.requests[0].messages)
    assert (told.vetoed, "although it was approved" in told.text) == (True, True)
    assert world.effects == {}
    assert await agreement(store) == []


async def test_a_run_may_refuse_to_begin_beside_one_that_has_not_ended():
    store, world = InMemorySession(), World()
    await killed(store, world, 1, call("act", n=1))
    careful = supervisor(world, "never", session=store, calls=monitor.runs.ToolCalls(unfinished="refuse"))
    with pytest.raises(monitor.ConfigError, match=r"await supervisor.resume\(session, run='old'\)"):
        await careful.run("Something else.")
    assert (await store.runs())[0].state is RunStage.RUNNING
    assert (await supervisor(world, "Done.", session=store).resume()).ok
    with pytest.raises(monitor.ConfigError, match="unfinished"):
        monitor.runs.ToolCalls(unfinished="ask")  # type: ignore[arg-type]


@pytest.mark.parametrize("goes_on", ["run", "resume"])
async def test_after_a_switch_nothing_of_the_left_path_stays_open(goes_on: str):
    store, world = InMemorySession(), World()
    await killed(store, world, 1, [call("act", n=1), call("pay", n=2)])
    (first, *_) = await store.nodes()
    await store.switch_node(first.id)
    model = ScriptedModel("I see.")
    again = monitor.Supervisor(
        model,
        tools=world.tools(["act", "pay"]),
        session=store,
        calls=monitor.runs.ToolCalls(approver=PendingApprovals()),
    )
    outcome = await (again.run("Then this.") if goes_on == "run" else again.resume())
    assert outcome.ok
    assert results(outcome.history) == []
    assert not [one for one in await store.calls() if one.open]
    assert await store.approvals(only_open=True) == ()
    assert world.effects == {}
    assert all(run.state is RunStage.ENDED for run in await store.runs())


async def test_a_run_is_closed_with_the_runs_that_it_has_called():
    store, world = InMemorySession(), World()
    inner = monitor.Supervisor(ScriptedModel(call("act", n=1)), tools=world.tools(["act"]))
    dies = KilledStore(store, [], [Kill(3, after=True)])
    outer = monitor.Supervisor(
        ScriptedModel(call("research", task="deep")),
        tools=[inner.as_tool(name="research", description="Looks things up.")],
        session=dies,
    )
    await outer.run("go", run_id="old")
    await store.close_run("old", "nobody needs it")
    runs = await store.runs()
    assert len(runs) == 2
    assert {(one.state, one.data["reason"], one.data["detail"]) for one in runs} == {
        (RunStage.ENDED, SUPERSEDED, "nobody needs it")
    }
    assert {one.state for one in await store.calls()} == {CallState.UNKNOWN}
    assert await agreement(store) == []
    before = await store.nodes()
    await close_run(store, "old", "again")  # a run that has ended stays as it is
    assert await store.nodes() == before
    with pytest.raises(StoreError, match="there is no run"):
        await store.close_run("r", "why")
    with pytest.raises(monitor.ConfigError, match="say why"):
        await store.close_run("old", " ")
