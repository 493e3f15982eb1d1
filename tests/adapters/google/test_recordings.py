"""Every recorded Gemini stream, served over HTTP and read through the real SDK."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from monitor.adapters.google.stream import GoogleAdapter
from monitor.chunks import Chunk, TextDelta, ToolCall, ToolCallDelta, TurnFinished, UsageReport
from monitor.testing import LocalGemini
from monitor.testing.gemini_steps import GeminiRecording, load_recording
from tests.adapters.google.sdk import of_type, sdk, sdk_warnings, stream

pytestmark = sdk_warnings

STREAMS = Path(__file__).parents[3] / "fixtures" / "streams"
FILES = sorted([*(STREAMS / "google").glob("*.jsonl"), *(STREAMS / "gemini-cli").glob("*.responses")])
RECORDED = [
    (file.name, recorded)
    for file in FILES
    for recorded in load_recording(file)
    if recorded.method == "generateContentStream"
]


def wire_parts(recorded: GeminiRecording) -> list[dict[str, Any]]:
    candidates = [candidate for event in recorded.events for candidate in event.get("candidates") or ()]
    return [part for candidate in candidates for part in (candidate.get("content") or {}).get("parts") or ()]


def wire_finishes(recorded: GeminiRecording) -> list[str]:
    candidates = [candidate for event in recorded.events for candidate in event.get("candidates") or ()]
    return [candidate["finishReason"] for candidate in candidates if "finishReason" in candidate]


def check(recorded: GeminiRecording, chunks: list[Chunk]) -> None:
    parts = wire_parts(recorded)
    assert "".join(chunk.text for chunk in of_type(TextDelta, chunks)) == "".join(
        part.get("text", "") for part in parts if not part.get("thought")
    )
    named = [part["functionCall"] for part in parts if part.get("functionCall", {}).get("name")]
    calls = of_type(ToolCall, chunks)
    assert [call.name for call in calls] == [function["name"] for function in named]
    for call, function in zip(calls, named, strict=True):
        if "args" in function:
            assert call.arguments == function["args"]
        assert call.raw is not None
    assert len(of_type(TurnFinished, chunks)) == bool(wire_finishes(recorded))
    usage = [report.total_tokens or 0 for report in of_type(UsageReport, chunks)]
    assert usage == sorted(usage)
    totals = [
        event["usageMetadata"]["totalTokenCount"]
        for event in recorded.events
        if "totalTokenCount" in event.get("usageMetadata", {})
    ]
    assert max(usage, default=0) == max(totals, default=0), "one recording ends with a smaller total than it had"


@pytest.mark.asyncio
async def test_every_recording_is_read_as_it_stands_on_the_wire():
    assert len(RECORDED) == 129
    with LocalGemini([recorded.events for _, recorded in RECORDED]) as server:
        async with sdk(server) as client:
            for name, recorded in RECORDED:
                adapter = GoogleAdapter()
                chunks = [chunk async for item in await stream(client) for chunk in adapter.decode(item)]
                chunks += adapter.finish()
                try:
                    check(recorded, chunks)
                except AssertionError as error:
                    error.add_note(name)
                    raise


@pytest.mark.asyncio
async def test_streamed_arguments_are_put_together():
    names = [
        "google-stream-tool-call-arguments.jsonl",
        "google-stream-tool-call-array-arguments-missing-terminal-function-call.jsonl",
    ]
    recorded = [load_recording(STREAMS / "google" / name)[0] for name in names]
    found = []
    with LocalGemini([one.events for one in recorded]) as server:
        async with sdk(server) as client:
            for _ in names:
                adapter = GoogleAdapter(stream=3)
                found.append([chunk async for item in await stream(client) for chunk in adapter.decode(item)])
    boston, apple = found
    assert [(call.id, call.arguments) for call in of_type(ToolCall, boston)] == [
        ("call_3_0", {"location": "Boston"}),
        ("call_3_1", {"location": "San Francisco"}),
    ]
    (items,) = of_type(ToolCall, apple)
    assert items.arguments == {
        "operations": [
            {"action": "add", "description": "Fresh red apple", "itemid": "apple_001", "price": 0.5},
            {"action": "add", "description": "Ripe yellow banana", "itemid": "banana_001", "price": 0.3},
        ]
    }
    assert "".join(delta.arguments_text for delta in of_type(ToolCallDelta, apple)).startswith(
        '{"operations":[{"action":"add","description"'
    )
