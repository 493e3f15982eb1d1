"""Tools that change the run."""

from __future__ import annotations

from typing import Any

import anyio.lowlevel
import pytest

import monitor
from monitor.goal.goal import RESERVED
from monitor.messages import ApprovalAnswer
from monitor.sessions import InMemorySession
from monitor.testing import ScriptedModel, call
from monitor.tools import PendingApprovals, checkpoint_tool, finish, pause_tool
from monitor.tools.registry import RUN_TOOLS

pytestmark = pytest.mark.anyio


def supervisor(*answers: Any, **options: Any) -> monitor.Supervisor:
    return monitor.Supervisor(ScriptedModel(*answers), **options)


@pytest.mark.feature("OM-08")
async def test_the_table_names_every_special_tool():
    assert set(RUN_TOOLS) == {*RESERVED, pause_tool().spec.name, checkpoint_tool(print).spec.name}


@pytest.mark.feature("OM-08")
async def test_a_model_that_pauses_waits_for_a_person_and_goes_on_in_the_next_run():
    pending = PendingApprovals()
    first = supervisor(
        [call("pause", question="Which one?")],
        "never",
        tools=[pause_tool()],
        calls=monitor.runs.ToolCalls(approver=pending),
    )
    async with first.stream("do it") as run:
        async for _ in run:
            pass
    assert run.outcome.reason is monitor.TerminateReason.PAUSED
    (request,) = run.outcome.pending
    assert request.arguments == {"question": "Which one?"}
    pending.answer(ApprovalAnswer(id=request.id, decision="denied", reason="the blue one"))
    second = supervisor("blue, then", tools=[pause_tool()], calls=monitor.runs.ToolCalls(approver=pending))
    assert (await second.run("go on", history=run.history)).ok
    (result,) = second.model.requests[0].messages[1].results  # type: ignore[attr-defined]
    assert "the blue one" in result.text


@pytest.mark.feature("OM-08")
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_checkpoint_hands_the_conversation_to_whoever_stores_it(is_async: bool):
    saved: list[tuple[int, str]] = []

    async def later(messages: Any, note: str) -> None:
        saved.append((len(messages), note))

    def at_once(messages: Any, note: str) -> None:
        saved.append((len(messages), note))

    tools = [checkpoint_tool(later if is_async else at_once)]
    outcome = await supervisor([call("checkpoint", note="before the move")], "done", tools=tools).run("do it")
    assert outcome.ok
    assert saved == [(1, "before the move")]


@pytest.mark.feature("OM-08")
async def test_terminate_ends_the_run_that_has_declared_outputs():
    run = supervisor([call("terminate", status="failure", reason="no way")], outputs={"a": str})
    assert (await run.run("do it")).reason is monitor.TerminateReason.TERMINATED


# --- tools of a user's own that end the run


@monitor.tool
async def ship(version: str, ok: bool = True) -> Any:
    """Ship a version: the run is over then."""
    return finish(f"{version} is {'out' if ok else 'refused by the gate'}", ok=ok)


@pytest.mark.feature("OM-08")
@pytest.mark.parametrize("ok", [True, False])
@pytest.mark.parametrize("session", [False, True])
async def test_a_tool_of_the_user_ends_the_run_as_success_or_failure_with_its_own_words(ok: bool, session: bool):
    store = InMemorySession() if session else None
    it = supervisor([call("ship", version="v2", ok=ok)], "never asked", tools=[ship], session=store)
    outcome = await it.run("ship it")
    assert (outcome.reason, outcome.ok) == (monitor.TerminateReason.TERMINATED, ok)
    status, words = ("success", "v2 is out") if ok else ("failure", "v2 is refused by the gate")
    assert outcome.detail == f"ship ended the run with {status}: {words}"
    (result,) = outcome.history[-1].results  # type: ignore[union-attr]
    assert (result.text, result.is_error, result.ends_run) == (words, False, status)
    assert len(it.model.requests) == 1  # type: ignore[attr-defined]


@pytest.mark.feature("OM-08")
async def test_the_other_calls_of_the_turn_are_carried_out_before_a_tool_ends_the_run():
    told: list[str] = []

    async def note(text: str) -> str:
        """Note it."""
        await anyio.lowlevel.checkpoint()
        told.append(text)
        return "noted"

    calls = [call("ship", version="v2"), call("note", text="a")]
    outcome = await supervisor(calls, tools=[ship, note]).run("ship it")
    assert outcome.ok
    assert told == ["a"]


@pytest.mark.feature("OM-08")
async def test_a_tool_that_was_approved_later_ends_the_run_that_goes_on():
    pending = PendingApprovals()
    careful = monitor.tool(name="ship", needs_approval=True)(ship.fn)
    async with supervisor(
        [call("ship", version="v2")], tools=[careful], calls=monitor.runs.ToolCalls(approver=pending)
    ).stream("ship it") as run:
        async for _ in run:
            pass
    (request,) = run.outcome.pending
    pending.answer(ApprovalAnswer(id=request.id, decision="approved"))
    second = supervisor("never asked", tools=[careful], calls=monitor.runs.ToolCalls(approver=pending))
    outcome = await second.run("go on", history=run.history)
    assert outcome.detail == "ship ended the run with success: v2 is out"
    assert second.model.requests == []  # type: ignore[attr-defined]


@pytest.mark.feature("OM-08")
async def test_a_call_that_is_refused_or_fails_does_not_end_the_run():
    outcome = await supervisor(
        [call("ship", version="v2")], "it was refused", tools=[ship], calls=monitor.runs.ToolCalls(approval="plan")
    ).run("go")
    assert outcome.reason is monitor.TerminateReason.GOAL
    outcome = await supervisor([call("ship")], "it was wrong", tools=[ship]).run("go")
    assert outcome.reason is monitor.TerminateReason.GOAL


@pytest.mark.feature("OM-08")
@pytest.mark.parametrize("write", [str.upper, str.title])
async def test_the_name_of_a_special_tool_is_compared_without_case(write: Any):
    saved: list[str] = []

    async def ask(request: Any) -> bool:
        saved.append(request.tool)
        return True

    answers = [
        [call(write("checkpoint"), note="a"), call(write("pause"), question="b")],
        [call(write("emit_value"), name="x", value="y"), call(write("terminate"), status="success", reason="done")],
    ]
    it = supervisor(
        *answers,
        tools=[pause_tool(), checkpoint_tool(lambda _, note: saved.append(note))],
        outputs={"x": str},
        calls=monitor.runs.ToolCalls(approver=ask),
    )
    outcome = await it.run("go")
    assert outcome.ok
    assert outcome.output == {"x": "y"}
    assert sorted(saved) == ["a", "pause"]
    first = outcome.history[1]
    assert isinstance(first, monitor.AssistantMessage)
    assert [one.name for one in first.results] == [write("checkpoint"), write("pause")]
    assert not any(one.is_error for one in first.results)


@pytest.mark.feature("OM-08")
@pytest.mark.parametrize("name", ["Terminate", "TERMINATE", "Emit_Value"])
def test_a_tool_cannot_take_the_name_of_a_tool_of_the_run_in_other_letters(name: str):
    with pytest.raises(monitor.ConfigError, match="the run answers that one itself"):
        supervisor("x", tools=[monitor.tool(name=name)(lambda: 1)])
