"""The body of a request, in bounded memory, and a look-out for a client that leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio

from monitor.proxy.transport.asgi import Receive


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


class Incoming:
    """A body of which not much more than `limit` bytes are kept at once."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self.kept = b""
        """The part of the body that was read and not passed on."""
        self.limit = limit
        self._receive = receive
        self._complete = anyio.Event()

    async def read(self) -> bool:
        """Read the body up to the limit. False: it is longer. Raises `ClientGone`."""
        parts, size = list[bytes](), 0
        while not self._complete.is_set() and size <= self.limit:
            part = await self._next()
            parts.append(part)
            size += len(part)
        self.kept = b"".join(parts)
        return self._complete.is_set() and size <= self.limit

    def take(self) -> bytes:
        """Hand the part that was read over. It is kept no longer."""
        taken, self.kept = self.kept, b""
        return taken

    async def rest(self) -> AsyncIterator[bytes]:
        """The part that was read, and then the rest as it comes. Raises `ClientGone`."""
        if kept := self.take():
            yield kept
        del kept
        while not self._complete.is_set():
            part = await self._next()
            if part:
                yield part

    async def client_leaves(self) -> None:
        """Return when the client closes the connection, which can be seen behind its body."""
        await self._complete.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        if not message.get("more_body", False):
            self._complete.set()
        part: bytes = message.get("body", b"")
        return part
