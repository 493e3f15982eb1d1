"""The body of a request, in bounded memory, and a look-out for a client that leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

import anyio

from monitor.proxy.transport.asgi import Receive
from monitor.proxy.transport.room import HeldBytes


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
