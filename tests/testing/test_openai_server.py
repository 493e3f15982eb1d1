"""LocalOpenAI, seen by the real SDK on both APIs and transports. What all local servers share is
tested with LocalGemini.
"""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import sys
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest
from openai import AsyncOpenAI

from monitor.errors import ConfigError
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import (
    Cut,
    Pause,
    Raw,
    Reply,
    Reset,
    Script,
    Send,
    Stall,
    call,
    call_piece,
    chunk,
    error_reply,
    events_of,
    finish,
    html_error,
    midstream_error,
    overflow,
    rate_limited,
    refusal,
    response_call,
    response_created,
    response_error,
    response_events_of,
    response_failed,
    response_finish,
    response_reasoning,
    response_text,
    text,
    thought,
    usage_only,
)
from tests.adapters.openai.sdk import APIS, TRANSPORTS, aiohttp_warnings, received, sdk, stream

pytestmark = aiohttp_warnings


@pytest.mark.asyncio
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_chunks_arrive_as_they_were_sent(transport: str):
    with LocalOpenAI(
        [[thought("hm "), text("hel"), Send(text("lo")), Pause(0.001), finish(), usage_only(5, output=2)]]
    ) as server:
        async with sdk(server, transport) as client:
            items = await received(client)
        request = server.requests[0]
    assert "".join(item.choices[0].delta.content or "" for item in items if item.choices) == "hello"
    assert items[0].choices[0].delta.reasoning_content == "hm "
    assert [item.usage.prompt_tokens for item in items if item.usage] == [7, 5]
    assert (request.method, request.verb, request.path) == ("chat.completions", "POST", "/v1/chat/completions")
    assert (request.events_sent, request.completed) == (5, True)
    assert request.body["messages"][0]["content"] == "hello"
    assert request.headers["authorization"] == "Bearer x"


@pytest.mark.asyncio
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_events_of_a_response_arrive_under_their_names(transport: str):
    script = [response_created(), *response_reasoning("hm", encrypted="e"), response_text("hello"), response_finish()]
    with LocalOpenAI([script]) as server:
        async with sdk(server, transport) as client:
            items = await received(client, "responses")
        assert server.requests[0].method == "responses"
    assert [item.type for item in items] == [event["type"] for event in script]
    assert items[-1].response.usage.total_tokens == 10


BROKEN: list[tuple[str, Script, set[str]]] = [
    ("cut between events", [text("a"), Cut()], {"APIConnectionError"}),
    ("cut in an event", [text("a"), Raw(b'data: {"choi'), Cut()], {"APIConnectionError"}),
    ("reset", [text("a"), Reset()], {"APIConnectionError"}),
    ("an event that is no JSON", [text("a"), Raw(b"data: {nope}\n\n")], {"JSONDecodeError"}),
    ("a comment", [text("a"), Raw(b": ping\n\n"), finish()], {""}),
    ("an error event", [text("a"), midstream_error()], {"APIError"}),
    ("401", [error_reply(401)], {"AuthenticationError"}),
    ("429", [rate_limited()], {"RateLimitError"}),
    ("overflow", [Pause(0.002), overflow()], {"BadRequestError"}),
    ("500", [error_reply(500)], {"InternalServerError"}),
    ("502 as HTML", [html_error()], {"InternalServerError"}),
]


@pytest.mark.asyncio
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("api", APIS)
async def test_every_misbehaviour_reaches_the_sdk(transport: str, api: str):
    with LocalOpenAI([script for _, script, _ in BROKEN]) as server:
        async with sdk(server, transport) as client:
            for name, script, expected in BROKEN:
                arrived, error = 0, ""
                try:
                    async for _ in await stream(client, api):
                        arrived += 1
                except Exception as raised:  # noqa: BLE001 - its type is the claim
                    error = type(raised).__name__
                assert error in expected, name
                assert arrived >= (not isinstance(script[-1], Reply)), name


@pytest.mark.parametrize("done", [True, False])
def test_a_stream_of_chat_completions_ends_with_done_or_without(done: bool):
    with (
        LocalOpenAI([[text("a")]], done=done) as server,
        urlopen(_posted(server, {"stream": True}), timeout=5) as answer,
    ):
        assert (b"data: [DONE]" in answer.read()) is done


@pytest.mark.asyncio
async def test_what_the_sdk_does_not_raise_it_delivers():
    with LocalOpenAI([[response_failed()], [response_error()], [text("half")], []]) as server:
        async with sdk(server) as client:
            assert [item.type for item in await received(client, "responses")] == ["response.failed"]
            assert [item.type for item in await received(client, "responses")] == ["error"]
            assert len(await received(client)) == 1
            assert await received(client) == []


