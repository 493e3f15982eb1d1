"""The body of a request, in bounded memory, and a look-out for a client that leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias
from urllib.parse import unquote_to_bytes

import anyio

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
