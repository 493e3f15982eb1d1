"""Reading one SDK stream: under the run's deadlines, with an abort, and with a close that closes.

The rules of this file:

1. No scope, timeout or task group around a `yield`, and so no async generator: a class, whose every read opens and
   leaves its own wait.
2. The order of one read: compare the clock, wait, compare the clock, decode, decide, close if decided, deliver. What
   arrives after a deadline is not delivered; the object in which a stop falls is.
3. Whoever opens a stream closes it, shielded from cancellation and bounded in time.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar

import anyio
import anyio.lowlevel

from monitor._wait import Clock, Wait, make_wait
from monitor.adapters._plain import TextAdapter
from monitor.adapters.base import AdapterFactory, StreamAdapter, find_adapter, find_adapter_of_source
from monitor.errors import ConfigError, describe
from monitor.models import ModelError
from monitor.outcome import Turn
from monitor.run import RunCore

T = TypeVar("T")

Source: TypeAlias = (
    AsyncIterator[T] | Awaitable[AsyncIterator[T]] | Callable[[], AsyncIterator[T]] | Callable[[], Awaitable[AsyncIterator[T]]]
)
"""What can be watched: a stream, an awaitable of one, or a function without arguments that returns either."""

DRAIN_CHUNKS = 256
"""How many already buffered chunks are read and dropped while a stream is drained. Only a flooding server gets there."""
DRAIN_S = 0.025
"""How long dropping them may take, in seconds."""

_NOTHING: Any = object()


class SourceStream(Generic[T]):
    """One stream, as an async iterator of the SDK's own objects. `RunCore` decides, this performs."""

    __slots__ = (
        "_adapter",
        "_began",
        "_clock",
        "_close_grace_s",
        "_core",
        "_cut",
        "_done",
        "_ended",
        "_ending",
        "_entered",
        "_error",
        "_factory",
        "_feed",
        "_finished",
        "_index",
        "_iterator",
        "_model_error",
        "_now",
        "_opened",
        "_over",
        "_read",
        "_source",
        "_wait",
        "turn",
    )

    def __init__(self, source: Source[T], core: RunCore, *, clock: Clock, adapter: AdapterFactory | None, close_grace_s: float) -> None:
        self._source: Any = source
        self._core = core
        self._clock = clock
        self._now = clock.now
        self._factory = adapter
        self._adapter: StreamAdapter | None = None
        self._index = 0
        self._close_grace_s = close_grace_s
        self._wait: Wait | None = None  # made with the first read, in the loop that reads
        self._opened: Any = None
        self._iterator: Any = None
        self._read: Callable[[], Awaitable[T]] = self._open
        self._feed: Callable[[Any, float], None] = self._feed_first
        self._began = False
        self._finished = False
        self._cut = False  # a read was left by a cancellation, which ends a generator: its end is no good end
        self._error: Exception | None = None
        self._model_error: ModelError | None = None
        self._entered = False
        self._over = self._ending = self._ended = False
        self._done: anyio.Event | None = None
        self.turn: Turn | None = None
        """What came: text, calls, usage, finish reason. Set when the stream is over; its number is 0 if it was never opened."""

    async def __aenter__(self) -> Self:
        self._entered = True
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._wait is not None and (self._wait.pending is not None or self._ending):
            await self._see_the_other_task_out()
        await self._end(last=True)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        core = self._core
        wait = self._wait or self._start()
        core.waiting_since = now = self._now()
        if self._over or (now >= core.deadline and core.must_stop(now)):
            await self._end()
            raise StopAsyncIteration
        wait.enter()
        try:
            item = await self._read()
        except BaseException as error:
            item = _NOTHING
            if not wait.leave(error) and not self._ended_by(error):
                raise
        else:
            if wait.unsettled:
                wait.leave(None)
            wait.pending = None
        now = self._now()
        late = now >= core.deadline and core.must_stop(now)
        if late or item is _NOTHING:
            await self._end()
            raise StopAsyncIteration
        try:
            self._feed(item, now)
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001 - an object that cannot be read ends the stream; it is delivered all the same
            core.fail(error, "adapter", now)
        if core.stop is not None:
            await self._end()
        return item

    def _ended_by(self, error: BaseException) -> bool:
        """Whether `error` is the source's own end, good or bad; else it is the caller's business, and goes on."""
        if isinstance(error, StopAsyncIteration):
            self._finished = not self._cut
        elif isinstance(error, Exception) and not isinstance(error, ConfigError):
            self._error = error
        else:
            self._cut = True
            return False
        return True

    # ------------------------------------------------------------------ opening and decoding

    def _start(self) -> Wait:
        if not self._entered:
            raise ConfigError("enter the stream before reading it: async with ... as watched: async for chunk in watched")
        self._wait = wait = make_wait(self._core, self._clock)
        self._core.replanned = wait.follow
        self._began = self._core.begin_turn(self._now())
        return wait

    async def _open(self) -> T:
        """The first read opens the source, so that opening and SDK retries are under the deadlines as well."""
        source = self._source
        if callable(source) and not hasattr(source, "__anext__") and not hasattr(source, "__aiter__"):
            source = source()
        if inspect.isawaitable(source):
            source = await source
        self._opened = source
        if not hasattr(source, "__anext__"):
            if not hasattr(source, "__aiter__"):
                raise ConfigError(f"cannot watch {type(source).__name__}: it is not an async iterator")
            source = aiter(source)
        self._iterator = source
        if self._factory is None:
            self._factory = find_adapter_of_source(source)
        self._read = source.__anext__
        first: T = await self._read()
        return first

    def _feed_first(self, item: T, now: float) -> None:
        """The first object tells whose it is, if nothing told before."""
        self._core.first_chunk(now)
        factory = self._factory or find_adapter(item)
        if factory is None:
            raise ConfigError(
                f"no adapter knows objects of type {type(item).__module__}.{type(item).__qualname__}; "
                "pass adapter=, or a stream of str or of monitor chunks"
            )
        self._adapter = factory(self._index)
        feed: Callable[[Any, float], None] = self._feed_decoded
        if factory is TextAdapter:
            feed = self._core.feed_text  # what it would decode to, without the object
        self._feed = feed
        feed(item, now)

    def _feed_decoded(self, item: T, now: float) -> None:
        adapter, core = self._adapter, self._core
        assert adapter is not None  # noqa: S101 - set with this method
        text = adapter.plain_text(item)
        if text is not None:
            core.feed_text(text, now)
            return
        for chunk in adapter.decode(item):
            core.feed(chunk, now)

    # ------------------------------------------------------------------ ending

    def wake(self) -> None:
        """Interrupt a pending read, so that it sees what has changed. From any thread."""
        if self._wait is not None:
            self._wait.wake()

    async def _see_the_other_task_out(self) -> None:
        """The block is left while another task still reads, or closes: that one finishes first."""
        self._done = anyio.Event()
        if self._wait is not None:
            self._wait.interrupt()
        with anyio.move_on_after(self._close_grace_s, shield=True):
            await self._done.wait()

    async def _end(self, *, last: bool = False) -> None:
        """No read will deliver anything any more: tell the core how the stream ended, and close what has not ended by itself.

        `last`: nobody will come after this to try again what is interrupted by a cancellation.
        """
        if self._ended or (self._ending and not last):
            return
        self._over = self._ending = True
        since = self._now()
        interrupted = True
        try:
            self._settle(since)
            if not self._finished:
                await self._close(since)
            interrupted = False
        finally:
            self._ending = False
            if last or not interrupted:
                self._account(closed=not interrupted, since=since)

    def _account(self, *, closed: bool, since: float) -> None:
        """The stream is done with."""
        core, now = self._core, self._now()
        self._ended = True
        if self._wait is not None:
            self._wait.close()
        core.replanned = _nothing
        if not closed:
            core.source_closed(now, since=since, closed=False, chunks_dropped=0, note="closing was interrupted by a cancellation")
        if self._began:
            self.turn = core.end_turn(
                now,
                finished=self._finished and core.stop is None,
                error=self._error if core.stop is None else None,
                model_error=self._model_error,
                must_finish=self._adapter.needs_finish if self._adapter is not None else False,
            )
        else:
            self.turn = Turn(number=0, stopped=core.stop)
        if self._done is not None:
            self._done.set()

    def _settle(self, now: float) -> None:
        """What the end of the source says about the turn, unless the run's end is what ended it."""
        if self._core.stop is not None:
            return
        if self._error is not None:
            self._model_error = (self._adapter or self._adapter_for_errors()).classify(self._error)
        elif self._finished and self._adapter is not None:
            for chunk in self._adapter.finish():
                self._core.feed(chunk, now)

    def _adapter_for_errors(self) -> StreamAdapter:
        """A stream that failed before its first object: whose error is it?"""
        assert self._error is not None  # noqa: S101 - asked only then
        factory = self._factory or find_adapter(self._error) or TextAdapter
        return factory(self._index)

    async def _close(self, since: float) -> None:
        """Close the source, however it takes it; what went wrong is noted, never raised."""
        source = self._iterator if self._iterator is not None else self._source
        if inspect.iscoroutine(source):  # it was never awaited, or its await was cancelled
            source.close()
            return
        if self._iterator is None and inspect.isawaitable(source) and hasattr(source, "cancel"):  # a task that opens the stream
            source.cancel()
            return
        dropped, note = 0, None
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + self._close_grace_s) as scope:
            try:
                if self._adapter is not None and self._adapter.drains and inspect.isasyncgen(source):
                    dropped, note = await self._unwind(source, self._adapter)
                holders = [source] if self._opened is source else [source, self._opened]
                closers = [closer for holder in holders if (closer := _closer_of(holder)) is not None]
                for closer in closers:
                    closing = closer()
                    if inspect.isawaitable(closing):
                        await closing
                if not closers and self._iterator is not None:
                    note = f"{type(source).__name__} has neither aclose() nor close()"
                await anyio.lowlevel.checkpoint()  # asyncio's transports close their socket in the next turn of the loop
            except Exception as error:  # noqa: BLE001 - the SDK's trouble with closing must not hide how the run ended
                note = f"closing raised {describe(error)}"
        if scope.cancelled_caught:
            note = f"closing did not end within {self._close_grace_s:g} s"
        self._core.source_closed(self._now(), since=since, closed=note is None, chunks_dropped=dropped, note=note)

    async def _unwind(self, source: AsyncIterator[object], adapter: StreamAdapter) -> tuple[int, str | None]:
        """Close a nest of async generators, of which `aclose()` reaches only the outermost: the connection would stay open."""
        responses = adapter.responses(source)
        for response in responses:
            closing = response.aclose() if hasattr(response, "aclose") else response.close()
            if inspect.isawaitable(closing):
                await closing
        return (0, None) if responses else await self._drain(source)

    async def _drain(self, source: AsyncIterator[object]) -> tuple[int, str | None]:
        """Unwind a nest of async generators from the inside, by going on reading in a cancelled scope.

        `aclose()` reaches only the outermost one, and the connection stays open. The pending socket read gets the
        cancellation, every frame unwinds in order and the transport closes. What was buffered comes first, and is dropped.
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
    closer = getattr(holder, "aclose", None) or getattr(holder, "close", None)
    return closer if callable(closer) else None


def _nothing() -> None:
    """No alarm follows the run's deadline while no stream runs."""
