"""Objects of the SDKs that can be iterated, and are no stream of one answer: each is refused, with
the way out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("anthropic", reason="the SDK is not installed: anthropic")
pytest.importorskip("google.genai", reason="the SDK is not installed: google-genai")
pytest.importorskip("openai", reason="the SDK is not installed: openai")

from anthropic import Anthropic, AsyncAnthropic, beta_async_tool, beta_tool
from anthropic._decoders.jsonl import AsyncJSONLDecoder
from anthropic.types import Message
from google import genai
from google.genai.live import AsyncSession
from google.genai.types import LiveServerMessage
from openai import AsyncOpenAI, OpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection
from openai.types.realtime import SessionCreatedEvent

import monitor

ASK: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "go"}]}


@beta_async_tool
async def look(q: str) -> str:
    """Looks."""
    return q


@beta_tool
def look_now(q: str) -> str:
    """Looks."""
    return q


async def one(item: Any) -> AsyncIterator[Any]:
    yield item


def runner(**options: Any) -> Any:
    return AsyncAnthropic(api_key="none").beta.messages.tool_runner(**ASK, tools=[look], **options)


NO_STREAMS: dict[str, tuple[Any, str]] = {
    "realtime": (lambda: AsyncOpenAI(api_key="none").realtime.connect(model="m"), "Realtime API"),
    "realtime connection": (lambda: AsyncRealtimeConnection.__new__(AsyncRealtimeConnection), "Realtime API"),
    "realtime event": (lambda: one(SessionCreatedEvent.model_construct(type="session.created")), "Realtime API"),
    "responses connection": (AsyncOpenAI(api_key="none").responses.connect, "stream=True"),
    "live": (lambda: genai.Client(api_key="none").aio.live.connect(model="m"), "enter it first"),
    "live session": (lambda: AsyncSession.__new__(AsyncSession), "Live API"),
    "live messages": (lambda: AsyncSession.receive(AsyncSession.__new__(AsyncSession)), "Live API"),
    "live message": (lambda: one(LiveServerMessage()), "Live API"),
    "tool runner": (runner, "watch each stream that it yields"),
    "streaming tool runner": (lambda: runner(stream=True), "watch each stream that it yields"),
    "batch": (lambda: AsyncJSONLDecoder.__new__(AsyncJSONLDecoder), "batch"),
}


async def drained(given: Any) -> monitor.Outcome:
    async with monitor.watch(given) as watched:
        async for _ in watched:
            pass
    return watched.outcome


@pytest.mark.asyncio
@pytest.mark.parametrize("name", NO_STREAMS)
async def test_what_is_no_stream_of_one_answer_is_refused_with_the_way_out(name: str):
    make, way_out = NO_STREAMS[name]
    with pytest.raises(monitor.ConfigError, match=f"^cannot watch .*{way_out}"):
        await drained(make())


@pytest.mark.parametrize("name", ["realtime", "tool runner"])
def test_it_is_refused_without_an_event_loop_too(name: str):
    with Anthropic(api_key="none") as anthropic, OpenAI(api_key="none") as openai:
        given: dict[str, Any] = {
            "realtime": openai.realtime.connect(model="m"),
            "tool runner": anthropic.beta.messages.tool_runner(**ASK, tools=[look_now]),
        }
        with (
            pytest.raises(monitor.ConfigError, match=f"^cannot watch .*{NO_STREAMS[name][1]}"),
            monitor.watch(given[name]) as watched,
        ):
            list(watched)


@pytest.mark.asyncio
async def test_a_whole_message_in_a_stream_is_an_error():
    outcome = await drained(one(Message.model_construct(type="message", content=[])))
    assert outcome.reason is monitor.TerminateReason.INVALID_STREAM
    assert "anthropic.types.message.Message" in outcome.detail
