"""Where requests go, and how an answer of the upstream is opened.

The transport of httpx2 is used without its client. A client keeps the cookies of one caller for
the next, follows redirects and unpacks bodies. It logs addresses too, which may hold Gemini's keys.
"""

from __future__ import annotations

import urllib.request
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, cast
from urllib.parse import urlsplit

import anyio

from monitor._util.argument_checks import check_kind
from monitor.errors import ConfigError, MissingExtra
from monitor.proxy.http_messages import ClientGone, Headers, Incoming, Send, Unpackable, Unpacker, begin, body

try:
    import httpx2
except ImportError:
    raise MissingExtra("httpx2", "proxy") from None

CONNECT_S: Final = 10.0
SILENCE_S: Final = 600.0
"""Seconds without a byte after which the upstream counts as gone. A run may have closer limits."""
_VERSIONS: Final = frozenset({"v1", "v1beta", "v1alpha"})
_BLANK: Final = b"\xef\xbb\xbf \t\r\n"
"""White space, and the mark that may stand before a text."""
_IDLE: Final = 200
"""Connections that are kept for later requests."""


class UpstreamFailed(Exception):
    """The upstream gave no answer, or broke off inside one."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        """For the client: 502, or 504 if the upstream took too long."""
        self.why = why


@dataclass(frozen=True, slots=True)
class Upstream:
    """One service behind the proxy."""

    name: str
    """The first segment of the paths that go there. Empty: it gets all other paths."""
    scheme: str
    host: str
    port: int | None
    path: bytes
    """The prefix of the paths of requests."""

    @classmethod
    def at(cls, name: str, address: str) -> Self:
        """The service at `address`, such as `https://api.openai.com`."""
        try:
            parts = urlsplit(address)
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"{address!r} is no address of an upstream: {error}") from None
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise ConfigError(f"{address!r} is no address of an upstream: give one such as https://api.openai.com")
        if parts.username or parts.password:
            raise ConfigError("the address of an upstream has no user and no password: keys come with each request")
        if (end := parts.path.rstrip("/").rpartition("/")[2]) in _VERSIONS:
            raise ConfigError(f"leave /{end} out of the upstream {address!r}: the path of each request brings it")
        return cls(name, parts.scheme, parts.hostname, port, parts.path.rstrip("/").encode())

    def url(self, path: bytes, query: bytes) -> httpx2.URL:
        """The address for a request. The path and the query are passed on as they came."""
        target = self.path + path + (b"?" + query if query else b"")
        return httpx2.URL(scheme=self.scheme, host=self.host, port=self.port, raw_path=target)

    def __str__(self) -> str:
        port = f":{self.port}" if self.port is not None else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}{port}{self.path.decode()}"


class Upstreams:
    """The services behind one proxy."""

    def __init__(self, given: Mapping[str, str] | str, fallbacks: Mapping[str, str] | str | None = None) -> None:
        """One address, or addresses by the first segment of the path. `""` gets all other paths.
        `fallbacks`: likewise, the addresses of second services.
        """
        check_kind("upstreams", given, str | Mapping, "an address, or addresses by name")
        named = {"": given} if isinstance(given, str) else dict(given)
        if not named:
            raise ConfigError("a proxy needs an upstream, such as https://api.openai.com")
        for name in named:
            if name and not (name.replace("-", "").replace("_", "").isalnum() and name.isascii()):
                raise ConfigError(f"the name of an upstream has letters, digits, - and _, not {name!r}")
        self._all = {name: Upstream.at(name, address) for name, address in named.items()}
        second = {"": fallbacks} if isinstance(fallbacks, str) else dict(fallbacks or {})
        if unknown := sorted(second.keys() - named.keys()):
            raise ConfigError(f"there is no upstream {unknown[0]!r} that the fallback could stand in for")
        self._second = {name: Upstream.at(name, address) for name, address in second.items()}

    @property
    def all(self) -> Sequence[Upstream]:
        """In the order in which they were given."""
        return tuple(self._all.values())

    def second(self, upstream: Upstream) -> Upstream | None:
        """The service that is asked if `upstream` fails. `None`: there is none."""
        return self._second.get(upstream.name)

    def find(self, path: bytes) -> tuple[Upstream, bytes] | None:
        """The upstream of a path, and the path there. `None`: there is none."""
        head, slash, rest = path[1:].partition(b"/")
        named = self._all.get(head.decode("latin-1")) if head else None
        if named is not None:
            return named, slash + rest or b"/"
        default = self._all.get("")
        return (default, path) if default is not None else None


class Body:
    """The bytes of an answer as they come, as an async iterator. `aclose()` closes the connection
    at once, unless the answer was read to its end.
    """

    def __init__(self, response: httpx2.Response) -> None:
        self._stream: Any = response.stream
        self._parts: Any = aiter(cast("AsyncIterable[bytes]", response.stream))
        self._ready: deque[bytes] = deque()
        """Parts that were read, and not handed out."""
        self._unpacker: Unpacker | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._ready:
            await self._read()
        return self._ready.popleft()

    def unpack(self, coding: str) -> None:
        """Hand out the body unpacked. Raises `Unpackable` for a form that is not known."""
        self._unpacker = Unpacker(coding)

    async def beginning(self, enough: int) -> bytes:
        """The first bytes that are no white space: at least `enough`, or all that come. They are
        handed out again.
        """
        while len(begun := b"".join(self._ready).lstrip(_BLANK)) < enough:
            try:
                await self._read()
            except StopAsyncIteration:
                break
        return begun

    async def _read(self) -> None:
        """Read one more part. Raises `StopAsyncIteration` at the end."""
        try:
            part: bytes = await anext(self._parts)
        except httpx2.TransportError as error:
            raise failure(error) from None
        except StopAsyncIteration:
            if self._unpacker is not None and not self._unpacker.is_whole:
                self._unpacker = None
                raise UpstreamFailed(502, "the upstream broke off inside a packed answer") from None
            raise
        if self._unpacker is None:
            self._ready.append(part)
            return
        try:
            self._ready.extend(self._unpacker.feed(part))
        except Unpackable as error:
            raise UpstreamFailed(502, f"the upstream sent {error}") from None

    async def aclose(self) -> None:
        """Close the connection first: closing the generators around it does not."""
        await self._stream.aclose()
        await self._parts.aclose()


@dataclass(slots=True)
class UpstreamAnswer:
    """The answer of an upstream whose headers have come."""

    status: int
    headers: Headers
    body: Body


class Connections:
    """The connections to all upstreams."""

    def __init__(self, *, silence_s: float = SILENCE_S, connect_s: float = CONNECT_S) -> None:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=_IDLE)
        self._limits = limits
        self._times = {"connect": connect_s, "read": silence_s, "write": silence_s, "pool": connect_s}
        self._transports: dict[Upstream, httpx2.AsyncHTTPTransport] = {}

    async def open(
        self,
        upstream: Upstream,
        *,
        method: str,
        path: bytes,
        query: bytes,
        headers: list[tuple[bytes, bytes]],
        content: bytes | AsyncIterable[bytes],
    ) -> UpstreamAnswer:
        """Send a request, and return when the headers of the answer have come. Raises
        `UpstreamFailed`.
        """
        try:
            request = httpx2.Request(
                method,
                upstream.url(path, query),
                headers=headers,
                content=content,
                extensions={"timeout": dict(self._times)},
            )
            response = await self._transport(upstream).handle_async_request(request)
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            raise failure(error) from None
        return UpstreamAnswer(response.status_code, response.headers.raw, Body(response))

    async def aclose(self) -> None:
        """Close the connections to all services."""
        transports, self._transports = self._transports, {}
        for transport in transports.values():
            await transport.aclose()

    def _transport(self, upstream: Upstream) -> httpx2.AsyncHTTPTransport:
        known = self._transports.get(upstream)
        if known is None:
            known = self._transports[upstream] = httpx2.AsyncHTTPTransport(
                limits=self._limits, proxy=_proxy_for(upstream)
            )
        return known


def failure(error: Exception) -> UpstreamFailed:
    """The failure that `error` is, in words that have nothing of the request."""
    kind = type(error).__name__
    if isinstance(error, httpx2.ConnectTimeout | httpx2.ConnectError):
        late = isinstance(error, httpx2.ConnectTimeout)
        return UpstreamFailed(504 if late else 502, f"the upstream could not be reached ({kind})")
    if isinstance(error, httpx2.TimeoutException):
        return UpstreamFailed(504, f"the upstream did not answer in time ({kind})")
    return UpstreamFailed(502, f"the upstream broke off ({kind})")


def _proxy_for(upstream: Upstream) -> str | None:
    """The proxy that the environment names for this service (`HTTPS_PROXY`, `NO_PROXY`)."""
    if urllib.request.proxy_bypass(upstream.host):
        return None
    return urllib.request.getproxies().get(upstream.scheme)


# --------------------------------------------------------------------------------------------------
# The client's side of one answer.

_LOOKS: Final = 4
"""How often a slow client is looked at within its time."""


class Client:
    """Sends an answer, as fast as the client takes it: each `send` waits for it."""

    def __init__(self, send: Send, *, clock: Callable[[], float]) -> None:
        self.status = 0
        """The status that was sent."""
        self.began = False
        """The status and the headers were sent."""
        self.ended = False
        self.sent_bytes = 0
        self.left = False
        """The client closed the connection, or took nothing for too long."""
        self.send = send
        self._clock = clock
        self.sending_since: float | None = None

    async def begin(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Send the status and the headers."""
        self.began, self.status = True, status
        await begin(self.send, status, headers)

    async def write(self, data: bytes) -> None:
        """Send a piece of the body to the client."""
        self.sent_bytes += len(data)
        self.sending_since = self._clock()
        await body(self.send, data, more=True)
        self.sending_since = None

    async def end(self) -> None:
        """The body is complete. Without this call the server cuts the connection off, which tells
        the client that something is missing.
        """
        self.ended = True
        await body(self.send, b"", more=False)

    async def serve(self, work: Callable[[], Awaitable[None]], incoming: Incoming, *, patience_s: float) -> None:
        """Do `work` while the client is there. When it leaves, `work` is cancelled. It counts as
        gone if it takes nothing for `patience_s` seconds.
        """
        async with anyio.create_task_group() as group:

            async def watch_leaving() -> None:
                await incoming.client_leaves()
                self.left = not self.ended
                group.cancel_scope.cancel()

            async def watch_patience() -> None:
                while True:
                    await anyio.sleep(patience_s / _LOOKS)
                    since = self.sending_since
                    if since is not None and self._clock() - since > patience_s:
                        self.left = True
                        group.cancel_scope.cancel()

            group.start_soon(watch_leaving)
            group.start_soon(watch_patience)
            try:
                await work()
            except ClientGone:  # while its request was passed on
                self.left = True
            group.cancel_scope.cancel()


# --------------------------------------------------------------------------------------------------
# The body of a request on its way to the upstream. It is dropped when it is sent.

_PIECE: Final = 1024 * 1024
"""Bytes that are handed on at once."""


class RequestBody:
    """A body that may be sent again as long as it is kept."""

    def __init__(self, content: bytes) -> None:
        self.keep = False
        """Whether the body may have to be sent again, so that sending does not drop it."""
        self.content = content
        """The bytes; empty once they were sent."""
        self.size = len(content)

    def drop(self) -> None:
        """Free the bytes: the body is not sent again."""
        self.content = b""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        content = memoryview(self.content)
        if not self.keep:
            self.drop()
        for at in range(0, len(content), _PIECE):
            yield bytes(content[at : at + _PIECE])
