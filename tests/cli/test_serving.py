"""The server of the proxy, by the bytes of a socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from monitor.cli.commands.proxy import in_time
from monitor.proxy import KeyNames, Proxy, digest_of
from monitor.shared import SQLiteBudgets
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import finish, text

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]
HEADERS_S = 30.0
BODY = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}'


@asynccontextmanager
async def served(app: object) -> AsyncIterator[tuple[int, set[Any]]]:
    """The port of a server like that of the command, and its connections."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        http = in_time(AutoHTTPProtocol, HEADERS_S)
        config = uvicorn.Config(app, http=http, log_config=None, ws="none", timeout_graceful_shutdown=1)  # type: ignore[arg-type]
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=[listening])
        try:
            yield listening.getsockname()[1], server.server_state.connections
        finally:
            for connection in list(server.server_state.connections):
                connection.shutdown()
            await server.shutdown(sockets=[listening])


async def said(port: int, *parts: bytes) -> bytes:
    """What the server answers to these bytes, until it closes or has said nothing for a while."""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        for part in parts:
            await stream.send(part)
        answer = b""
        try:
            with anyio.move_on_after(5):
                while b"\r\n0\r\n\r\n" not in answer and b"[DONE]" not in answer:
                    answer += await stream.receive()
                    head, _, body = answer.partition(b"\r\n\r\n")
                    if parts[0].startswith(b"HEAD") or b"content-length: %d\r\n" % len(body) in head + b"\r\n":
                        break
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            pass
        return answer


HEALTH = b"GET /agent-monitor/health HTTP/1.1\r\nhost: x\r\n\r\n"


def headers_are_late(patch: pytest.MonkeyPatch) -> None:
    """The event loop's time moves on beyond the bound."""
    loop = asyncio.get_running_loop()
    now = loop.time
    patch.setattr(loop, "time", lambda: now() + HEADERS_S + 1)


HALF = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-a: "


