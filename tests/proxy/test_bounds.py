"""Bounds of the whole proxy: on the bytes it holds, on slow requests, on requests without a key."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from monitor.errors import ConfigError
from monitor.proxy import Proxy
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import Reply, finish, text
from tests.proxy.asked import ask, chat

pytestmark = pytest.mark.anyio
CHAT = "/v1/chat/completions"
KEY = {"authorization": "Bearer sk-alice"}


@asynccontextmanager
async def proxy_of(server: LocalOpenAI, **options: Any) -> AsyncIterator[Proxy]:
    proxy = Proxy(server.base_url.removesuffix("/v1"), **options)
    yield proxy
    assert proxy._reception.room.held == 0
    await proxy.aclose()


class Sending:
    """A client that sends a part of its request, and then nothing."""

    def __init__(self, path: str, **headers: str) -> None:
        self.messages: list[Any] = []
        self.began = anyio.Event()
        given = {"content-length": "999", **headers}
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        }
        self.parts = [(b"{" + b" " * 100, True)]

    async def receive(self) -> Any:
        if self.parts:
            part, more = self.parts.pop()
            return {"type": "http.request", "body": part, "more_body": more}
        self.began.set()
        await anyio.sleep_forever()
        return None

    async def send(self, message: Any) -> None:
        self.messages.append(message)

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def said(self) -> str:
        return "".join(one.get("body", b"").decode() for one in self.messages)


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1beta/models/m:generateContent", "/v1/files"])
async def test_a_request_that_does_not_arrive_is_refused_in_words(path: str) -> None:
    with LocalOpenAI([[text("hello"), finish()]]) as server:
        async with proxy_of(server, arrival_s=0.01) as proxy:
            slow = Sending(path, authorization="Bearer sk-alice")
            await proxy(slow.scope, slow.receive, slow.send)
            assert slow.status == 408
            assert "did not arrive in time" in slow.said
            assert server.requests == []


@pytest.mark.parametrize("path", [CHAT, "/v1/responses", "/v1/messages", "/v1beta/models/m:generateContent"])
async def test_a_request_for_which_there_is_no_room_is_refused_and_may_be_tried_again(path: str) -> None:
    with LocalOpenAI([[text("hello"), finish()]]) as server:
        async with proxy_of(server, most_in_flight=1_000) as proxy:
            reply = await ask(proxy, "POST", path, chat("x" * 2_000), headers=KEY)
            assert reply.status == 503
            assert reply.header("retry-after")
            assert not reply.header("x-should-retry")
            assert "as many bytes" in reply.body.decode()
            assert (await ask(proxy, "POST", CHAT, chat(), headers=KEY)).status == 200


async def test_room_is_free_again_when_the_request_was_sent() -> None:
    with LocalOpenAI([[text("hello"), finish()]]) as server:
        async with proxy_of(server, most_in_flight=3_000) as proxy:
            body = json.dumps(chat("x" * 2_000)).encode()
            first = Sending(CHAT, **{**KEY, "content-length": str(len(body))})
            first.parts = [(body, False)]
            others: list[int] = []

            async def send(message: Any) -> None:
                if message["type"] == "http.response.body" and not others:
                    others.append((await ask(proxy, "POST", CHAT, body, headers=KEY)).status)

            await proxy(first.scope, first.receive, send)
            assert others == [200]


async def test_an_answer_for_which_there_is_no_room_is_no_answer() -> None:
    many = [text("hello " * 400), finish()]
    whole = Reply(200, json.dumps({"choices": [{"message": {"content": "x" * 3_000}}]}).encode())
    with LocalOpenAI([many, [whole], [text("hello"), finish()]]) as server:
        async with proxy_of(server, most_in_flight=1_000) as proxy:
            reply = await ask(proxy, "POST", CHAT, chat(stream=False), headers=KEY)
            assert (reply.status, "as many bytes" in reply.body.decode()) == (503, True)
            reply = await ask(proxy, "POST", CHAT, chat(stream=False), headers=KEY)
            assert "unwatched" in reply.header("x-agent-monitor")
            assert (await ask(proxy, "POST", CHAT, chat(), headers=KEY)).status == 200


async def test_requests_without_a_key_have_a_bound_of_their_own() -> None:
    with LocalOpenAI([[text("hello"), finish()]]) as server:
        async with proxy_of(server, most_keyless=1) as proxy, anyio.create_task_group() as group:
            first = Sending(CHAT)
            group.start_soon(proxy, first.scope, first.receive, first.send)
            await first.began.wait()
            reply = await ask(proxy, "POST", CHAT, chat())
            assert (reply.status, "without a key" in reply.body.decode()) == (503, True)
            assert (await ask(proxy, "POST", CHAT, chat(), headers=KEY)).status == 200
            group.cancel_scope.cancel()


@pytest.mark.parametrize("name", ["most_in_flight", "most_keyless", "arrival_s"])
def test_a_bound_is_above_0(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Proxy("http://127.0.0.1:1", **{name: 0})  # type: ignore[arg-type]
