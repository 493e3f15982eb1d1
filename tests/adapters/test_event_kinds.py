"""Every kind of event in the types of the SDKs has a row that says what is done with it. What the
model writes is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("anthropic", reason="the SDK is not installed: anthropic")
pytest.importorskip("google.genai", reason="the SDK is not installed: google-genai")
pytest.importorskip("openai", reason="the SDK is not installed: openai")

import monitor
from monitor.adapters.anthropic.stream import AnthropicAdapter
from monitor.adapters.google.stream import GoogleAdapter
from monitor.adapters.openai.stream import OpenAIAdapter
from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCallDelta
from scripts.event_kinds import KINDS, MEANINGS, PAGE, EventKind, event_kinds, page
from tests.adapters.event_types import kinds

WORDS = "words of the model"
WATCHED: dict[str, Any] = {
    "text": TextDelta,
    "thinking": ReasoningDelta,
    "call": ToolCallDelta,
    "service call": ToolCallDelta,
}


def test_every_kind_of_the_installed_sdks_has_a_row():
    rows = {row[:3] for row in event_kinds()}
    way_out = (
        f"give each a row in {KINDS.name} that ends with one of {sorted(MEANINGS)}, and run scripts/event_kinds.py"
    )
    assert sorted(set(kinds()) - rows) == [], f"an SDK has kinds that nobody reads: {way_out}"


def test_every_row_has_a_known_meaning():
    assert {row.done for row in event_kinds()} <= set(MEANINGS)


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python scripts/event_kinds.py"


def written() -> Iterator[Any]:
    for row in event_kinds():
        if row.done in WATCHED and MAKERS.get((row.sdk, row.where)) is not None:
            yield pytest.param(row, id=f"{row.sdk}-{row.kind}")


def response_event(kind: str) -> list[Chunk]:
    adapter, item = OpenAIAdapter(), {"id": "i", "call_id": "i", "name": "look", "arguments": "", "input": ""}
    item["type"] = "custom_tool_call" if "custom" in kind else "function_call"
    event = {"type": kind, "item_id": "i", "output_index": 0, "delta": WORDS, "command": WORDS}
    began = {"type": "response.output_item.added", "output_index": 0, "item": item}
    events = [began] * ("function_call" in kind or "custom" in kind) + [event]
    return [chunk for one in events for chunk in adapter.decode(SimpleNamespace(**one))]


def response_item(kind: str) -> list[Chunk]:
    fields = ("code", "arguments", "input", "queries", "action", "operation")
    item = {"type": kind, "id": "i", "name": "look", "status": "completed", **dict.fromkeys(fields, WORDS)}
    event = SimpleNamespace(type="response.output_item.done", output_index=0, item=item)
    if kind in {"local_shell_call", "shell_call", "apply_patch_call", "computer_call", "tool_search_call"}:
        item["execution"] = "server"  # else it is a call of the caller's
    return [*OpenAIAdapter().decode(event)]


def chat_delta(field: str) -> list[Chunk]:
    function = {"name": "look", "arguments": WORDS}
    given: dict[str, Any] = {"content": WORDS, "refusal": WORDS, "audio": {"transcript": WORDS}}
    given |= {"tool_calls": [{"index": 0, "id": "i", "function": function}], "function_call": function}
    choice = {"index": 0, "delta": {field: given[field]}, "finish_reason": None}
    return [*OpenAIAdapter().decode(SimpleNamespace(object="chat.completion.chunk", choices=[choice]))]


def block_start(kind: str) -> list[Chunk]:
    holder = SimpleNamespace(text=WORDS) if kind == "advisor_tool_result" else WORDS
    block = SimpleNamespace(
        type=kind, id="i", name="look", text=WORDS, thinking=WORDS, content=holder, input={"q": WORDS}
    )
    adapter = AnthropicAdapter()
    events = [
        SimpleNamespace(type="content_block_start", index=0, content_block=block),
        SimpleNamespace(type="content_block_stop", index=0),
    ]
    return [chunk for one in events for chunk in adapter.decode(one)]


def block_delta(kind: str) -> list[Chunk]:
    block = {"input_json_delta": "tool_use", "compaction_delta": "compaction"}.get(kind, "text")
    start = SimpleNamespace(type=block, id="i", name="look", text="", content=None, input={})
    delta = SimpleNamespace(type=kind, text=WORDS, thinking=WORDS, partial_json=WORDS, content=WORDS)
    adapter = AnthropicAdapter()
    events = [
        SimpleNamespace(type="content_block_start", index=0, content_block=start),
        SimpleNamespace(type="content_block_delta", index=0, delta=delta),
        SimpleNamespace(type="content_block_stop", index=0),
    ]
    return [chunk for one in events for chunk in adapter.decode(one)]


def part(name: str) -> list[Chunk]:
    given: dict[str, Any] = {
        "text": {"text": WORDS},
        "thought": {"text": WORDS, "thought": True},
        "function_call": {"function_call": SimpleNamespace(name="look", id="i", args=None, partial_args=None)},
        "executable_code": {"executable_code": SimpleNamespace(code=WORDS)},
        "tool_call": {"tool_call": SimpleNamespace(args={"q": WORDS})},
        "audio_transcription": {"audio_transcription": SimpleNamespace(text=WORDS)},
    }
    if name == "function_call":
        piece = SimpleNamespace(json_path="$.q", string_value=WORDS, will_continue=True)
        call = SimpleNamespace(name="look", id="i", args=None, partial_args=[piece], will_continue=True)
        given[name] = {"function_call": call}
    candidate = SimpleNamespace(index=0, content=SimpleNamespace(parts=[SimpleNamespace(**given[name])]))
    return [*GoogleAdapter().decode(SimpleNamespace(candidates=[candidate]))]


MAKERS: dict[tuple[str, str], Any] = {
    ("openai", "events of responses"): response_event,
    ("openai", "output items of responses"): response_item,
    ("openai", "the delta of chat completions"): chat_delta,
    ("anthropic", "blocks"): block_start,
    ("anthropic", "deltas"): block_delta,
    ("google-genai", "parts"): part,
}


@pytest.mark.parametrize("row", list(written()))
def test_what_the_model_writes_is_read(row: EventKind):
    chunks = MAKERS[row.sdk, row.where](row.kind)
    expected = WATCHED[row.done]
    found = [
        chunk.arguments_text if isinstance(chunk, ToolCallDelta) else chunk.text
        for chunk in chunks
        if isinstance(chunk, expected)
    ]
    if row.done == "call" and not found:  # a call that comes whole
        found = [str(chunk.arguments) for chunk in chunks if isinstance(chunk, monitor.chunks.ToolCall)]
    assert WORDS in "".join(found)


@pytest.mark.anyio
async def test_a_loop_in_the_code_of_an_interpreter_ends_the_run() -> None:
    pieces = [
        SimpleNamespace(type="response.code_interpreter_call_code.delta", item_id="i", output_index=0, delta=line)
        for line in ["print('checking the file again')\n"] * 500
    ]
    async with monitor.watch(iter_of(pieces), adapter=OpenAIAdapter) as watched:
        seen = [piece async for piece in watched]
    assert len(seen) < 100
    assert watched.outcome.reason is monitor.TerminateReason.LOOP_DETECTED


async def iter_of(pieces: list[Any]) -> Any:
    for piece in pieces:
        yield piece
