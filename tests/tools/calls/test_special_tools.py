"""Tools that change the run."""

from __future__ import annotations

from typing import Any

import pytest

import monitor
from monitor.calls import ApprovalAnswer
from monitor.goal.goal import RESERVED
from monitor.testing import ScriptedModel, call
from monitor.tools import PendingApprovals, checkpoint_tool, pause_tool
from monitor.tools.calls.special_tools import SPECIAL

pytestmark = pytest.mark.anyio


def supervisor(*answers: Any, **options: Any) -> monitor.Supervisor:
    return monitor.Supervisor(ScriptedModel(*answers), **options)


@pytest.mark.feature("OM-08")
async def test_the_table_names_every_special_tool():
    assert set(SPECIAL) == {*RESERVED, pause_tool().spec.name, checkpoint_tool(print).spec.name}


@pytest.mark.feature("OM-08")
async def test_a_model_that_pauses_waits_for_a_person_and_goes_on_in_the_next_run():
    pending = PendingApprovals()
    first = supervisor([call("pause", question="Which one?")], "never", tools=[pause_tool()], approver=pending)
    async with first.stream("do it") as run:
        async for _ in run:
            pass
    assert run.outcome.reason is monitor.TerminateReason.PAUSED
    (request,) = run.outcome.pending
    assert request.arguments == {"question": "Which one?"}
    pending.answer(ApprovalAnswer(id=request.id, decision="denied", reason="the blue one"))
    second = supervisor("blue, then", tools=[pause_tool()], approver=pending)
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
