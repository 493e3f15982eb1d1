"""Binary messages of AWS (`application/vnd.amazon.eventstream`): cut out of bytes, and written.

A message begins with its length, the length of its headers, and a checksum of both. The headers
follow, then the payload, and a checksum of all. Numbers are in network order.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct, error
from typing import Final

from monitor.proxy.formats.base import MAX_EVENT_BYTES, Fault, Frame

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


class EventStreamReader:
    """Cuts messages out of bytes that come in pieces of any size. Each has a frame or several, as
    `read` says. Linear in the size of the stream.
    """

    def __init__(self, read: Callable[[Message], Sequence[str]], max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        """`read`: the texts of the events in a message. The bytes of the message stand in the frame
        of the last one. Raises `ValueError` for what is not understood.
        """
        self._read = read
        self._most = max_event_bytes
        self._held = bytearray()
        self._is_lost = False
        """The end of a message was not found, so nothing is read any more."""

    def feed(self, data: bytes) -> list[Frame]:
        """The frames of the messages that `data` completes."""
        if self._is_lost:
            return [Frame(bytes(data), fault=_LOST)] if data else []
        self._held += data
        frames, at = list[Frame](), 0
        while len(self._held) - at >= _LEAST:
            length, _, checksum = _PRELUDE.unpack_from(self._held, at)
            if not _LEAST <= length <= self._most or checksum != _sum(self._held, at, at + 8):
                self._is_lost = True
                frames.append(Frame(bytes(self._held[at:]), fault=_LOST))
                at = len(self._held)
            elif len(self._held) - at < length:
                break
            else:
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


_LOST: Final = Fault("oversized", "a message is damaged or too long")


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
