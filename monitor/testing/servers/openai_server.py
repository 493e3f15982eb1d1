"""An OpenAI-compatible server on loopback, for driving the real OpenAI SDK without a network.

It plays one script per request, misbehaves on demand, and records what it received and **when it
saw the client leave**:

    from openai import AsyncOpenAI
    from monitor.testing import LocalOpenAI
    from monitor.testing.openai_steps import Stall, finish, text

    answers = [[text("hel"), text("lo"), finish()], [text("never ends"), Stall()]]
    with LocalOpenAI(answers) as server:
        client = AsyncOpenAI(api_key="x", base_url=server.base_url)
        ...
        assert server.wait_closed(1).how == "eof"

Served are `POST .../chat/completions` and `POST .../responses`, as streams and (the script's events
merged into one answer) without, for any model name. It runs on its own event loop in its own
thread, so the client may be asyncio, trio or plain threads. All moments are `time.perf_counter()`
seconds of this process.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from monitor.testing.openai_steps import Event, Reply, error_reply, merged_chat, merged_response, to_json
from monitor.testing.servers.local_server import ClientLeft as ClientLeft
from monitor.testing.servers.local_server import LocalServer, Scripts
from monitor.testing.servers.local_server import ReceivedRequest as ReceivedRequest

CHAT: Final = "chat.completions"
"""`ReceivedRequest.method` of a chat completion."""
RESPONSES: Final = "responses"
"""`ReceivedRequest.method` of a response."""

_PATH: Final = re.compile(r"/(chat/completions|responses)$")


class LocalOpenAI(LocalServer):
    """The server. Enter it (`with`, in async code too: entering takes a millisecond); leaving
    closes every connection.

    `scripts` is a list, one script for each request, of which the last repeats; or a function of
    the request, whose `method` is `chat.completions` or `responses`. `done=False` omits the
    `[DONE]` at the end of a stream of chat completions. Leaving the block raises the exception of a
    script function, unless the block raised one itself.
    """

    def __init__(self, scripts: Scripts, *, done: bool = True) -> None:
        super().__init__(scripts, _OpenAI(done=done))


class _OpenAI:
    """The dialect of OpenAI's service."""

    root = "/v1"

    def __init__(self, *, done: bool) -> None:
        self._done = done

    def method(self, verb: str, path: str) -> str:
        known = _PATH.search(path.partition("?")[0])
        return known[1].replace("/", ".") if known and verb == "POST" else ""

    def unscripted(self, request: ReceivedRequest) -> Reply | None:
        if request.method:
            return None
        return self.refusal(
            404,
            f"LocalOpenAI serves POST .../chat/completions and POST .../responses; this was {request.verb}"
            f" {request.path}",
        )

    def streams(self, request: ReceivedRequest) -> bool:
        return isinstance(request.body, dict) and request.body.get("stream") is True

    def framed(self, event: Event) -> bytes:
        kind = event.get("type")
        named = b"event: %b\n" % kind.encode() if isinstance(kind, str) else b""
        return named + b"data: " + to_json(event) + b"\n\n"

    def closing(self, request: ReceivedRequest) -> bytes:
        return b"data: [DONE]\n\n" if self._done and request.method == CHAT else b""

    def merged(self, request: ReceivedRequest, events: Sequence[Event]) -> Event:
        return merged_chat(events) if request.method == CHAT else merged_response(events)

    def refusal(self, status: int, message: str) -> Reply:
        return error_reply(status, message, kind="server_error" if status >= 500 else "invalid_request_error")  # noqa: PLR2004 - HTTP
