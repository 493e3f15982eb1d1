"""The message that the proxy adds to a request, if it may."""

from __future__ import annotations

import json
from typing import Any

import pytest

from monitor.messages import Text, UserMessage
from monitor.proxy import Proxy
from monitor.proxy.exchange import nudged
from monitor.proxy.formats import wire_of
from monitor.proxy.formats.base import JudgedRequest
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import finish, text
from tests.proxy.asked import ask, chat, looping

CHAT = "/v1/chat/completions"
CALL = {"name": "read", "arguments": "{}"}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "openai-chat": (CHAT, looping(1)),
    "openai-responses": (
        "/v1/responses",
        {
            "model": "m",
            "input": [
                {"role": "user", "content": "x"},
                {"type": "function_call", "call_id": "1", **CALL},
                {"type": "function_call_output", "call_id": "1", "output": "y"},
            ],
        },
    ),
    "a text": ("/v1/responses", {"model": "m", "input": "x"}),
    "anthropic": (
        "/v1/messages",
        {
            "model": "m",
            "max_tokens": 9,
            "messages": [
                {"role": "user", "content": "x"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "read", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "y"}]},
            ],
        },
    ),
    "gemini": (
        "/v1beta/models/m:generateContent",
        {
            "contents": [
                {"role": "user", "parts": [{"text": "x"}]},
                {"role": "model", "parts": [{"functionCall": {"name": "read", "args": {}}}]},
                {"role": "user", "parts": [{"functionResponse": {"name": "read", "response": {"output": "y"}}}]},
            ]
        },
    ),
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_it_is_the_last_word_of_the_user_and_the_rest_is_as_it_was(kind: str) -> None:
    path, request = REQUESTS[kind]
    wire = wire_of("POST", path)
    assert wire is not None
    before = wire.asked(path, json.dumps(request).encode())
    after = wire.asked(path, nudged(wire.form, json.dumps(request).encode(), "Try «another» way"))
    assert isinstance(before, JudgedRequest)
    assert isinstance(after, JudgedRequest)
    assert after.messages[:-1] == before.messages
    assert after.messages[-1] == UserMessage((Text("Try «another» way"),))


def test_two_messages_of_the_user_do_not_follow_each_other_in_anthropics_format() -> None:
    body = nudged("anthropic", json.dumps(REQUESTS["anthropic"][1]).encode(), "Stop")
    assert [message["role"] for message in json.loads(body)["messages"]] == ["user", "assistant", "user"]


@pytest.mark.anyio
async def test_a_run_that_begins_to_repeat_itself_is_told_once_and_only_if_the_proxy_may() -> None:
    with LocalOpenAI([[text("hello"), finish()]]) as server:
        root = server.base_url.removesuffix("/v1")
        proxy, plain = Proxy(root, nudge=True), Proxy(root)
        replies = [await ask(proxy, "POST", CHAT, looping(times)) for times in (2, 3, 4)]
        assert [reply.header("x-agent-monitor-nudge") for reply in replies] == ["", "tool_call_repetition", ""]
        assert "read was called 3 times in a row" in server.requests[1].body["messages"][-1]["content"]
        assert not (await ask(plain, "POST", CHAT, looping(3))).header("x-agent-monitor-nudge")
        assert server.requests[3].body == looping(3)
        assert (await ask(proxy, "POST", CHAT, chat())).status == 200
        await proxy.aclose()
        await plain.aclose()
