"""An answer of the upstream on its way to the client: a stream of frames, or one body."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from monitor.proxy.exchange.sources import BodyAdapter, FrameAdapter, Frames
from monitor.proxy.formats.base import FrameContent, WireAnswer
from monitor.proxy.transport.client import Client
from monitor.proxy.transport.upstreams import Body

_CUT_OFF: Final = "the upstream ended before its answer did"


class AnswerRelay(Protocol):
    """One answer on its way to the client."""

    source: Any
    """The source of the stream that the run reads."""
    adapter: Any
    """The adapter that reads the stream."""

    async def take(self, item: Any, /) -> None:
        """Send on the bytes that have come."""
        ...

    async def finished(self) -> str:
        """The upstream has closed its answer. Returns what is missing; empty if nothing is."""
        ...

    async def stopped(self, reason: str, /, *, error: bool) -> bool:
        """End the answer before its end, in its own format, or with an error of the format. False:
        the client knows nothing of it yet, so it can be refused.
        """
        ...

    async def broken(self, reason: str, /) -> bool:
        """Tell the client that the upstream broke off. False: as for `stopped`."""
        ...


class StreamRelay:
    """A stream. Frames that come together are sent together."""

    def __init__(self, client: Client, answer: WireAnswer, body: Body) -> None:
        self.source = Frames(body, answer)
        self.adapter = FrameAdapter(answer)
        self._client = client
        self._answer = answer
        self._waiting = bytearray()

    async def take(self, item: Any) -> None:
        """Send on a frame of the stream."""
        self._waiting += item.raw
        self._answer.sent(item)
        if not self.source.more:
            await self._flush()

    async def finished(self) -> str:
        """A stream that ends without its last event was cut off."""
        await self._flush()
        missing = "" if self._answer.over else _CUT_OFF
        if missing:
            await self._say(self._answer.broken(missing))
        await self._client.end()
        return missing

    async def stopped(self, reason: str, *, error: bool) -> bool:
        """The end stands behind what was sent."""
        await self._flush()
        await self._close_with(self._answer.ending(reason, error=error))
        return True

    async def broken(self, reason: str) -> bool:
        """Tell the client of the break by an error of the format."""
        await self._flush()
        await self._close_with(self._answer.broken(reason))
        return True

    async def _close_with(self, ending: bytes) -> None:
        """Without an ending the connection is cut off, unless the client has seen the end."""
        await self._say(ending)
        if ending or self._answer.over:
            await self._client.end()

    async def _flush(self) -> None:
        if self._waiting:
            data = bytes(self._waiting)
            self._waiting.clear()
            await self._client.write(data)

    async def _say(self, data: bytes) -> None:
        if data:
            await self._client.write(data)


class BodyRelay:
    """A body in one piece. It is sent when it has been read, or when it is too long for that."""

    def __init__(
        self,
        client: Client,
        body: Body,
        read: Callable[[bytes], FrameContent],
        begin: Callable[[], Awaitable[None]],
        most: int,
    ) -> None:
        """`begin` sends the head of the answer. `most`: bytes that are read."""
        self.source = body
        self.adapter = BodyAdapter(read, most)
        self._client = client
        self._begin = begin

    async def take(self, item: Any) -> None:
        """A part of the body, which the adapter has kept."""
        if self.adapter.too_long:
            await self._send()

    async def finished(self) -> str:
        """Send the whole answer to the client."""
        await self._send()
        await self._client.end()
        return ""

    async def stopped(self, reason: str, *, error: bool) -> bool:
        """Send nothing: half a body cannot be ended."""
        return self._client.began

    async def broken(self, reason: str) -> bool:
        """Send nothing: half a body cannot be ended."""
        return self._client.began

    async def _send(self) -> None:
        if not self._client.began:
            await self._begin()
        data = self.adapter.take()
        if data:
            await self._client.write(data)
