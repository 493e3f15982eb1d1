"""One stream of a guard, asynchronous or not, and which of them is being watched."""

from __future__ import annotations

import inspect
import weakref
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self, TypeVar, cast

from monitor.adapters.adapter import AdapterFactory
from monitor.core.run import RunCore
from monitor.errors import ConfigError
from monitor.events import Event, StreamClosed, TurnEnded
from monitor.guard.async_sinks import AsyncSinks
from monitor.guard.streams.one_stream import OneStream, SyncSource, SyncStream
from monitor.guard.streams.source_stream import Source, SourceStream
from monitor.guard.streams.wait import Clock, current_loop
from monitor.outcome import Outcome, Turn

# --------------------------------------------------------------------------------------------------
# The parts of its run that a guard has seen, and those that it has not: a detector without data
# finds nothing.


@dataclass(slots=True, frozen=True)
class Covered:
    """One thing that a guard needs, and whether it has it."""

    what: str
    """`limits`, `detectors`, `results`, `usage`, `closing`, `checks` or `interruption`."""
    guarded: bool
    detail: str
    """Why not, and what to do; or what was seen. For people."""


@dataclass(slots=True)
class RunCounts:
    """Counts of one run, for `Guard.coverage`."""

    turns: int = 0
    calls: int = 0
    results: int = 0
    checks: int = 0
    estimated: int = 0
    left_open: str | None = None
    inside: int = 0
    """Results that the SDK has shown by itself."""
    synchronous: int = 0
    agents: int = 1
    """Each agent of the run has a first turn, before which nobody checks."""

    def hear(self, event: Event) -> None:
        """Count an event of the run."""
        if isinstance(event, TurnEnded):
            self.turns += 1
            if event.turn.stopped is None:  # the calls of a turn that ends the run need no result
                self.calls += len(event.turn.tool_calls)
            self.estimated += event.turn.usage_estimated
        elif isinstance(event, StreamClosed) and not event.closed:
            self.left_open = event.note or "the source stayed open"

    def covered(self, *, limits: bool, detectors: tuple[str, ...]) -> tuple[Covered, ...]:
        """One entry for each thing that a guard needs."""
        results = self.results + self.inside
        missing = self.calls - results
        return (
            Covered("limits", limits, "there is a limit" if limits else "nothing ends the run: set stop_when"),
            Covered("detectors", bool(detectors), ", ".join(detectors) or "no detector is on, so no loop is found"),
            Covered(
                "results",
                missing <= 0,
                f"{results} of {self.calls} calls have their result"
                + (": pass each to guard.tool_result, or loops of calls are not found" if missing > 0 else ""),
            ),
            Covered(
                "usage",
                not self.estimated,
                f"the provider did not report the tokens of {self.estimated} of {self.turns} turns: limits and "
                "budgets count estimates"
                if self.estimated
                else f"reported for {self.turns} turns",
            ),
            Covered("closing", self.left_open is None, self.left_open or "no stream was left open"),
            Covered(
                "checks",
                self.turns <= self.checks + self.agents,
                f"check() was called {self.checks} times in {self.turns} turns"
                + ("" if self.turns <= self.checks + self.agents else ": call it before each turn"),
            ),
            Covered(
                "interruption",
                not self.synchronous,
                f"{self.synchronous} streams were synchronous: nothing interrupts their reads"
                if self.synchronous
                else "a read that waits is interrupted",
            ),
        )


T = TypeVar("T")


class GuardStreams:
    """The streams of one agent, one after the other, and what they need of its guard."""

    __slots__ = (
        "_guard",
        "awaited",
        "clock",
        "close_grace_s",
        "core",
        "number",
        "open",
        "outcome",
        "read",
        "seen",
        "told",
        "watched",
    )

    def __init__(
        self,
        core: RunCore,
        *,
        clock: Clock,
        close_grace_s: float,
        awaited: AsyncSinks,
        seen: RunCounts,
        guard: weakref.ref[Any],
    ) -> None:
        """`guard`: whose streams they are. It is not kept alive: a guard that is dropped
        closes its stream at once.
        """
        self.core = core
        self.clock = clock
        self.close_grace_s = close_grace_s
        self.awaited = awaited
        self.seen = seen
        self._guard = guard
        self.outcome: Outcome | None = None
        """How the run ended. `None`: it has not."""
        self.open = False
        """The block of the guard has been entered, and not left."""
        self.read = False
        """Somebody has looked at the outcome, or need not."""
        self.told = False
        """The caller knows that the run has ended: a turn or a verdict has said so."""
        self.watched: Watched[Any] | WatchedSync[Any] | None = None
        """The stream that is being watched."""
        self.number = 0

    def must_be_open(self) -> None:
        """Raise `ConfigError` if no stream can be watched: the guard is not running, or the caller
        goes on after the end of the run.
        """
        if not self.open:
            raise ConfigError("the guard is not running: use guard.watch() inside 'async with guard'")
        if self.told:
            raise self.ended_before()

    def ended_before(self) -> ConfigError:
        """The error for a caller who goes on after the end of the run: its reason, and the line
        that obeys it.
        """
        stop = self.core.decided
        assert stop is not None  # noqa: S101 - a turn or a verdict has said so
        turns = f"{self.core.turns} turn{'s' if self.core.turns != 1 else ''}"
        return ConfigError(
            f"the run has ended: {stop.reason.value} after {turns} ({stop.detail}); leave the loop where turn.stopped"
            " is set: write if turn.stopped or isinstance(guard.check(), monitor.Stop): break"
        )

    def another(self) -> GuardStreams:
        """The streams of another agent of the guard, which has begun."""
        guard = self._guard()
        if guard is None:
            raise ConfigError("the guard of this stream is gone: keep it until its block is left")
        streams: GuardStreams = guard.another_stream()
        return streams

    def attach(self, watched: Watched[Any] | WatchedSync[Any]) -> int:
        """Make `watched` the running stream. Returns its number."""
        self.watched = watched
        self.number += 1
        return self.number - 1

    @property
    def read_here(self) -> bool:
        """Whether the running stream, if there is one, is read in this thread's event loop."""
        return not isinstance(self.watched, Watched) or self.watched.read_here

    def detach(self, turn: Turn | None) -> None:
        """The stream that was running is over. `turn`: what the caller can read of it."""
        self.watched = None
        self.told = self.told or (self.core.stop is not None and turn is not None and turn.stopped == self.core.stop)

    def ended(self) -> Outcome:
        """How the run ended. `ConfigError`: it has not."""
        if self.outcome is None:
            raise ConfigError(
                "the outcome is known when the block of the run has been left: read guard.outcome, or watched.outcome,"
                " behind its 'async with' block"
            )
        self.read = True
        return self.outcome

    def wake(self) -> None:
        """Make a pending read check whether the run must end. From any thread."""
        if (watched := self.watched) is not None:
            watched.wake()

    def abort(self, why: str) -> None:
        """End the run now. From any thread."""
        self.core.abort(why)
        self.wake()


