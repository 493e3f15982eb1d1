"""A recorded run that answers like a model."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import pytest

import monitor
from monitor.adapters.replay_model import RecordedChunk, ReplayModel, write_chunks
from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, ToolResult, TurnFinished
from monitor.errors import AdapterError, FinishReason, TerminateReason
from monitor.messages import Text, UserMessage
from monitor.models import ErrorKind, Model, ModelRequest

pytestmark = pytest.mark.anyio

REQUEST = ModelRequest((UserMessage((Text("hello"),)),))
DONE = TurnFinished(FinishReason.DONE, "STOP")
SUBAGENT_RUN = Path(str(files("monitor.cli").joinpath("data", "subagent_run.jsonl")))


@pytest.fixture
def two_turns(tmp_path: Path) -> Path:
    first: Sequence[Chunk] = [
        TextDelta("one "),
        TextDelta("turn"),
        ToolCall("a", "look", {"q": 1}),
        DONE,
        ToolResult("a", "look", "then"),
    ]
    path = tmp_path / "run.jsonl"
    write_chunks(path, [RecordedChunk(0.5, one) for one in [*first, TextDelta("two"), DONE]])
    return path


async def asked(model: Model, guard: monitor.Guard) -> monitor.outcome.Turn:
    async with guard.watch(lambda: model.stream(REQUEST), adapter=getattr(model, "adapter", None)) as watched:
        async for _ in watched:
            pass
    return watched.turn


async def test_each_call_is_answered_by_the_next_recorded_turn(two_turns: Path):
    model = ReplayModel(two_turns)
    assert model.name == f"replay:{two_turns}"
    async with monitor.Guard() as guard:
        first = await asked(model, guard)
        guard.tool_result(first.tool_calls[0], "now")
        second = await asked(model, guard)
    assert (first.text, first.tool_calls, first.finish_reason) == (
        "one turn",
        (ToolCall("a", "look", {"q": 1}),),
        FinishReason.DONE,
    )
    assert (second.text, second.tool_calls) == ("two", ())


async def test_the_run_makes_its_own_tool_results_so_recorded_ones_are_left_out(two_turns: Path):
    model = ReplayModel(two_turns)
    chunks = [chunk for _ in model.turns async for chunk in model.stream(REQUEST)]
    assert [chunk for chunk in chunks if isinstance(chunk, ToolResult)] == []
    assert chunks[-2:] == [TextDelta("two"), DONE]


async def test_a_call_for_which_nothing_was_recorded_is_a_model_error_that_says_so_and_that_no_retry_helps(
    two_turns: Path,
):
    model = ReplayModel(two_turns)
    async with monitor.Guard() as guard:
        for _ in range(2):
            await asked(model, guard)
        turn = await asked(model, guard)
    assert turn.model_error is not None
    assert turn.model_error.kind is ErrorKind.REQUEST
    assert "has 2 recorded turns, and this is model call 3" in turn.model_error.message
    assert guard.outcome is not None
    assert guard.outcome.reason is TerminateReason.ERROR
    assert "has 2 recorded turns" in guard.outcome.detail


async def test_the_pieces_may_be_cut_anew(two_turns: Path):
    chunks = [chunk async for chunk in ReplayModel(two_turns, cut=3).stream(REQUEST)]
    assert [chunk.text for chunk in chunks if isinstance(chunk, TextDelta)] == ["one", " tu", "rn"]


async def test_a_file_that_is_no_recording_is_refused_when_the_model_is_made(tmp_path: Path):
    path = tmp_path / "run.jsonl"
    path.write_text("\n")
    with pytest.raises(AdapterError, match=r"run\.jsonl holds no turn"):
        ReplayModel(path)
    path.write_text('{"type": "text_delta", "text": "a"}\n{"typ": 3}\n')
    with pytest.raises(AdapterError, match=r"run\.jsonl, line 2: 'at' is missing"):
        ReplayModel(path)
    with pytest.raises(FileNotFoundError):
        ReplayModel(tmp_path / "none.jsonl")


async def test_the_run_that_ships_calls_a_tool_forgets_its_outputs_and_emits_them_when_it_is_asked_again():
    model = ReplayModel(SUBAGENT_RUN)
    async with monitor.Guard() as guard:
        turns = [await asked(model, guard) for _ in model.turns]
    assert [[(call.name, sorted(call.arguments)) for call in turn.tool_calls] for turn in turns] == [
        [("read_file", ["path"])],
        [],
        [("emit_value", ["name", "value"]), ("emit_value", ["name", "value"])],
        [],
    ]
    emitted = {call.arguments["name"]: call.arguments["value"] for call in turns[2].tool_calls}
    assert {name: type(value) for name, value in emitted.items()} == {"summary": str, "risk": float}
    assert all(turn.usage.output_tokens for turn in turns)
    assert any(isinstance(record.chunk, ReasoningDelta) for turn in model.turns for record in turn)
    assert guard.outcome is not None
    assert guard.outcome.ok
