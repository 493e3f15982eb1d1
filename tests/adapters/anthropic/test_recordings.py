"""Every recorded Anthropic stream, served over HTTP and read through the real SDK: the contract,
and what the SDK itself makes of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from monitor._util.part_options import REDACTED
from monitor.adapters.anthropic.stream import AnthropicAdapter
from monitor.chunks import (
    Chunk,
    ReasoningDelta,
    StreamRetried,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    TurnFinished,
    UsageReport,
)
from monitor.errors import FinishReason
from monitor.messages import Reasoning
from monitor.testing import LocalAnthropic
from monitor.testing.anthropic_steps import AnthropicRecording, load_recording
from monitor.wires.anthropic import kept_block
from tests.adapters.anthropic.sdk import ASKED, WAYS, Way, of_type, sdk

STREAMS = Path(__file__).parents[3] / "fixtures" / "streams" / "anthropic"
SPLICED = "spliced-message-start.jsonl"
COMPACTED = "anthropic-compaction.1.jsonl"
"""The service compacted the history first, and says in the end how much was left: what was read
does not become less by that.
"""
RECORDED = [(file.name, message) for file in sorted(STREAMS.glob("*.jsonl")) for message in load_recording(file)]
WHOLE = [(name, message) for name, message in RECORDED if name != SPLICED]


def wire_text(message: AnthropicRecording) -> str:
    deltas = [event["delta"] for event in message.events if event["type"] == "content_block_delta"]
    return "".join(delta["text"] for delta in deltas if delta["type"] == "text_delta")


def stop_reason(message: AnthropicRecording) -> str | None:
    said = [event["message"]["stop_reason"] for event in message.events if event["type"] == "message_start"]
    said += [event["delta"]["stop_reason"] for event in message.events if event["type"] == "message_delta"]
    return next((word for word in reversed(said) if word), None)


def check(message: AnthropicRecording, chunks: list[Chunk]) -> None:
    assert "".join(chunk.text for chunk in of_type(TextDelta, chunks)) == wire_text(message)
    (finished,) = of_type(TurnFinished, chunks)
    assert chunks[-1] is finished
    word = stop_reason(message)
    assert (finished.raw_finish_reason or "").partition(":")[0] == word
    assert finished.finish_reason is (FinishReason.BLOCKED if word == "refusal" else FinishReason.DONE)
    for count in ("input_tokens", "output_tokens", "total_tokens"):
        reported = [getattr(report, count) for report in of_type(UsageReport, chunks)]
        assert reported == sorted(reported)
    for made in of_type(ToolCall, chunks):
        assert isinstance(made.arguments, dict)
        pieces = [delta.arguments_text for delta in of_type(ToolCallDelta, chunks) if delta.id == made.id]
        assert not pieces or json.loads("".join(pieces)) == made.arguments
        assert made.raw.id == made.id


def parts_of_sdk(message: Any) -> Iterator[tuple[str, Any]]:
    """What the SDK put together, apart from citations and the callers of calls."""
    for block in message.content:
        match block.type:
            case "text":
                yield "text", block.text
            case "thinking":
                yield "thinking", (block.thinking, block.signature)
            case "tool_use":
                yield "call", (block.id, block.name, block.input)
            case _:
                yield "kept", block.to_dict(mode="json", warnings=False, exclude_none=True)


def parts_of_chunks(chunks: list[Chunk]) -> Iterator[tuple[str, Any]]:
    """The same of the chunks; blocks of text cannot be told apart, so neighbours are joined on both
    sides.
    """
    thinking = ""
    for chunk in chunks:
        match chunk:
            case TextDelta(text=words):
                yield "text", words
            case ReasoningDelta(text=words, signature=None):
                thinking += words
            case ReasoningDelta(text="", origin="anthropic"):
                block = kept_block(Reasoning("", chunk.signature))
                yield "kept", "" if block is None else _without_none(block)
            case ReasoningDelta(text=words, signature=signature):
                assert signature is not None
                assert not signature.startswith(REDACTED)
                yield "thinking", (thinking + words, signature)
                thinking = ""
            case ToolCall(id=id_, name=name, arguments=arguments):
                yield "call", (id_, name, arguments)
    assert not thinking


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_none(one) for name, one in value.items() if one is not None}
    return [_without_none(one) for one in value] if isinstance(value, list) else value


def joined(parts: Iterator[tuple[str, Any]]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for kind, value in parts:
        if kind == "text" and found and found[-1][0] == "text":
            found[-1] = ("text", found[-1][1] + value)
        elif value != "":
            found.append((kind, value))
    return found


def total_input(usage: Any) -> int:
    return sum(
        getattr(usage, name) or 0 for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    )


@pytest.mark.asyncio
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_every_recording_is_read_as_it_stands_on_the_wire(way: Way):
    assert len({name for name, _ in WHOLE}) == 20
    with LocalAnthropic([message.events for _, message in WHOLE]) as server:
        async with sdk(server) as client:
            for name, message in WHOLE:
                adapter = AnthropicAdapter()
                chunks = [chunk async for item in await way(client) for chunk in adapter.decode(item)]
                chunks += adapter.finish()
                try:
                    check(message, chunks)
                except AssertionError as error:
                    error.add_note(name)
                    raise


@pytest.mark.asyncio
@pytest.mark.parametrize("beta", [False, True])
async def test_every_recording_says_what_the_sdk_itself_puts_together(beta: bool):
    with LocalAnthropic([message.events for _, message in WHOLE]) as server:
        async with sdk(server) as client:
            messages: Any = client.beta.messages if beta else client.messages
            for name, _ in WHOLE:
                adapter = AnthropicAdapter()
                async with messages.stream(**ASKED) as helper:
                    chunks = [chunk async for item in helper for chunk in adapter.decode(item)]
                    made = await helper.get_final_message()
                chunks += adapter.finish()
                usage = of_type(UsageReport, chunks)[-1]
                ours, theirs = joined(parts_of_chunks(chunks)), joined(parts_of_sdk(made))
                if not beta:  # the plain helper does not join the blocks that only the beta knows
                    ours, theirs = ([part for part in one if part[0] != "kept"] for one in (ours, theirs))
                assert ours == theirs, name
                if name != COMPACTED:
                    assert usage.input_tokens == total_input(made.usage), name
                assert usage.output_tokens == made.usage.output_tokens, name
                assert usage.cached_tokens == made.usage.cache_read_input_tokens, name


@pytest.mark.asyncio
async def test_a_message_that_begins_again_before_its_end_voids_what_came():
    """A gateway asked again; the SDK's helper mixes the two."""
    (message,) = load_recording(STREAMS / SPLICED)
    with LocalAnthropic([message.events]) as server:
        async with sdk(server) as client:
            adapter = AnthropicAdapter()
            chunks = [chunk async for item in await WAYS[0](client) for chunk in adapter.decode(item)]
    (retried,) = [at for at, chunk in enumerate(chunks) if isinstance(chunk, StreamRetried)]
    assert of_type(ToolCall, chunks[:retried]) == []
    after = chunks[retried + 1 :]
    assert [(call.id, call.arguments) for call in of_type(ToolCall, after)] == [
        ("toolu_second", {"value": "Sparkle Day"})
    ]
    assert of_type(ReasoningDelta, after) == [ReasoningDelta("Let me call the tool.", "sig-second")]
    assert len(of_type(TurnFinished, chunks)) == 1
    assert list(adapter.finish()) == []
    assert adapter.requests == 1


@pytest.mark.asyncio
async def test_recordings_of_several_messages_hold_as_one_stream_too():
    """Nobody streams like this, but a file of a whole run does; text, calls and the one finish are
    those of all its messages.
    """
    files = {name: [one for file, one in WHOLE if file == name] for name, _ in WHOLE}
    several = {name: messages for name, messages in files.items() if len(messages) > 1}
    assert len(several) == 4
    scripts = [[event for message in messages for event in message.events] for messages in several.values()]
    with LocalAnthropic(scripts) as server:
        async with sdk(server) as client:
            for name, messages in several.items():
                adapter = AnthropicAdapter()
                chunks = [chunk async for item in await WAYS[0](client) for chunk in adapter.decode(item)]
                assert list(adapter.finish()) == []
                assert "".join(chunk.text for chunk in of_type(TextDelta, chunks)) == "".join(
                    map(wire_text, messages)
                ), name
                assert [one.finish_reason for one in of_type(TurnFinished, chunks)] == [FinishReason.DONE], name
                totals = [report.total_tokens or 0 for report in of_type(UsageReport, chunks)]
                assert totals == sorted(totals), name
                assert adapter.requests == len(messages), name
