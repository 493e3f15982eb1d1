"""The whole way: a server, the real google-genai, its transports, the guard, a typed reason, and a
connection that is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.genai import types
from google.genai.client import AsyncClient

import monitor
from monitor.adapters.google.stream import GoogleAdapter
from monitor.testing.gemini_steps import (
    Cut,
    Pause,
    Repeat,
    Reset,
    Stall,
    blocked,
    call,
    chunk,
    error_reply,
    finish,
    overflow,
    rate_limited,
    text,
)
from monitor.testing.servers.gemini_server import LocalGemini
from tests.adapters.google.sdk import PLAIN, TRANSPORTS, received, sdk, sdk_warnings, stream

pytestmark = [pytest.mark.asyncio, sdk_warnings]

Reason = monitor.TerminateReason
SENTENCE = "I will now check the configuration file again to be sure. "
CLOSE_S = 0.5
"""Far above the 50 ms that bench.close measures: a busy test machine is no bug, a connection that
stays open is.
"""


async def _watch(client: AsyncClient, **options: Any) -> monitor.harness.Watch[types.GenerateContentResponse]:
    watch = monitor.watch(stream(client), **options)
    async with watch as watched:
        async for _ in watched:
            pass
    return watch


async def _abort_when_asked(watch: monitor.harness.Watch[Any], server: LocalGemini, *, number: int) -> None:
    """Once the server has the request, and has sent what it will send before it stalls."""
    await asyncio.to_thread(server.wait_request, number)
    await asyncio.sleep(0.02)
    watch.abort("enough")


def _outcome(watch: monitor.harness.Watch[Any]) -> monitor.Outcome:
    return watch.outcome


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_stream_that_chants_is_stopped_and_the_server_sees_the_connection_gone(transport: str) -> None:
    with LocalGemini([[Repeat(text(SENTENCE), delay_s=0.001)], [text("fine"), finish()]]) as server:
        async with sdk(server, transport) as client:
            outcome = _outcome(await _watch(client))
            assert outcome.reason is Reason.LOOP_DETECTED
            assert outcome.closed
            await server.wait_closed_async(0, timeout_s=CLOSE_S)
            assert next(item.text for item in await received(client)) == "fine"  # the client stays usable


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("script", [[text("a"), Stall()], [Stall()]], ids=["waiting", "before the headers"])
async def test_an_idle_provider_and_an_abort_close_the_connection(transport: str, script: list[Any]) -> None:
    with LocalGemini([script]) as server:
        async with sdk(server, transport) as client:
            idle = _outcome(await _watch(client, stop_when=monitor.IdleTimeout(0.3)))
            assert idle.reason is Reason.IDLE_TIMEOUT
            await server.wait_closed_async(0, timeout_s=CLOSE_S)

            watch = monitor.watch(stream(client))
            aborting = asyncio.create_task(_abort_when_asked(watch, server, number=1))
            async with watch as watched:
                async for _ in watched:
                    pass
            await aborting
            assert _outcome(watch).reason is Reason.ABORTED
            await server.wait_closed_async(1, timeout_s=CLOSE_S)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_break_closes_the_connection(transport: str) -> None:
    with LocalGemini([[Repeat(text("a "), delay_s=0.001)]]) as server:
        async with sdk(server, transport) as client:
            async with monitor.watch(stream(client)) as watched:
                async for _ in watched:
                    break
            assert _outcome(watched).reason is Reason.CLOSED_BY_CALLER
            assert _outcome(watched).closed
            await server.wait_closed_async(0, timeout_s=CLOSE_S)


async def test_a_break_of_a_wrapper_around_the_sdks_stream_closes_the_connection() -> None:
    async def wrapped(client: AsyncClient) -> AsyncIterator[types.GenerateContentResponse]:
        async for item in await stream(client):
            yield item

    with LocalGemini([[Repeat(text("a "), delay_s=0.001)]]) as server:
        async with sdk(server) as client:
            async with monitor.watch(wrapped(client)) as watched:
                async for _ in watched:
                    break
            assert _outcome(watched).reason is Reason.CLOSED_BY_CALLER
            assert _outcome(watched).closed
            await server.wait_closed_async(0, timeout_s=CLOSE_S)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ([text("whole"), finish()], Reason.STREAM_ENDED),
        ([text("cut short")], Reason.TRUNCATED),
        ([text("long"), finish("MAX_TOKENS")], Reason.TRUNCATED),
        ([finish("MALFORMED_FUNCTION_CALL")], Reason.INVALID_STREAM),
        ([text("bad"), finish("SAFETY")], Reason.BLOCKED),
        ([blocked()], Reason.BLOCKED),
        ([text("a"), Cut()], Reason.ERROR),
        ([text("a"), Reset()], Reason.ERROR),
        ([rate_limited()], Reason.RATE_LIMITED),
        ([overflow()], Reason.PROMPT_TOO_LONG),
        ([error_reply(503)], Reason.ERROR),
        ([error_reply(401)], Reason.ERROR),
    ],
    ids=str,
)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_every_way_a_stream_can_end_has_its_reason(transport: str, script: list[Any], reason: Reason) -> None:
    with LocalGemini([script]) as server:
        async with sdk(server, transport) as client:
            outcome = _outcome(await _watch(client))
    assert outcome.reason is reason, outcome
    assert outcome.ok is (reason is Reason.STREAM_ENDED)


async def test_a_tool_call_repeated_over_turns_is_a_loop_and_its_result_may_be_named_by_the_sdks_own_call() -> None:
    with LocalGemini([[call("search", {"q": "same"}), finish()]]) as server:
        async with sdk(server) as client, monitor.Guard() as guard:
            turns = 0
            while turns < 10:
                turns += 1
                async with guard.watch(stream(client)) as watched:
                    calls = [call async for item in watched for call in item.function_calls or ()]
                if isinstance(guard.check(), monitor.Stop):
                    break
                guard.tool_result(calls[0], {"found": []})
    assert turns == 5
    assert _outcome(guard).reason is Reason.LOOP_DETECTED  # type: ignore[arg-type]


async def test_automatic_function_calling_is_refused_with_the_line_to_write() -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    config = types.GenerateContentConfig(tools=[add])
    with LocalGemini([[call("add", {"a": 1, "b": 2}), finish()], [text("3"), finish()]]) as server:
        async with sdk(server) as client, monitor.watch(stream(client, config)) as watched:
            async for _ in watched:
                pass
    outcome = _outcome(watched)
    assert outcome.reason is Reason.INVALID_STREAM
    assert "automatic_function_calling" in outcome.detail


async def test_a_guarded_stream_gives_what_the_bare_one_gives() -> None:
    script: list[Any] = [text("Hello "), Pause(0.001), text("there"), call("f", {"x": 1}), finish()]
    with LocalGemini([script]) as server:
        async with sdk(server) as client:
            bare = await received(client)
            async with monitor.watch(stream(client, PLAIN)) as watched:
                guarded = [item async for item in watched]
    drop = {"sdk_http_response"}
    assert [item.model_dump(exclude=drop) for item in guarded] == [item.model_dump(exclude=drop) for item in bare]
    assert watched.turn.text == "Hello there"
    assert [c.name for c in watched.turn.tool_calls] == ["f"]


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_flood_is_closed_at_once_and_nothing_is_dropped(transport: str) -> None:
    with LocalGemini([[Repeat(text(SENTENCE))]]) as server:
        async with sdk(server, transport) as client:
            outcome = _outcome(await _watch(client))
            await server.wait_closed_async(0, timeout_s=CLOSE_S)
    assert outcome.reason is Reason.LOOP_DETECTED
    assert outcome.closed
    assert outcome.chunks_after_decision == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_stream_whose_response_is_not_found_is_drained(transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GoogleAdapter, "responses", lambda *_: ())
    with LocalGemini([[Repeat(text(SENTENCE), delay_s=0.001)]]) as server:
        async with sdk(server, transport) as client:
            outcome = _outcome(await _watch(client))
            await server.wait_closed_async(0, timeout_s=CLOSE_S)
    assert outcome.closed


async def test_a_continuation_by_the_sdk_is_an_event_and_counts_as_a_model_call() -> None:
    token = "Y29udGludWU="
    first = chunk([{"text": "one "}], finish_reason="CONTINUATION", continuation_token=token, response_id="a")
    sink = monitor.sinks.MemorySink()
    with LocalGemini([[first], [text("two", response_id="b"), finish()]]) as server:
        async with sdk(server) as client:
            async with monitor.watch(stream(client), sinks=[sink]) as watched:
                async for _ in watched:
                    pass
            assert len(server.requests) == 2
    assert watched.turn.text == "one two"
    assert [event.model_call for event in sink.events if isinstance(event, monitor.events.StreamContinued)] == [2]


async def test_the_delay_that_the_service_asks_for_is_told() -> None:
    with LocalGemini([[rate_limited(7)]]) as server:
        async with sdk(server) as client:
            watch = await _watch(client)
    assert watch.turn.model_error is not None
    assert watch.turn.model_error.retry_after_s == 7
    assert "asks to wait 7 s" in watch.outcome.detail
