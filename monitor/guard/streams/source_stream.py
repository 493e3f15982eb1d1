"""Reads one SDK stream: under the run's deadlines, with an abort, and with a close that ends the
connection.

The rules of this file:

1. There is no scope, timeout or task group around a `yield`. So this is not an async generator but
   a class, and each read opens and leaves its own wait.
2. The order of one read: compare the clock, wait, compare the clock, decode, decide, close if
   decided, deliver. An object that arrives after a deadline is not delivered. The object that
   causes a stop is delivered.
3. A stream that was opened is always closed, shielded from cancellation and bounded in time.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from types import AsyncGeneratorType, TracebackType
from typing import Any, Final, NoReturn, Self, TypeAlias, TypeVar

import anyio
import anyio.lowlevel

from monitor.adapters.adapter import (
    AdapterFactory,
    FullAdapter,
    ReportedFailure,
    comes_from_sdk,
    find_adapter_of_source,
)
from monitor.adapters.parts import TextAdapter
from monitor.chunks import Chunk
from monitor.core.run import RunCore
from monitor.errors import ConfigError, SourceFailed
from monitor.guard.streams.closing import Closing, Isolated, close_all, close_source
from monitor.guard.streams.one_stream import OneStream, not_watched, opened
from monitor.guard.streams.wait import (
    Clock,
    ErrorOrigin,
    PendingCancel,
    ReadWait,
    cancelled_types,
    current_task,
    make_wait,
)

T = TypeVar("T")

Source: TypeAlias = (
    AsyncIterator[T] | Awaitable[AsyncIterator[T]] | Callable[[], AsyncIterator[T] | Awaitable[AsyncIterator[T]]]
)
"""The sources that can be watched: a stream, an awaitable of one, or a function without arguments
that returns either.
"""

CLOSE_ATTEMPTS = 3
"""How often a close is begun again that a `task.cancel()` has interrupted.
"""

BURST: Final = 64
"""Reads after which other tasks get their turn. A source that never waits, such as a flooding
server, holds the event loop for as long as 64 of its objects take.
"""

_NOTHING: Any = object()
_NO_REST: Iterator[Chunk] = iter(())


class SourceStream(OneStream[T]):
    """One stream, as an async iterator of the SDK's own objects. `RunCore` decides, this
    performs.
    """

    __slots__ = (
        "_burst",
        "_clock",
        "_close_grace_s",
        "_cut",
        "_destroyed",
        "_done",
        "_ended",
        "_ending",
        "_entered",
        "_feed",
        "_isolated",
        "_left",
        "_listener",
        "_next",
        "_plain_text",
        "_read",
        "_rest",
        "_untold",
        "_wait",
    )

    def __init__(
        self,
        source: Source[T],
        core: RunCore,
        *,
        clock: Clock,
        adapter: AdapterFactory | None,
        close_grace_s: float,
        index: int = 0,
        listener: Callable[[Chunk], None] | None = None,
        isolate: bool = False,
    ) -> None:
        """`index`: the number of the stream in its run. `listener` gets every chunk, after the
        core. `isolate`: the source is opened, read and closed in its own task.
        """
        super().__init__(source, core, clock=clock, adapter=adapter, index=index)
        self._clock = clock
        self._plain_text: Callable[[object], str | None]  # of the adapter
        self._listener = listener
        self._close_grace_s = close_grace_s
        self._wait: ReadWait | None = None  # made with the first read, in the loop that reads
        self._burst = BURST  # reads that are left until other tasks get their turn
        self._next: Callable[[], Awaitable[T]] | None = None  # the source's own `__anext__`
        self._isolated = Isolated(self._read_apart, self._close_here) if isolate else None
        self._read: Callable[[], Awaitable[T]] = self._isolated.read if self._isolated is not None else self._open
        self._feed: Callable[[Any, float], bool] = self._feed_first  # returns True if pieces of a huge delta are left
        self._rest: Iterator[Chunk] = _NO_REST  # the other chunks of an object with a huge delta
        core.piecewise = True
        self._cut = False  # a cancellation left a read, which ends a generator: that is not a normal end
        # The reading task is gone, perhaps with its event loop: nothing can be awaited any more.
        self._destroyed = False
        self._left: Sequence[Any] = ()  # open responses, found when a read was interrupted or failed
        self._untold = False  # a read was left, and it is unknown what it left open
        self._entered = False
        self._ending = self._ended = False
        self._done: anyio.Event | None = None

    async def __aenter__(self) -> Self:
        if self._entered:
            raise ConfigError("a watched stream is read once: watch a new one for the next turn")
        self._entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._destroyed = self._destroyed or current_task() is None
        if not self._destroyed and self._wait is not None and (self._wait.pending is not None or self._ending):
            await self._see_the_other_task_out()
        await self._end()

    async def aclose(self) -> None:
        """Close the source before its end, from inside the block."""
        await self._end()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        core = self._core
        wait = self._wait or self._start()
        if wait.pending is not None:
            raise ConfigError("this stream is already being read by another task")
        # Before the read: a run that is over delivers nothing more.
        core.waiting_since = now = self._now()
        if self._over or self._core.ends_stream or (now >= core.deadline and core.must_stop(now)):
            await self._stop()
        # The read, which a deadline or an abort interrupts.
        self._burst = burst = self._burst - 1
        wait.enter()
        try:
            if not burst:
                self._burst = BURST
                await wait.turn()
            item = await self._read()
        except BaseException as error:
            item = _NOTHING
            if self._isolated is None and not isinstance(error, StopAsyncIteration):
                self._look_behind_after(error)
            if not self._ended_by(error, wait.leave(error)):
                await self._interrupted()
                raise
        else:
            if wait.unsettled:
                wait.leave(None)
            wait.pending = None
        # After the read: an object that came too late is not delivered.
        now = self._now()
        late = now >= core.deadline and core.must_stop(now)
        if late or item is _NOTHING:
            await self._stop()
        # The object goes to the core, which may end the stream; then it is delivered.
        try:
            if self._feed(item, now):
                await self._catch_up()
        except ConfigError:
            await self._interrupted()
            raise
        except ReportedFailure as error:
            await self._hear_of(error, now)
        except Exception as error:  # noqa: BLE001 - an unreadable object ends the stream, and is delivered nevertheless
            core.fail(error, "adapter", now)
        if core.ends_stream:
            await self._end()
        return item

    async def _stop(self) -> NoReturn:
        """End the stream, and the caller's iteration."""
        await self._end()
        raise StopAsyncIteration

    async def _interrupted(self) -> None:
        """An exception for the caller leaves the iteration. The block of the stream closes it."""

    async def _hear_of(self, failure: ReportedFailure, now: float) -> None:
        """Process an object that reported a failure of the provider."""
        for chunk in failure.chunks:
            self._core.feed(chunk, now)
        if self._reported is None:
            self._reported = failure
            self._read = partial(self._read_soon, self._read)
        if failure.last:
            self._error = self._reported
            await self._end()

    async def _read_soon(self, read: Callable[[], Awaitable[T]]) -> T:
        """The next object after one that reported a failure, if it comes soon. The source may also
        stay open without a further object.
        """
        with anyio.move_on_after(self._close_grace_s):
            return await read()
        self._cut = True
        raise StopAsyncIteration

    def _ended_by(self, error: BaseException, whose: ErrorOrigin) -> bool:
        """True: the monitor, or the end or failure of the source, ended the read. False: `error` is
        meant for the caller, and must be raised further.
        """
        if whose is ErrorOrigin.OURS:
            return True
        if whose is ErrorOrigin.OUTSIDE or isinstance(error, ConfigError):
            self._cut = True
            self._destroyed = current_task() is None or isinstance(error, GeneratorExit)
            return False
        if isinstance(error, StopAsyncIteration):
            self._finished = not self._cut
        else:
            self._error = error if isinstance(error, Exception) else SourceFailed.by(error)
        return True

    # ------------------------------------------------------------------ opening and decoding

    def _start(self) -> ReadWait:
        if not self._entered:
            raise ConfigError(
                "enter the stream before reading it: write async with monitor.watch(stream) as watched: async for"
                " chunk in watched: ..."
            )
        self._wait = wait = make_wait(self._core, self._clock, self._look_behind)
        self._core.replanned = wait.follow
        self._began = self._core.begin_turn(self._now())
        wait.follow()
        return wait

    async def _open(self) -> T:
        """Open the source in the first read, so that the deadlines also cover the opening and the
        SDK's retries.
        """
        self._read = await self._open_source()
        first: T = await self._read()
        return first

    async def _read_apart(self) -> T:
        """The next object, read in the task of an isolated source."""
        try:
            if self._next is None:
                self._next = await self._open_source()
            return await self._next()
        except StopAsyncIteration:
            raise
        except BaseException as error:
            self._look_behind_after(error)
            raise

    async def _open_source(self) -> Callable[[], Awaitable[T]]:
        given: Any = opened(self._source, waits=True)
        if type(given) is not AsyncGeneratorType and inspect.isawaitable(given):
            self._opened = given
            given = await given
        source: Any = given
        self._opened = source
        if not hasattr(source, "__anext__"):
            if not hasattr(source, "__aiter__"):
                raise ConfigError(f"cannot watch {type(source).__name__}: {not_watched(source, waits=True)}")
            source = aiter(source)
        self._iterator = source
        if self._factory is None:
            self._factory = find_adapter_of_source(source)
        read: Callable[[], Awaitable[T]] = source.__anext__
        return read

    def _feed_first(self, item: T, now: float) -> bool:
        """Process the first object, which shows the SDK if that was unknown."""
        adapter = self._begin_with(item, now)
        self._feed = feed = self._feed_for(adapter)
        return feed(item, now)

    def _feed_for(self, adapter: FullAdapter) -> Callable[[Any, float], bool]:
        if self._listener is not None:
            return self._feed_heard
        if self._factory is TextAdapter:
            return self._core.feed_text  # what it would decode to, without the object
        self._plain_text = adapter.plain_text
        return self._feed_decoded

    def _feed_decoded(self, item: T, now: float) -> bool:
        adapter, core = self._adapter, self._core
        assert adapter is not None  # noqa: S101 - set with this method
        text = self._plain_text(item)
        if text is not None:
            return core.feed_text(text, now)
        self._rest = iter(self._decoded(adapter, item, now))
        return self._feed_rest(now)

    def _feed_rest(self, now: float) -> bool:
        """Pass on the chunks of one object, up to the first huge delta. True: pieces of it are
        left.
        """
        core, listener = self._core, self._listener
        for chunk in self._rest:
            core.feed(chunk, now)
            if listener is not None:
                listener(chunk)
            if core.left:
                return True
        assert self._adapter is not None  # noqa: S101 - see `_feed_decoded`
        self._count_requests(self._adapter)
        return False

    async def _catch_up(self) -> None:
        """Process a huge delta piece by piece. Between two pieces the clock is checked, and other
        tasks run.
        """
        core = self._core
        while not core.ends_stream:
            await anyio.lowlevel.checkpoint()
            now = self._now()
            if now >= core.deadline and core.must_stop(now):
                return
            if core.left:
                core.catch_up(now)
            elif not self._feed_rest(now):
                return

    def _feed_heard(self, item: T, now: float) -> bool:
        """Feed like `_feed_decoded`, for a listener that gets every chunk."""
        assert self._adapter is not None  # noqa: S101 - set with this method
        self._rest = iter(self._decoded(self._adapter, item, now))
        return self._feed_rest(now)

    # ------------------------------------------------------------------ ending

    def wake(self) -> None:
        """Interrupt a pending read, so that it checks whether the run must end. May be called from
        any thread.
        """
        if self._wait is not None:
            self._wait.wake()

    def interrupt(self) -> None:
        """End the stream: the core has set `ends_stream` meanwhile. Call it in the event loop's
        thread.
        """
        if self._wait is not None:
            self._wait.interrupt()

    def destroyed(self) -> None:
        """End the stream without closing the source: the reading task is destroyed with its event
        loop, so nothing can be awaited.
        """
        self._destroyed = True
        with contextlib.suppress(StopIteration):
            self._end().send(None)  # `_end` awaits nothing in this case

    async def _see_the_other_task_out(self) -> None:
        """Wait for another task that still reads or closes while the block is left."""
        self._done = anyio.Event()
        if self._wait is not None:
            self._wait.interrupt()
        with anyio.move_on_after(self._close_grace_s, shield=True):
            await self._done.wait()

    async def _end(self) -> None:
        """End the stream: report its end to the core, and close the source unless it has ended by
        itself.
        """
        if self._ended or self._ending:
            return
        self._over = self._ending = True
        since = self._now()
        try:
            self._settle(since)
            if not self._finished:
                await self._close(since)
        finally:
            self._ending = False
            self._account()

    def _account(self) -> None:
        """Close the account of the stream: end its turn in the core."""
        self._ended = True
        if self._wait is not None:
            self._wait.close()
        self._core.replanned = _nothing
        self._end_turn()
        # It keeps none of its own methods, so that it is freed with its last user.
        self._feed = self._read = _over
        if self._done is not None:
            self._done.set()

    def _holders(self) -> Iterator[object]:
        yield from (self._innermost, *self._left)

    def _look_behind(self) -> None:
        """Find the open responses just before a pending read is interrupted. Afterwards the
        generators that hold them are gone.
        """
        self._left = (*self._left, *self._responses_behind(self._innermost))

    def _look_behind_after(self, error: BaseException) -> None:
        """Find responses that a failed read left open: in the frames of `error`, if a local
        variable names them.
        """
        trace = error.__traceback__
        self._left = (*self._left, *self._responses_behind(trace))
        knows_better = self._left or comes_from_sdk(trace) or not inspect.isasyncgen(self._iterator)
        self._untold = not knows_better and self._adapter is not None and self._adapter.drains

    async def _close(self, since: float) -> None:
        """Close the source. A cancellation that comes meanwhile is raised after the source is
        closed.
        """
        closing = self._isolated.closing if self._isolated is not None else Closing()
        try:
            struck = await self._close_through_cancellations(closing)
        finally:
            if self._untold and closing.note is None:
                closing.note = "an exception left the generator around the SDK's stream, which may still be open"
            self._left = ()
            self._core.source_closed(
                self._now(),
                since=since,
                closed=closing.note is None,
                chunks_dropped=closing.chunks_dropped,
                note=closing.note,
            )
        if struck is not None:
            raise struck

    async def _close_through_cancellations(self, closing: Closing) -> BaseException | None:
        """Close the source; `closing` holds the result. Returns a cancellation from outside that
        came meanwhile.
        """
        if self._destroyed:
            closing.note = "the task that read it was destroyed, so nobody could close it"
            return None
        asked, struck = PendingCancel(), None
        for _ in range(CLOSE_ATTEMPTS):
            try:
                if self._isolated is not None:
                    await self._isolated.close(self._close_grace_s)
                else:
                    await close_source(closing, self._close_here, self._close_grace_s)
                break
            except cancelled_types() as cancellation:
                struck = cancellation
        # A cancellation that the source swallowed while it was closed is still meant for the
        # caller.
        return struck or asked.swallowed

    async def _close_here(self, closing: Closing) -> None:
        await close_all(closing, self._innermost, holder=self._opened, left=self._left, adapter=self._known_adapter())


def _nothing() -> None:
    """Does nothing: no alarm follows the run's deadline while no stream runs."""


def _over(*_: object) -> Any:
    """In the place of what reads and decodes, when the stream is over."""
    raise StopAsyncIteration
