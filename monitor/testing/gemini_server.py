"""A Gemini-compatible server on loopback, for driving the real google-genai SDK without a network.

It plays one script per request, misbehaves on demand, and records what it received and **when it saw the client leave**:

    from google import genai
    from monitor.testing.gemini_server import LocalGemini, Stall, finish, text

    with LocalGemini([[text("hel"), text("lo"), finish()], [text("never ends"), Stall()]]) as server:
        client = genai.Client(api_key="x", http_options={"base_url": server.base_url})
        ...
        assert server.wait_closed(1).how == "eof"

Served are `:streamGenerateContent?alt=sse`, `:generateContent` (the script's events merged into one answer) and `:countTokens`,
for any model name and API version. It runs on a loop of its own in a thread of its own, so the client may be asyncio, trio or
plain threads. All moments are `time.perf_counter()` seconds of this process.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from http import HTTPStatus
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

import anyio

from monitor.errors import AdapterError, ConfigError

Event: TypeAlias = Mapping[str, Any]
"""One `GenerateContentResponse` as it stands on the wire (camelCase JSON)."""


@dataclass(slots=True, frozen=True)
class Send:
    """One server-sent event. A bare mapping in a script means the same."""

    event: Event


@dataclass(slots=True, frozen=True)
class Raw:
    """These body bytes as they are: half an event, a comment, no JSON."""

    data: bytes


@dataclass(slots=True, frozen=True)
class Headers:
    """The status line and headers now; otherwise they go out with the first `Send` or `Raw`."""


@dataclass(slots=True, frozen=True)
class Pause:
    """Nothing for `delay_s` seconds; before the first event it delays the headers."""

    delay_s: float


@dataclass(slots=True, frozen=True)
class Stall:
    """Nothing, until the client leaves or the server stops."""


@dataclass(slots=True, frozen=True)
class Cut:
    """Close the connection in the middle of the answer, after everything sent so far has gone out."""


@dataclass(slots=True, frozen=True)
class Reset:
    """Close the connection with a TCP reset."""


@dataclass(slots=True, frozen=True)
class Repeat:
    """`step` as often as `times` says (`None`: for ever), `delay_s` seconds apart. `Repeat(text("x"))` floods."""

    step: Step | Event
    times: int | None = None
    delay_s: float = 0.0


@dataclass(slots=True, frozen=True)
class Reply:
    """A whole answer with this status instead of a stream. Only a `Pause` may stand before it."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Added to, or replacing, `content-type: application/json`."""


Step: TypeAlias = Send | Raw | Headers | Pause | Stall | Cut | Reset | Repeat | Reply
Script: TypeAlias = Sequence[Step | Event]
_STEPS = (Send, Raw, Headers, Pause, Stall, Cut, Reset, Repeat, Reply)


# --- what a script sends


def chunk(
    parts: Sequence[Event] | None,
    *,
    usage: Event | None = None,
    finish_reason: str | None = None,
    finish_message: str | None = None,
    response_id: str | None = None,
    continuation_token: str | None = None,
    **top_level: Any,
) -> dict[str, Any]:
    """One event with one candidate. `parts=None` leaves its content away, as a malformed call does.

    `continuation_token` (base64) is a checkpoint from which the SDK may resume by itself.
    """
    candidate: dict[str, Any] = {"index": 0}
    if parts is not None:
        candidate["content"] = {"role": "model", "parts": list(parts)}
    optional = {"finishReason": finish_reason, "finishMessage": finish_message, "continuationToken": continuation_token}
    candidate.update({key: value for key, value in optional.items() if value is not None})
    event: dict[str, Any] = {"candidates": [candidate], "modelVersion": "local-gemini"}
    if response_id is not None:
        event["responseId"] = response_id
    if usage is not None:
        event["usageMetadata"] = usage
    return event | top_level


def usage(prompt: int, *, output: int = 0, thoughts: int = 0, cached: int = 0, tool_use: int = 0) -> dict[str, Any]:
    """A `usageMetadata` object: tokens of the request so far. Zeros are left away, as the API does."""
    counts = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": output,
        "thoughtsTokenCount": thoughts,
        "cachedContentTokenCount": cached,
        "toolUsePromptTokenCount": tool_use,
        "totalTokenCount": prompt + output + thoughts + tool_use,
    }
    return {key: count for key, count in counts.items() if count}


