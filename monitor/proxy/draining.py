"""The end of a proxy: running answers may end, then the others get the end of their format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio


class Draining:
    """The requests that are being answered, and whether the server shuts down."""

    def __init__(self) -> None:
        self.has_begun = False
        """The server shuts down: it answers what still comes, and says that it is not ready."""
        self._open = 0
        self._idle = anyio.Event()

    @contextmanager
    def request(self) -> Iterator[None]:
        """A request that is being answered."""
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._idle.set()
                self._idle = anyio.Event()

    async def until_idle(self, seconds: float | None) -> bool:
        """Wait until no request is being answered, for `seconds` at most; `None`: without an end.
        Returns whether none is.
        """
        with anyio.move_on_after(seconds):
            while self._open:
                await self._idle.wait()
        return not self._open
