"""Blocks of the service's own work: they go back as they came, and in their places."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import monitor
from monitor import AssistantMessage, UserMessage
from monitor.adapters import to_form
from monitor.adapters.anthropic.model import to_messages
from monitor.adapters.anthropic.stream import AnthropicAdapter
from monitor.adapters.parts import JsonView
from monitor.chunks import ReasoningDelta, TextDelta, ToolCall, TurnFinished
from monitor.context import repair
from monitor.core.turn import MessageBuilder
from monitor.errors import FinishReason
from monitor.messages import Message, Text, message_codec
from monitor.sessions import SQLiteSession
from monitor.testing import LocalAnthropic
from monitor.testing.anthropic_steps import arguments, block_delta, finish, say, start, text, whole
from tests.adapters.anthropic.sdk import sdk

GO = UserMessage((Text("Go on."),))
SEARCH: dict[str, Any] = {
    "type": "server_tool_use",
    "id": "srvtoolu_0",
    "name": "web_search",
    "input": {"query": "é", "a": [1]},
}
FOUND: dict[str, Any] = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_0",
    "content": [{"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": "eA==", "page_age": None}],
}
SERVED: list[tuple[dict[str, Any], ...]] = [
    (SEARCH, FOUND),
    (
        {"type": "mcp_tool_use", "id": "mcptoolu_0", "name": "x", "server_name": "y", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_0", "is_error": False, "content": []},
    ),
    (
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {"code": "print(1)"}},
        {
            "type": "code_execution_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": {
                "type": "code_execution_result",
                "stdout": "1",
                "stderr": "",
                "return_code": 0,
                "content": [{"type": "code_execution_output", "file_id": "f"}],
            },
        },
    ),
    ({"type": "container_upload", "file_id": "file_0"},),
    ({"type": "compaction", "content": "the summary", "encrypted_content": "eA=="},),
    ({"type": "a_block_of_tomorrow", "whatever": {"b": None, "a": [1, "x"]}},),
    ({"type": "thinking", "thinking": "hm", "signature": "c2lnbmVk"},),
    ({"type": "redacted_thinking", "data": "ZGF0YQ=="},),
    ({"type": "text", "text": "So it is."},),
    ({"type": "text", "text": "é is one.", "citations": [{"type": "web_search_result_location", "url": "u"}]},),
    (
        {
            "type": "tool_use",
            "id": "toolu_0",
            "name": "f",
            "input": {"z": 1, "a": "x"},
            "caller": {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"},
        },
    ),
]


def written(block: dict[str, Any], index: int, *, cut: int = 7) -> list[dict[str, Any]]:
    """The events of a block, as the service streams it."""
    match block:
        case {"type": "text", "text": words}:
            cites = [block_delta({"type": "citations_delta", "citation": one}) for one in block.get("citations", ())]
            return whole({"type": "text", "text": ""}, *cites, text(words[:cut]), text(words[cut:]), index=index)
        case {"type": "thinking"}:
            pieces = [block_delta({"type": f"{kind}_delta", kind: block[kind]}) for kind in ("thinking", "signature")]
            return whole({"type": "thinking", "thinking": "", "signature": ""}, *pieces, index=index)
        case {"type": "compaction"}:
            fields = {name: value for name, value in block.items() if name != "type"}
            empty = {"type": "compaction", "content": None}
            return whole(empty, block_delta({"type": "compaction_delta", **fields}), index=index)
        case {"input": asked} if asked:
            words = json.dumps(asked)
            return whole({**block, "input": {}}, *map(arguments, ("", words[:cut], words[cut:])), index=index)
    return whole(block, index=index)


def heard(events: list[Any], finish_reason: FinishReason | None = FinishReason.DONE) -> AssistantMessage:
    """The message of a run that has heard `events`, after it was stored and loaded."""
    adapter, reply = AnthropicAdapter(), MessageBuilder({"text": 0, "reasoning": 0})
    for chunk in [*(one for event in events for one in adapter.decode(JsonView(event))), *adapter.finish()]:
        match chunk:
            case TextDelta(words):
                reply.add_text(words)
            case ReasoningDelta():
                reply.add_reasoning(chunk)
            case ToolCall():
                reply.add_call(chunk)
            case TurnFinished(finish_reason=finish_reason):
                pass
    stored = message_codec.loads(message_codec.dumps(AssistantMessage(reply.parts(), (), finish_reason)))
    assert isinstance(stored, AssistantMessage)
    return stored


def sent(*messages: Message) -> list[dict[str, Any]]:
    return [block for one in to_messages([GO, *messages]) if one["role"] == "assistant" for block in one["content"]]


def joined(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`blocks`, with neighbours of plain text joined: the history does not tell them apart."""
    found: list[dict[str, Any]] = []
    for block in blocks:
        if found and block.keys() == found[-1].keys() == {"type", "text"}:
            found[-1] = {"type": "text", "text": found[-1]["text"] + block["text"]}
        else:
            found.append(block)
    return found


sequences = st.lists(st.sampled_from(SERVED), unique_by=lambda one: one[0].get("id", id(one)), max_size=8)


@given(sequences)
@settings(max_examples=60)
def test_blocks_go_back_in_the_order_and_the_form_in_which_they_came(chosen: list[tuple[dict[str, Any], ...]]):
    blocks = [block for group in chosen for block in group]
    events = [event for index, block in enumerate(blocks) for event in written(block, index)]
    said = heard([start(), *events, *finish()])
    while blocks and "thinking" in blocks[-1]["type"]:  # the service refuses thinking at the end
        blocks.pop()
    assert json.dumps(sent(said), sort_keys=True) == json.dumps(joined(blocks), sort_keys=True)


