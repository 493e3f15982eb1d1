"""A local HTTP server that plays one script per request, misbehaves on demand, and records its
requests with their times.

It is the common base of the providers' servers in this package. A provider adds a `Dialect`: its
paths, the form of its events and errors. The server runs on its own event loop in its own thread,
so the client may be asyncio, trio or plain threads. All moments are `time.perf_counter()` seconds
of this process.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Any, ClassVar, Literal, Self, TypeAlias

import anyio

from monitor.errors import ConfigError
from monitor.testing.answer_steps import (
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
    to_json,
)

# --- what the server saw


@dataclass(slots=True, frozen=True)
class ClientLeft:
    """The client closed the connection."""

    at: float
    how: Literal["eof", "reset"]
    """An orderly close, or a TCP reset (a close with unread data looks the same)."""


@dataclass(slots=True)
class ReceivedRequest:
    """One request and the course of its answer. The server fills it in while it works."""

    number: int
    """Index in the server's `requests`."""
    connection: int
    """The number of the TCP connection; a reused connection keeps its number."""
    verb: str
    path: str
    method: str
    """The API method, in the dialect's words, e.g. `generateContent` or `chat.completions`; empty
    for an unknown path.
    """
    headers: Mapping[str, str]
    """Names in lower case."""
    body: Any
    """The JSON value of the body; bytes if it is not JSON."""
    arrived_at: float
    events_sent: int = 0
    last_sent_at: float | None = None
    completed: bool = False
    """Whether the whole answer was passed to the operating system, its end included."""
    closed: ClientLeft | None = None
    """How the client closed the connection, during the answer or after it. Set only for the
    connection's last request.
    """


Scripts: TypeAlias = Iterable[Script] | Callable[[ReceivedRequest], Script]
_HEAD_LIMIT_BYTES = 1 << 20
_START_LIMIT_S = 30.0


TokenCounts: TypeAlias = int | Callable[[ReceivedRequest], int | Reply]
"""The answer to a count of tokens: the count, or a function of the request that gives it or a whole
`Reply`.
"""


class Dialect(ABC):
    """The wire format of a provider on top of HTTP. A provider says which paths it serves, and how
    its events, its whole answers and its errors look.
    """

    root = ""
    """The path that a client's base address ends with, e.g. `/v1`."""
    paths: re.Pattern[str]
    """Finds what is served under a path, without its query. Its first group names the method."""
    methods: ClassVar[Mapping[str, str]] = {}
    """The API method of a group that is not the method's own name."""
    served: str
    """The server and its paths in words, for the answer to a request of another path."""
    counting = ("", "")
    """The method that counts tokens, and the field of its answer. A count uses up no script."""

    def __init__(self, count_tokens: TokenCounts = 0) -> None:
        self._count_tokens = count_tokens

    def method(self, verb: str, path: str) -> str:
        """The API method that is served under `path`; empty for an unknown path."""
        known = self.paths.search(path.partition("?")[0]) if verb == "POST" else None
        return self.methods.get(known[1], known[1]) if known else ""

    def unscripted(self, request: ReceivedRequest) -> Reply | None:
        """An answer that uses up no script: to an unknown path, an invalid request, a count of
        tokens.
        """
        if not request.method:
            return self.refusal(404, f"{self.served}; this was {request.verb} {request.path}")
        method, field = self.counting
        if request.method != method:
            return None
        answer = self._count_tokens(request) if callable(self._count_tokens) else self._count_tokens
        return answer if isinstance(answer, Reply) else Reply(200, to_json({field: answer}))

    def streams(self, request: ReceivedRequest) -> bool:
        """Whether the answer is a stream of events, or one JSON object."""
        return isinstance(request.body, dict) and request.body.get("stream") is True

    @abstractmethod
    def framed(self, event: Event) -> bytes:
        """One server-sent event as bytes."""

    def closing(self, request: ReceivedRequest) -> bytes:
        """The bytes after the last event of a complete script, e.g. `data: [DONE]`; here none."""
        return b""

    @abstractmethod
    def merged(self, request: ReceivedRequest, events: Sequence[Event]) -> Event:
        """The events of a stream as one answer, for a request without streaming."""

    @abstractmethod
    def refusal(self, status: int, message: str) -> Reply:
        """An error in the provider's form."""


