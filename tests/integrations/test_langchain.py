"""LangChain: its chunks, and its other ways of calling a model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("langchain", reason="the framework is not installed: langchain")

from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk

import monitor
from monitor.chunks import ReasoningDelta, TextDelta, ToolCall, ToolCallDelta, UsageReport
from monitor.errors import AdapterError, ConfigError
from monitor.integrations.langchain import GuardedChatModel, GuardMiddleware, LangChainAdapter, Stopped

CHANT = "Let me check the file again. "


def fake(*answers: str) -> GenericFakeChatModel:
    messages: Iterator[Any] = iter([AIMessage(answer) for answer in answers])
    return GenericFakeChatModel(messages=messages)


def read(*chunks: AIMessageChunk) -> list[Any]:
    adapter = LangChainAdapter(0)
    return [one for chunk in chunks for one in adapter.decode(chunk)] + list(adapter.finish())


@pytest.mark.asyncio
async def test_a_guarded_model_can_stand_in_any_chain():
    async with monitor.Guard() as guard:
        model = GuardedChatModel(fake(CHANT * 1000), guard)
        with pytest.raises(Stopped) as raised:
            await model.ainvoke("Is it done?")
    assert raised.value.turn is not None
    assert raised.value.turn.text.startswith(CHANT)
    assert len(raised.value.turn.text) < 500


@pytest.mark.asyncio
async def test_the_last_message_has_the_text_without_the_copies_of_the_loop_and_the_reason():
    async with monitor.Guard() as guard:
        agent: Any = create_agent(fake("So far, so good. " + CHANT * 1000), [], middleware=[GuardMiddleware(guard)])
        state = await agent.ainvoke({"messages": [("user", "go")]})
    last = state["messages"][-1]
    assert last.text.startswith("So far, so good.")
    assert last.text.count(CHANT) <= 1
    assert last.response_metadata["agent_monitor"] == {
        "reason": "loop_detected",
        "detail": guard.outcome.detail,
        "source": guard.outcome.source,
    }


def test_a_synchronous_run_is_refused():
    agent: Any = create_agent(fake("hello"), [], middleware=[GuardMiddleware(monitor.Guard())])
    with pytest.raises(ConfigError, match="use ainvoke"):
        agent.invoke({"messages": [("user", "go")]})


@pytest.mark.asyncio
async def test_a_synchronous_call_of_the_model_is_refused():
    async with monitor.Guard() as guard:
        model = GuardedChatModel(fake("hello"), guard)
        with pytest.raises(ConfigError, match="use ainvoke"):
            await asyncio.to_thread(model.invoke, "go")


def test_an_unknown_exit_behaviour_is_refused():
    with pytest.raises(ConfigError, match="'end' or 'error'"):
        GuardMiddleware(monitor.Guard(), exit_behavior="stop")  # type: ignore[arg-type]


def test_parallel_calls_are_told_apart_by_their_index():
    chunks = read(
        AIMessageChunk(content="", tool_call_chunks=[tool_call_chunk(name="look", id="a", index=0, args='{"q"')]),
        AIMessageChunk(content="", tool_call_chunks=[tool_call_chunk(name="look", id="b", index=1, args='{"q": 2')]),
        AIMessageChunk(content="", tool_call_chunks=[tool_call_chunk(index=0, args=": 1}")]),
        AIMessageChunk(content="", tool_call_chunks=[tool_call_chunk(index=1, args="}")]),
    )
    assert [one for one in chunks if isinstance(one, ToolCall)] == [
        ToolCall("a", "look", {"q": 1}),
        ToolCall("b", "look", {"q": 2}),
    ]


def test_calls_that_all_have_index_0_are_told_apart_by_their_ids():
    chunks = read(
        AIMessageChunk(content="", tool_call_chunks=[tool_call_chunk(name="look", id="a", index=0, args='{"q": 1}')]),
        AIMessageChunk(content="", tool_call_chunks=[tool_call_chunk(name="look", id="b", index=0, args='{"q": ')]),
        AIMessageChunk(content="", tool_call_chunks=[tool_call_chunk(index=0, args="2}")]),
    )
    assert [(one.id, one.arguments) for one in chunks if isinstance(one, ToolCall)] == [
        ("a", {"q": 1}),
        ("b", {"q": 2}),
    ]


def test_whole_calls_without_an_index_are_calls():
    chunks = read(
        AIMessageChunk(content="", tool_call_chunks=[tool_call_chunk(name="look", id="a", args='{"q": 1}')]),
        AIMessageChunk(content="", tool_call_chunks=[tool_call_chunk(name="look", id="b", args='{"q": 2}')]),
    )
    assert [one.id for one in chunks if isinstance(one, ToolCall)] == ["a", "b"]
    assert [one.name for one in chunks if isinstance(one, ToolCallDelta)] == ["look", "look"]


def test_text_and_thinking_in_blocks_are_read():
    chunks = read(
        AIMessageChunk(content=[{"type": "reasoning", "reasoning": "Hm.", "index": 0}]),
        AIMessageChunk(content=[{"type": "text", "text": "Yes.", "index": 1}]),
    )
    assert chunks == [ReasoningDelta("Hm."), TextDelta("Yes.")]


def test_counts_of_several_chunks_are_added_as_langchain_adds_them():
    first: Any = {"input_tokens": 7, "output_tokens": 1, "total_tokens": 8}
    later: Any = {"input_tokens": 0, "output_tokens": 2, "total_tokens": 2}
    chunks = read(AIMessageChunk(content="", usage_metadata=first), AIMessageChunk(content="", usage_metadata=later))
    assert chunks[-1] == UsageReport(input_tokens=7, output_tokens=3, total_tokens=10)


def test_an_object_of_another_library_is_refused():
    with pytest.raises(AdapterError, match="expected a chunk of a chat model, not str"):
        LangChainAdapter().decode("hello")
