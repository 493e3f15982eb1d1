"""Clients that are slow, or leave."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from monitor.proxy import Proxy
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import Repeat, text
from tests.proxy.asked import chat

pytestmark = pytest.mark.anyio


class Caller:
    """A client of which a test decides what it does."""

    def __init__(self, body: bytes) -> None:
        self.left = anyio.Event()
        self.stuck = anyio.Event()
        self._asked = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive(self) -> Any:
        if self._asked:
            return self._asked.pop()
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        """Takes the head, and nothing of the body."""
        if message["type"] == "http.response.body":
            self.stuck.set()
            await anyio.sleep_forever()


BODY = json.dumps(chat()).encode()


def scope(path: str) -> dict[str, Any]:
    headers = [(b"content-length", b"%d" % len(BODY)), (b"host", b"proxy")]
    return {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/x/responses"])
async def test_a_client_that_takes_nothing_for_too_long_is_left_and_the_upstream_closed(path: str) -> None:
    with LocalOpenAI([[Repeat(text("word "), times=None)]]) as server:
        proxy = Proxy(server.base_url.removesuffix("/v1"), patience_s=0.1)
        caller = Caller(BODY)
        with anyio.fail_after(60):
            await proxy(scope(path), caller.receive, caller.send)
        await server.wait_closed_async(0)
        assert server.requests[0].events_sent < 200_000  # what the sockets hold: it was not read ahead
        await proxy.aclose()


async def test_a_client_that_leaves_while_it_is_slow_closes_the_upstream() -> None:
    with LocalOpenAI([[Repeat(text("word "), times=None)]]) as server:
        proxy = Proxy(server.base_url.removesuffix("/v1"))
        caller = Caller(BODY)
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(proxy, scope("/v1/chat/completions"), caller.receive, caller.send)
                await caller.stuck.wait()
                caller.left.set()
        await server.wait_closed_async(0)
        (run,) = proxy.runs
        assert run.state == "left"
        assert proxy.runs.counts["clients_left", ""] == 1
        await proxy.aclose()


async def leave_within_the_request(proxy: Proxy, path: str) -> None:
    """Send a part of a request, and go. Nobody is there who could be answered."""
    messages = [{"type": "http.disconnect"}, {"type": "http.request", "body": b"{", "more_body": True}]

    async def receive() -> Any:
        return messages.pop()

    async def send(message: Any) -> None:
        raise AssertionError(message)

    await proxy(scope(path), receive, send)


async def test_a_client_that_leaves_within_its_request_asks_nothing() -> None:
    with LocalOpenAI([[text("word ")]]) as server:
        proxy = Proxy(server.base_url.removesuffix("/v1"))
        await leave_within_the_request(proxy, "/v1/chat/completions")
        assert server.requests == []
        await proxy.aclose()


async def test_a_client_that_leaves_while_its_request_is_relayed_is_no_error() -> None:
    with LocalOpenAI([[text("word ")]]) as server:
        proxy = Proxy(server.base_url.removesuffix("/v1"))
        await leave_within_the_request(proxy, "/v1/embeddings")
        assert proxy.runs.counts["clients_left", ""] == 1
        await proxy.aclose()
