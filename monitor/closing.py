"""Closing a source so that its connection is gone, whatever kind of object it is.

An object with `aclose()` or `close()` is told so. An async generator of an SDK whose own `aclose()` reaches only the outermost of
its generators is unwound instead: by closing the response behind it, or else from the inside.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel

from monitor.adapters.base import StreamAdapter
from monitor.errors import describe

DRAIN_CHUNKS = 256
"""How many already buffered chunks are read and dropped while a stream is drained. Only a flooding server gets there."""
DRAIN_S = 0.025
"""How long dropping them may take, in seconds."""


@dataclass(slots=True, frozen=True)
class Closing:
    """How it went."""

    chunks_dropped: int = 0
    note: str | None = None
    """What went wrong; `None`: the source is closed."""


async def close_source(source: Any, *, holder: Any = None, adapter: StreamAdapter | None, grace_s: float) -> Closing:
    """Close `source`, and `holder`, the object that it was taken from, if that is another one.

    Shielded from scopes and bounded by `grace_s`. (A `task.cancel()` of asyncio goes through every shield: then close once more.)
    Whatever an SDK raises is noted, so that its trouble with closing does not hide how the run ended.
    """
    if not hasattr(source, "__anext__"):
        source = _not_yet_opened(source)
        if source is None:
            return Closing()
    dropped, note = 0, None
    with anyio.CancelScope(shield=True, deadline=anyio.current_time() + grace_s) as scope:
        try:
            if adapter is not None and adapter.drains and inspect.isasyncgen(source):
                dropped, note = await _unwind(source, adapter)
            holders = [source] if holder is source else [source, holder]
            closers = [closer for one in holders if (closer := _closer_of(one)) is not None]
            for closer in closers:
                await _finish(closer())
            if not closers and hasattr(source, "__anext__"):
                note = f"{type(source).__name__} has neither aclose() nor close()"
            await anyio.lowlevel.checkpoint()  # asyncio's transports close their socket in the next turn of the loop
        except Exception as error:  # noqa: BLE001 - see above
            note = f"closing raised {describe(error)}"
    if scope.cancelled_caught:
        note = f"closing did not end within {grace_s:g} s"
    return Closing(dropped, note)


def _not_yet_opened(source: Any) -> Any:
    """What is to be closed of a source that was never read; `None`: nothing (more)."""
    if inspect.iscoroutine(source):  # it was never awaited, or its await was cancelled
        source.close()
    elif inspect.isawaitable(source) and hasattr(source, "done"):  # a task that opens the stream
        task: Any = source
        if task.done():
            return None if task.cancelled() or task.exception() is not None else task.result()
        task.cancel()
    elif hasattr(source, "__aiter__") or not callable(source):  # a function that opens streams is not ours to close
        return source
    return None


async def _unwind(source: AsyncIterator[object], adapter: StreamAdapter) -> tuple[int, str | None]:
    responses = adapter.responses(source) if hasattr(adapter, "responses") else ()
    for response in responses:
        closer = _closer_of(response)
        if closer is not None:
            await _finish(closer())
    return (0, None) if responses else await _drain(source)


async def _drain(source: AsyncIterator[object]) -> tuple[int, str | None]:
    """Unwind a nest of async generators from the inside, by going on reading in a cancelled scope.

    The pending socket read gets the cancellation, every frame unwinds in order and the transport closes. What was
    buffered comes first, and is dropped.
    """
    dropped = 0
    give_up_at = anyio.current_time() + DRAIN_S
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            while dropped < DRAIN_CHUNKS and anyio.current_time() < give_up_at:
                await source.__anext__()
                dropped += 1
        except StopAsyncIteration:
            return dropped, None
    if scope.cancelled_caught:
        return dropped, None
    return dropped, f"the transport had buffered more than the {dropped} chunks that were dropped; it may still be open"


def _closer_of(holder: object) -> Callable[[], object] | None:
    for name in ("aclose", "close"):
        closer = getattr(holder, name, None)
        if callable(closer):
            found: Callable[[], object] = closer
            return found
    return None


async def _finish(closing: object) -> None:
    if inspect.isawaitable(closing):
        await closing
