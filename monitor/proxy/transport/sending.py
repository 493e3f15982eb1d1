"""The body of a request on its way to the upstream. It is dropped when it is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

_PIECE: Final = 1024 * 1024
"""Bytes that are handed on at once."""


class RequestBody:
    """A body that may be sent again as long as it is kept."""

    def __init__(self, content: bytes) -> None:
        self.keep = False
        """Whether the body may have to be sent again, so that sending does not drop it."""
        self.content = content
        """The bytes; empty once they were sent."""
        self.size = len(content)

    def drop(self) -> None:
        """Free the bytes: the body is not sent again."""
        self.content = b""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        content = memoryview(self.content)
        if not self.keep:
            self.drop()
        for at in range(0, len(content), _PIECE):
            yield bytes(content[at : at + _PIECE])
