"""A call that the policy refuses is answered with words, if the loop asks the guard in time."""

from __future__ import annotations

import pytest

import monitor
from monitor.chunks import ToolCall, ToolResult
from monitor.testing import ScriptedStream

pytestmark = pytest.mark.anyio
DONE = monitor.chunks.TurnFinished(monitor.FinishReason.DONE)


async def made(guard: monitor.Guard, turns: int, *, asks: bool) -> tuple[list[ToolResult], list[monitor.Verdict]]:
    """The results that the guard has given itself, and its verdicts but `Continue`."""
    answers: list[ToolResult] = []
    verdicts: list[monitor.Verdict] = []
    for turn in range(turns):
        async with guard.watch(ScriptedStream(ToolCall(f"c{turn}", "look", {"at": "door"}), DONE)) as watched:
            async for _ in watched:
                pass
        for call in watched.turn.tool_calls:
            if asks and (answer := guard.answer(call)) is not None:
                answers.append(answer)
            else:
                guard.tool_result(call, "closed")
        if (verdict := guard.check()) != monitor.Continue():
            verdicts.append(verdict)
    return answers, verdicts


@pytest.mark.feature("US-03")
@pytest.mark.feature("US-01")
async def test_the_guard_answers_the_refused_call_in_the_place_of_its_tool():
    async with monitor.Guard(policy=monitor.Ladder()) as guard:
        answers, verdicts = await made(guard, 6, asks=True)
    (refused,) = answers
    assert (refused.id, refused.vetoed, refused.is_error) == ("c4", True, True)
    assert "This call was not carried out. You are repeating yourself" in refused.text
    assert [type(verdict) for verdict in verdicts] == [monitor.Nudge, monitor.WithdrawTool]


@pytest.mark.feature("US-03")
@pytest.mark.feature("US-01")
async def test_a_loop_that_has_carried_the_call_out_gets_the_words_for_the_model():
    async with monitor.Guard(policy=monitor.Ladder()) as guard:
        answers, verdicts = await made(guard, 5, asks=False)
    assert answers == []
    _, refused = verdicts
    assert isinstance(refused, monitor.RefuseCall)
    assert refused.call == 'look({"at":"door"})'
    assert "Do not make this call again" in refused.text


@pytest.mark.feature("US-01")
async def test_a_refusal_in_a_failed_attempt_does_not_outlast_it():
    async with monitor.Guard(policy=monitor.Ladder()) as guard:
        await made(guard, 4, asks=True)
        call = ToolCall("c4", "look", {"at": "door"})
        async with guard.watch(ScriptedStream(call, ConnectionError("gone"))) as watched:
            async for _ in watched:
                pass
        guard.check()
        other = ToolCall("c4", "look", {"at": "window"})
        async with guard.watch(ScriptedStream(other, DONE)) as watched:
            async for _ in watched:
                pass
        assert guard.answer(other) is None
        guard.tool_result(other, "open")
        assert guard.check() == monitor.Continue()
