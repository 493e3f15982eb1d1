"""Requests and answers as HTTP and ASGI have them: headers, packed bodies, paths, bounded memory.

Failure answered: a header of one connection is passed on to the next one, and the two ends no
longer agree where a message ends.
"""

from __future__ import annotations

import re
import zlib
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, quote, unquote_plus, unquote_to_bytes

import anyio

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
"""The headers of an ASGI message, with names in small letters."""

OWN: Final = b"x-agent-monitor"
"""Says on every answer what the proxy did with it."""
RUN: Final = b"x-agent-monitor-run"
"""The header that names the run of a request."""
NUDGED: Final = b"x-agent-monitor-nudge"
"""Says that a message of the proxy was added to the request."""

_HOP: Final = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection"),
        *(b"te", b"trailer", b"trailers", b"transfer-encoding", b"upgrade"),
    }
)
"""Headers that hold for one connection only (RFC 9110, 7.6.1)."""
_MADE_ANEW: Final = frozenset({b"host", b"expect"})
_KEYS: Final = frozenset({b"authorization", b"x-api-key", b"x-goog-api-key", b"api-key"})
"""Headers in which the providers' SDKs send the key."""
_QUERY_KEYS: Final = frozenset({"key", "api-key", "api_key", "access_token", "oauth_token", "x-api-key"})
"""Fields of the query in which services take one."""
_SIGNED: Final = b"AWS4-"
"""A signed request has another header each time. Its key is the id behind `Credential=`."""
_OVERRIDES: Final = frozenset({b"x-http-method", b"x-http-method-override", b"x-method-override"})
"""Headers that make another method of a GET. They are not passed on."""
_BARE: Final = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
"""Methods by which no model is asked, if they bring no body."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
_SAID_CHARS: Final = 300
SEVERAL_KEYS: Final = "this request has more than one key, so nobody knows whose budget it spends: send one"
NO_NAME: Final = "x-agent-monitor-run takes up to 100 letters, digits and . _ : -"


def first(headers: Headers, name: bytes) -> bytes | None:
    """The value of the header `name`. `None`: there is none."""
    return next((value for known, value in headers if known == name), None)


def to_upstream(headers: Headers, *, identity: bool, length: int | None = None) -> list[tuple[bytes, bytes]]:
    """The headers of a request for the upstream. `identity`: the answer is to come uncompressed.
    `length`: of a body that was changed.
    """
    dropped = _of_this_connection(headers) | _MADE_ANEW | _OVERRIDES
    if identity:
        dropped |= {b"accept-encoding"}
    if length is not None or first(headers, b"transfer-encoding") is not None:
        dropped |= {b"content-length"}  # beside a transfer encoding it does not count (RFC 9112, 6.3)
    kept = [(name, value) for name, value in headers if name not in dropped and not name.startswith(OWN)]
    if identity:
        kept.append((b"accept-encoding", b"identity"))
    if length is not None:
        kept.append((b"content-length", b"%d" % length))
    return kept


def is_bare(method: str, headers: Headers) -> bool:
    """Whether a request asks no model: it only looks, and brings no body."""
    length = first(headers, b"content-length")
    return method.upper() in _BARE and length in (None, b"0") and first(headers, b"transfer-encoding") is None


def to_client(
    headers: Headers,
    *,
    said: str,
    cuttable: bool,
    unpacked: bool = False,
    more: Iterable[tuple[bytes, bytes]] = (),
) -> list[tuple[bytes, bytes]]:
    """The headers of an answer for the client. `said`: what the proxy says of it. `cuttable`: the
    answer may become shorter or longer than the upstream has announced. `unpacked`: it is passed on
    in its plain form.
    """
    dropped = _of_this_connection(headers)
    if cuttable or unpacked:
        dropped |= {b"content-length"}
    if unpacked:
        dropped |= {b"content-encoding"}
    kept = [(name, value) for name, value in _in_small_letters(headers) if name not in dropped and name != OWN]
    return [*kept, (OWN, _word(said)), *more]


def _word(said: str) -> bytes:
    """`said` as the value of a header: a client may have chosen a part of it."""
    shown = "".join(char if char.isprintable() else "?" for char in said[:_SAID_CHARS])
    return shown.encode("ascii", "replace")


def keys_in(headers: Headers, query: bytes) -> Sequence[bytes]:
    """The different keys of the client, in all places where services take one: each header of
    that name, and the decoded query.
    """
    found = [key for name, value in headers if name.lower() in _KEYS for key in _credentials(value)[1]]
    fields = parse_qsl(query.decode("latin-1"), encoding="latin-1")
    found += [
        key
        for name, value in fields
        if name.lower() in _QUERY_KEYS
        for key in _credentials(value.encode("latin-1", "replace"))[1]
    ]
    return [*dict.fromkeys(found)]


def _credentials(value: bytes) -> tuple[bytes, Sequence[bytes]]:
    """The scheme of a credential, empty if it has none, and its keys: one, with any white space,
    quotes and scheme. There are several if services may read different ones.
    """
    if value.strip().startswith(_SIGNED):
        return b"", [key] if (key := value.partition(b"Credential=")[2].partition(b"/")[0].strip()) else []
    scheme, *words = value.split() if len(value.split()) > 1 else (b"", value)
    if scheme.lower() == b"basic":
        words = [part for word in words for part in _decoded(word).split(b":", 1)]
    return scheme, [key for word in words if (key := word.strip(_AROUND_KEY))]


_AROUND_KEY: Final = b" \t\r\n\f\v\"',;"
"""Stripped from a key: white space, quotes, and what separates it from another one."""


def _decoded(word: bytes) -> bytes:
    """The name and the password of the scheme `Basic`, or the word itself if it is not base64."""
    try:
        return b64decode(word.strip(_AROUND_KEY), validate=True)
    except ValueError:
        return word


def with_key(headers: Headers, query: bytes, key: str) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """The headers and the query with `key` in each place where the client has sent one."""
    sent = key.encode()
    fields = [
        name + b"=" + quote(key, safe="").encode()
        if unquote_plus(name.decode("latin-1")).lower() in _QUERY_KEYS
        else name + sign + value
        for name, sign, value in (field.partition(b"=") for field in query.split(b"&"))
    ]
    return [(name, _replaced(value, sent) if name.lower() in _KEYS else value) for name, value in headers], b"&".join(
        fields
    )


def _replaced(value: bytes, key: bytes) -> bytes:
    scheme, _ = _credentials(value)
    return scheme + b" " + key if scheme.lower() == b"bearer" else key


def run_in(headers: Headers) -> str | None:
    """The run that the client names. `None`: it names none, or it is no name (`NO_NAME`)."""
    name = (first(headers, RUN) or b"").decode("latin-1")
    return name if _NAME.fullmatch(name) else None


def _of_this_connection(headers: Headers) -> frozenset[bytes]:
    named = (part for name, value in headers if name.lower() == b"connection" for part in value.split(b","))
    return _HOP | {name.strip().lower() for name in named}


def _in_small_letters(headers: Headers) -> Iterable[tuple[bytes, bytes]]:
    return ((name.lower(), value) for name, value in headers)


# --------------------------------------------------------------------------------------------------
# Packed bodies, unpacked in bounded pieces: what is judged must be read.

_PIECE: Final = 256 * 1024
"""Unpacked bytes that are made at once: a few packed bytes may stand for a thousand times more."""
_WINDOWS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 47}
"""The forms as zlib calls them."""


class Unpackable(ValueError):
    """The body is packed in a form that is not known, or it is damaged or too long."""


def coding_of(headers: Headers) -> str:
    """How a body is packed. Empty: it is not."""
    values = (value for name, value in headers if name.lower() == b"content-encoding")
    words = [word.strip().lower() for value in values for word in value.decode("latin-1").split(",")]
    return ", ".join(word for word in words if word not in {"", "identity"})


class Unpacker:
    """Unpacks a body that comes in pieces."""

    def __init__(self, coding: str) -> None:
        """Raises `Unpackable` for a form that is not known: `br`, `zstd`, several at once."""
        window = _WINDOWS.get(coding)
        if window is None:
            raise Unpackable(f"packed with {coding}")
        self._coding = coding
        self._window = window
        self._packed = zlib.decompressobj(window)
        self._began = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The unpacked bytes, in pieces. Raises `Unpackable`."""
        while data:
            if self._packed.eof:  # several packed bodies may follow each other
                self._packed = zlib.decompressobj(self._window)
            try:
                piece = self._packed.decompress(data, _PIECE)
            except zlib.error:
                if self._began or self._coding != "deflate":
                    raise Unpackable(f"a damaged {self._coding}") from None
                self._packed = zlib.decompressobj(-zlib.MAX_WBITS)  # many send it without its head
                self._began = True
                continue
            self._began = True
            data = self._packed.unconsumed_tail or self._packed.unused_data
            if piece:
                yield piece

    @property
    def is_whole(self) -> bool:
        """Whether the end of the packed body has come."""
        return self._packed.eof


