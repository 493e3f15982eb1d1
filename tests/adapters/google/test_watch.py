"""The whole way: a server, the real google-genai, its transports, the guard, a typed reason, and a
connection that is gone.
"""

from __future__ import annotations

import pytest

import monitor
from monitor.adapters.google.stream import GoogleAdapter
from monitor.testing import LocalGemini
from monitor.testing.gemini_steps import (
    Repeat,
    chunk,
    finish,
    text,
)
from tests.adapters.google.sdk import TRANSPORTS, sdk, sdk_warnings, stream
from tests.adapters.provider import watched

pytestmark = [pytest.mark.asyncio, sdk_warnings]

Reason = monitor.TerminateReason
SENTENCE = "I will now check the configuration file again to be sure. "


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
