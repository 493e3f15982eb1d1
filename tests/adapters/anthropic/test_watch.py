"""The whole way: a server, the real anthropic, its transports, the guard, a typed reason, and a
connection that is gone.
"""

from __future__ import annotations

from typing import Any

import pytest

import monitor
from monitor.adapters.anthropic.stream import AnthropicAdapter
from monitor.testing import LocalAnthropic
from monitor.testing.anthropic_steps import (
    Repeat,
    block_start,
    events_of,
    start,
    text,
    thought,
)
from tests.adapters.anthropic.sdk import ASKED, TRANSPORTS, WAYS, Way, sdk
from tests.adapters.provider import watched

Reason = monitor.TerminateReason
SENTENCE = "I will now check the configuration file again to be sure. "
each_transport = pytest.mark.parametrize("transport", TRANSPORTS)
sdk_test = pytest.mark.asyncio


@sdk_test
@pytest.mark.parametrize("way", WAYS[::2], ids=lambda way: way.__name__)
async def test_a_loop_in_the_thinking_is_seen(way: Way) -> None:
    block = block_start({"type": "thinking", "thinking": "", "signature": ""})
    with LocalAnthropic([[start(), block, Repeat(thought(SENTENCE), delay_s=0.001)]]) as server:
        async with sdk(server) as client:
            outcome = (await watched(way(client))).outcome
            await server.wait_closed_async(0)
    assert outcome.reason is Reason.LOOP_DETECTED
    assert outcome.evidence is not None


@sdk_test
@each_transport
@pytest.mark.parametrize("found", [True, False], ids=["by its response", "drained"])
async def test_the_helpers_stream_of_plain_text_is_closed_too(
    transport: str, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not found:
        monkeypatch.setattr(AnthropicAdapter, "responses", lambda *_: ())
    script: list[Any] = [start(), block_start({"type": "text", "text": ""}), Repeat(text(SENTENCE), delay_s=0.001)]
    with LocalAnthropic([script, events_of("fine")]) as server:
        async with sdk(server, transport) as client:
            helper = await client.messages.stream(**ASKED).__aenter__()
            async with monitor.watch(helper.text_stream) as stream:
                async for _ in stream:
                    pass
            assert stream.outcome.reason is Reason.LOOP_DETECTED
            assert stream.outcome.closed
            await server.wait_closed_async(0)
            async with client.messages.stream(**ASKED) as helper, monitor.watch(helper.text_stream) as stream:
                assert [words async for words in stream] == ["fine"]
            assert stream.outcome.reason is Reason.STREAM_ENDED


@sdk_test
@each_transport
async def test_a_stream_inside_the_helpers_own_block_is_closed_and_the_helper_does_not_mind(transport: str) -> None:
    with LocalAnthropic(
        [[start(), block_start({"type": "text", "text": ""}), Repeat(text(SENTENCE), delay_s=0.001)]]
    ) as server:
        async with sdk(server, transport) as client, client.messages.stream(**ASKED) as helper:
            async with monitor.watch(helper) as stream:
                async for _ in stream:
                    pass
            await server.wait_closed_async(0)
            assert helper.current_message_snapshot.content[0].type == "text"
    assert stream.outcome.closed


@sdk_test
async def test_the_helpers_manager_is_to_be_entered_first() -> None:
    with LocalAnthropic([events_of("fine")]) as server:
        async with sdk(server) as client:
            manager: Any = client.messages.stream(**ASKED)
            with pytest.raises(monitor.ConfigError, match="enter it first"):
                await watched(manager)
            async with manager:
                pass
