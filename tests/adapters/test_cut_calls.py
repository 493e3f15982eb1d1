"""A call counts only if the wire says that its arguments are complete: every recorded stream with
calls, cut at every place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic.types
import pytest
from anthropic._models import construct_type
from google.genai import types

from monitor.adapters.anthropic.stream import AnthropicAdapter
from monitor.adapters.google.stream import GoogleAdapter
from monitor.adapters.openai.stream import OpenAIAdapter
from monitor.chunks import Chunk, ToolCall
from monitor.testing import LocalAnthropic, LocalGemini, LocalOpenAI, anthropic_steps, gemini_steps, openai_steps
from monitor.testing.local_server import LocalServer, Scripts
from monitor.testing.openai_steps import Cut, Raw, Script, to_json
from tests.adapters import wire_signs
from tests.adapters.anthropic import sdk as anthropic_sdk
from tests.adapters.google import sdk as google_sdk
from tests.adapters.openai import sdk as openai_sdk
from tests.adapters.wire_signs import Event, Sign
from tests.examples import every_second

pytestmark = google_sdk.sdk_warnings

STREAMS = Path(__file__).parents[2] / "fixtures" / "streams"
NO_JSON = "parallel-tool-call-wrapper.1.jsonl"
"""Its first and last line lack a brace, as they were recorded."""


def anthropic_item(event: Event) -> Any:
    return construct_type(type_=anthropic.types.RawMessageStreamEvent, value=event)


@dataclass(frozen=True)
class Wire:
    """One wire format: its recordings, its SDK, its adapter."""

    name: str
    sign: Sign
    adapter: Callable[[], Any]
    item: Callable[[Event], Any]
    server: Callable[[Scripts], LocalServer]
    api: str = ""

    @functools.cached_property
    def recorded(self) -> list[tuple[str, Sequence[Event]]]:
        """The streams in which a call begins."""
        return [(name, events) for name, events in _recordings(self.name) if self.sign.calls(events)[0]]


def _recordings(wire: str) -> Iterator[tuple[str, Sequence[Event]]]:
    match wire:
        case "anthropic":
            for file in sorted((STREAMS / "anthropic").glob("*.jsonl")):
                yield from (
                    (file.name, one.events)
                    for one in anthropic_steps.load_recording(file)
                    if "spliced" not in file.name
                )
        case "gemini":
            for file in sorted([*(STREAMS / "google").glob("*.jsonl"), *(STREAMS / "gemini-cli").glob("*.responses")]):
                calls = gemini_steps.load_recording(file)
                yield from ((file.name, one.events) for one in calls if one.method == "generateContentStream")
        case "chat" | "responses":
            for file in sorted(STREAMS.glob("*-chat/*.jsonl" if wire == "chat" else "openai-responses/*.jsonl")):
                if file.name != NO_JSON:
                    yield from ((file.name, script) for script in openai_steps.load_recording(file))


WIRES = [
    Wire("anthropic", wire_signs.ANTHROPIC, AnthropicAdapter, anthropic_item, LocalAnthropic),
    Wire("chat", wire_signs.CHAT, OpenAIAdapter, openai_sdk.chunk_of, LocalOpenAI, "chat"),
    Wire("responses", wire_signs.RESPONSES, OpenAIAdapter, openai_sdk.event_of, LocalOpenAI, "responses"),
    Wire("gemini", wire_signs.GEMINI, GoogleAdapter, types.GenerateContentResponse.model_validate, LocalGemini),
]
on_every_wire = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)


def made(text: str, *pieces: str) -> dict[str, Sequence[Event]]:
    """Streams that nobody has recorded: two calls of which the first has no argument at all, by
    wire.
    """
    steps, openai = anthropic_steps, openai_steps
    look = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    return {
        "anthropic": [
            steps.start(),
            *steps.call("now", id="toolu_0"),
            steps.block_start(look, index=1),
            *[steps.arguments(piece, index=1) for piece in pieces],
            steps.block_stop(index=1),
            *steps.finish("tool_use"),
        ],
        "chat": [
            openai.call_piece("", name="now", id="a", at=0),
            openai.call_piece("", name="look", id="b", at=1),
            *[openai.call_piece(piece, at=1) for piece in pieces],
            openai.finish("tool_calls"),
        ],
        "responses": [
            openai.response_created(),
            *openai.response_call("now", "", id="a", at=0),
            *openai.response_call("look", text, id="b", at=1, cut=4),
            openai.response_finish(),
        ],
        "gemini": [
            gemini_steps.partial_call("now", more=True),
            gemini_steps.partial_call("look", more=True),
            *[
                gemini_steps.partial_call(pieces=[gemini_steps.piece("$.q", piece, more=True)], more=True)
                for piece in pieces
            ],
            gemini_steps.partial_call(pieces=[gemini_steps.piece("$.q", "")], more=True),
            gemini_steps.partial_call(),
            gemini_steps.finish(),
        ],
    }


MADE = made('{"q": "a b c"}', '{"q', '": "a b', ' c"}')


def streams(wire: Wire) -> Iterator[tuple[str, Sequence[Event]]]:
    yield from wire.recorded
    yield "made", MADE[wire.name]


def read(wire: Wire, items: Sequence[Any]) -> list[Chunk]:
    adapter = wire.adapter()
    return [*(chunk for item in items for chunk in adapter.decode(item)), *adapter.finish()]


def own_calls(chunks: Sequence[Chunk]) -> list[ToolCall]:
    """Calls that come in pieces, or could; not those of OpenAI's own tools, which come whole."""
    kinds = {None, "function_call", "custom_tool_call", "tool_use"}
    return [
        one for one in chunks if isinstance(one, ToolCall) and getattr(one.raw, "type", None) in kinds | {"function"}
    ]


