"""A Gemini-compatible server on loopback, for driving the real google-genai SDK without a network.

It plays one script per request, misbehaves on demand, and records what it received and **when it saw the client leave**:

    from google import genai
    from monitor.testing import LocalGemini
    from monitor.testing.gemini_steps import Stall, finish, text

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
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

import anyio

from monitor.errors import ConfigError
from monitor.testing.gemini_steps import (
    STEPS,
    Cut,
    Event,
    Headers,
    Pause,
    Raw,
    Repeat,
    Reply,
    Reset,
    Script,
    Send,
    Stall,
    Step,
    error_reply,
    to_json,
)

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
        return answer if isinstance(answer, Reply) else Reply(200, to_json({"totalTokens": answer}))


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
    if not isinstance(step, STEPS):
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
            await self._body(b"data: " + to_json(event) + b"\r\n\r\n")
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
            await self._whole(Reply(200, self._raw or to_json(_merged(self._events))))

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
