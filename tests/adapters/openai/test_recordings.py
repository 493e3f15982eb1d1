"""Every recorded stream of OpenAI and of compatible services, served over HTTP and read through the
real SDK.

What the adapter makes of it is compared with the wire, and with what the SDK's own accumulation
makes of the same objects.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.lib.streaming.responses._responses import ResponseStreamState

import monitor
from monitor.adapters.openai.stream import OpenAIAdapter
from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta, TurnFinished, UsageReport
from monitor.errors import AdapterError
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import Raw, load_recording
from tests.adapters.openai.sdk import of_type, sdk, stream

STREAMS = Path(__file__).parents[3] / "fixtures" / "streams"
NO_JSON = "parallel-tool-call-wrapper.1.jsonl"
"""Its first and last line lack a brace, as they were recorded."""

CHATS = [(file.name, script) for file in sorted(STREAMS.glob("*-chat/*.jsonl")) for script in load_recording(file)]
RESPONSES = [
    (f"{file.name}[{at}]", script)
    for file in sorted((STREAMS / "openai-responses").glob("*.jsonl"))
    if file.name != NO_JSON
    for at, script in enumerate(load_recording(file))
]

CHANGING_IDS = {"github-copilot-id-rotation.1.jsonl[0]", "openai-client-tool-search.1.jsonl[0]"}
"""Items have other ids when they are done than when they began: the SDK's accumulation refuses
that, the adapter goes by places.
"""
HOSTED = {"code_interpreter", "mcp", "program", "web_search", "file_search", "shell", "tool_search"}
"""Tools that the service carries out: what is written for them is no call of the caller's."""
ABRIDGED = {"openai-phase.1.jsonl[0]", "openai-shell-container.1.jsonl[0]"}
"""Whoever recorded them left most deltas away, and the whole text in the final response."""


async def items_of(script: Any, api: str) -> list[Any]:
    with LocalOpenAI([script]) as server:
        async with sdk(server) as client:
            return [item async for item in await stream(client, api)]


def chunks_of(items: list[Any]) -> list[Chunk]:
    adapter = OpenAIAdapter()
    return [*(chunk for item in items for chunk in adapter.decode(item)), *adapter.finish()]


def check(chunks: list[Chunk]) -> None:
    """What holds for every stream that ended well."""
    assert len(of_type(TurnFinished, chunks)) == 1
    written: dict[str, str] = {}
    for delta in of_type(ToolCallDelta, chunks):
        written[delta.id] = written.get(delta.id, "") + delta.arguments_text
    for call in of_type(ToolCall, chunks):
        assert isinstance(call.arguments, dict)
        assert call.raw is not None
    calls = {call.id for call in of_type(ToolCall, chunks)}
    named = {delta.id: delta.name for delta in of_type(ToolCallDelta, chunks) if delta.name is not None}
    assert {named[id] for id in set(written) - calls} <= HOSTED
    totals = [report.total_tokens or 0 for report in of_type(UsageReport, chunks)]
    assert totals
    assert totals == sorted(totals)


def said(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in of_type(TextDelta, chunks))


def thought(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in of_type(ReasoningDelta, chunks))


def test_the_recordings_are_all_there():
    assert (len(CHATS), len(RESPONSES)) == (12, 23)


