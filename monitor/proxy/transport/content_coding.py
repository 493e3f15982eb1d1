"""Packed bodies, unpacked in bounded pieces: what is judged must be read."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

from monitor.proxy.transport.headers import Headers

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