@given(sequences, st.data())
@settings(max_examples=60)
def test_a_cut_stream_leaves_no_half_block_and_no_call_of_the_service_without_its_result(
    chosen: list[tuple[dict[str, Any], ...]], data: st.DataObject
):
    blocks = [block for group in chosen for block in group]
    events = [event for index, block in enumerate(blocks) for event in written(block, index)]
    said = heard(events[: data.draw(st.integers(0, len(events)))], FinishReason.LENGTH)
    kept = [block for block in sent(said, GO) if block["type"] not in ("text", "thinking", "tool_use")]
    whole_ones = [block for block in blocks if block["type"] not in ("text", "thinking", "tool_use")]
    called = {block["id"] for block in kept if "id" in block}
    assert called == {block["tool_use_id"] for block in kept if "tool_use_id" in block}
    assert kept == [block for block in whole_ones if block in kept]


@pytest.mark.parametrize("form", ["openai-chat", "openai-responses", "gemini"])
def test_no_other_provider_gets_a_block_of_this_service(form: Any):
    blocks = [block for group in SERVED for block in group]
    events = [event for index, block in enumerate(blocks) for event in written(block, index)]
    words = json.dumps(to_form(form, [GO, heard([start(), *events, *finish()]), GO]), default=str)
    assert "So it is." in words
    assert not [
        name for name in ("srvtoolu", "mcptoolu", "encrypted", "file_0", "tomorrow", "tool_id") if name in words
    ]


@pytest.mark.parametrize(
    ("finish_reason", "behind", "expected"),
    [
        (FinishReason.INTERRUPTED, (), [SEARCH]),
        (FinishReason.LENGTH, (), []),
        (FinishReason.DONE, (), []),
        (FinishReason.INTERRUPTED, (GO,), []),
    ],
)
def test_a_call_of_the_service_waits_for_its_result_only_where_the_service_goes_on(
    finish_reason: FinishReason, behind: tuple[Message, ...], expected: list[Any]
):
    assert sent(heard(written(SEARCH, 0), finish_reason), *behind) == expected


def test_a_call_of_the_service_waits_behind_each_turn_that_calls_tools_for_it():
    calls = [{"type": "tool_use", "id": f"toolu_{number}", "name": "f", "input": {}} for number in range(2)]
    turns = [heard([*written(SEARCH, 0), *written(calls[0], 1)]), heard(written(calls[1], 0))]
    assert sent(*turns) == [SEARCH, *calls]
    assert sent(*turns, heard(written(FOUND, 0))) == [SEARCH, *calls, FOUND]


def test_a_result_of_the_service_whose_call_is_gone_is_left_out():
    assert sent(heard([*written(FOUND, 0), *written({"type": "text", "text": "So."}, 1)])) == [
        {"type": "text", "text": "So."}
    ]


@pytest.mark.asyncio
@pytest.mark.parametrize("words", [[], say("I look. ")])
async def test_a_paused_turn_goes_on_with_its_own_content_and_no_word_of_the_users(words: list[dict[str, Any]]):
    paused = [start(), *words, *written(SEARCH, 1), *finish("pause_turn")]
    rest = [start(), *written(FOUND, 0), *say("It is one.", index=1), *finish()]
    with LocalAnthropic([paused, rest, [start(), *say("done"), *finish()]]) as server:
        async with sdk(server) as client:
            model = monitor.model("anthropic:claude-test", client=client)
            supervisor = monitor.Supervisor(model, stop_when=monitor.MaxTurns(4))
            outcome = await supervisor.run("go")
            await supervisor.run("more", history=outcome.history)
        _, again, last = (request.body["messages"] for request in server.requests)
    before = [{"type": "text", "text": "I look. "}] if words else []
    assert outcome.ok
    assert outcome.turns == 2
    assert again[1:] == [{"role": "assistant", "content": [*before, SEARCH]}]
    assert last[1]["content"] == [*before, SEARCH, FOUND, {"type": "text", "text": "It is one."}]
    assert last[2] == {"role": "user", "content": [{"type": "text", "text": "more"}]}


def test_a_repair_that_drops_a_call_leaves_the_work_of_the_service_before_it():
    call = {"type": "tool_use", "id": "toolu_0", "name": "gone", "input": {}}
    blocks = [SEARCH, FOUND, call]
    said = heard([event for index, block in enumerate(blocks) for event in written(block, index)])
    repaired, _ = repair([GO, said], form="anthropic", tools=["another"])
    assert sent(*repaired[1:]) == [SEARCH, FOUND]


@pytest.mark.asyncio
async def test_a_session_that_is_opened_again_still_has_the_blocks(tmp_path: Path):
    first = [start(), *written(SEARCH, 0), *written(FOUND, 1), *say("It is one.", index=2), *finish()]
    with LocalAnthropic([first, [start(), *say("done"), *finish()]]) as server:
        for words in ("go", "more"):
            async with sdk(server) as client, SQLiteSession(tmp_path / "s.session") as session:
                model = monitor.model("anthropic:claude-test", client=client)
                supervisor = monitor.Supervisor(model, stop_when=monitor.MaxTurns(2))
                await supervisor.run(words, session=session)
        assert server.requests[-1].body["messages"][1]["content"][:2] == [SEARCH, FOUND]
