"""A stream that is one JSON array of objects, as Gemini sends it without `alt=sse`."""

from __future__ import annotations

import re
from typing import Final

from monitor.proxy.formats.base import MAX_EVENT_BYTES, Fault, Frame

_OUTSIDE: Final = re.compile(rb'["{}\[\]]')
_INSIDE: Final = re.compile(rb'["\\]')
END: Final = "end"
"""The event of the frame that closes the array."""
_OPENING, _CLOSING = b"{[", b"}]"


class ArrayReader:
    """Cuts the elements of a JSON array out of bytes that come in pieces of any size.

    A frame ends with its element; the bracket or comma before the element belongs to it. The
    closing bracket is the last frame. An object in place of the array is one frame. Linear in the
    size of the stream.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._most = max_event_bytes
        self._held = bytearray()
        """The bytes of the frame that is not complete yet."""
        self._scanned = 0
        self._element = 0
        """The place where the frame's element begins."""
        self._depth = 0
        """The number of brackets that are open."""
        self._outside = 0
        """The number of open brackets outside of the elements: 1 in the array."""
        self._in_string = False
        self._oversized = False

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes."""
        if self._oversized:
            return [self._too_long(bytes(data))] if data else []
        held, frames, begin = self._held, list[Frame](), 0
        held += data
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
        if len(held) > self._most:
            self._oversized = True
            frames.append(self._too_long(bytes(held)))
            held.clear()
        return frames

    def _text(self, held: bytearray, found: re.Match[bytes]) -> str:
        return held[self._element : found.end()].decode("utf-8", "replace")

    def end(self) -> list[Frame]:
        """The bytes that were held back: white space. An element that was cut off is dropped."""
        raw = bytes(self._held)
        self._held.clear()
        return [Frame(raw)] if raw.isspace() else []

    def _too_long(self, raw: bytes) -> Frame:
        return Frame(raw, fault=Fault("oversized", f"an event is longer than {self._most:,} bytes"))
