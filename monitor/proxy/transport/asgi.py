"""The words of ASGI 3, and answers that the proxy gives by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


async def begin(send: Send, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Send the status and the headers of an answer."""
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def body(send: Send, part: bytes, *, more: bool) -> None:
    """Send a piece of the body to the client."""
    await send({"type": "http.response.body", "body": part, "more_body": more})


async def answer(
    send: Send, status: int, content: bytes, kind: bytes, *headers: tuple[bytes, bytes], empty: bool = False
) -> None:
    """Send a whole answer. `kind`: its media type. `empty`: only its headers, as for HEAD."""
    length = (b"content-length", b"%d" % len(content))
    await begin(send, status, [(b"content-type", kind), length, *headers])
    await body(send, b"" if empty else content, more=False)
