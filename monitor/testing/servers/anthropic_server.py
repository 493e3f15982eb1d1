"""An Anthropic-compatible server on loopback, for driving the real anthropic SDK without a network.

It plays one script per request, misbehaves on demand, and records what it received and **when it
saw the client leave**:

    from anthropic import AsyncAnthropic
    from monitor.testing import LocalAnthropic
    from monitor.testing.anthropic_steps import Stall, finish, say, start, text

    answers = [[start(), *say("hel", "lo"), *finish()], [start(), text("never ends"), Stall()]]
    with LocalAnthropic(answers) as server:
        client = AsyncAnthropic(api_key="x", base_url=server.base_url)
        ...
        assert server.wait_closed(1).how == "eof"

Served are `/v1/messages`, streamed or not (then the script's events are merged into one message),
and `/v1/messages/count_tokens`, both also with `?beta=true`. It runs on its own event loop in its
own thread, so the client may be asyncio, trio or plain threads. All moments are
`time.perf_counter()` seconds of this process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from monitor.testing.anthropic_steps import error_reply
from monitor.testing.openai_steps import Event, Reply, to_json
from monitor.testing.servers.local_server import ClientLeft as ClientLeft
from monitor.testing.servers.local_server import CountingDialect, LocalServer, Scripts
from monitor.testing.servers.local_server import ReceivedRequest as ReceivedRequest
from monitor.testing.servers.local_server import TokenCounts as TokenCounts

_PATH: Final = re.compile(r"/v1/messages(/count_tokens)?$")


class LocalAnthropic(LocalServer):
    """The server. Enter it (`with`, in async code too: entering takes a millisecond); leaving
    closes every connection.

    `scripts` is a list, one script for each request of a message, of which the last repeats; or a
    function of the request. `count_tokens` is the answer to `/v1/messages/count_tokens`, which uses
    up no script. Leaving the block raises the exception of a script function, unless the block
    raised one itself.
    """

    def __init__(self, scripts: Scripts, *, count_tokens: TokenCounts = 42) -> None:
        super().__init__(scripts, _Anthropic(count_tokens))


class _Anthropic(CountingDialect):
    """The dialect of Anthropic's service."""

    count_field = "input_tokens"

    def method(self, verb: str, path: str) -> str:
        known = _PATH.search(path.partition("?")[0])
        return ("count_tokens" if known[1] else "messages") if known and verb == "POST" else ""

    def unscripted(self, request: ReceivedRequest) -> Reply | None:
        if not request.method:
            served = "POST /v1/messages and /v1/messages/count_tokens"
            return self.refusal(404, f"LocalAnthropic serves {served}; this was {request.verb} {request.path}")
        return self.count(request) if request.method == "count_tokens" else None

    def streams(self, request: ReceivedRequest) -> bool:
        return request.method == "messages" and isinstance(request.body, dict) and request.body.get("stream") is True

    def framed(self, event: Event) -> bytes:
        return f"event: {event.get('type', 'message')}\n".encode() + b"data: " + to_json(event) + b"\n\n"

    def merged(self, request: ReceivedRequest, events: Sequence[Event]) -> Event:
        return _merged(events)

    def refusal(self, status: int, message: str) -> Reply:
        return error_reply(status, message)


_FIELDS: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}


def _merged(events: Sequence[Event]) -> Event:
    """The events of a stream as the one answer to a request that is not streamed."""
    message: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    for event in events:
        match event.get("type"):
            case "message_start":
                message = dict(event["message"])
            case "content_block_start":
                blocks[event["index"]] = dict(event["content_block"])
            case "content_block_delta" if (name := _FIELDS.get(event["delta"]["type"])) is not None:
                block = blocks.setdefault(event["index"], {"type": "text"})
                block[name] = block.get(name, "") + event["delta"][name]
            case "message_delta":
                message |= event["delta"]
                message["usage"] = {**message.get("usage", {}), **event["usage"]}
    message["content"] = [*message.get("content", ()), *map(_with_input, blocks.values())]
    return message


def _with_input(block: dict[str, Any]) -> dict[str, Any]:
    words = block.pop("partial_json", "")
    return block | {"input": json.loads(words)} if words else block
