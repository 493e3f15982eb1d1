"""Closing a source so that its connection is gone, whatever kind of object it is.

An object with `aclose()` or `close()` is told so. An async generator of an SDK whose own `aclose()`
reaches only the outermost of its generators is unwound instead: by closing the response behind it,
or else from the inside. What an interruption finds open in a source, or leaves open, is looked for
when it strikes: an `async for` does not close what it reads.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel

from monitor.adapters.base import StreamAdapter, responses_behind
from monitor.errors import describe

DRAIN_CHUNKS = 256
"""How many already buffered chunks are read and dropped while a stream is drained. Only a flooding
server gets there.
"""
DRAIN_S = 0.025
"""How long dropping them may take, in seconds."""


@dataclass(slots=True, frozen=True)
class Closing:
    """How it went."""

    chunks_dropped: int = 0
    note: str | None = None
    """What went wrong; `None`: the source is closed."""


async def close_source(
    source: Any,
    *,
    holder: Any = None,
    left: Sequence[Any] = (),
    adapter: StreamAdapter | None,
    grace_s: float,
) -> Closing:
    """Close `source`, and `holder`, the object that it was taken from, if that is another one.

    `left`: responses that were found when something interrupted the source, or came out of it.
    Shielded from scopes and bounded by `grace_s`. (A `task.cancel()` of asyncio goes through every
    shield: then close once more.) Whatever an SDK raises is noted, so that its trouble with closing
    does not hide how the run ended.
    """
    dropped, note = 0, None
    with anyio.CancelScope(shield=True, deadline=anyio.current_time() + grace_s) as scope:
        try:
            if not hasattr(source, "__anext__"):
                source = await _not_yet_opened(source)
            nest = source if inspect.isasyncgen(source) else None
            responses = [*left, *(responses_behind(nest, adapter) if nest is not None else ())]
            for response in responses:
                await _close(response)
            if nest is not None and not responses and adapter is not None and adapter.drains:
                dropped, note = await _drain(nest)
            holders = [one for one in (source, None if holder is source else holder) if one is not None]
            closed = [await _close(one) for one in holders]
            if not any(closed) and hasattr(source, "__anext__"):
                note = f"{type(source).__name__} has neither aclose() nor close()"
            if holders or responses:
                # asyncio's transports close their socket in the next turn of the loop
                await anyio.lowlevel.checkpoint()
        except Exception as error:  # noqa: BLE001 - see above
            note = f"closing raised {describe(error)}"
    if scope.cancelled_caught:
        note = f"closing did not end within {grace_s:g} s"
    return Closing(dropped, note)


async def _not_yet_opened(source: Any) -> Any:
    """What is to be closed of a source that was never read; `None`: nothing (more)."""
    if inspect.iscoroutine(source):  # it was never awaited, or its await was cancelled
        source.close()
    elif inspect.isawaitable(source) and hasattr(source, "done"):  # a task that opens the stream
        task: Any = source
        if not task.done():
            over = anyio.Event()
            task.add_done_callback(lambda _: over.set())
            task.cancel()
            await over.wait()
        return None if task.cancelled() or task.exception() is not None else task.result()
    elif hasattr(source, "__aiter__") or not callable(source):  # a function that opens streams is not ours to close
        return source
    return None


async def _drain(source: AsyncIterator[object]) -> tuple[int, str | None]:
    """Unwind a nest of async generators from the inside, by going on reading in a cancelled scope.

    The pending socket read gets the cancellation, every frame unwinds in order and the transport
    closes. What was buffered comes first, and is dropped.
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


async def _close(holder: object) -> bool:
    """False: it has no way to be closed."""
    for name in ("aclose", "close"):
        closer: Callable[[], object] | None = getattr(holder, name, None)
        if callable(closer):
            closing = closer()
            if inspect.isawaitable(closing):
                await closing
            return True
    return False
