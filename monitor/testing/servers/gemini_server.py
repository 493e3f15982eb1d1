"""A Gemini-compatible server on loopback, for driving the real google-genai SDK without a network.

It plays one script per request, misbehaves on demand, and records what it received and **when it
saw the client leave**:

    from google import genai
    from monitor.testing import LocalGemini
    from monitor.testing.gemini_steps import Stall, finish, text

    answers = [[text("hel"), text("lo"), finish()], [text("never ends"), Stall()]]
    with LocalGemini(answers) as server:
        client = genai.Client(api_key="x", http_options={"base_url": server.base_url})
        ...
        assert server.wait_closed(1).how == "eof"

Served are `:streamGenerateContent?alt=sse`, `:generateContent` (the script's events merged into one
answer) and `:countTokens`, for any model name and API version. It runs on its own event loop in its
own thread, so the client may be asyncio, trio or plain threads. All moments are
`time.perf_counter()` seconds of this process.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from monitor.testing.gemini_steps import error_reply
from monitor.testing.openai_steps import Event, Reply, to_json
from monitor.testing.servers.local_server import ClientLeft as ClientLeft
from monitor.testing.servers.local_server import CountingDialect, LocalServer, Scripts
from monitor.testing.servers.local_server import ReceivedRequest as ReceivedRequest
from monitor.testing.servers.local_server import TokenCounts as TokenCounts

_METHODS: Final = ("streamGenerateContent", "generateContent", "countTokens")
_PATH: Final = re.compile(rf"/models/[^/:?]+:({'|'.join(_METHODS)})$")


class LocalGemini(LocalServer):
    """The server. Enter it (`with`, in async code too: entering takes a millisecond); leaving
    closes every connection.

    `scripts` is a list, one script for each generating request, of which the last repeats; or a
    function of the request. `count_tokens` is the answer to `:countTokens`, which uses up no
    script. Leaving the block raises the exception of a script function, unless the block raised one
    itself.
    """

    def __init__(self, scripts: Scripts, *, count_tokens: TokenCounts = 42) -> None:
        super().__init__(scripts, _Gemini(count_tokens))


class _Gemini(CountingDialect):
    """The dialect of Gemini's service."""

    count_field = "totalTokens"

    def method(self, verb: str, path: str) -> str:
        known = _PATH.search(path.partition("?")[0])
        return known[1] if known and verb == "POST" else ""

    def unscripted(self, request: ReceivedRequest) -> Reply | None:
        if not request.method:
            served = ", ".join(f":{method}" for method in _METHODS)
            return self.refusal(
                404, f"LocalGemini serves POST .../models/<name> with {served}; this was {request.verb} {request.path}"
            )
        if request.method == "streamGenerateContent" and "alt=sse" not in request.path:
            return self.refusal(400, "LocalGemini streams server-sent events only: add ?alt=sse")
        return self.count(request) if request.method == "countTokens" else None

    def streams(self, request: ReceivedRequest) -> bool:
        return request.method == "streamGenerateContent"

    def framed(self, event: Event) -> bytes:
        return b"data: " + to_json(event) + b"\r\n\r\n"

    def merged(self, request: ReceivedRequest, events: Sequence[Event]) -> Event:
        return _merged(events)

    def refusal(self, status: int, message: str) -> Reply:
        return error_reply(status, message)


def _merged(events: Sequence[Event]) -> Event:
    """The events of a stream as the one answer of `:generateContent`."""
    if len(events) == 1:
        return events[0]
    answer: dict[str, Any] = {}
    candidate: dict[str, Any] = {}
    parts: list[Any] = []
    for event in events:
        answer |= event
        for one in event.get("candidates") or ():
            candidate |= one
            parts += (one.get("content") or {}).get("parts") or ()
    if candidate:
        answer["candidates"] = [candidate | {"content": {"role": "model", "parts": parts}}]
    return answer
