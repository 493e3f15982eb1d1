"""A stream that a test scripts, item by item, on asyncio and on trio.

It is as strict as an async generator: closing or reading it while it is being read is a
`RuntimeError`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel


@dataclass(slots=True, eq=False)
class Pause:
    """A step that waits until the test calls `release()`."""

    _reached: anyio.Event = field(default_factory=anyio.Event)
    _released: anyio.Event = field(default_factory=anyio.Event)

    async def reached(self) -> None:
        """Return as soon as the stream has come here."""
        await self._reached.wait()

    def release(self) -> None:
        """Let the stream go on; also in advance."""
        self._released.set()

    async def perform(self) -> None:
        """Carry out this step of the stream."""
        self._reached.set()
        await self._released.wait()


@dataclass(slots=True, eq=False)
class Stall:
    """A step that never ends: a connection on which nothing comes any more. Only a cancellation
    ends it.
    """

    _reached: anyio.Event = field(default_factory=anyio.Event)

    async def reached(self) -> None:
        """Return as soon as the stream has come here."""
        await self._reached.wait()

    async def perform(self) -> None:
        """Carry out this step of the stream."""
        self._reached.set()
        await anyio.sleep_forever()


@dataclass(slots=True, frozen=True, eq=False)
class Do:
    """A step that calls `function`, e.g. one that advances a fake clock."""

    function: Callable[[], object]

    async def perform(self) -> None:
        """Carry out this step of the stream."""
        self.function()


class ScriptedStream(AsyncIterator[Any]):
    """Yields `script` in order: text, chunks, an SDK's objects, anything.

    In it, an exception is raised where it stands, and `Pause`, `Stall` and `Do` are performed.
    `at_close` holds such steps for `aclose()`: a slow close, a failing one, one that hangs. With
    `suspends=True` other tasks run before every read, as for a socket. Without it items come at
    once, as from a full buffer.
    """

    def __init__(
        self, *script: Any, at_close: Sequence[Pause | Stall | Do | BaseException] = (), suspends: bool = False
    ) -> None:
        self._script = list(script)
        self._at_close = tuple(at_close)
        self._suspends = suspends
        self._position = 0
        self._busy = False
        self.pulled: int = 0
        """The number of items that the stream has yielded."""
        self.exhausted: bool = False
        """Whether the stream ended, raised, was cancelled or closed: then no further item comes."""
        self.closed: bool = False
        """Whether `aclose()` was called and has returned."""
        self.closings: int = 0
        """The number of times that `aclose()` was called."""

    def __aiter__(self) -> ScriptedStream:
        return self

    async def __anext__(self) -> Any:
        """Carry out the steps up to the next item, and yield it."""
        self._enter("read")
        try:
            return await self._next()
        except BaseException:
            self.exhausted = True
            raise
        finally:
            self._busy = False

    async def aclose(self) -> None:
        """Close the stream: it yields no further item. A second call does nothing."""
        self._enter("closed")
        self.closings += 1
        self.exhausted = True
        try:
            if self.closings == 1:
                for step in self._at_close:
                    await _perform(step)
            self.closed = True
        finally:
            self._busy = False

    def _enter(self, doing: str) -> None:
        if self._busy:
            raise RuntimeError(f"a ScriptedStream is {doing} while it is being read or closed")
        self._busy = True

    async def _next(self) -> Any:
        if self._suspends:
            await anyio.lowlevel.checkpoint()
        while not self.exhausted and self._position < len(self._script):
            step = self._script[self._position]
            self._position += 1
            if not isinstance(step, Pause | Stall | Do | BaseException):
                self.pulled += 1
                return step
            await _perform(step)
        raise StopAsyncIteration


async def _perform(step: Pause | Stall | Do | BaseException) -> None:
    if isinstance(step, BaseException):
        raise step.with_traceback(None)  # an error that many streams are given would keep the frames of each
    await step.perform()
