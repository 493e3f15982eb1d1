"""Frames, the smallest pieces of a stream that a client can read: cut out of bytes, and written."""

from __future__ import annotations

import json
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct, error
from typing import Final

from monitor.proxy.formats.base import MAX_EVENT_BYTES, Fault, Frame, to_bytes

_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_BOM: Final = b"\xef\xbb\xbf"


class FrameReader(ABC):
    """Cuts the bytes of a stream, which come in pieces of any size, into frames. Linear in the size
    of the stream.
    """

    too_long = "an event is longer than {:,} bytes"

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._most = max_event_bytes
        self._held = bytearray()
        """The bytes of the frame that is not complete yet."""
        self._is_lost = False
        """The end of a frame was not found, so nothing is read any more."""

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes."""
        self._held += data
        frames = [] if self._is_lost else self._cut(data)
        self._is_lost = self._is_lost or len(self._held) > self._most
        if self._is_lost and self._held:
            frames.append(Frame(bytes(self._held), fault=Fault("oversized", self.too_long.format(self._most))))
            self._held.clear()
        return frames

    @abstractmethod
    def _cut(self, data: bytes) -> list[Frame]:
        """Take the whole frames out of the bytes that are held; `data` are the newest of them."""

    @abstractmethod
    def end(self) -> list[Frame]:
        """The bytes that were held back: no more bytes come."""


class SseReader(FrameReader):
    """Cuts server-sent events.

    An event ends at its blank line. Lines that belong to no event, such as comments, are frames of
    their own, so that they are passed on at once. Bytes that are not UTF-8 become U+FFFD, as the
    standard says.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        super().__init__(max_event_bytes)
        self._line = 0
        """The place where the frame's newest line begins."""
        self._scanned = 0
        """No line ends before this place."""
        self._after_cr = False
        """The last byte was a CR, so a LF that follows belongs to it."""
        self._begun = False
        """Whether the first line, which may have a byte order mark, is over."""
        self._pending = False
        """Whether an event has begun in the frame."""
        self._event = ""
        self._data: list[bytes] = []

    def _cut(self, data: bytes) -> list[Frame]:
        held, frames, begin = self._held, list[Frame](), 0
        if self._after_cr and data:
            self._after_cr = False
            if data.startswith(b"\n"):
                self._line = self._scanned = self._line + 1
                if not self._pending:  # the frame of the CR was given already
                    begin = self._line
                    frames.append(Frame(bytes(held[:begin])))
        while (end := _LINE_END.search(held, self._scanned)) is not None:
            frame = self._took(bytes(held[self._line : end.start()]))
            self._line = self._scanned = end.end()
            if frame is not None:
                frame.raw = bytes(held[begin : self._line])
                begin = self._line
                frames.append(frame)
        self._after_cr = held.endswith(b"\r")
        del held[:begin]
        self._line -= begin
        self._scanned = len(held)
        return frames

    def end(self) -> list[Frame]:
        """The bytes that were held back. The last event counts without its blank line, as for most
        clients, and gets one, so that more may follow.
        """
        raw = bytes(self._held)
        if not raw:
            return []
        self._held.clear()
        self._took(raw[self._line :])
        frame = self._took(b"") or Frame(b"")
        frame.raw = raw + b"\n\n"
        return [frame]

    def _took(self, line: bytes) -> Frame | None:
        """Process a line. Returns the frame that ends with it; its bytes are not known yet."""
        if not self._begun:
            self._begun = True
            line = line.removeprefix(_BOM)
        if not line:
            frame = Frame(b"")
            if self._data:
                frame.event = self._event
                frame.data = b"\n".join(self._data).decode("utf-8", "replace")
            self._pending, self._event, self._data = False, "", []
            return frame
        name, _, value = line.partition(b":")
        if not name:  # a comment
            return None if self._pending else Frame(b"")
        self._pending = True
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        return None


def event(value: object, name: str = "") -> bytes:
    """A server-sent event with `value` as JSON."""
    named = b"event: %b\n" % name.encode("ascii") if name else b""
    return b"%bdata: %b\n\n" % (named, to_bytes(value))


def comment(text: str) -> bytes:
    """A line that clients skip, with `text` as a JSON string in ASCII: it cannot end the line."""
    return b": agent-monitor %b\n\n" % json.dumps(text).encode("ascii")


ENOUGH: Final = 6
"""The number of bytes that say whether an answer is a stream."""
_BEGINNINGS: Final = (b"data:", b"event:", b"id:", b"retry:", b":", b"data\n", b"event\n")


def is_event_stream(beginning: bytes) -> bool:
    """Whether an answer with this beginning is made of server-sent events, whatever its header
    says.
    """
    return beginning.startswith(_BEGINNINGS)


# --------------------------------------------------------------------------------------------------
# A stream that is one JSON array of objects, as Gemini sends it without `alt=sse`.

_OUTSIDE: Final = re.compile(rb'["{}\[\]]')
_INSIDE: Final = re.compile(rb'["\\]')
END: Final = "end"
"""The event of the frame that closes the array."""
_OPENING, _CLOSING = b"{[", b"}]"


