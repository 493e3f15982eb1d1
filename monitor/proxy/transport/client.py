"""The client's side of one answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio

from monitor.proxy.transport.asgi import Send, begin, body
from monitor.proxy.transport.incoming import ClientGone, Incoming

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
