"""Local servers that speak as OpenAI, Anthropic and Gemini do, for driving the real SDKs without a
network.

Each plays one script per request, misbehaves on demand, and records what it received and **when it
saw the client leave**. Each runs on its own event loop in its own thread, so the client may be
asyncio, trio or plain threads. All moments are `time.perf_counter()` seconds of this process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from monitor.testing import anthropic_steps, gemini_steps, openai_steps
from monitor.testing.answer_steps import Event, Reply, to_json
from monitor.testing.local_server import Dialect, LocalServer, ReceivedRequest, Scripts, TokenCounts

CHAT: Final = "chat.completions"
"""`ReceivedRequest.method` of a chat completion."""
RESPONSES: Final = "responses"
"""`ReceivedRequest.method` of a response."""


class LocalOpenAI(LocalServer):
    """An OpenAI-compatible server on loopback. Enter it (`with`, in async code too: entering takes
    a millisecond); leaving closes every connection.

        from openai import AsyncOpenAI
        from monitor.testing import LocalOpenAI
        from monitor.testing.openai_steps import Stall, finish, text

        answers = [[text("hel"), text("lo"), finish()], [text("never ends"), Stall()]]
        with LocalOpenAI(answers) as server:
            client = AsyncOpenAI(api_key="x", base_url=server.base_url)
            ...
            assert server.wait_closed(1).how == "eof"

    Served are `POST .../chat/completions` and `POST .../responses`, as streams and (the script's
    events merged into one answer) without, for any model name.

    `scripts` is a list, one script for each request, of which the last repeats; or a function of
    the request, whose `method` is `chat.completions` or `responses`. `done=False` omits the
    `[DONE]` at the end of a stream of chat completions. Leaving the block raises the exception of a
    script function, unless the block raised one itself.
    """

    def __init__(self, scripts: Scripts, *, done: bool = True) -> None:
        super().__init__(scripts, _OpenAI(done=done))


class _OpenAI(Dialect):
    """The dialect of OpenAI's service."""

    root = "/v1"
    paths = re.compile(r"/(chat/completions|responses)$")
    methods: ClassVar[Mapping[str, str]] = {"chat/completions": CHAT}
    served = "LocalOpenAI serves POST .../chat/completions and POST .../responses"

    def __init__(self, *, done: bool) -> None:
        super().__init__()
        self._done = done

    def framed(self, event: Event) -> bytes:
        kind = event.get("type")
        named = b"event: %b\n" % kind.encode() if isinstance(kind, str) else b""
        return named + b"data: " + to_json(event) + b"\n\n"

    def closing(self, request: ReceivedRequest) -> bytes:
        return b"data: [DONE]\n\n" if self._done and request.method == CHAT else b""

    def merged(self, request: ReceivedRequest, events: Sequence[Event]) -> Event:
        return openai_steps.merged_chat(events) if request.method == CHAT else openai_steps.merged_response(events)

    def refusal(self, status: int, message: str) -> Reply:
        kind = "server_error" if status >= 500 else "invalid_request_error"  # noqa: PLR2004 - HTTP
        return openai_steps.error_reply(status, message, kind=kind)


class LocalAnthropic(LocalServer):
    """An Anthropic-compatible server on loopback. Enter it (`with`, in async code too: entering
    takes a millisecond); leaving closes every connection.

        from anthropic import AsyncAnthropic
        from monitor.testing import LocalAnthropic
        from monitor.testing.anthropic_steps import Stall, finish, say, start, text

        answers = [[start(), *say("hel", "lo"), *finish()], [start(), text("never ends"), Stall()]]
        with LocalAnthropic(answers) as server:
            client = AsyncAnthropic(api_key="x", base_url=server.base_url)
            ...
            assert server.wait_closed(1).how == "eof"

    Served are `/v1/messages`, streamed or not (then the script's events are merged into one
    message), and `/v1/messages/count_tokens`, both also with `?beta=true`.

    `scripts` is a list, one script for each request of a message, of which the last repeats; or a
    function of the request. `count_tokens` is the answer to `/v1/messages/count_tokens`, which uses
    up no script. Leaving the block raises the exception of a script function, unless the block
    raised one itself.
    """

    def __init__(self, scripts: Scripts, *, count_tokens: TokenCounts = 42) -> None:
        super().__init__(scripts, _Anthropic(count_tokens))


class _Anthropic(Dialect):
    """The dialect of Anthropic's service."""

    paths = re.compile(r"/v1/(messages|messages/count_tokens)$")
    methods: ClassVar[Mapping[str, str]] = {"messages/count_tokens": "count_tokens"}
    served = "LocalAnthropic serves POST /v1/messages and /v1/messages/count_tokens"
    counting = ("count_tokens", "input_tokens")

    def framed(self, event: Event) -> bytes:
        return f"event: {event.get('type', 'message')}\n".encode() + b"data: " + to_json(event) + b"\n\n"

    def merged(self, request: ReceivedRequest, events: Sequence[Event]) -> Event:
        return _merged_message(events)

    def refusal(self, status: int, message: str) -> Reply:
        return anthropic_steps.error_reply(status, message)


_FIELDS: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}


def _merged_message(events: Sequence[Event]) -> Event:
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


class LocalGemini(LocalServer):
    """A Gemini-compatible server on loopback. Enter it (`with`, in async code too: entering takes a
    millisecond); leaving closes every connection.

        from google import genai
        from monitor.testing import LocalGemini
        from monitor.testing.gemini_steps import Stall, finish, text

        answers = [[text("hel"), text("lo"), finish()], [text("never ends"), Stall()]]
        with LocalGemini(answers) as server:
            client = genai.Client(api_key="x", http_options={"base_url": server.base_url})
            ...
            assert server.wait_closed(1).how == "eof"

    Served are `:streamGenerateContent?alt=sse`, `:generateContent` (the script's events merged into
    one answer) and `:countTokens`, for any model name and API version.

    `scripts` is a list, one script for each generating request, of which the last repeats; or a
    function of the request. `count_tokens` is the answer to `:countTokens`, which uses up no
    script. Leaving the block raises the exception of a script function, unless the block raised one
    itself.
    """

    def __init__(self, scripts: Scripts, *, count_tokens: TokenCounts = 42) -> None:
        super().__init__(scripts, _Gemini(count_tokens))


class _Gemini(Dialect):
    """The dialect of Gemini's service."""

    paths = re.compile(r"/models/[^/:?]+:(streamGenerateContent|generateContent|countTokens)$")
    served = "LocalGemini serves POST .../models/<name> with :streamGenerateContent, :generateContent, :countTokens"
    counting = ("countTokens", "totalTokens")

    def unscripted(self, request: ReceivedRequest) -> Reply | None:
        if self.streams(request) and "alt=sse" not in request.path:
            return self.refusal(400, "LocalGemini streams server-sent events only: add ?alt=sse")
        return super().unscripted(request)

    def streams(self, request: ReceivedRequest) -> bool:
        return request.method == "streamGenerateContent"

    def framed(self, event: Event) -> bytes:
        return b"data: " + to_json(event) + b"\r\n\r\n"

    def merged(self, request: ReceivedRequest, events: Sequence[Event]) -> Event:
        return _merged_candidates(events)

    def refusal(self, status: int, message: str) -> Reply:
        return gemini_steps.error_reply(status, message)


def _merged_candidates(events: Sequence[Event]) -> Event:
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
