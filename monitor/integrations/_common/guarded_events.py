"""A framework's own stream behind the guard: the framework reads it as before."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Self, TypeVar

from monitor.harness.guards.guard_streams import Watched
from monitor.integrations._common.guarded_requests import GuardedRequests
from monitor.outcome import StoppedByGuard

T = TypeVar("T")


class GuardedEvents(AsyncIterator[T]):
    """The objects of one stream, unchanged. At the end it raises `stopped` if the guard has ended
    the run, or the SDK's own exception if the model call failed.

    It is a class and not an async generator, so that nothing is left half open if the framework
    drops it: the guard closes the source when its own block is left.
    """

    def __init__(self, watched: Watched[T], requests: GuardedRequests, stopped: type[StoppedByGuard]) -> None:
        self._watched = watched
        self._requests = requests
        self._stopped = stopped
        self._entered = False
        self._first: list[T] = []

    def __aiter__(self) -> Self:
        return self

    async def begin(self) -> None:
        """Open the stream and wait for its first object. A failed opening is raised here."""
        with contextlib.suppress(StopAsyncIteration):
            self._first.append(await self.__anext__())

    async def __anext__(self) -> T:
        if self._first:
            return self._first.pop()
        if not self._entered:
            self._entered = True
            await self._watched.__aenter__()
        try:
            return await anext(self._watched)
        except StopAsyncIteration:
            await self.aclose()
            turn = self._watched.turn
            stop = self._requests.ended(turn)
            if stop is not None:
                raise self._stopped(stop, turn) from None
            raise
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close the source, if the framework leaves the stream before its end."""
        if self._entered:
            await self._watched.__aexit__(None, None, None)
