"""An answer of the upstream on its way to the client: a stream of frames, or one body."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Self

from monitor.adapters.parts import AdapterBase
from monitor.chunks import Chunk
from monitor.errors import describe
from monitor.models import ErrorKind, ModelError
from monitor.proxy.formats import framing as sse
from monitor.proxy.formats.base import Frame, FrameContent, parsed, to_bytes
from monitor.proxy.formats.merging import merged
from monitor.proxy.formats.wire import DONE, WireAnswer
from monitor.proxy.http_messages import NO_ROOM, HeldBytes, NoRoom
from monitor.proxy.upstreams import Body, Client, UpstreamFailed

# --------------------------------------------------------------------------------------------------
# An answer of the upstream as the run reads it: frame by frame, or as one body.


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


CUT_OFF: Final = "the upstream ended before its answer did"
_MOST_HELD: Final = 16 * 1024 * 1024
"""Bytes of half a call that are held back. A longer one is passed on as it comes."""
_OK, _BAD_GATEWAY, _FIRST_ERROR, _LAST_ERROR = 200, 502, 400, 599


class AnswerRelay(ABC):
    """One answer on its way to the client."""

    def __init__(self, client: Client, source: Any, adapter: Any) -> None:
        """`source`: of the stream that the run reads. `adapter` reads it."""
        self.source = source
        self.adapter = adapter
        self._client = client

    @abstractmethod
    async def take(self, item: Any) -> None:
        """Send on the bytes that have come."""

    def others(self, item: Any) -> Mapping[int, Sequence[Chunk]]:
        """The chunks of further choices, by their index."""
        return {}

    @abstractmethod
    async def finished(self) -> str:
        """The upstream has closed its answer. Returns what is missing; empty if nothing is."""

    async def stopped(self, reason: str, sentence: str, *, error: bool) -> bool:
        """End the answer before its end: in its own format, with `sentence` as its last text, or
        with an error of the format. False: the client knows nothing of it, so it can be refused.

        An answer in one piece cannot be ended before its end.
        """
        return self._client.began

    async def broken(self, reason: str) -> bool:
        """Tell the client that the upstream broke off. False: as for `stopped`."""
        return self._client.began


class FrameRelay(AnswerRelay):
    """An answer that the upstream sends in frames."""

    def __init__(self, client: Client, answer: WireAnswer, body: Body, held: HeldBytes | None = None) -> None:
        """`held`: counts the bytes of an answer that is kept until its end."""
        super().__init__(client, Frames(body, answer, held), FrameAdapter(answer))
        self._answer = answer

    def others(self, item: Any) -> Mapping[int, Sequence[Chunk]]:
        """The chunks of further choices in a frame."""
        return self._answer.others(item)


class StreamRelay(FrameRelay):
    """A stream. Frames that come together are sent together."""

    def __init__(
        self,
        client: Client,
        answer: WireAnswer,
        body: Body,
        begin: Callable[[str], Awaitable[None]],
        *,
        holds_calls: bool,
        held: HeldBytes,
    ) -> None:
        """`begin` sends the head of the answer, and says why it is not watched. `holds_calls`: a
        call is passed on when it is whole. `held` counts the bytes of half a call.
        """
        super().__init__(client, answer, body)
        self._held = held
        self._holds_calls = holds_calls
        self._half: list[Any] = []
        """The frames since a call began that is not whole."""
        self._half_bytes = 0
        self._begin = begin
        self._waiting = bytearray()

    async def take(self, item: Any) -> None:
        """Send on a frame of the stream. Half a call is held back."""
        upstream = self._answer.upstream
        if upstream.call_began:
            self._release()
        self._half.append(item)
        self._half_bytes += len(item.raw)
        if (
            not self._holds_calls
            or not upstream.call_is_half
            or self._half_bytes > _MOST_HELD
            or not self._has_room(item)
        ):
            self._release()
        if not self.source.more:
            await self._flush()

    def _has_room(self, item: Any) -> bool:
        try:
            self._held.add(len(item.raw))
        except NoRoom:
            return False
        return True

    def _release(self) -> None:
        """Hand on the frames that were held back."""
        for frame in self._half:
            self._waiting += frame.raw
            self._answer.sent(frame)
        self._half.clear()
        self._half_bytes = 0
        self._held.release()

    async def finished(self) -> str:
        """A stream that ends without its last event was cut off."""
        self._release()
        await self._flush()
        if not self._client.began:
            await self._begin("")
        missing = "" if self._answer.over else CUT_OFF
        if missing:
            await self._say(self._answer.broken(missing))
        await self._client.end()
        return missing

    async def stopped(self, reason: str, sentence: str, *, error: bool) -> bool:
        """The end stands behind what was sent. Half a call was not."""
        await self._flush()
        await self._close_with(self._answer.ending(reason, sentence=sentence, error=error))
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
            await self._write(data)

    async def _say(self, data: bytes) -> None:
        if data:
            await self._write(data)

    async def _write(self, data: bytes) -> None:
        """The head goes out with the first bytes, so that it says what was read of them."""
        if not self._client.began:
            await self._begin(self.adapter.unread)
        await self._client.write(data)


class WholeRelay(FrameRelay):
    """A stream that the client gets in one piece, because it has asked for no stream."""

    def __init__(
        self,
        client: Client,
        answer: WireAnswer,
        body: Body,
        begin: Callable[[str, int, int], Awaitable[None]],
        held: HeldBytes,
    ) -> None:
        """`begin` sends the head of the answer: why it is not watched, its status, its length.
        `held` counts its bytes.
        """
        super().__init__(client, answer, body, held)
        self._begin = begin
        self._values: list[dict[str, Any]] = []

    async def take(self, item: Any) -> None:
        """Keep a frame of the stream."""
        if isinstance(item.value, dict):
            self._values.append(item.value)
        self._answer.sent(item)

    async def finished(self) -> str:
        """Send the whole answer, if the upstream has ended it."""
        if not self._answer.over:
            return CUT_OFF
        await self._send()
        return ""

    async def stopped(self, reason: str, sentence: str, *, error: bool) -> bool:
        """Send the answer as far as it came, with `sentence` as its last text."""
        ending = self._answer.ending(reason, sentence=sentence, error=error)
        values = values_in(ending)
        if error or not values or any(value.get("error") for value in values):
            return False
        self._values += values
        await self._send()
        return True

    async def _send(self) -> None:
        answer = merged(self._answer.asked.form, self._values)
        status = _OK
        if error := answer.get("error"):
            code = error.get("code") if isinstance(error, dict) else None
            status = code if type(code) is int and _FIRST_ERROR <= code <= _LAST_ERROR else _BAD_GATEWAY
        body = to_bytes(answer)
        await self._begin(self.adapter.unread, status, len(body))
        await self._client.write(body)
        await self._client.end()


def values_in(stream: bytes) -> list[dict[str, Any]]:
    """The objects in server-sent events."""
    data = [frame.data for frame in sse.SseReader().feed(stream) if frame.data and not frame.data.startswith(DONE)]
    return [value for one in data if isinstance(value := parsed(one), dict)]


class BodyRelay(AnswerRelay):
    """A body in one piece. It is sent when it has been read, or when it is too long for that."""

    def __init__(
        self,
        client: Client,
        body: Body,
        read: Callable[[bytes], FrameContent],
        begin: Callable[[str], Awaitable[None]],
        most: int,
        *,
        held: HeldBytes,
    ) -> None:
        """`begin` sends the head of the answer, and says why it is not watched. `most`: bytes that
        are read. `held` counts them.
        """
        super().__init__(client, body, BodyAdapter(read, most, held))
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

    async def _send(self) -> None:
        if not self._client.began:
            await self._begin(self.adapter.unread)
        data = self.adapter.take()
        if data:
            await self._client.write(data)