def check(wire: Wire, events: Sequence[Event], calls: Sequence[ToolCall]) -> None:
    begun, signed = wire.sign.calls(events)
    assert len(calls) == begun, "a call that began is told of once, whole or not"
    assert {number: call.arguments for number, call in enumerate(calls) if isinstance(call.arguments, dict)} == signed
    assert all(isinstance(call.arguments, dict | str) for call in calls)


@on_every_wire
def test_a_call_is_whole_only_where_the_wire_says_so_wherever_its_stream_is_cut(wire: Wire):
    assert wire.recorded
    for name, events in streams(wire):
        items = [wire.item(event) for event in events]
        for at in range(len(events) + 1):
            for number, ending in enumerate(wire.sign.endings(events[:at]) if at < len(events) else [[]]):
                calls = own_calls(read(wire, [*items[:at], *map(wire.item, ending)]))
                try:
                    check(wire, [*events[:at], *ending], calls)
                except AssertionError as error:
                    error.add_note(f"{name}, cut after {at} of {len(events)} events, ending {number}")
                    raise


def bodies(events: Sequence[Event]) -> Iterator[tuple[int, Script]]:
    """The stream, cut in the middle of the body of each of its events, before its last byte, and
    before the blank line that ends it.
    """
    first = max(
        0, next((at for at, event in enumerate(events) if "tool" in str(event) or "unctionCall" in str(event)), 0)
    )
    for at in range(first, len(events), max(1, (len(events) - first) // 6)):
        data = b"data: " + to_json(events[at])
        for size in (3, len(data) // 2, len(data) - 1):
            yield at, [*events[:at], Raw(data[:size]), Cut()]


async def chunks_until_it_fails(wire: Wire, client: Any, adapter: Any) -> list[Chunk]:
    """What came before the cut. Some SDKs raise there, and each raises something else."""
    chunks: list[Chunk] = []
    try:
        match wire.name:
            case "anthropic":
                stream: Any = await anthropic_sdk.stream(client)
            case "gemini":
                stream = await google_sdk.stream(client)
            case _:
                stream = await openai_sdk.stream(client, wire.api)
        async for item in stream:
            chunks += adapter.decode(item)
    except Exception as error:
        if adapter.classify(error).kind not in {"network", "malformed"}:
            raise
    return [*chunks, *adapter.finish()]


@pytest.mark.asyncio
@on_every_wire
async def test_a_call_is_whole_only_where_the_wire_says_so_where_the_body_of_an_event_is_cut(wire: Wire):
    cases = every_second((name, events, *cut) for name, events in streams(wire) for cut in bodies(events))[:400]
    sdk: Any = {"anthropic": anthropic_sdk.sdk, "gemini": google_sdk.sdk}.get(wire.name, openai_sdk.sdk)
    with wire.server([script for *_, script in cases]) as server:
        async with sdk(server) as client:
            for name, events, at, _ in cases:
                calls = own_calls(await chunks_until_it_fails(wire, client, wire.adapter()))
                try:
                    check(wire, events[:at], calls)
                except AssertionError as error:
                    error.add_note(f"{name}, cut inside event {at}")
                    raise


PIECES = (".function_call_arguments.delta", ".custom_tool_call_input.delta")
TELLING = (*PIECES, ".function_call_arguments.done", ".output_item.added", ".output_item.done", ".completed")


def disturbed(items: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
    """The stream with one event twice, with two events in the other order, and without one piece of
    a call's arguments.
    """
    places = [at for at, item in enumerate(items) if item.type.endswith(TELLING)]
    for at in places[:: max(1, len(places) // 40)] + places[-3:]:
        yield f"event {at} twice", [*items[: at + 1], items[at], *items[at + 1 :]]
        yield f"event {at} late", [*items[:at], *items[at + 1 : at + 2], items[at], *items[at + 2 :]]
        if items[at].type.endswith(PIECES):
            yield f"no event {at}", [*items[:at], *items[at + 1 :]]


def test_a_call_of_a_response_is_what_its_finished_item_says_and_counts_once():
    wire = next(wire for wire in WIRES if wire.name == "responses")

    def calls(items: Sequence[Any]) -> list[ToolCall]:
        return [one for one in read(wire, items) if isinstance(one, ToolCall)]

    for name, events in streams(wire):
        items = [wire.item(event) for event in events]
        whole = calls(items)
        for what, others in disturbed(items):
            assert calls(others) == whole, f"{name}, {what}"