def unpacked(body: bytes, coding: str, most: int) -> bytes:
    """The whole body, of `most` bytes at most. Raises `Unpackable`."""
    unpacker, parts, size = Unpacker(coding), list[bytes](), 0
    for part in unpacker.feed(body):
        size += len(part)
        if size > most:
            raise Unpackable("too long")
        parts.append(part)
    if not unpacker.is_whole:
        raise Unpackable(f"a damaged {coding}")
    return b"".join(parts)


# --------------------------------------------------------------------------------------------------
# The body of a request, in bounded memory, and a look-out for a client that leaves.

# --------------------------------------------------------------------------------------------------
# The words of ASGI 3, and answers that the proxy gives by itself.

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


async def begin(send: Send, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Send the status and the headers of an answer."""
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def body(send: Send, part: bytes, *, more: bool) -> None:
    """Send a piece of the body to the client."""
    await send({"type": "http.response.body", "body": part, "more_body": more})


async def answer(
    send: Send, status: int, content: bytes, kind: bytes, *headers: tuple[bytes, bytes], empty: bool = False
) -> None:
    """Send a whole answer. `kind`: its media type. `empty`: only its headers, as for HEAD."""
    length = (b"content-length", b"%d" % len(content))
    await begin(send, status, [(b"content-type", kind), length, *headers])
    await body(send, b"" if empty else content, more=False)


# --------------------------------------------------------------------------------------------------
# One bound on the bytes that all requests and answers hold at once.

NO_ROOM: Final = "the proxy holds as many bytes of requests and answers as it may: try again"


class NoRoom(Exception):
    """The bound is reached."""

    def __init__(self) -> None:
        super().__init__(NO_ROOM)


class Room:
    """The bytes that are held, of `most`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0


class HeldBytes:
    """The part of the room that one request has."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._held = 0

    def add(self, number: int) -> None:
        """Hold `number` bytes more. Raises `NoRoom`, and holds none of them."""
        if self._room.held + number > self._room.most:
            raise NoRoom
        self._room.held += number
        self._held += number

    def release(self) -> None:
        """Hold nothing any more."""
        self._room.held -= self._held
        self._held = 0


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


TIMED_OUT: Final = 408
TOO_SLOW: Final = "the request did not arrive in time"


class TooSlow(Exception):
    """The body did not arrive in time."""


class Incoming:
    """A body of which not much more than `limit` bytes are kept at once."""

    def __init__(self, receive: Receive, limit: int, *, held: HeldBytes, arrival_s: float) -> None:
        """`held`: where the bytes are counted. `arrival_s`: how long a body may take that is read
        as a whole, and how long each part of one that is passed on.
        """
        self.held = held
        """Counts the bytes that are kept."""
        self._arrival_s = arrival_s
        self.kept = b""
        """The part of the body that was read and not passed on."""
        self.limit = limit
        self._receive = receive
        self._complete = anyio.Event()

    async def read(self) -> bool:
        """Read the body up to the limit. False: it is longer. Raises `ClientGone`, `TooSlow` and
        `NoRoom`.
        """
        parts, size = list[bytes](), 0
        with self._in_time():
            while not self._complete.is_set() and size <= self.limit:
                part = await self._next()
                self.held.add(len(part))
                parts.append(part)
                size += len(part)
        self.kept = b"".join(parts)
        return self._complete.is_set() and size <= self.limit

    def take(self) -> bytes:
        """Hand the part that was read over. It is kept no longer."""
        taken, self.kept = self.kept, b""
        return taken

    async def rest(self) -> AsyncIterator[bytes]:
        """The part that was read, and then the rest as it comes. Raises `ClientGone`, `TooSlow`."""
        if kept := self.take():
            yield kept
        del kept
        self.held.release()
        while not self._complete.is_set():
            with self._in_time():
                part = await self._next()
            if part:
                yield part

    async def client_leaves(self) -> None:
        """Return when the client closes the connection, which can be seen behind its body."""
        await self._complete.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        try:
            with anyio.fail_after(self._arrival_s):
                yield
        except TimeoutError:
            raise TooSlow from None

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        if not message.get("more_body", False):
            self._complete.set()
        part: bytes = message.get("body", b"")
        return part


# --------------------------------------------------------------------------------------------------
# The path of a request: as it came, whether it is plain, and how services read it.


def path_in(scope: Scope) -> bytes:
    """The path as the client sent it, below the place where the application is mounted."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    root = scope.get("root_path", "").encode()
    return raw[len(root) :] if root and raw.startswith(root) else raw


def is_plain(path: bytes) -> bool:
    """Whether the upstream reads the path as it stands here. One with `..` in it means another path
    there, so it would pass without being watched.
    """
    parts = unquote_to_bytes(path).split(b"/")
    return path.startswith(b"/") and b"." not in parts and b".." not in parts


def squeezed(path: bytes) -> bytes:
    """The path with one slash where several stand, and none at its end. Services may read both
    alike.
    """
    return b"/" + b"/".join(part for part in path.split(b"/") if part)