class LocalServer:
    """The server. Enter it (`with`, in async code too: entering takes a millisecond); leaving
    closes every connection.

    `scripts` is a list, one script for each scripted request, of which the last repeats; or a
    function of the request. Leaving the block raises the exception of a script function, unless the
    block raised one itself.
    """

    def __init__(self, scripts: Scripts, dialect: Dialect) -> None:
        self.requests: list[ReceivedRequest] = []
        self.connections = 0
        self.base_url: str = ""
        """The address for the client; set while the server runs."""
        self.dialect = dialect
        self._script_of = scripts if callable(scripts) else _in_order([_checked(script) for script in scripts])
        self._changed = threading.Condition()
        self._failure: Exception | None = None
        self._open: set[_Connection] = set()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise ConfigError(f"this {type(self).__name__} is already running")
        started: Future[str] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name=type(self).__name__, daemon=True)
        self._thread.start()
        self.base_url = started.result(_START_LIMIT_S) + self.dialect.root
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None and self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
            self._thread = None
        if error is None and self._failure is not None:
            raise self._failure

    def wait_request(self, number: int = 0, *, timeout_s: float = 30.0) -> ReceivedRequest:
        """Block until request `number` has arrived. Raises `TimeoutError`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._has(number), timeout_s):
                raise TimeoutError(f"request {number} did not arrive within {timeout_s} s; {len(self.requests)} did")
            return self.requests[number]

    def wait_closed(self, number: int = -1, *, timeout_s: float = 30.0) -> ClientLeft:
        """Block until the client was seen leaving request `number`. Raises `TimeoutError`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._closed(number) is not None, timeout_s):
                raise TimeoutError(self._still_open(number, timeout_s))
        return self._known_closed(number)

    async def wait_closed_async(self, number: int = -1, *, timeout_s: float = 30.0) -> ClientLeft:
        """`wait_closed` without blocking the event loop, on asyncio and trio."""
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
            # asyncio leaves a client open that was accepted a moment before the server is closed.
            while self._open or len(asyncio.all_tasks()) > 1:
                await asyncio.gather(*[connection.hang_up() for connection in tuple(self._open)])
                await asyncio.sleep(0)
            server.close()

    def _arrived(self, connection: _Connection, head: _Head, data: bytes) -> ReceivedRequest:
        with self._changed:
            request = ReceivedRequest(
                number=len(self.requests),
                connection=connection.number,
                verb=head.verb,
                path=head.path,
                method=self.dialect.method(head.verb, head.path),
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
        """The steps that answer `request`. An error in a script is a 500, and is raised when the
        server is left.
        """
        try:
            reply = self.dialect.unscripted(request)
            return _checked(self._script_of(request)) if reply is None else (reply,)
        except Exception as error:  # noqa: BLE001 - the caller's function may raise anything
            self._failed(error)
            return (self.dialect.refusal(500, f"the script function failed: {error!r}"),)

    def _failed(self, error: Exception) -> None:
        self._failure = self._failure or error


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
    if isinstance(script, (str, Mapping)) or not isinstance(script, Iterable):
        raise ConfigError(
            f"a script is a list of steps and events, not {script!r}; write [[...]] for one script of one step"
        )
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
        raise ConfigError(f"a script holds {step!r}, which is neither a step nor an event")
    return step


@dataclass(slots=True, frozen=True)
class _Head:
    verb: str
    path: str
    headers: Mapping[str, str]


class _Connection(asyncio.StreamReaderProtocol):
    """One TCP connection. The transport watches the socket all the time, so a client that leaves is
    seen at once, also while the script stalls or floods. Then the task that plays the script is
    cancelled.
    """

    def __init__(self, server: LocalServer) -> None:
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
        """Close the connection at once, because the server stops."""
        self._over = True
        if isinstance(self._wire, asyncio.WriteTransport):
            self._wire.abort()
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait([self._serving])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving = asyncio.current_task()
        writer.transport.set_write_buffer_limits(high=0)  # `drain` then returns when the operating system has the data
        try:
            while (request := await self._read(reader)) is not None:
                self._request = request
                await _Answer(request, writer, self._server.dialect).play(self._server._plan(request))  # noqa: SLF001
            self._close(writer)
        except _HangUp:
            self._close(writer)
        except (asyncio.CancelledError, ConnectionError):
            writer.transport.abort()
        except Exception as error:  # noqa: BLE001 - e.g. an event that is not JSON
            self._server._failed(error)  # noqa: SLF001
            self._close(writer)

    def _close(self, writer: asyncio.StreamWriter) -> None:
        self._over = True
        writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> ReceivedRequest | None:
        """The next request. `None`: the data is not an HTTP request."""
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
    """The script closes this connection."""


class _Answer:
    """Plays one script into one connection."""

    def __init__(self, request: ReceivedRequest, writer: asyncio.StreamWriter, dialect: Dialect) -> None:
        self._request = request
        self._writer = writer
        self._dialect = dialect
        self._streams = dialect.streams(request)
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
            await self._body(self._dialect.framed(event))
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
            await self._body(self._dialect.closing(self._request))
            await self._write(b"0\r\n\r\n")
        else:
            await self._whole(Reply(200, self._raw or to_json(self._dialect.merged(self._request, self._events))))

    async def _whole(self, reply: Reply) -> None:
        self._replied = True
        headers = {"content-type": "application/json", "content-length": str(len(reply.body))}
        given = {name.lower(): value for name, value in reply.headers.items()}
        await self._write(_head_of(reply.status, headers | given) + reply.body)

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()
        await asyncio.sleep(0)  # if the client reads as fast as this writes, the socket would never be checked

    def _reset(self) -> None:
        connection: socket.socket = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


def _head_of(status: int, headers: Mapping[str, str]) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [
        f"HTTP/1.1 {status} {phrase}",
        "server: local-monitor",
        *[f"{name}: {value}" for name, value in headers.items()],
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data) if data else None
    except ValueError:
        return data