@pytest.mark.parametrize(
    ("before", "begun"), [([], b""), *((times * [HEALTH], begun) for times in range(3) for begun in (HALF, b"G"))]
)
async def test_a_request_whose_headers_do_not_come_is_cut_off(
    before: list[bytes], begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Proxy("http://127.0.0.1:9")
    async with served(app) as (port, connections), await anyio.connect_tcp("127.0.0.1", port) as stream:
        for request in before:
            await stream.send(request)
            while b"}" not in await stream.receive():
                pass
        await stream.send(begun)
        while not any(connection.late for connection in connections):
            await anyio.lowlevel.checkpoint()
        headers_are_late(monkeypatch)
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()


async def test_an_answer_may_take_longer_than_the_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        await send({"type": "http.response.body", "body": b"hel", "more_body": True})
        headers_are_late(monkeypatch)
        await anyio.wait_all_tasks_blocked()
        await send({"type": "http.response.body", "body": b"lo"})

    async with served(slow) as (port, _):
        assert (await said(port, post(CHAT, BODY))).endswith(b"hello")


def post(target: bytes, body: bytes, *headers: bytes, version: bytes = b"1.1", method: bytes = b"POST") -> bytes:
    lines = [method + b" " + target + b" HTTP/" + version, b"host: x", b"authorization: Bearer sk-alice", *headers]
    if not any(line.lower().startswith((b"content-length", b"transfer-encoding")) for line in headers):
        lines.append(b"content-length: %d" % len(body))
    return b"\r\n".join([*lines, b"", body])


CHAT = b"/v1/chat/completions"


def chunked(*parts: bytes, trailer: bytes = b"") -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n" + trailer + b"\r\n"


TRICKS: dict[str, bytes] = {
    "in chunks": post(CHAT, chunked(BODY[:9], BODY[9:]), b"transfer-encoding: chunked"),
    "in chunks, in capitals": post(CHAT, chunked(BODY), b"Transfer-Encoding: CHUNKED"),
    "in chunks, with a trailer": post(CHAT, chunked(BODY, trailer=b"x-key: 1\r\n"), b"transfer-encoding: chunked"),
    "in chunks, with a key behind": post(
        CHAT, chunked(BODY, trailer=b"authorization: Bearer sk-bob\r\n"), b"transfer-encoding: chunked"
    ),
    "in chunks, with an extension": post(
        CHAT, b"%x;a=b\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY), b"transfer-encoding: chunked"
    ),
    "chunks and a length": post(CHAT, chunked(BODY), b"transfer-encoding: chunked", b"content-length: 4"),
    "two lengths": post(CHAT, BODY, b"content-length: %d" % len(BODY), b"content-length: 0"),
    "a length of nothing": post(CHAT, BODY, b"content-length: 0"),
    "HTTP/1.0": post(CHAT, BODY, version=b"1.0"),
    "HTTP/1.0 in chunks": post(CHAT, chunked(BODY), b"transfer-encoding: chunked", version=b"1.0"),
    "an absolute target": post(b"http://api.openai.com/v1/chat/completions", BODY),
    "a target with a fragment": post(CHAT + b"#/x", BODY),
    "a path in wide letters": post("/v1/chat/ｃompletions".encode(), BODY),
    "a path in combined letters": post(b"/v1/chat/comp%6C%65tions%CC%81", BODY),
    "dots": post(b"/v1/x/../chat/completions", BODY),
    "encoded dots": post(b"/v1/x/%2e%2e/chat/completions", BODY),
    "dots behind a backslash": post(b"/v1/x/..\\chat/completions", BODY),
    "a query in the query": post(CHAT + b"?a=1?b=2&key=sk-alice", BODY),
    "a key twice in the query": post(CHAT + b"?key=sk-alice&key=sk-bob", BODY),
    "a header twice": post(CHAT, BODY, b"authorization: Bearer sk-bob"),
    "a header with an underscore": post(CHAT, BODY, b"content_length: 0", b"x_api_key: sk-bob"),
    "it waits to go on": post(CHAT, BODY, b"expect: 100-continue"),
    "a web socket": post(CHAT, b"", b"upgrade: websocket", b"connection: upgrade", method=b"GET") + BODY,
    "an upgrade to h2c": post(CHAT, BODY, b"upgrade: h2c", b"connection: upgrade, http2-settings"),
    "HTTP/2 from the start": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + BODY,
    "CONNECT": post(b"api.openai.com:443", BODY, method=b"CONNECT"),
    "TRACE": post(CHAT, BODY, method=b"TRACE"),
    "HEAD with a body": post(CHAT, BODY, method=b"HEAD"),
    "GET with a body": post(CHAT, BODY, b"x-http-method-override: POST", method=b"GET"),
    "DELETE in chunks": post(CHAT, chunked(BODY), b"transfer-encoding: chunked", method=b"DELETE"),
    "OPTIONS of all": post(b"*", BODY, method=b"OPTIONS"),
    "two requests at once": post(CHAT, BODY) + post(CHAT, BODY),
    "a request in the body of another": post(b"/v1/models", post(CHAT, BODY), b"content-length: 0", method=b"GET"),
    "a folded header": post(CHAT, BODY, b"x-a: b\r\n authorization: Bearer sk-bob"),
    "lines without CR": post(CHAT, BODY).replace(b"\r\n", b"\n"),
    "a space before the colon": post(CHAT, BODY, b"content-length : 0"),
}


@pytest.mark.parametrize("trick", TRICKS)
async def test_no_bytes_of_a_socket_pass_a_used_up_budget(trick: str) -> None:
    store = SQLiteBudgets(":memory:")
    await store.set_limit("proxy/alice", tokens=0)
    names = KeyNames({"alice": digest_of("sk-alice"), "bob": digest_of("sk-bob")})
    with LocalOpenAI([[text("hello"), finish()]]) as server:
        proxy = Proxy(server.base_url.removesuffix("/v1"), keys=names, budget=store, budget_wait_s=0)
        async with served(proxy) as (port, _):
            answer = await said(port, TRICKS[trick])
        asked = [one for one in server.requests if one.body]
    await store.aclose()
    assert asked == []
    assert b"hello" not in answer