@pytest.mark.asyncio
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("script", [[text("a"), Stall()], [Stall()]])
async def test_a_client_that_closes_is_seen_and_its_next_request_is_answered(transport: str, script: Script):
    with LocalOpenAI([script, events_of("fine")]) as server:
        async with sdk(server, transport) as client:
            if len(script) == 2:
                opened = await stream(client)
                await anext(opened)
                await opened.close()
            else:
                opening = asyncio.create_task(stream(client))
                await asyncio.to_thread(server.wait_request)
                opening.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await opening
            await server.wait_closed_async(0)
            assert len(await received(client)) == 2


@pytest.mark.asyncio
async def test_a_request_without_a_stream_gets_the_events_as_one_answer():
    written = [call_piece('{"q": ', name="look", id="a"), call_piece("1}"), call("now", id="b", at=1)]
    scripts: list[Any] = [
        [thought("hm"), text("hel"), text("lo"), *written, finish("tool_calls")],
        [refusal("no"), finish()],
        [response_created(), response_text("hello"), *response_call("look", {"q": 1}, at=1), response_finish()],
        response_events_of("fine", reasoning="hm"),
        [Reply(200, json.dumps(chunk(object="chat.completion", choices=[])).encode())],
    ]
    with LocalOpenAI(scripts) as server:
        async with sdk(server) as client:
            whole = await client.chat.completions.create(model="m", messages=[])
            refused = await client.chat.completions.create(model="m", messages=[])
            answer = await client.responses.create(model="m", input="x")
            thinking = await client.responses.create(model="m", input="x")
            bare = await client.chat.completions.create(model="m", messages=[])
    message = whole.choices[0].message
    assert (message.content, whole.choices[0].finish_reason) == ("hello", "tool_calls")
    assert [
        (made.id, made.function.name, made.function.arguments)
        for made in message.tool_calls or ()
        if made.type == "function"
    ] == [
        ("a", "look", '{"q": 1}'),
        ("b", "now", "{}"),
    ]
    assert whole.usage is not None
    assert whole.usage.total_tokens == 10
    assert refused.choices[0].message.refusal == "no"
    assert answer.output_text == "hello"
    assert [item.type for item in answer.output] == ["function_call", "message"]
    assert thinking.output_text == "fine"
    assert bare.choices == []


def _posted(server: LocalOpenAI, body: Any, path: str = "/chat/completions", verb: str = "POST") -> Request:
    return Request(
        server.base_url + path,
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json"},
        method=verb,
    )


@pytest.mark.parametrize(
    ("path", "verb"), [("/models", "POST"), ("/chat/completions", "PUT"), ("/chat/completions/x", "POST")]
)
def test_what_is_not_served_is_a_404_that_says_what_is(path: str, verb: str):
    with LocalOpenAI([[finish()]]) as server, pytest.raises(HTTPError) as raised:
        urlopen(_posted(server, {}, path, verb), timeout=5)
    with raised.value as error:
        assert error.code == 404
        assert "serves POST .../chat/completions" in json.loads(error.read())["error"]["message"]


def test_a_script_function_sees_the_request_and_its_failure_is_raised_at_the_end():
    def script_of(request: Any) -> Script:
        raise ZeroDivisionError(request.method)

    with (
        pytest.raises(ZeroDivisionError, match="responses"),
        LocalOpenAI(script_of) as server,
        pytest.raises(HTTPError) as raised,
    ):
        urlopen(_posted(server, {"stream": True}, "/responses"), timeout=5)
    assert raised.value.code == 500
    raised.value.close()


@pytest.mark.parametrize("build", [events_of, response_events_of])
def test_pieces_have_a_size(build: Any):
    with pytest.raises(ConfigError, match="cut must be at least 1"):
        build("text", cut=0)
    assert len(build("12345", cut=2)) > len(build("12345", cut=5))


@pytest.mark.asyncio
async def test_the_sdks_own_retries_come_as_requests():
    with LocalOpenAI([[error_reply(500, headers={"retry-after-ms": "1"})], events_of("fine")]) as server:
        client = AsyncOpenAI(api_key="x", base_url=server.base_url)
        assert len(await received(client)) == 2
        await client.close()
        assert [request.headers.get("x-stainless-retry-count") for request in server.requests] == ["0", "1"]


def test_a_client_that_comes_while_the_server_ends_leaves_no_socket_open(monkeypatch: pytest.MonkeyPatch):
    complaints: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    for _ in range(5):
        with LocalOpenAI([[text("hello"), finish()]]) as server:
            host, port = urlsplit(server.base_url).netloc.split(":")
            client = socket.create_connection((host, int(port)))
        client.close()
    gc.collect()
    assert complaints == []
