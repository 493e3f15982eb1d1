"""The whole way: a server, the real OpenAI SDK, both APIs and transports, the guard, a typed
reason, and a connection that is gone.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from openai import AsyncOpenAI

import monitor
from monitor.models import ErrorKind
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import (
    Stall,
    events_of,
    response_events_of,
    response_failed,
    response_text,
)
from tests.adapters.openai.sdk import aiohttp_warnings, sdk, stream

pytestmark = [pytest.mark.asyncio, aiohttp_warnings]

Reason = monitor.TerminateReason
SENTENCE = "I will now check the configuration file again to be sure. "


@pytest.mark.parametrize("helper", ["chat", "responses"])
async def test_the_sdks_helper_streams_are_watched_and_closed(helper: str) -> None:
    def opened(client: AsyncOpenAI) -> Any:
        if helper == "chat":
            return client.chat.completions.stream(model="m", messages=[])
        return client.responses.stream(model="m", input="x")

    whole = events_of if helper == "chat" else response_events_of
    with LocalOpenAI([whole(SENTENCE * 100), whole("fine")]) as server:
        async with sdk(server) as client:
            async with opened(client) as source, monitor.watch(source) as watched:
                async for _ in watched:
                    pass
            assert watched.outcome.reason is Reason.LOOP_DETECTED
            async with opened(client) as source, monitor.watch(source) as watched:
                async for _ in watched:
                    pass
            assert (watched.outcome.reason, watched.turn.text) == (Reason.STREAM_ENDED, "fine")
            assert watched.turn.usage.total_tokens == 10


async def test_a_failure_that_the_sdk_does_not_raise_is_an_error_of_the_call_and_its_object_is_delivered() -> None:
    sink = monitor.sinks.MemorySink()
    with LocalOpenAI(
        [[response_text("a"), response_failed("server_error", "It broke."), Stall()], response_events_of("fine")]
    ) as server:
        async with sdk(server) as client, monitor.Guard(sinks=[sink]) as guard:
            async with guard.watch(partial(stream, client, "responses")) as watched:
                types = [item.type async for item in watched]
            assert types == ["response.output_text.delta", "response.failed"]
            assert watched.turn.model_error is not None
            assert (watched.turn.model_error.kind, watched.turn.model_error.message) == (ErrorKind.SERVER, "It broke.")
            await server.wait_closed_async(0)
            async with guard.watch(partial(stream, client, "responses")) as watched:  # the same turn again
                async for _ in watched:
                    pass
            assert watched.turn.text == "fine"
    assert guard.outcome is not None
    assert guard.outcome.reason is Reason.STREAM_ENDED
    assert guard.outcome.turns == 1
    assert [event.error.kind for event in sink.events if isinstance(event, monitor.events.StreamFailed)] == [
        ErrorKind.SERVER
    ]