class ArrayReader(FrameReader):
    """Cuts the elements of a JSON array.

    A frame ends with its element; the bracket or comma before the element belongs to it. The
    closing bracket is the last frame. An object in place of the array is one frame.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        super().__init__(max_event_bytes)
        self._scanned = 0
        self._element = 0
        """The place where the frame's element begins."""
        self._depth = 0
        """The number of brackets that are open."""
        self._outside = 0
        """The number of open brackets outside of the elements: 1 in the array."""
        self._in_string = False

    def _cut(self, data: bytes) -> list[Frame]:
        held, frames, begin = self._held, list[Frame](), 0
        while (found := (_INSIDE if self._in_string else _OUTSIDE).search(held, self._scanned)) is not None:
            byte = found[0]
            self._scanned = found.end() + (byte == b"\\")  # the byte behind it may come later
            if byte == b'"':
                self._in_string = not self._in_string
            elif byte in _OPENING:
                if not self._depth:
                    self._outside = int(byte == b"[")
                if self._depth == self._outside:
                    self._element = found.start()
                self._depth += 1
            elif byte in _CLOSING and self._depth:
                self._depth -= 1
                if self._depth <= self._outside:
                    raw, over = bytes(held[begin : found.end()]), self._depth < self._outside
                    frames.append(Frame(raw, END, None) if over else Frame(raw, data=self._text(held, found)))
                    begin = found.end()
        self._scanned = max(self._scanned, len(held)) - begin
        self._element -= begin
        del held[:begin]
        return frames

    def _text(self, held: bytearray, found: re.Match[bytes]) -> str:
        return held[self._element : found.end()].decode("utf-8", "replace")

    def end(self) -> list[Frame]:
        """The bytes that were held back: white space. An element that was cut off is dropped."""
        raw = bytes(self._held)
        self._held.clear()
        return [Frame(raw)] if raw.isspace() else []


# --------------------------------------------------------------------------------------------------
# Binary messages of AWS (`application/vnd.amazon.eventstream`): cut out of bytes, and written.
#
# A message begins with its length, the length of its headers, and a checksum of both. The headers
# follow, then the payload, and a checksum of all. Numbers are in network order.

MEDIA_TYPE: Final = "application/vnd.amazon.eventstream"
_PRELUDE: Final = Struct(">III")
_NUMBER: Final = Struct(">I")
_SHORT: Final = Struct(">H")
_SIZES: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""The bytes of a header's value, by its type, if the type has a size."""
_BYTES, _TEXT = 6, 7
_LEAST: Final = _PRELUDE.size + _NUMBER.size


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a stream."""

    headers: Mapping[str, str]
    """The headers whose values are texts."""
    payload: bytes


class EventStreamReader(FrameReader):
    """Cuts messages. Each has a frame or several, as `read` says."""

    too_long = "a message is damaged or too long"

    def __init__(self, read: Callable[[Message], Sequence[str]], max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        """`read`: the texts of the events in a message. The bytes of the message stand in the frame
        of the last one. Raises `ValueError` for what is not understood.
        """
        super().__init__(max_event_bytes)
        self._read = read

    def _cut(self, data: bytes) -> list[Frame]:
        frames, at = list[Frame](), 0
        while len(self._held) - at >= _LEAST:
            length, _, checksum = _PRELUDE.unpack_from(self._held, at)
            if not _LEAST <= length <= self._most or checksum != _sum(self._held, at, at + 8):
                self._is_lost = True
                break
            if len(self._held) - at < length:
                break
            frames += self._frames(bytes(self._held[at : at + length]))
            at += length
        del self._held[:at]
        return frames

    def end(self) -> list[Frame]:
        """Nothing: a message that was cut off is dropped."""
        self._held.clear()
        return []

    def _frames(self, raw: bytes) -> list[Frame]:
        try:
            texts = self._read(_message(raw))
        except (ValueError, error):
            return [Frame(raw, fault=Fault("unparsable", "a message cannot be read"))]
        if not texts:
            return [Frame(raw)]
        return [*(Frame(b"", data=text) for text in texts[:-1]), Frame(raw, data=texts[-1])]


def encoded(headers: Mapping[str, str], payload: bytes) -> bytes:
    """One message. Its headers are texts."""
    texts = [(name.encode(), value.encode()) for name, value in headers.items()]
    written = b"".join(
        bytes([len(name)]) + name + bytes([_TEXT]) + _SHORT.pack(len(value)) + value for name, value in texts
    )
    start = Struct(">II").pack(_LEAST + len(written) + len(payload), len(written))
    message = start + _NUMBER.pack(zlib.crc32(start)) + written + payload
    return message + _NUMBER.pack(zlib.crc32(message))


def _message(raw: bytes) -> Message:
    """Raises `ValueError` and `struct.error`."""
    _, length, _ = _PRELUDE.unpack_from(raw)
    end = _PRELUDE.size + length
    (checksum,) = _NUMBER.unpack_from(raw, len(raw) - _NUMBER.size)
    if end > len(raw) - _NUMBER.size or checksum != _sum(raw, 0, len(raw) - _NUMBER.size):
        raise ValueError("damaged")
    return Message(dict(_texts(raw[_PRELUDE.size : end])), raw[end : -_NUMBER.size])


def _texts(headers: bytes) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(headers):
        behind = at + 1 + headers[at]
        name, kind = headers[at + 1 : behind].decode(), headers[behind : behind + 1]
        at = behind + 1
        if not kind or kind[0] not in {*_SIZES, _BYTES, _TEXT}:
            raise ValueError("a header has no known type")
        if kind[0] in _SIZES:
            at += _SIZES[kind[0]]
            continue
        (size,) = _SHORT.unpack_from(headers, at)
        value = headers[at + 2 : at + 2 + size]
        at += 2 + size
        if kind[0] == _TEXT:
            yield name, value.decode()


def _sum(data: bytes | bytearray, start: int, end: int) -> int:
    return zlib.crc32(memoryview(data)[start:end])