def text(words: str, **options: Any) -> dict[str, Any]:
    """A piece of the visible answer. `options`: those of `chunk`."""
    return chunk([{"text": words}], **options)


def thought(words: str, *, signature: str | None = None, **options: Any) -> dict[str, Any]:
    """A piece of the thinking. `signature`: base64."""
    return chunk([{"text": words, "thought": True} | _signature(signature)], **options)


def call(
    name: str, arguments: Event | None = None, *, id: str | None = None, signature: str | None = None, **options: Any
) -> dict[str, Any]:
    """A complete function call."""
    function = {"name": name, "args": dict(arguments or {})} | ({} if id is None else {"id": id})
    return chunk([{"functionCall": function} | _signature(signature)], **options)


def partial_call(
    name: str | None = None,
    pieces: Sequence[Event] | None = None,
    *,
    more: bool | None = None,
    id: str | None = None,
    signature: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """A piece of a function call whose arguments are streamed (the API does this on Vertex only).

    The first has `name`; `pieces` come from `piece`; `more=True` says that the call goes on.
    """
    optional = {"name": name, "id": id, "partialArgs": None if pieces is None else list(pieces), "willContinue": more}
    function = {key: value for key, value in optional.items() if value is not None}
    return chunk([{"functionCall": function} | _signature(signature)], **options)


def piece(path: str, value: str | float | bool | None, *, more: bool | None = None) -> dict[str, Any]:  # noqa: FBT001 - a JSON value
    """One `partialArgs` entry: `value` at the JSON path `path`; `more=True` says that the string goes on."""
    match value:
        case None:
            kind: dict[str, Any] = {"nullValue": "NULL_VALUE"}
        case bool():
            kind = {"boolValue": value}
        case str():
            kind = {"stringValue": value}
        case _:
            kind = {"numberValue": value}
    return {"jsonPath": path} | kind | ({} if more is None else {"willContinue": more})


def usage_only(prompt: int, **counts: int) -> dict[str, Any]:
    """An event that has no candidate, only usage. Arguments: those of `usage`."""
    return {"usageMetadata": usage(prompt, **counts), "modelVersion": "local-gemini"}


def finish(
    reason: str = "STOP", *, message: str | None = None, parts: Sequence[Event] | None = ({"text": ""},), **options: Any
) -> dict[str, Any]:
    """The event that closes a turn. With `usage` if none is given: 7 tokens in, 3 out."""
    defaults: dict[str, Any] = {"usage": usage(7, output=3)}
    return chunk(parts, finish_reason=reason, finish_message=message, **(defaults | options))


def blocked(reason: str = "PROHIBITED_CONTENT") -> dict[str, Any]:
    """The one event that answers a blocked prompt."""
    return {"promptFeedback": {"blockReason": reason}, "usageMetadata": usage(7), "modelVersion": "local-gemini"}


def midstream_error(code: int = 503, message: str = "The model is overloaded.", status: str = "UNAVAILABLE") -> dict[str, Any]:
    """An error event inside a stream that began with 200."""
    return {"error": {"code": code, "message": message, "status": status}}


def _signature(signature: str | None) -> dict[str, str]:
    return {} if signature is None else {"thoughtSignature": signature}


# --- error answers

_RPC_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def error_reply(
    code: int,
    message: str = "Something went wrong.",
    *,
    status: str | None = None,
    details: Sequence[Event] = (),
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """An error in the API's JSON form. `status` is the RPC name; by default the one that goes with `code`."""
    error: dict[str, Any] = {"code": code, "message": message, "status": status or _RPC_STATUS.get(code, "UNKNOWN")}
    if details:
        error["details"] = list(details)
    return Reply(code, _json({"error": error}), headers or {})


def rate_limited(retry_after_s: float | None = 7) -> Reply:
    """429 that asks to wait, as the API does, with a RetryInfo detail; `None` leaves that away."""
    details = [] if retry_after_s is None else [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{retry_after_s:g}s"}]
    return error_reply(429, "You exceeded your current quota.", details=details)


def overflow(tokens: int = 1_200_000, limit: int = 1_048_576) -> Reply:
    """400: the prompt does not fit the window."""
    return error_reply(400, f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({limit}).")


def html_error(code: int = 502, body: str = "<html><body>Bad gateway</body></html>") -> Reply:
    """What a proxy answers."""
    return Reply(code, body.encode(), {"content-type": "text/html"})


# --- scripts from text and from recordings


def events_of(
    answer: str,
    tool_calls: Iterable[tuple[str, Event]] = (),
    *,
    cut: int = 20,
    reasoning: str = "",
    finish_reason: str | None = "STOP",
    tokens: Event | None = None,
) -> list[dict[str, Any]]:
    """One model turn as wire events: `reasoning` and `answer` in pieces of `cut` code points, then each (name, arguments) call.

    `finish_reason=None` leaves the closing event away, so the stream is truncated. `tokens` is its `usageMetadata`.
    """
    if cut < 1:
        raise ConfigError(f"cut must be at least 1 code point, not {cut}")
    events = [thought(reasoning[at : at + cut]) for at in range(0, len(reasoning), cut)]
    events += [text(answer[at : at + cut]) for at in range(0, len(answer), cut)]
    events += [call(name, arguments) for name, arguments in tool_calls]
    if finish_reason is not None:
        events.append(finish(finish_reason, usage=tokens or usage(7, output=3)))
    return events


def events_of_message(message: Event, *, cut: int = 20) -> list[dict[str, Any]]:
    """An assistant message of the loop corpus (`text`, `tool_calls` of `name` and `args`) as wire events.

    Arguments that are no JSON object go under the key `input`, because the wire knows objects only.
    """
    calls = [(str(made["name"]), made["args"]) for made in message.get("tool_calls") or ()]
    objects = [(name, arguments if isinstance(arguments, Mapping) else {"input": arguments}) for name, arguments in calls]
    return events_of(str(message.get("text") or ""), objects, cut=cut)


@dataclass(slots=True, frozen=True)
class RecordedCall:
    """One recorded model call: the API method and the events that it answered."""

    method: str
    events: tuple[dict[str, Any], ...]


def load_recording(path: str | PathLike[str]) -> list[RecordedCall]:
    """The calls of a recorded file, in order: `*.jsonl` is one streamed call, an event a line; `*.responses` has a call a line.

    `RecordedCall.events` is a script. Raises `AdapterError` for a line that is neither.
    """
    file = Path(path)
    lines = [_recorded_line(file, number, line) for number, line in enumerate(file.read_text("utf-8").splitlines(), 1) if line.strip()]
    if file.suffix != ".responses":
        return [RecordedCall("generateContentStream", tuple(lines))]
    return [_recorded_call(file, line) for line in lines]


def _recorded_line(file: Path, number: int, line: str) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except ValueError as error:
        raise AdapterError(f"{file}, line {number}: no JSON: {error}") from None
    if not isinstance(data, dict):
        raise AdapterError(f"{file}, line {number}: expected a JSON object, not {type(data).__name__}")
    return data


def _recorded_call(file: Path, line: Event) -> RecordedCall:
    method, response = line.get("method"), line.get("response")
    events: list[Any] = response if isinstance(response, list) else [response]
    if not isinstance(method, str) or not all(isinstance(event, dict) for event in events):
        raise AdapterError(f"{file}: a recorded call needs `method` and `response`; this one has {', '.join(line) or 'nothing'}")
    return RecordedCall(method, tuple(events))


# --- what the server saw


@dataclass(slots=True, frozen=True)
class ClientLeft:
    """The client closed the connection."""

    at: float
    how: Literal["eof", "reset"]
    """An orderly close, or a TCP reset (also what a close with unread data looks like)."""


@dataclass(slots=True)
class ReceivedRequest:
    """One request and what became of it. Filled in by the server while it works."""

    number: int
    """Index in `LocalGemini.requests`."""
    connection: int
    """Which TCP connection it came over; a reused one keeps its number."""
    verb: str
    path: str
    method: str
    """`streamGenerateContent`, `generateContent`, `countTokens`; empty for an unknown path."""
    headers: Mapping[str, str]
    """Names in lower case."""
    body: Any
    """The JSON; bytes if it was none."""
    arrived_at: float
    events_sent: int = 0
    last_sent_at: float | None = None
    completed: bool = False
    """The whole answer was handed to the operating system, its end included."""
    closed: ClientLeft | None = None
    """The client closed the connection while this request was the last one on it, during the answer or after."""


Scripts: TypeAlias = Iterable[Script] | Callable[[ReceivedRequest], Script]
TokenCounts: TypeAlias = int | Callable[[ReceivedRequest], int | Reply]

_METHODS = ("streamGenerateContent", "generateContent", "countTokens")
_PATH = re.compile(rf"/models/[^/:?]+:({'|'.join(_METHODS)})(?:\?.*)?$")
_HEAD_LIMIT_BYTES = 1 << 20
_START_LIMIT_S = 10.0


class LocalGemini:
    """The server. Enter it (`with`, in async code too: entering takes a millisecond); leaving closes every connection.

    `scripts` is a list, one script for each generating request, of which the last repeats; or a function of the request.
    `count_tokens` is the answer to `:countTokens`, which uses up no script.
    Leaving the block raises what a script function raised, unless the block raised something itself.
    """

    def __init__(self, scripts: Scripts, *, count_tokens: TokenCounts = 42) -> None:
        self.requests: list[ReceivedRequest] = []
        self.connections = 0
        self.base_url = ""
        """For `http_options`; set while the server runs."""
        self._script_of = scripts if callable(scripts) else _in_order([_checked(script) for script in scripts])
        self._count_tokens = count_tokens
        self._changed = threading.Condition()
        self._failure: Exception | None = None
        self._open: set[_Connection] = set()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise ConfigError("this LocalGemini is already running")
        started: Future[str] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="LocalGemini", daemon=True)
        self._thread.start()
        self.base_url = started.result(_START_LIMIT_S)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._thread is not None and self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
            self._thread = None
        if error is None and self._failure is not None:
            raise self._failure

    def wait_request(self, number: int = 0, *, timeout_s: float = 5.0) -> ReceivedRequest:
        """Block until request `number` has arrived. Raises `TimeoutError`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._has(number), timeout_s):
                raise TimeoutError(f"request {number} did not arrive within {timeout_s} s; {len(self.requests)} did")
            return self.requests[number]

    def wait_closed(self, number: int = -1, *, timeout_s: float = 5.0) -> ClientLeft:
        """Block until the client was seen leaving request `number`. Raises `TimeoutError`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._closed(number) is not None, timeout_s):
                raise TimeoutError(self._still_open(number, timeout_s))
        return self._known_closed(number)

    async def wait_closed_async(self, number: int = -1, *, timeout_s: float = 5.0) -> ClientLeft:
        """`wait_closed` that lets the event loop go on, on asyncio and trio."""
        give_up_at = time.perf_counter() + timeout_s
        while self._closed(number) is None:
            if time.perf_counter() > give_up_at:
                raise TimeoutError(self._still_open(number, timeout_s))
            await anyio.sleep(0.0005)
        return self._known_closed(number)

    def _has(self, number: int) -> bool:
        return -len(self.requests) <= number < len(self.requests)

    def _closed(self, number: int) -> ClientLeft | None:
        return self.requests[number].closed if self._has(number) else None

    def _known_closed(self, number: int) -> ClientLeft:
        closed = self._closed(number)
        assert closed is not None  # noqa: S101 - waited for just before
        return closed

    def _still_open(self, number: int, timeout_s: float) -> str:
        what = f"the client still holds request {number}" if self._has(number) else f"request {number} never came"
        return f"{what} after {timeout_s} s"

    # --- inside the server's own thread

    def _run(self, started: Future[str]) -> None:
        try:
            asyncio.run(self._listen(started))
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    async def _listen(self, started: Future[str]) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await self._loop.create_server(lambda: _Connection(self), "127.0.0.1", 0)
        started.set_result(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        try:
            await self._stop.wait()
        finally:
            server.close()
            await asyncio.gather(*[connection.hang_up() for connection in tuple(self._open)])

    def _arrived(self, connection: _Connection, head: _Head, data: bytes) -> ReceivedRequest:
        known = _PATH.search(head.path)
        with self._changed:
            request = ReceivedRequest(
                number=len(self.requests),
                connection=connection.number,
                verb=head.verb,
                path=head.path,
                method=known[1] if known and head.verb == "POST" else "",
                headers=head.headers,
                body=_parsed(data),
                arrived_at=time.perf_counter(),
            )
            self.requests.append(request)
            self._changed.notify_all()
        return request

    def _left(self, request: ReceivedRequest, how: Literal["eof", "reset"]) -> None:
        with self._changed:
            request.closed = ClientLeft(time.perf_counter(), how)
            self._changed.notify_all()

    def _plan(self, request: ReceivedRequest) -> tuple[Step, ...]:
        """The steps that answer `request`; what is wrong with a script is a 500, and raised when the server is left."""
        if not request.method:
            served = ", ".join(f":{method}" for method in _METHODS)
            return (error_reply(404, f"LocalGemini serves POST .../models/<name> with {served}; this was {request.verb} {request.path}"),)
        if request.method == "streamGenerateContent" and "alt=sse" not in request.path:
            return (error_reply(400, "LocalGemini streams server-sent events only: add ?alt=sse"),)
        try:
            if request.method == "countTokens":
                return (self._count(request),)
            return _checked(self._script_of(request))
        except Exception as error:  # noqa: BLE001 - whatever the caller's function raises
            self._failed(error)
            return (error_reply(500, f"the script function failed: {error!r}"),)

    def _failed(self, error: Exception) -> None:
        self._failure = self._failure or error

    def _count(self, request: ReceivedRequest) -> Reply:
        answer = self._count_tokens(request) if callable(self._count_tokens) else self._count_tokens
        return answer if isinstance(answer, Reply) else Reply(200, _json({"totalTokens": answer}))


def _in_order(scripts: Sequence[Script]) -> Callable[[ReceivedRequest], Script]:
    """One script after the other; the last one repeats."""
    if not scripts:
        raise ConfigError("scripts is empty: give at least one script")
    asked = 0

    def next_script(_: ReceivedRequest) -> Script:
        nonlocal asked
        asked += 1
        return scripts[min(asked, len(scripts)) - 1]

    return next_script


def _checked(script: Script) -> tuple[Step, ...]:
    steps = tuple(_step_of(step) for step in script)
    if any(isinstance(step, Reply) for step in steps):
        *before, last = steps
        if not isinstance(last, Reply) or not all(isinstance(step, Pause) for step in before):
            raise ConfigError("a Reply must be the last step of a script, and only a Pause may stand before it")
    return steps


def _step_of(step: Step | Event) -> Step:
    if isinstance(step, Mapping):
        return Send(step)
    if isinstance(step, Repeat) and isinstance(step.step, Reply):
        raise ConfigError("a Reply cannot be repeated")
    if not isinstance(step, _STEPS):
        raise ConfigError(f"a script holds {step!r}, which is no step and no event")
    return step


@dataclass(slots=True, frozen=True)
class _Head:
    verb: str
    path: str
    headers: Mapping[str, str]


class _Connection(asyncio.StreamReaderProtocol):
    """One TCP connection. The transport watches the socket all the time, so a client that leaves is seen at once,
    also while the script stalls or floods: that cancels the task that plays it.
    """

    def __init__(self, server: LocalGemini) -> None:
        super().__init__(asyncio.StreamReader(limit=_HEAD_LIMIT_BYTES), self._serve)
        self._server = server
        self._serving: asyncio.Task[None] | None = None
        self._wire: asyncio.BaseTransport | None = None
        self._request: ReceivedRequest | None = None
        self._over = False
        self.number = server.connections
        server.connections += 1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire = transport
        self._server._open.add(self)  # noqa: SLF001 - the two are one thing in two classes
        super().connection_made(transport)

    def eof_received(self) -> bool:
        self._client_left("eof")
        super().eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._server._open.discard(self)  # noqa: SLF001
        self._client_left("reset" if exc else "eof")
        super().connection_lost(exc)

    def _client_left(self, how: Literal["eof", "reset"]) -> None:
        if self._over:
            return
        self._over = True
        if self._request is not None:
            self._server._left(self._request, how)  # noqa: SLF001
        if self._serving is not None:
            self._serving.cancel()

    async def hang_up(self) -> None:
        """The server stops: close, whatever is going on."""
        self._over = True
        if isinstance(self._wire, asyncio.WriteTransport):
            self._wire.abort()
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait([self._serving])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving = asyncio.current_task()
        writer.transport.set_write_buffer_limits(high=0)  # `drain` then means: the operating system has it
        try:
            while (request := await self._read(reader)) is not None:
                self._request = request
                await _Answer(request, writer).play(self._server._plan(request))  # noqa: SLF001
            self._close(writer)
        except _HangUp:
            self._close(writer)
        except (asyncio.CancelledError, ConnectionError):
            writer.transport.abort()
        except Exception as error:  # noqa: BLE001 - e.g. an event that is no JSON
            self._server._failed(error)  # noqa: SLF001
            self._close(writer)

    def _close(self, writer: asyncio.StreamWriter) -> None:
        self._over = True
        writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> ReceivedRequest | None:
        """The next request; `None` if what came is no HTTP request."""
        try:
            head = _parsed_head(await reader.readuntil(b"\r\n\r\n"))
            data = await _read_body(reader, head.headers)
        except (ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return None
        return self._server._arrived(self, head, data)  # noqa: SLF001


def _parsed_head(raw: bytes) -> _Head:
    first, *rest = raw.decode("latin-1").split("\r\n")
    verb, path, _ = first.split(" ", 2)
    pairs = (line.partition(":") for line in rest if line)
    return _Head(verb, path, {name.strip().lower(): value.strip() for name, _, value in pairs})


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    data = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        data += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)
    return data


class _HangUp(Exception):
    """The script wants this connection closed."""


class _Answer:
    """Plays one script into one connection."""

    def __init__(self, request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        self._request = request
        self._writer = writer
        self._streams = request.method == "streamGenerateContent"
        self._began = False
        self._replied = False
        self._events: list[Event] = []
        self._raw = b""

    async def play(self, steps: Iterable[Step]) -> None:
        for step in steps:
            await self._step(step)
        if not self._replied:
            await self._end()
        self._request.completed = True

    async def _step(self, step: Step) -> None:
        match step:
            case Send(event):
                await self._send(event)
            case Raw(data):
                await self._body(data)
            case Headers():
                await self._begin()
            case Pause(delay_s):
                await asyncio.sleep(delay_s)
            case Stall():
                await asyncio.Event().wait()
            case Repeat():
                await self._repeat(step)
            case Cut():
                raise _HangUp
            case Reset():
                self._reset()
                raise _HangUp
            case Reply():
                await self._whole(step)

    async def _repeat(self, repeat: Repeat) -> None:
        step = Send(repeat.step) if isinstance(repeat.step, Mapping) else repeat.step
        done = 0
        while repeat.times is None or done < repeat.times:
            if done:
                await asyncio.sleep(repeat.delay_s)
            await self._step(step)
            done += 1

    async def _send(self, event: Event) -> None:
        if self._streams:
            await self._body(b"data: " + _json(event) + b"\r\n\r\n")
        else:
            self._events.append(event)
        self._request.events_sent += 1
        self._request.last_sent_at = time.perf_counter()

    async def _body(self, data: bytes) -> None:
        if not self._streams:
            self._raw += data
        elif data:
            await self._begin()
            await self._write(b"%x\r\n%b\r\n" % (len(data), data))

    async def _begin(self) -> None:
        if self._streams and not self._began:
            self._began = True
            await self._write(_head_of(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"}))

    async def _end(self) -> None:
        if self._streams:
            await self._begin()
            await self._write(b"0\r\n\r\n")
        else:
            await self._whole(Reply(200, self._raw or _json(_merged(self._events))))

    async def _whole(self, reply: Reply) -> None:
        self._replied = True
        headers = {"content-type": "application/json", "content-length": str(len(reply.body))}
        given = {name.lower(): value for name, value in reply.headers.items()}
        await self._write(_head_of(reply.status, headers | given) + reply.body)

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()
        await asyncio.sleep(0)  # a client that reads as fast as this writes would never let the socket be looked at

    def _reset(self) -> None:
        connection: socket.socket = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


def _head_of(status: int, headers: Mapping[str, str]) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"HTTP/1.1 {status} {phrase}", "server: local-gemini", *[f"{name}: {value}" for name, value in headers.items()]]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _json(value: Any) -> bytes:
    """UTF-8; a lone surrogate goes out as its escape, as it would come from the API."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data) if data else None
    except ValueError:
        return data


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
