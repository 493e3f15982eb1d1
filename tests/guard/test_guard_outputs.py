"""Outputs in a guard: offered to the model by the caller, carried out by the guard, asked for by
`check`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from google.genai import types
from pydantic import BaseModel

import monitor
from monitor.testing import FakeClock, ScriptedStream, call
from tests.runs.driving import Reason

pytestmark = pytest.mark.anyio

DONE = monitor.chunks.TurnFinished(monitor.FinishReason.DONE)


class Report(BaseModel):
    summary: str
    risk: float


async def read(guard: monitor.Guard, *items: Any) -> monitor.outcome.Turn:
    chunks = [monitor.chunks.TextDelta(item) if isinstance(item, str) else item for item in items]
    async with guard.watch(ScriptedStream(*chunks, DONE)) as watched:
        async for _ in watched:
            pass
    return watched.turn


def emit(name: str, value: Any, raw: Any = None) -> monitor.chunks.ToolCall:
    made = call("emit_value", name=name, value=value)
    return monitor.chunks.ToolCall(made.id, made.name, made.arguments, raw)


@pytest.mark.parametrize("sdk", ["google", "openai", "openai-responses", "anthropic"])
async def test_the_declaration_is_there_for_each_sdk(sdk: Any):
    guard = monitor.Guard(outputs={"a": int})
    assert guard.outputs is not None
    (declared,) = guard.outputs.declare(sdk)
    assert "emit_value" in str(declared)
    if sdk == "google":
        types.Tool.model_validate(declared)
    assert monitor.Guard().outputs is None


@pytest.mark.feature("GC-06", "GC-07", "GC-08")
async def test_a_run_is_asked_for_what_is_missing_and_reaches_its_goal():
    sink = monitor.sinks.MemorySink()
    async with monitor.Guard(outputs=Report, sinks=[sink]) as guard:
        turn = await read(guard, emit("summary", "fine"), call("look", q="x"))
        first, other = turn.tool_calls
        answer = guard.answer(first)
        assert answer is not None
        assert answer.text == "`summary` is recorded. Still missing: `risk`."
        assert guard.answer(other) is None
        guard.tool_result(other, "found x")
        assert guard.check() == monitor.Continue()

        await read(guard, "Done.")
        verdict = guard.check()
        assert isinstance(verdict, monitor.Nudge)
        assert "`risk`" in verdict.text
        assert guard.check() == monitor.Continue()

        turn = await read(guard, emit("risk", "high"))
        answer = guard.answer(turn.tool_calls[0])
        assert answer is not None
        assert answer.is_error
        assert guard.check() == monitor.Continue()

        turn = await read(guard, emit("risk", 0.5))
        guard.answer(turn.tool_calls[0])
        verdict = guard.check()
        assert isinstance(verdict, monitor.Stop)
        assert verdict.reason is Reason.GOAL
    assert (guard.outcome.reason, guard.outcome.ok) == (Reason.GOAL, True)
    assert guard.outcome.output == Report(summary="fine", risk=0.5)
    assert [event.name for event in sink.events if isinstance(event, monitor.events.OutputEmitted)] == [
        "summary",
        "risk",
    ]


@pytest.mark.parametrize("by", ["call", "sdk object", "id", "order", "mapping"])
async def test_a_call_is_named_however_the_caller_has_it(by: str):
    raw = SimpleNamespace(id=None)
    async with monitor.Guard(outputs={"a": int}) as guard:
        made = emit("a", 1, raw)
        turn = await read(guard, made)
        named = {
            "call": turn.tool_calls[0],
            "sdk object": raw,
            "id": made.id,
            "order": None,
            "mapping": {"id": made.id},
        }
        result = guard.answer(named[by])
        assert result == monitor.chunks.ToolResult(
            made.id, "emit_value", "`a` is recorded. All required outputs are there."
        )
        assert guard.outputs is not None
        assert guard.outputs.emitted == {"a": 1}
        assert guard.answer(made.id) is None
    assert guard.outcome.output == {"a": 1}


@pytest.mark.feature("GC-08")
async def test_nudges_are_bounded_and_what_was_emitted_is_kept():
    async with monitor.Guard(outputs={"a": int, "b": int}, max_nudges=1) as guard:
        turn = await read(guard, emit("a", 1))
        guard.answer(turn.tool_calls[0])
        assert guard.check() == monitor.Continue()
        await read(guard, "Done.")
        assert isinstance(guard.check(), monitor.Nudge)
        await read(guard, "Done, I said.")
        verdict = guard.check()
        assert isinstance(verdict, monitor.Stop)
        assert verdict.reason is Reason.MISSING_OUTPUTS
    outcome = guard.outcome
    assert (outcome.reason, outcome.emitted, outcome.missing, outcome.output) == (
        Reason.MISSING_OUTPUTS,
        {"a": 1},
        ["b"],
        None,
    )


@pytest.mark.feature("OM-01")
async def test_terminate_is_answered_too():
    async with monitor.Guard(outputs={"a": int}) as guard:
        turn = await read(
            guard,
            call("terminate", status="success", reason="done"),
            call("terminate", status="failure", reason="no access"),
        )
        results = [guard.answer(made) for made in turn.tool_calls]
        assert [result.is_error for result in results if result] == [True, False]
        assert isinstance(guard.check(), monitor.Stop)
    assert (guard.outcome.reason, guard.outcome.value) == (Reason.TERMINATED, "failure")


async def test_a_block_that_is_left_with_outputs_missing_says_so():
    async with monitor.Guard(outputs={"a": int}) as guard:
        await read(guard, "Done.")
    assert (guard.outcome.reason, guard.outcome.missing) == (Reason.MISSING_OUTPUTS, ["a"])


async def test_a_goal_wins_over_a_limit_that_is_reached_in_the_same_turn():
    clock = FakeClock()
    async with monitor.Guard(
        outputs={"a": int}, stop_when=monitor.MaxTurns(1) | monitor.Timeout(60), clock=clock
    ) as guard:
        turn = await read(guard, emit("a", 1))
        guard.answer(turn.tool_calls[0])
        clock.advance(61)
        guard.check()
    assert (guard.outcome.reason, guard.outcome.output) == (Reason.GOAL, {"a": 1})


async def test_asking_outside_of_the_run_is_refused():
    guard = monitor.Guard(outputs={"a": int})
    with pytest.raises(monitor.ConfigError, match="has not begun"):
        guard.answer("x")


async def test_without_outputs_no_call_is_ours():
    async with monitor.Guard() as guard:
        turn = await read(guard, emit("a", 1))
        assert guard.answer(turn.tool_calls[0]) is None