@pytest.mark.asyncio
@pytest.mark.parametrize(("name", "script"), CHATS, ids=[name for name, _ in CHATS])
async def test_a_chat_completion_is_what_the_sdk_accumulates(name: str, script: Any):
    items = await items_of(script, "chat")
    chunks = chunks_of(items)
    check(chunks)
    deltas = [choice["delta"] for event in script for choice in event["choices"]]
    parts = [part for delta in deltas if isinstance(delta.get("content"), list) for part in delta["content"]]
    if parts:  # Mistral thinks in parts, which the SDK cannot add up
        assert said(chunks) == "".join(part.get("text", "") for part in parts)
        assert thought(chunks) == "".join(one["text"] for part in parts for one in part.get("thinking", ()))
        return
    assert said(chunks) == "".join(delta.get("content") or "" for delta in deltas)
    assert thought(chunks) == "".join(delta.get("reasoning_content") or "" for delta in deltas)

    state = ChatCompletionStreamState()
    for item in items:
        if item.object == "chat.completion.chunk":  # the SDK leaves others away, and all those of one service by it
            for call in item.choices[0].delta.tool_calls or () if item.choices else ():
                call.index = call.index if isinstance(getattr(call, "index", None), int) else 0  # it cannot do without
            state.handle_chunk(item)
    if not any(item.object == "chat.completion.chunk" for item in items):
        return
    message = state.current_completion_snapshot.choices[0].message
    assert said(chunks) == (message.content or "")
    calls = [(call.function.name, call.function.arguments) for call in message.tool_calls or ()]
    assert [(call.name, call.arguments) for call in of_type(ToolCall, chunks)] == [
        (one, json.loads(text)) for one, text in calls
    ]


@pytest.mark.asyncio
@pytest.mark.parametrize(("name", "script"), RESPONSES, ids=[name for name, _ in RESPONSES])
async def test_a_response_is_what_the_sdk_accumulates(name: str, script: Any):
    items = await items_of(script, "responses")
    chunks = chunks_of(items)
    check(chunks)
    assert [chunk.raw_finish_reason for chunk in of_type(TurnFinished, chunks)] == ["completed"]
    assert said(chunks) == "".join(event["delta"] for event in script if event["type"] == "response.output_text.delta")
    assert thought(chunks) == "".join(
        event["delta"] for event in script if event["type"] == "response.reasoning_summary_text.delta"
    )

    final = items[-1].response
    if name not in CHANGING_IDS:
        state: Any = ResponseStreamState(input_tools=[], text_format=openai.omit)
        for item in items:
            state.handle_event(item)
        assert state._completed_response is not None
        final = state._completed_response
    if name not in ABRIDGED:
        assert said(chunks) == final.output_text
    functions = [
        (item.call_id, item.name, json.loads(item.arguments)) for item in final.output if item.type == "function_call"
    ]
    own = {"apply_patch", "local_shell", "shell", "tool_search", "write_sql"}
    assert [
        (call.id, call.name, call.arguments) for call in of_type(ToolCall, chunks) if call.name not in own
    ] == functions
    (report,) = of_type(UsageReport, chunks)
    assert (report.input_tokens, report.output_tokens, report.total_tokens) == (
        final.usage.input_tokens,
        final.usage.output_tokens,
        final.usage.total_tokens,
    )


@pytest.mark.asyncio
async def test_calls_of_openais_own_tools_and_of_custom_ones_are_calls():
    found: dict[str, str] = {}
    for name, script in RESPONSES:
        chunks = chunks_of(await items_of(script, "responses"))
        found |= {name.split(".")[0]: call.name for call in of_type(ToolCall, chunks)}
    assert found == {
        "openai-apply-patch-tool-delete": "apply_patch",
        "openai-client-tool-search": "get_weather",
        "openai-custom-tool": "write_sql",
        "openai-local-shell-tool": "local_shell",
        "openai-reasoning-encrypted-content": "calculator",
        "openai-shell-tool": "shell",
        "openai-tool-search": "get_weather",
        "programmatic-tool-calling": "getInventory",
    }


@pytest.mark.asyncio
async def test_a_recording_that_is_no_json_is_refused_and_its_bytes_end_a_run_as_an_invalid_stream():
    file = STREAMS / "openai-responses" / NO_JSON
    with pytest.raises(AdapterError, match="line 1: no JSON"):
        load_recording(file)
    script = [Raw(b"data: " + line + b"\n\n") for line in file.read_bytes().splitlines()]
    with LocalOpenAI([script]) as server:
        async with sdk(server) as client, monitor.watch(stream(client, "responses")) as watched:
            async for _ in watched:
                pass
    assert watched.outcome.reason is monitor.TerminateReason.INVALID_STREAM
