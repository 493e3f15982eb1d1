"""Server-sent events: cut out of a stream of bytes, and written."""

from __future__ import annotations

import json
import re
from typing import Final

from monitor.proxy.formats.base import MAX_EVENT_BYTES, Fault, Frame, to_bytes

_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_BOM: Final = b"\xef\xbb\xbf"


class SseReader:
    """Cuts server-sent events out of bytes that come in pieces of any size.

    An event ends at its blank line. Lines that belong to no event, such as comments, are frames of
    their own, so that they are passed on at once. Bytes that are not UTF-8 become U+FFFD, as the
    standard says. Linear in the size of the stream.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._most = max_event_bytes
        self._held = bytearray()
        """The bytes of the frame that is not complete yet."""
        self._line = 0
        """The place where the frame's newest line begins."""
        self._scanned = 0
        """No line ends before this place."""
        self._after_cr = False
        """The last byte was a CR, so a LF that follows belongs to it."""
        self._begun = False
        """Whether the first line, which may have a byte order mark, is over."""
        self._oversized = False
        self._pending = False
        """Whether an event has begun in the frame."""
        self._event = ""
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes."""
        if self._oversized:
            return [self._too_long(bytes(data))] if data else []
        held, frames, begin = self._held, list[Frame](), 0
        held += data
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
        if len(held) > self._most:
            self._oversized = True
            frames.append(self._too_long(bytes(held)))
            held.clear()
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

    def _too_long(self, raw: bytes) -> Frame:
        return Frame(raw, fault=Fault("oversized", f"an event is longer than {self._most:,} bytes"))


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
