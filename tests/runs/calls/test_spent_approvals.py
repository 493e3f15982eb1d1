"""An answer is spent by the call that was shown, also where a resumed run repeats its ids."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

import monitor
from monitor.chunks import ToolCall
from monitor.messages import ApprovalAnswer, ApprovalRequest
from monitor.sessions import InMemorySession
from monitor.testing import ScriptedModel
from tests.runs.driving import Reason

pytestmark = pytest.mark.anyio

IDS = (("call_0_0", "call_0_0"), ("call_0_0", "call_1_0"), ("x", "x"), ("a", "b"), ("call_0_1", "call_0_1"))


class Till:
    """Two tools that need a yes, and a person who gives it, once they may."""

    def __init__(self) -> None:
        self.store = InMemorySession()
        self.paid: list[int] = []
        self.asked: list[ApprovalRequest] = []

    async def run(self, *answers: Any, waits_at: str = "", resumes: bool = False, **answer: Any) -> Any:
        async def ask(request: ApprovalRequest) -> ApprovalAnswer | None:
            self.asked.append(request)
            if request.tool == waits_at:
                return None
            given = {**answer, "always": request.scopes[0]} if answer.get("always") else answer
            return ApprovalAnswer(id=request.id, decision="approved", **given)

        @monitor.tool(needs_approval=True)
        def pay(amount: int) -> str:
            self.paid.append(amount)
            return "paid"

        @monitor.tool(needs_approval=True)
        def stop() -> str:
            return "stopped"

        driven = monitor.Supervisor(
            ScriptedModel(*answers), tools=[pay, stop], calls=monitor.runs.ToolCalls(approver=ask), judge=None
        )
        return await (driven.resume(self.store) if resumes else driven.run("go", session=self.store))


@pytest.mark.parametrize(
    ("ids", "answer"),
    [*product(IDS, ({}, {"reason": "fine"}, {"by": "Ada"}, {"arguments": {"amount": 5}}))],
)
async def test_what_was_approved_once_is_paid_once(ids: tuple[str, str], answer: dict[str, Any]):
    first, again = ids
    till = Till()
    paused = await till.run(
        [ToolCall(first, "pay", {"amount": 5})], [ToolCall("s", "stop", {})], waits_at="stop", **answer
    )
    assert (paused.reason, till.paid) == (Reason.PAUSED, [5])
    last = await till.run([ToolCall(again, "pay", {"amount": 5})], "Done.", waits_at="pay", resumes=True)
    assert (last.reason, till.paid) == (Reason.PAUSED, [5])
    assert [request.tool for request in till.asked].count("pay") == 2
    assert len({request.key for request in till.asked if request.tool == "pay"}) == 2
    if first == again:
        return
    await till.run("Done.", resumes=True)
    assert till.paid == [5, 5]


async def test_always_holds_in_the_resumed_run_and_in_no_other():
    till = Till()
    calls = [ToolCall("a", "pay", {"amount": 5})]
    await till.run(calls, [ToolCall("s", "stop", {})], waits_at="stop", always=True)
    await till.run(calls, "Done.", resumes=True)
    assert (till.paid, [request.tool for request in till.asked]) == ([5, 5], ["pay", "stop", "stop"])
    await till.run(calls, "Done.")
    assert [request.tool for request in till.asked].count("pay") == 2


async def test_the_record_that_sets_a_call_to_running_names_its_answer():
    till = Till()
    await till.run([ToolCall("a", "pay", {"amount": 5})], "Done.")
    (record,) = await till.store.calls()
    (question,) = await till.store.approvals()
    assert (record.approval, record.key) == (question.request.id, question.request.key)