class WatchedSync(SyncStream[T]):
    """One synchronous stream of a guard. Iterating it gives the SDK's own objects, unchanged, until
    the stream ends or the run stops.
    """

    __slots__ = ("_streams",)

    def __init__(self, source: object, streams: GuardStreams, *, adapter: AdapterFactory | None) -> None:
        super().__init__(source, streams.core, clock=streams.clock, adapter=adapter)
        self._streams = streams

    @property
    def outcome(self) -> Outcome:
        """How the run ended. Reading it before the run's block is left raises `ConfigError`."""
        return self._streams.ended()

    def __enter__(self) -> Self:
        self._streams.must_be_open()
        if self._streams.watched is not None:
            self._streams = self._streams.another()
            self._core = self._streams.core
        self._index = self._streams.attach(self)
        self._streams.seen.synchronous += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._streams.detach(self._turn)

    def abort(self, why: str = "aborted") -> None:
        """End the run, from any thread, as soon as the SDK delivers its next object."""
        self._streams.abort(why)

    def wake(self) -> None:
        """Nothing can interrupt a read that blocks."""

    def destroyed(self) -> None:
        """End the stream and close its source."""
        self.close()


class Watched(SourceStream[T]):
    """One stream of a guard. Iterating it gives the SDK's own objects, unchanged, until the stream
    ends or the run stops.
    """

    __slots__ = ("_loop", "_reraise", "_streams", "_sync")

    def __init__(
        self,
        source: Source[T] | SyncSource[T],
        streams: GuardStreams,
        *,
        adapter: AdapterFactory | None,
        isolate: bool = False,
        reraise: bool = False,
    ) -> None:
        if adapter is not None and not callable(adapter):
            raise ConfigError(f"adapter takes an adapter class, not {adapter!r}")
        super().__init__(
            cast("Source[T]", source),
            streams.core,
            clock=streams.clock,
            adapter=adapter,
            close_grace_s=streams.close_grace_s,
            isolate=isolate,
        )
        self._streams = streams
        self._sync: WatchedSync[T] | None = None
        self._reraise = reraise
        self._loop: object = None  # of the task that reads

    @property
    def read_here(self) -> bool:
        """Whether it is read in the event loop that runs in this thread."""
        return self._loop is current_loop()

    if not TYPE_CHECKING:  # type checkers refuse `for` by themselves, if they know of no such method

        def __iter__(self) -> Never:
            if self._entered and self._sync is None:
                raise ConfigError("this stream was entered with 'async with': write async for chunk in watched: ...")
            raise ConfigError(
                "enter the stream before reading it: "
                "write with monitor.watch(stream) as watched: for chunk in watched: ..."
            )

    def __enter__(self) -> WatchedSync[T]:
        self._entered = True
        self._sync = WatchedSync(self._source, self._streams, adapter=self._factory)
        del self._read, self._feed  # of an event loop; they would keep this object until a garbage collection
        return self._sync.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sync is not None:
            self._sync.__exit__(kind, error, trace)
            self._raise_again(self._sync, error)

    async def __aenter__(self) -> Self:
        streams = self._streams
        try:
            await super().__aenter__()
            if streams.told:
                await self._end()  # it may be open already
            streams.must_be_open()
            if streams.watched is not None:  # another agent writes at the same time
                self._streams = streams = streams.another()
                self._core = streams.core
                self._core.piecewise = True
            self._loop = current_loop()
            self._index = streams.attach(self)
        except ConfigError:
            if inspect.iscoroutine(self._source):
                self._source.close()  # nobody will await it
            raise
        if streams.awaited.sinks:
            await streams.awaited.room()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await super().__aexit__(kind, error, trace)
        finally:
            self._streams.detach(self._turn)
        self._raise_again(self, error)

    def _raise_again(self, stream: OneStream[T], error: BaseException | None) -> None:
        """Raise what ended the stream, if the caller wants that and raises nothing else."""
        if self._reraise and error is None and stream.turn.error is not None:
            self._streams.read = True
            raise stream.turn.error

    def abort(self, why: str = "aborted") -> None:
        """End the run now; see `Guard.abort`."""
        self._streams.abort(why)
