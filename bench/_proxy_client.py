"""A client that costs little: it reads bytes and writes down when each piece of an answer came."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_PIECE = re.compile(rb'"content": ?"[^"]+"')
_KEPT = 400
"""Bytes in which a piece may stand that is not complete yet."""


@dataclass
class FrameContent:
    """One answer as the client got it."""

    asked: float = 0.0
    began: float | None = None
    """The first byte of the answer."""
    pieces: list[float] = field(default_factory=list)
    over: float | None = None
    left: float | None = None
    """When the client closed the connection."""
    end: bytes = b""
    """The last bytes."""


async def ask(
    port: int,
    path: str,
    order: str,
    *,
    key: str,
    leave_after: int | None = None,
    history: Sequence[Mapping[str, str]] = (),
) -> FrameContent:
    """Ask for one stream. `leave_after`: leave when so many pieces have come; with 0, a moment
    after the request. `history`: the messages before the order.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    messages = [*history, {"role": "user", "content": order}]
    body = json.dumps({"model": "m", "stream": True, "messages": messages}).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    heard = FrameContent(asked=time.perf_counter())
    writer.write(head.encode() + body)
    held = b""
    try:
        if leave_after == 0:
            await asyncio.sleep(0.3)
            return heard
        while data := await reader.read(65_536):
            now = time.perf_counter()
            heard.began = heard.began or now
            held += data
            last = 0
            for found in _PIECE.finditer(held):
                heard.pieces.append(now)
                last = found.end()
            heard.end = (heard.end + data)[-_KEPT:]
            held = held[last:][-_KEPT:]
            if leave_after is not None and len(heard.pieces) >= leave_after:
                return heard
            if heard.end.endswith(b"0\r\n\r\n"):
                break
        heard.over = time.perf_counter()
        return heard
    finally:
        heard.left = time.perf_counter()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def log(port: int) -> dict[str, Any]:
    """What the service wrote down."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /log HTTP/1.1\r\nhost: x\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    assert length is not None
    body = await reader.readexactly(int(length[1]))
    writer.close()
    found: dict[str, Any] = json.loads(body)
    return found
