"""The whole way: a server, the real anthropic, its transports, the guard, a typed reason, and a
connection that is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from anthropic import AsyncAnthropic

import monitor
from monitor.adapters.anthropic.stream import AnthropicAdapter
from monitor.testing.anthropic_steps import (
    Cut,
    Pause,
    Repeat,
    Reset,
    Stall,
    block_start,
    call,
    delta,
    error_reply,
    finish,
    midstream_error,
    overflow,
    overloaded,
    rate_limited,
    say,
    start,
    text,
    think,
    thought,
    too_large,
)
from monitor.testing.servers.anthropic_server import LocalAnthropic
from tests.adapters.anthropic.sdk import ASKED, TRANSPORTS, WAYS, Way, received, sdk, stream

Reason = monitor.TerminateReason
SENTENCE = "I will now check the configuration file again to be sure. "
CLOSE_S = 0.5
"""Far above the 50 ms that bench.close measures: a busy test machine is no bug, a connection that
stays open is.
"""
FINE = [start(), *say("fine"), *finish()]
each_transport = pytest.mark.parametrize("transport", TRANSPORTS)
each_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
sdk_test = pytest.mark.asyncio


async def _watch(client: AsyncAnthropic, way: Way = stream, **options: Any) -> monitor.harness.Watch[Any]:
    watch = monitor.watch(way(client), **options)
    async with watch as watched:
        async for _ in watched:
            pass
    return watch


async def _abort_when_asked(watch: monitor.harness.Watch[Any], server: LocalAnthropic, *, number: int) -> None:
    """Once the server has the request, and has sent what it will send before it stalls."""
    await asyncio.to_thread(server.wait_request, number)
    await asyncio.sleep(0.02)
    watch.abort("enough")


def _fine(items: list[Any]) -> bool:
    return any(getattr(getattr(item, "delta", None), "text", None) == "fine" for item in items)


@sdk_test
@each_transport
@each_way
async def test_a_stream_that_chants_is_stopped_and_the_server_sees_the_connection_gone(
    transport: str, way: Way
) -> None:
    with LocalAnthropic(
        [[start(), block_start({"type": "text", "text": ""}), Repeat(text(SENTENCE), delay_s=0.001)], FINE]
    ) as server:
        async with sdk(server, transport) as client:
            outcome = (await _watch(client, way)).outcome
            assert outcome.reason is Reason.LOOP_DETECTED
            assert outcome.closed
            await server.wait_closed_async(0, timeout_s=CLOSE_S)
            assert _fine(await received(client, way))  # the client stays usable


@sdk_test
@pytest.mark.parametrize("way", WAYS[::2], ids=lambda way: way.__name__)
async def test_a_loop_in_the_thinking_is_seen(way: Way) -> None:
    block = block_start({"type": "thinking", "thinking": "", "signature": ""})
    with LocalAnthropic([[start(), block, Repeat(thought(SENTENCE), delay_s=0.001)]]) as server:
        async with sdk(server) as client:
            outcome = (await _watch(client, way)).outcome
            await server.wait_closed_async(0, timeout_s=CLOSE_S)
    assert outcome.reason is Reason.LOOP_DETECTED
    assert outcome.evidence is not None


@sdk_test
@each_transport
@pytest.mark.parametrize("script", [[start(), Stall()], [Stall()]], ids=["waiting", "before the headers"])
async def test_an_idle_provider_and_an_abort_close_the_connection(transport: str, script: list[Any]) -> None:
    with LocalAnthropic([script]) as server:
        async with sdk(server, transport) as client:
            idle = (await _watch(client, stop_when=monitor.IdleTimeout(0.3))).outcome
            assert idle.reason is Reason.IDLE_TIMEOUT
            await server.wait_closed_async(0, timeout_s=CLOSE_S)

            watch = monitor.watch(stream(client))
            aborting = asyncio.create_task(_abort_when_asked(watch, server, number=1))
            async with watch as watched:
                async for _ in watched:
                    pass
            await aborting
            assert watch.outcome.reason is Reason.ABORTED
            await server.wait_closed_async(1, timeout_s=CLOSE_S)


@pytest.mark.anyio
@pytest.mark.filterwarnings(
    "ignore:Async generator .* was garbage collected:ResourceWarning"
)  # httpcore2 leaves one to the collector on trio
async def test_deadlines_and_aborts_hold_on_every_event_loop() -> None:
    with LocalAnthropic([[start(), Stall()], FINE]) as server:
        async with sdk(server) as client:
            outcome = (await _watch(client, stop_when=monitor.Timeout(0.1))).outcome
            assert outcome.reason is Reason.TIMEOUT
            await server.wait_closed_async(0, timeout_s=CLOSE_S)
            assert _fine(await received(client))


@sdk_test
@each_transport
@each_way
async def test_a_break_closes_the_connection(transport: str, way: Way) -> None:
    with LocalAnthropic([[start(), Repeat(text("a "), delay_s=0.001)]]) as server:
        async with sdk(server, transport) as client:
            async with monitor.watch(way(client)) as watched:
                async for _ in watched:
                    break
            assert watched.outcome.reason is Reason.CLOSED_BY_CALLER
            assert watched.outcome.closed
            await server.wait_closed_async(0, timeout_s=CLOSE_S)


@sdk_test
@each_transport
@pytest.mark.parametrize("found", [True, False], ids=["by its response", "drained"])
async def test_the_helpers_stream_of_plain_text_is_closed_too(
    transport: str, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not found:
        monkeypatch.setattr(AnthropicAdapter, "responses", lambda *_: ())
    script: list[Any] = [start(), block_start({"type": "text", "text": ""}), Repeat(text(SENTENCE), delay_s=0.001)]
    with LocalAnthropic([script, FINE]) as server:
        async with sdk(server, transport) as client:
            helper = await client.messages.stream(**ASKED).__aenter__()
            async with monitor.watch(helper.text_stream) as watched:
                async for _ in watched:
                    pass
            assert watched.outcome.reason is Reason.LOOP_DETECTED
            assert watched.outcome.closed
            await server.wait_closed_async(0, timeout_s=CLOSE_S)
            async with client.messages.stream(**ASKED) as helper, monitor.watch(helper.text_stream) as watched:
                assert [words async for words in watched] == ["fine"]
            assert watched.outcome.reason is Reason.STREAM_ENDED


@sdk_test
@each_transport
@each_way
async def test_a_break_of_a_generator_around_the_sdks_stream_closes_the_connection(transport: str, way: Way) -> None:
    async def wrapped(client: AsyncAnthropic) -> AsyncIterator[Any]:
        async for item in await way(client):
            yield item

    with LocalAnthropic([[start(), Repeat(text("a "), delay_s=0.001)]]) as server:
        async with sdk(server, transport) as client:
            async with monitor.watch(wrapped(client)) as watched:
                async for _ in watched:
                    break
            assert watched.outcome.reason is Reason.CLOSED_BY_CALLER
            assert watched.outcome.closed
            await server.wait_closed_async(0, timeout_s=CLOSE_S)


@sdk_test
@each_transport
async def test_a_stream_inside_the_helpers_own_block_is_closed_and_the_helper_does_not_mind(transport: str) -> None:
    with LocalAnthropic(
        [[start(), block_start({"type": "text", "text": ""}), Repeat(text(SENTENCE), delay_s=0.001)]]
    ) as server:
        async with sdk(server, transport) as client, client.messages.stream(**ASKED) as helper:
            async with monitor.watch(helper) as watched:
                async for _ in watched:
                    pass
            await server.wait_closed_async(0, timeout_s=CLOSE_S)
            assert helper.current_message_snapshot.content[0].type == "text"
    assert watched.outcome.closed


@sdk_test
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (FINE, Reason.STREAM_ENDED),
        ([start(), *say("cut short")], Reason.TRUNCATED),
        ([start(), *say("cut short"), delta("end_turn")], Reason.TRUNCATED),
        ([start(), *say("long"), *finish("max_tokens")], Reason.TRUNCATED),
        ([start(), *say("paused"), *finish("pause_turn")], Reason.TRUNCATED),
        ([start(), *say("full"), *finish("model_context_window_exceeded")], Reason.TRUNCATED),
        ([start(), *say("bad"), *finish("refusal")], Reason.BLOCKED),
        ([start(), text("a"), Cut()], Reason.ERROR),
        ([start(), text("a"), Reset()], Reason.ERROR),
        ([rate_limited()], Reason.RATE_LIMITED),
        ([start(), midstream_error("rate_limit_error")], Reason.RATE_LIMITED),
        ([overflow()], Reason.PROMPT_TOO_LONG),
        ([too_large()], Reason.PROMPT_TOO_LONG),
        ([overloaded()], Reason.ERROR),
        ([start(), text("a"), midstream_error()], Reason.ERROR),
        ([error_reply(400, "Output blocked by content filtering policy")], Reason.BLOCKED),
        ([error_reply(401)], Reason.ERROR),
    ],
    ids=str,
)
@each_transport
async def test_every_way_a_stream_can_end_has_its_reason(transport: str, script: list[Any], reason: Reason) -> None:
    with LocalAnthropic([script]) as server:
        async with sdk(server, transport) as client:
            outcome = (await _watch(client)).outcome
    assert outcome.reason is reason, outcome
    assert outcome.ok is (reason is Reason.STREAM_ENDED)


@sdk_test
async def test_a_tool_call_repeated_over_turns_is_a_loop_and_its_result_may_be_named_by_the_sdks_own_block() -> None:
    with LocalAnthropic([[start(), *call("search", {"q": "same"}), *finish("tool_use")]]) as server:
        async with sdk(server) as client, monitor.Guard() as guard:
            turns = 0
            while turns < 10:
                turns += 1
                async with client.messages.stream(**ASKED) as helper, guard.watch(helper) as watched:
                    async for _ in watched:
                        pass
                message = helper.current_message_snapshot
                if isinstance(guard.check(), monitor.Stop):
                    break
                guard.tool_result(message.content[0], {"found": []})
    assert turns == 5
    assert guard.outcome is not None
    assert guard.outcome.reason is Reason.LOOP_DETECTED


@sdk_test
@each_way
async def test_a_guarded_stream_gives_what_the_bare_one_gives(way: Way) -> None:
    script: list[Any] = [
        start(),
        *think("hm"),
        *say("Hello ", "there", index=1),
        Pause(0.001),
        *call("f", {"x": 1}, index=2),
        *finish(),
    ]
    with LocalAnthropic([script]) as server:
        async with sdk(server) as client:
            bare = await received(client, way)
            async with monitor.watch(way(client)) as watched:
                guarded = [item async for item in watched]
    assert [item.model_dump() for item in guarded] == [item.model_dump() for item in bare]
    assert watched.turn.text == "Hello there"
    assert [(made.name, made.arguments) for made in watched.turn.tool_calls] == [("f", {"x": 1})]
    assert (watched.turn.usage.input_tokens, watched.turn.usage.output_tokens) == (7, 3)
    assert not watched.turn.usage_estimated


@sdk_test
@each_transport
@each_way
async def test_a_flood_is_closed_at_once_and_nothing_is_dropped(transport: str, way: Way) -> None:
    with LocalAnthropic([[start(), block_start({"type": "text", "text": ""}), Repeat(text(SENTENCE))]]) as server:
        async with sdk(server, transport) as client:
            outcome = (await _watch(client, way)).outcome
            await server.wait_closed_async(0, timeout_s=CLOSE_S)
    assert outcome.reason is Reason.LOOP_DETECTED
    assert outcome.closed
    assert outcome.chunks_after_decision == 0


@sdk_test
async def test_the_retries_of_the_sdk_are_under_the_deadlines() -> None:
    with LocalAnthropic([[rate_limited(30)]]) as server:
        async with sdk(server, max_retries=2) as client:
            with anyio.fail_after(5):
                outcome = (await _watch(client, stop_when=monitor.Timeout(0.2))).outcome
            assert len(server.requests) == 1
    assert outcome.reason is Reason.TIMEOUT


@sdk_test
async def test_the_delay_that_the_service_asks_for_is_told() -> None:
    with LocalAnthropic([[rate_limited(7)]]) as server:
        async with sdk(server) as client:
            watch = await _watch(client)
    assert watch.turn.model_error is not None
    assert watch.turn.model_error.retry_after_s == 7
    assert "asks to wait 7 s" in watch.outcome.detail


@sdk_test
async def test_the_helpers_manager_is_to_be_entered_first() -> None:
    with LocalAnthropic([FINE]) as server:
        async with sdk(server) as client:
            manager: Any = client.messages.stream(**ASKED)
            with pytest.raises(monitor.ConfigError, match="enter it first"):
                await _watch(client, lambda _: manager)
            async with manager:
                pass
