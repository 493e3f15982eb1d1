"""An answer of the upstream as the run reads it: frame by frame, or as one body."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self

from monitor.adapters.decoding import AdapterBase
from monitor.chunks import Chunk
from monitor.errors import describe
from monitor.models import ErrorKind, ModelError
from monitor.proxy.formats.base import Frame, FrameContent, WireAnswer
from monitor.proxy.transport.room import NO_ROOM, HeldBytes, NoRoom
from monitor.proxy.transport.upstreams import Body, UpstreamFailed


class Frames:
    """The frames of a stream. A frame is the smallest piece that a client can read."""

    def __init__(self, body: Body, answer: WireAnswer, held: HeldBytes | None = None) -> None:
        """`held`: counts the bytes of an answer that is kept until its end."""
        self._held = held
        self._body = body
        self._answer = answer
        self._ready: deque[Frame] = deque()
        self._ended = False

    @property
    def more(self) -> bool:
        """Whether the next frame is here already."""
        return bool(self._ready)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Frame:
        while not self._ready:
            if self._ended:
                raise StopAsyncIteration
            try:
                part = await anext(self._body)
            except StopAsyncIteration:
                self._ended = True
                self._ready.extend(self._answer.end())
            else:
                _hold(self._held, part)
                self._ready.extend(self._answer.feed(part))
        return self._ready.popleft()

    async def aclose(self) -> None:
        """Close the connection to the service."""
        await self._body.aclose()


def _hold(held: HeldBytes | None, part: bytes) -> None:
    """Count the bytes of an answer that is kept. Raises `UpstreamFailed`: nothing of it is sent."""
    try:
        if held is not None:
            held.add(len(part))
    except NoRoom:
        raise UpstreamFailed(_LATER, NO_ROOM) from None


_LATER: Final = 503


class _Adapter(AdapterBase):
    """The common part of the adapters for both kinds of answers. `unread`: why a part was not
    understood.
    """

    unread = ""
    _unread_bytes = 0

    def take_unread(self) -> int:
        """The bytes that could not be read since the last call."""
        taken, self._unread_bytes = self._unread_bytes, 0
        return taken

    def classify(self, error: BaseException) -> ModelError:
        """The upstream failed, or the connection to it."""
        return ModelError(ErrorKind.NETWORK, describe(error))

    def _chunks(self, heard: FrameContent, size: int) -> Sequence[Chunk]:
        """`size`: the bytes that were read."""
        if heard.unread:
            self.unread = self.unread or heard.unread
            self._unread_bytes += size
        return heard.chunks


class FrameAdapter(_Adapter):
    """Reads the frames of a streamed answer."""

    def __init__(self, answer: WireAnswer) -> None:
        self._answer = answer

    def decode(self, item: object) -> Sequence[Chunk]:
        """The chunks that one frame has."""
        return self._chunks(self._answer.read(item), len(item.raw)) if isinstance(item, Frame) else ()

    def finish(self) -> Sequence[Chunk]:
        """The chunks that are missing at the end."""
        return self._answer.finish()


class BodyAdapter(_Adapter):
    """Collects a body in one piece, up to `most` bytes, and reads it at its end."""

    def __init__(self, read: Callable[[bytes], FrameContent], most: int, held: HeldBytes | None = None) -> None:
        self._held = held
        self.parts: list[bytes] = []
        """The parts that were collected and not passed on."""
        self.too_long = False
        """The body is longer. Its parts are passed on as they come, and nothing is read."""
        self.read = False
        """Whether the whole body was read."""
        self.others: Mapping[int, Sequence[Chunk]] = {}
        """The chunks of further choices in the whole body, by their index."""
        self._read = read
        self._left = most

    def decode(self, item: object) -> Sequence[Chunk]:
        """No chunks: the body is read when it is whole."""
        if isinstance(item, bytes):
            self.parts.append(item)
            self._left -= len(item)
            if not self.too_long and not self._has_room(len(item)):
                self.too_long = True
                self.unread = "the answer is too long to be read"
                self._unread_bytes += sum(map(len, self.parts))
            elif self.too_long:
                self._unread_bytes += len(item)
        return ()

    def _has_room(self, number: int) -> bool:
        """Whether `number` bytes more may be collected."""
        try:
            if self._held is not None:
                self._held.add(number)
        except NoRoom:
            return False
        return self._left >= 0

    def finish(self) -> Sequence[Chunk]:
        """The chunks of the whole body."""
        self.read = not self.too_long
        if not self.read:
            return ()
        body = b"".join(self.parts)
        heard = self._read(body)
        self.others = heard.others
        return self._chunks(heard, len(body))

    def take(self) -> bytes:
        """The bytes that were collected so far."""
        taken = b"".join(self.parts)
        self.parts.clear()
        return taken
