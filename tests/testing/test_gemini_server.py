"""LocalGemini, seen by the real SDK on both transports and by a bare socket."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import AdapterError, ConfigError
from monitor.testing import LocalGemini, ReceivedRequest
from monitor.testing.gemini_steps import (
    Cut,
    Headers,
    Pause,
    Raw,
    Repeat,
    Reply,
    Reset,
    Script,
    Send,
    Stall,
    blocked,
    call,
    chunk,
    error_reply,
    events_of,
    events_of_message,
    finish,
    html_error,
    load_recording,
    midstream_error,
    overflow,
    rate_limited,
    text,
    thought,
    usage_only,
)
from tests.adapters.google.sdk import TRANSPORTS, received, sdk, sdk_warnings, stream

pytestmark = sdk_warnings

FIXTURES = Path(__file__).parents[2] / "fixtures"
STREAM_PATH = "/v1beta/models/gemini-test:streamGenerateContent?alt=sse"
SSE = b"data: "


@contextmanager
def bare(server: LocalGemini, path: str = STREAM_PATH, body: bytes = b"{}") -> Iterator[socket.socket]:
    """A request that has been sent over a socket of its own."""
    host, port = server.base_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        head = f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        yield connection


def read_until(connection: socket.socket, end: bytes) -> bytes:
    data = b""
    while end not in data:
        more = connection.recv(65536)
        if not more:
            break
        data += more
    return data


def posted(server: LocalGemini, path: str) -> tuple[int, Any]:
    """Status and JSON of a bare request."""
    with bare(server, path) as connection:
        head, _, data = read_until(connection, b"}").partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), json.loads(data)


@pytest.mark.asyncio
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_events_arrive_as_they_were_sent(transport: str):
    with LocalGemini(
        [[thought("hm "), text("hel"), Send(text("lo")), Pause(0.001), usage_only(5, output=2), finish()]]
    ) as server:
        async with sdk(server, transport) as client:
            items = await received(client)
        request = server.requests[0]
    assert "".join(item.text or "" for item in items if item.candidates) == "hello"
    assert [item.usage_metadata.prompt_token_count for item in items if item.usage_metadata] == [5, 7]
    assert (request.method, request.verb, request.events_sent, request.completed) == (
        "streamGenerateContent",
        "POST",
        5,
        True,
    )
    assert request.body["contents"][0]["parts"][0]["text"] == "hello"
    assert request.headers["x-goog-api-key"] == "x"
    assert request.last_sent_at is not None
    assert request.arrived_at < request.last_sent_at


FAILURES: list[tuple[str, Script, dict[str, set[str]]]] = [
    ("cut between events", [text("a"), Cut()], {"aiohttp": {"ClientPayloadError"}, "httpx2": {"RemoteProtocolError"}}),
    (
        "cut in an event",
        [text("a"), Raw(b'data: {"cand'), Cut()],
        {"aiohttp": {"ClientPayloadError"}, "httpx2": {"RemoteProtocolError"}},
    ),
    ("reset", [text("a"), Reset()], {"aiohttp": {"ClientPayloadError", "ClientOSError"}, "httpx2": {"ReadError"}}),
    ("an event that is no JSON", [text("a"), Raw(b"data: {nope}\r\n\r\n")], {"": {"UnknownApiResponseError"}}),
    ("a comment", [text("a"), Raw(b": ping\r\n\r\n")], {"": {"UnknownApiResponseError"}}),
    ("an event of a wrong shape", [text("a"), chunk([{"text": 5}])], {"": {"ValidationError"}}),
    ("an error event", [text("a"), midstream_error()], {"": {"ServerError"}}),
    ("401", [error_reply(401)], {"": {"ClientError"}}),
    ("429", [rate_limited()], {"": {"ClientError"}}),
    ("overflow", [Pause(0.002), overflow()], {"": {"ClientError"}}),
    ("500", [error_reply(500)], {"": {"ServerError"}}),
    ("503 as HTML", [html_error(503)], {"": {"ServerError"}}),
    (
        "HTML that claims to be JSON",
        [Reply(502, b"<html>")],
        {"aiohttp": {"JSONDecodeError"}, "httpx2": {"ServerError"}},
    ),
]


@pytest.mark.asyncio
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_every_misbehaviour_reaches_the_sdk(transport: str):
    with LocalGemini([script for _, script, _ in FAILURES]) as server:
        async with sdk(server, transport) as client:
            for name, script, expected in FAILURES:
                arrived, error = 0, ""
                try:
                    async for _ in await stream(client):
                        arrived += 1
                except Exception as raised:  # noqa: BLE001 - its type is the claim
                    error = type(raised).__name__
                assert error in expected.get(transport, expected.get("", set())), name
                assert arrived == (not isinstance(script[-1], Reply)), name


@pytest.mark.asyncio
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_stream_that_just_ends_raises_nothing(transport: str):
    with LocalGemini([[text("half")], [], [blocked()]]) as server:
        async with sdk(server, transport) as client:
            assert [item.text for item in await received(client)] == ["half"]
            assert await received(client) == []
            (refusal,) = await received(client)
    assert refusal.candidates is None
    assert refusal.prompt_feedback is not None


@pytest.mark.asyncio
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    "script", [[text("a"), Stall()], [Stall()], [Headers(), Stall()], [Repeat(text("a"), None, 0.01)]]
)
async def test_a_client_that_leaves_is_seen_at_once(transport: str, script: Script):
    with LocalGemini([script]) as server:
        async with sdk(server, transport) as client:
            async with anyio.create_task_group() as group:
                group.start_soon(received, client)
                await anyio.to_thread.run_sync(server.wait_request)
                await anyio.sleep(0.03)  # the answer has begun, where there is one
                group.cancel_scope.cancel()
            assert (await server.wait_closed_async(0)).how in {"eof", "reset"}
    assert not server.requests[0].completed


@pytest.mark.asyncio
async def test_a_client_that_leaves_a_flood_is_seen_at_once():
    with LocalGemini([[Repeat(text("again and again. "))]]) as server:
        async with sdk(server) as client:
            items = aiter(await stream(client))
            for _ in range(50):
                await anext(items)
            with anyio.CancelScope() as scope:
                scope.cancel()
                async for _ in items:
                    pass
            closed = await server.wait_closed_async(0)
    assert closed.how in {"eof", "reset"}
    assert server.requests[0].events_sent >= 50


def test_a_reader_that_stops_reading_a_flood_and_leaves_is_seen():
    with LocalGemini([[Repeat(text("x" * 10_000))]]) as server:
        with bare(server) as connection:
            read_until(connection, SSE)
            while server.requests[0].events_sent < 100:  # more than the reader has taken
                time.sleep(0.001)
        closed = server.wait_closed(0)
    assert closed.how == "reset"


@pytest.mark.asyncio
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_leaving_after_the_answer_is_seen_too(transport: str):
    with LocalGemini([[text("all"), finish()]]) as server:
        async with sdk(server, transport) as client:
            await received(client)
            await received(client)
            assert server.requests[1].closed is None
        closed = await server.wait_closed_async()
    assert closed.how == "eof"
    assert [request.completed for request in server.requests] == [True, True]
    assert server.requests[0].closed is None, "another request followed on the same connection"
    assert {request.connection for request in server.requests} == {0}


def test_what_the_server_closes_itself_is_no_client_that_left():
    with LocalGemini([[text("a"), Cut()], [text("a"), Reset()]]) as server:
        with bare(server) as connection:
            assert read_until(connection, b"nothing").endswith(b"\r\n\r\n\r\n"), (
                "everything sent before the cut arrives"
            )
        with bare(server) as connection, pytest.raises(ConnectionResetError):
            read_until(connection, b"nothing")
    assert [request.closed for request in server.requests] == [None, None]
    assert [request.completed for request in server.requests] == [False, False]


def test_a_pause_before_the_first_event_delays_the_headers():
    with LocalGemini([[Pause(0.03), text("a")], [Headers(), Stall()]]) as server:
        with bare(server) as connection:
            started_at = time.perf_counter()
            assert connection.recv(4).startswith(b"HTTP")
            assert time.perf_counter() - started_at > 0.02
        with bare(server) as connection:
            assert b"text/event-stream" in read_until(connection, b"\r\n\r\n")


@pytest.mark.asyncio
async def test_the_unary_methods_are_served():
    script = [text("one "), text("two"), call("look", {"q": 1}), finish("MAX_TOKENS")]
    with LocalGemini([script], count_tokens=lambda request: len(request.body["contents"])) as server:
        async with sdk(server) as client:
            answer = await client.models.generate_content(model="gemini-test", contents="hello")
            counted = await client.models.count_tokens(model="gemini-test", contents="hello")
    assert answer.candidates is not None
    parts = answer.candidates[0].content.parts if answer.candidates[0].content else None
    assert [part.text for part in parts or () if part.text] == ["one ", "two"]
    assert answer.candidates[0].finish_reason == "MAX_TOKENS"
    assert answer.function_calls is not None
    assert counted.total_tokens == 1
    assert [request.method for request in server.requests] == ["generateContent", "countTokens"]


def test_scripts_go_in_order_and_the_last_repeats_and_counting_uses_none():
    with LocalGemini([[text("first")], [text("last")]]) as server:
        answers = []
        for _ in range(3):
            assert posted(server, "/v1/models/m:countTokens") == (200, {"totalTokens": 42})
            with bare(server) as connection:
                answers.append(read_until(connection, b"\r\n0\r\n\r\n"))
    assert [b"first" in answer for answer in answers] == [True, False, False]
    assert all(b"last" in answer for answer in answers[1:])


def test_a_script_function_sees_the_request():
    def echo(request: ReceivedRequest) -> Script:
        return [text(f"{request.number} {request.body['say']}")]

    with LocalGemini(echo) as server, bare(server, body=b'{"say": "hi"}') as connection:
        assert b"0 hi" in read_until(connection, b"\r\n0\r\n\r\n")


def test_an_unknown_path_is_answered_with_what_is_served():
    with LocalGemini([[finish()]]) as server:
        status, body = posted(server, "/v1/models/m:embedContent")
        assert status == 404
        assert "streamGenerateContent" in body["error"]["message"]
        status, body = posted(server, "/v1/models/m:streamGenerateContent")
        assert status == 400
        assert "alt=sse" in body["error"]["message"]


def test_a_broken_script_is_loud():
    def broken(_: ReceivedRequest) -> Script:
        raise KeyError("lost")

    server = LocalGemini(broken)
    with pytest.raises(KeyError, match="lost"), server:
        assert posted(server, STREAM_PATH)[0] == 500
    with (
        pytest.raises(TypeError, match="serializable"),
        LocalGemini([[{"candidates": {1, 2}}]]) as server,
        bare(server) as connection,
    ):
        read_until(connection, b"nothing")


@pytest.mark.parametrize(
    "scripts", [[], [[finish(), Reply(500)]], [[Reply(500), finish()]], [[Repeat(Reply(500))]], [["text"]]]
)
def test_scripts_that_make_no_sense_are_refused(scripts: Any):
    with pytest.raises(ConfigError):
        LocalGemini(scripts)


def test_waiting_for_what_does_not_happen_says_so():
    with LocalGemini([[Stall()]]) as server:
        with pytest.raises(TimeoutError, match="request 0 did not arrive"):
            server.wait_request(0, timeout_s=0.001)
        with pytest.raises(TimeoutError, match="never came"):
            server.wait_closed(timeout_s=0.001)
        with bare(server):
            assert server.wait_request(0).method == "streamGenerateContent"
            with pytest.raises(TimeoutError, match="still holds request 0"):
                server.wait_closed(0, timeout_s=0.001)


def test_what_is_no_request_is_hung_up_on():
    with LocalGemini([[finish()]]) as server:
        host, port = server.base_url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(b"nonsense\r\n\r\n")
            assert connection.recv(10) == b""
    assert server.requests == []


def test_leaving_closes_everything():
    with LocalGemini([[text("a"), Stall()]]) as server:
        with bare(server) as connection:
            read_until(connection, SSE)
            server.__exit__(None, None, None)
            assert not read_until(connection, b"nothing").endswith(b"0\r\n\r\n"), (
                "closed, and not as if the answer were complete"
            )
        assert not [thread for thread in threading.enumerate() if thread.name == "LocalGemini"]
        with pytest.raises(ConnectionRefusedError), bare(server):
            pass
    assert server.requests[0].closed is None


def test_a_server_is_entered_once():
    with LocalGemini([[finish()]]) as server, pytest.raises(ConfigError), server:
        pass


def test_the_sdk_works_under_trio():
    async def read(server: LocalGemini) -> list[str | None]:
        async with sdk(server) as client:
            return [item.text for item in await received(client)]

    with LocalGemini([[text("hello"), finish()]]) as server:
        assert anyio.run(read, server, backend="trio") == ["hello", ""]


@given(st.text(max_size=60), st.text(max_size=30), st.integers(1, 70))
def test_text_is_the_same_at_every_cut(answer: str, reasoning: str, cut: int):
    events = events_of(answer, [("look", {"q": 1})], cut=cut, reasoning=reasoning)
    parts = [part for event in events for part in event["candidates"][0]["content"]["parts"]]
    assert "".join(part["text"] for part in parts if part.get("thought")) == reasoning
    assert "".join(part["text"] for part in parts if "text" in part and not part.get("thought")) == answer
    assert [part["functionCall"]["name"] for part in parts if "functionCall" in part] == ["look"]
    assert all(len(part.get("text", "")) <= cut for part in parts)
    assert events[-1]["candidates"][0]["finishReason"] == "STOP"


def test_a_corpus_message_becomes_events():
    with gzip.open(FIXTURES / "transcripts" / "dev.jsonl.gz", "rt", encoding="utf-8") as lines:
        runs = [json.loads(line) for line, _ in zip(lines, range(30), strict=False)]
    for message in (message for run in runs for message in run["messages"] if message["role"] == "assistant"):
        parts = [
            part for event in events_of_message(message, cut=7) for part in event["candidates"][0]["content"]["parts"]
        ]
        assert "".join(part.get("text", "") for part in parts) == message["text"]
        assert [part["functionCall"]["name"] for part in parts if "functionCall" in part] == [
            made["name"] for made in message["tool_calls"]
        ]
    with pytest.raises(ConfigError):
        events_of("a", cut=0)


def test_a_recording_that_is_none_is_refused(tmp_path: Path):
    bad = tmp_path / "bad.responses"
    for line in ["{", "[]", '{"method": "generateContentStream"}', '{"method": 1, "response": []}']:
        bad.write_text(line)
        with pytest.raises(AdapterError, match=r"bad\.responses"):
            load_recording(bad)
    bad.write_text('{"method": "countTokens", "response": {"totalTokens": 3}}\n\n')
    assert load_recording(bad)[0].events == ({"totalTokens": 3},)


@pytest.mark.asyncio
async def test_many_requests_at_once_are_kept_apart():
    with LocalGemini(lambda request: [text(str(request.number)), Pause(0.005), finish()]) as server:
        async with sdk(server) as client:
            answers = await asyncio.gather(*[received(client) for _ in range(10)])
    assert sorted(items[0].text or "" for items in answers) == sorted(map(str, range(10)))


def test_a_step_is_repeated_as_often_as_asked():
    with (
        LocalGemini([[Repeat(text("tick"), 3, 0.001), Repeat(Send(text("tock")), 2)]]) as server,
        bare(server) as connection,
    ):
        answer = read_until(connection, b"\r\n0\r\n\r\n")
    assert (answer.count(b"tick"), answer.count(b"tock")) == (3, 2)
    assert server.requests[0].events_sent == 5


def test_a_body_in_chunks_is_read():
    with LocalGemini([[finish()]]) as server:
        host, port = server.base_url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            head = f"POST {STREAM_PATH} HTTP/1.1\r\nhost: {host}\r\ntransfer-encoding: chunked\r\n\r\n"
            connection.sendall(head.encode() + b'5\r\n{"a":\r\n2\r\n1}\r\n0\r\n\r\n')
            read_until(connection, b"\r\n0\r\n\r\n")
    assert server.requests[0].body == {"a": 1}


@pytest.mark.parametrize("scripts", [[rate_limited(1)], [finish()], ["hello"]])
def test_a_script_that_is_no_list_of_steps_is_said(scripts: Any):
    with pytest.raises(ConfigError, match=r"a script is a list of steps and events, not .*write \[\[\.\.\.\]\]"):
        LocalGemini(scripts)
