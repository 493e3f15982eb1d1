"""The whole way: a server, the real google-genai, its transports, the guard, a typed reason, and a
connection that is gone.
"""

from __future__ import annotations

import pytest
from google.genai import types

import monitor
from monitor.adapters.google.stream import GoogleAdapter
from monitor.testing.gemini_steps import (
    Repeat,
    call,
    chunk,
    finish,
    text,
)
from monitor.testing.servers.gemini_server import LocalGemini
from tests.adapters.google.sdk import TRANSPORTS, sdk, sdk_warnings, stream
from tests.adapters.provider import watched

pytestmark = [pytest.mark.asyncio, sdk_warnings]

Reason = monitor.TerminateReason
SENTENCE = "I will now check the configuration file again to be sure. "


async def test_automatic_function_calling_is_refused_with_the_line_to_write() -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    config = types.GenerateContentConfig(tools=[add])
    with LocalGemini([[call("add", {"a": 1, "b": 2}), finish()], [text("3"), finish()]]) as server:
        async with sdk(server) as client, monitor.watch(stream(client, config)) as guarded:
            async for _ in guarded:
                pass
    outcome = guarded.outcome
    assert outcome.reason is Reason.INVALID_STREAM
    assert "automatic_function_calling" in outcome.detail


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_stream_whose_response_is_not_found_is_drained(transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GoogleAdapter, "responses", lambda *_: ())
    with LocalGemini([[Repeat(text(SENTENCE), delay_s=0.001)]]) as server:
        async with sdk(server, transport) as client:
            outcome = (await watched(stream(client))).outcome
            await server.wait_closed_async(0)
    assert outcome.closed


async def test_a_continuation_by_the_sdk_is_an_event_and_counts_as_a_model_call() -> None:
    token = "Y29udGludWU="
    first = chunk([{"text": "one "}], finish_reason="CONTINUATION", continuation_token=token, response_id="a")
    sink = monitor.sinks.MemorySink()
    with LocalGemini([[first], [text("two", response_id="b"), finish()]]) as server:
        async with sdk(server) as client:
            async with monitor.watch(stream(client), sinks=[sink]) as guarded:
                async for _ in guarded:
                    pass
            assert len(server.requests) == 2
    assert guarded.turn.text == "one two"
    assert [event.model_call for event in sink.events if isinstance(event, monitor.events.StreamContinued)] == [2]
