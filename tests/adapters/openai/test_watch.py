"""The whole way: a server, the real OpenAI SDK, both APIs and transports, the guard, a typed
reason, and a connection that is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import pytest
from openai import AsyncOpenAI

import monitor
from monitor.models import ErrorKind
from monitor.testing.openai_steps import (
    Cut,
    Headers,
    Pause,
    Raw,
    Repeat,
    Reset,
    Script,
    Stall,
    call,
    call_piece,
    error_reply,
    events_of,
    finish,
    midstream_error,
    overflow,
    rate_limited,
    refusal,
    response_call,
    response_error,
    response_events_of,
    response_failed,
    response_finish,
    response_refusal,
    response_text,
    text,
    usage_only,
)
from monitor.testing.servers.openai_server import LocalOpenAI
from tests.adapters.openai.sdk import TRANSPORTS, aiohttp_warnings, received, sdk, stream

pytestmark = [pytest.mark.asyncio, aiohttp_warnings]

Reason = monitor.TerminateReason
SENTENCE = "I will now check the configuration file again to be sure. "
CLOSE_S = 0.5
"""Far above the 50 ms that bench.close measures: a busy test machine is no bug, a connection that
stays open is.
"""


@dataclass
class Api:
    name: str
    text: Callable[[str], Any]
    whole: Callable[..., list[Any]]


CHAT = Api("chat", text, events_of)
RESPONSES = Api("responses", response_text, response_events_of)
each_api = pytest.mark.parametrize("api", [CHAT, RESPONSES], ids=lambda api: api.name)
each_transport = pytest.mark.parametrize("transport", TRANSPORTS)


async def _watch(client: AsyncOpenAI, api: str = "chat", **options: Any) -> monitor.harness.Watch[Any]:
    watch = monitor.watch(stream(client, api), **options)
    async with watch as watched:
        async for _ in watched:
            pass
    return watch


def _outcome(watch: monitor.harness.Watch[Any]) -> monitor.Outcome:
    return watch.outcome


@each_api
@each_transport
async def test_a_stream_that_chants_is_stopped_and_the_server_sees_the_connection_gone(
    api: Api, transport: str
) -> None:
    with LocalOpenAI([[Repeat(api.text(SENTENCE), delay_s=0.001)], api.whole("fine")]) as server:
        async with sdk(server, transport) as client:
            outcome = _outcome(await _watch(client, api.name))
            assert outcome.reason is Reason.LOOP_DETECTED
            assert outcome.closed
            await server.wait_closed_async(0, timeout_s=CLOSE_S)
            assert (await _watch(client, api.name)).turn.text == "fine"  # the client stays usable


@each_api
@each_transport
@pytest.mark.parametrize("answered", [True, False], ids=["waiting", "before the headers"])
async def test_an_idle_provider_and_an_abort_close_the_connection(api: Api, transport: str, answered: bool) -> None:
    async def abort(watch: monitor.harness.Watch[Any]) -> None:
        await asyncio.to_thread(server.wait_request, 1)
        await asyncio.sleep(0.02)
        watch.abort("enough")

    with LocalOpenAI([[*([api.text("a")] if answered else []), Stall()]]) as server:
        async with sdk(server, transport) as client:
            idle = _outcome(await _watch(client, api.name, stop_when=monitor.IdleTimeout(0.3)))
            assert idle.reason is Reason.IDLE_TIMEOUT
            await server.wait_closed_async(0, timeout_s=CLOSE_S)

            watch = monitor.watch(stream(client, api.name))
            aborting = asyncio.create_task(abort(watch))
            async with watch as watched:
                async for _ in watched:
                    pass
            await aborting
            assert _outcome(watch).reason is Reason.ABORTED
            await server.wait_closed_async(1, timeout_s=CLOSE_S)


@each_api
async def test_a_deadline_holds_on_a_busy_stream_and_while_the_sdk_waits_to_try_again(api: Api) -> None:
    retry = error_reply(500, headers={"retry-after": "30"})
    with LocalOpenAI([[Repeat(api.text("a "), delay_s=0.001)], [retry]]) as server:
        async with sdk(server, retries=5) as client:
            busy = _outcome(await _watch(client, api.name, detectors=None, stop_when=monitor.Timeout(0.2)))
            await server.wait_closed_async(0, timeout_s=CLOSE_S)
            waiting = _outcome(await _watch(client, api.name, stop_when=monitor.Timeout(0.2)))
    assert (busy.reason, waiting.reason) == (Reason.TIMEOUT, Reason.TIMEOUT)
    assert waiting.elapsed_s < 2


@each_api
@each_transport
async def test_a_break_closes_the_connection_also_of_a_generator_around_the_stream_and_under_a_flood(
    api: Api, transport: str
) -> None:
    async def wrapped(client: AsyncOpenAI) -> AsyncIterator[Any]:
        async for item in await stream(client, api.name):
            yield item

    with LocalOpenAI([[Repeat(api.text("and on and on "))]]) as server:
        async with sdk(server, transport) as client:
            sources: list[Any] = [stream(client, api.name), wrapped(client)]
            for number, source in enumerate(sources):
                async with monitor.watch(source, detectors=None) as watched:
                    count = 0
                    async for _ in watched:
                        count += 1
                        await asyncio.sleep(0.002)  # slower than the server, so that the transport's buffer is full
                        if count == 20:
                            break
                assert _outcome(watched).reason is Reason.CLOSED_BY_CALLER
                assert _outcome(watched).closed
                assert _outcome(watched).chunks_after_decision == 0
                await server.wait_closed_async(number, timeout_s=CLOSE_S)


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
            assert _outcome(watched).reason is Reason.LOOP_DETECTED
            async with opened(client) as source, monitor.watch(source) as watched:
                async for _ in watched:
                    pass
            assert (_outcome(watched).reason, watched.turn.text) == (Reason.STREAM_ENDED, "fine")
            assert watched.turn.usage.total_tokens == 10


ENDS: list[tuple[str, Script, Reason]] = [
    ("chat", [text("whole"), finish()], Reason.STREAM_ENDED),
    ("chat", [text("whole"), finish(usage=None), usage_only(5, output=2)], Reason.STREAM_ENDED),
    ("chat", [call("look"), finish("tool_calls")], Reason.STREAM_ENDED),
    ("chat", [text("cut short")], Reason.TRUNCATED),
    ("chat", [Headers()], Reason.TRUNCATED),
    ("chat", [text("long"), finish("length")], Reason.TRUNCATED),
    ("chat", [text("bad"), finish("content_filter")], Reason.BLOCKED),
    ("chat", [refusal("I cannot."), finish()], Reason.BLOCKED),
    ("chat", [text("again"), finish("repetition_detected")], Reason.LOOP_DETECTED),
    ("chat", [text("a"), finish("error")], Reason.ERROR),
    ("chat", [finish("model_context_window_exceeded")], Reason.PROMPT_TOO_LONG),
    ("chat", [text("a"), midstream_error()], Reason.ERROR),
    ("chat", [text("a"), midstream_error("too long", code="context_length_exceeded")], Reason.PROMPT_TOO_LONG),
    ("chat", [text("a"), Raw(b"data: garbage\n\n")], Reason.INVALID_STREAM),
    ("chat", [call_piece("{}")], Reason.INVALID_STREAM),
    ("chat", [text("a"), Cut()], Reason.ERROR),
    ("chat", [text("a"), Reset()], Reason.ERROR),
    ("chat", [rate_limited()], Reason.RATE_LIMITED),
    ("chat", [overflow()], Reason.PROMPT_TOO_LONG),
    ("chat", [error_reply(503)], Reason.ERROR),
    ("chat", [error_reply(401)], Reason.ERROR),
    ("responses", response_events_of("whole", [("look", {})], reasoning="hm"), Reason.STREAM_ENDED),
    ("responses", [response_text("cut short")], Reason.TRUNCATED),
    ("responses", [Headers()], Reason.TRUNCATED),
    ("responses", [response_text("long"), response_finish("incomplete", reason="max_output_tokens")], Reason.TRUNCATED),
    ("responses", [response_text("bad"), response_finish("incomplete", reason="content_filter")], Reason.BLOCKED),
    ("responses", [response_refusal("I cannot."), response_finish()], Reason.BLOCKED),
    ("responses", [response_text("a"), response_failed()], Reason.ERROR),
    ("responses", [response_failed("rate_limit_exceeded")], Reason.RATE_LIMITED),
    ("responses", [response_text("a"), response_error("context_length_exceeded")], Reason.PROMPT_TOO_LONG),
    ("responses", [response_error("invalid_prompt")], Reason.BLOCKED),
    ("responses", [response_text("a"), midstream_error()], Reason.ERROR),
    ("responses", [response_text("a"), Cut()], Reason.ERROR),
    ("responses", [overflow()], Reason.PROMPT_TOO_LONG),
]


@pytest.mark.parametrize(("api", "script", "reason"), ENDS, ids=str)
async def test_every_way_a_stream_can_end_has_its_reason(api: str, script: Script, reason: Reason) -> None:
    with LocalOpenAI([script]) as server:
        async with sdk(server) as client:
            outcome = _outcome(await _watch(client, api))
    assert outcome.reason is reason, outcome
    assert outcome.ok is (reason is Reason.STREAM_ENDED)


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
            await server.wait_closed_async(0, timeout_s=CLOSE_S)
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


@each_api
async def test_a_tool_call_repeated_over_turns_is_a_loop_and_its_result_may_be_named_by_the_sdks_own_call(
    api: Api,
) -> None:
    def same(call_id: str) -> Script:
        if api is CHAT:
            return [call("search", {"q": "same"}, id=call_id), finish("tool_calls")]
        item = response_call("search", {"q": "same"}, id=call_id)
        done = response_finish()
        done["response"]["output"] = [item[-1]["item"]]
        return [*item, done]

    with LocalOpenAI([same(f"call_{number}") for number in range(10)]) as server:
        async with sdk(server) as client, monitor.Guard() as guard:
            turns = 0
            while turns < 10:
                turns += 1
                async with guard.watch(stream(client, api.name)) as watched:
                    items = [item async for item in watched]
                if isinstance(guard.check(), monitor.Stop):
                    break
                guard.tool_result(
                    items[0].choices[0].delta.tool_calls[0] if api is CHAT else items[-1].response.output[0],
                    {"found": []},
                )
    assert turns == 5
    assert guard.outcome is not None
    assert guard.outcome.reason is Reason.LOOP_DETECTED


@each_api
async def test_a_guarded_stream_gives_what_the_bare_one_gives(api: Api) -> None:
    script = [*api.whole("Hello there", [("f", {"x": 1})], cut=4)]
    script.insert(1, Pause(0.001))
    with LocalOpenAI([script]) as server:
        async with sdk(server) as client:
            bare = await received(client, api.name)
            async with monitor.watch(stream(client, api.name)) as watched:
                guarded = [item async for item in watched]
    assert [item.to_dict() for item in guarded] == [item.to_dict() for item in bare]
    assert watched.turn.text == "Hello there"
    assert [(made.name, made.arguments) for made in watched.turn.tool_calls] == [("f", {"x": 1})]
    assert watched.turn.usage.total_tokens == 10


async def test_the_delay_that_the_service_asks_for_is_told() -> None:
    with LocalOpenAI([[rate_limited(7)]]) as server:
        async with sdk(server) as client:
            watch = await _watch(client)
    assert watch.turn.model_error is not None
    assert watch.turn.model_error.retry_after_s == 7
    assert "asks to wait 7 s" in watch.outcome.detail


async def test_it_runs_on_trio_as_well() -> None:
    async def run() -> None:
        async with sdk(server) as client:
            for api in (CHAT, RESPONSES):
                outcome = _outcome(await _watch(client, api.name, stop_when=monitor.IdleTimeout(0.2)))
                assert outcome.reason is Reason.IDLE_TIMEOUT
                await server.wait_closed_async(timeout_s=CLOSE_S)

    with LocalOpenAI(
        lambda request: [text("a") if "messages" in request.body else response_text("a"), Stall()]
    ) as server:
        await asyncio.to_thread(partial(anyio.run, run, backend="trio"))
