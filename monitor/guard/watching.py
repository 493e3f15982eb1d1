"""`watch()`: a run of one stream."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar

from monitor._util.explained_options import explains_options
from monitor.adapters.adapter import AdapterFactory
from monitor.budget import Budget
from monitor.chunks import Price
from monitor.conditions import Condition
from monitor.detectors.detector import Detector
from monitor.guard.guard import DEFAULT, STOP_AT_FIRST_LOOP, Guard
from monitor.guard.guard_streams import Watched, WatchedSync
from monitor.guard.options import CLOSE_GRACE_S, KEEP_TEXT_CHARS, WORDS, line_for
from monitor.guard.streams.one_stream import SyncSource
from monitor.guard.streams.source_stream import Source
from monitor.guard.streams.wait import Clock
from monitor.outcome import Outcome
from monitor.policy import Policy
from monitor.sinks.base import Sink

T = TypeVar("T")


class Watch(Watched[T]):
    """A run of one stream: what `watch()` returns."""

    __slots__ = ("_guard",)

    def __init__(
        self,
        stream: Source[T] | SyncSource[T],
        guard: Guard,
        *,
        adapter: AdapterFactory | None,
        isolate: bool,
        reraise: bool,
    ) -> None:
        super().__init__(stream, guard.streams, adapter=adapter, isolate=isolate, reraise=reraise)
        self._guard = guard

    @property
    def outcome(self) -> Outcome:
        """How the run ended. Reading it before the block is left raises `ConfigError`."""
        return self._guard.outcome

    def __enter__(self) -> WatchedSync[T]:
        self._guard.__enter__()
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._guard.__exit__(kind, error, trace)

    async def __aenter__(self) -> Self:
        await self._guard.__aenter__()
        return await super().__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await super().__aexit__(kind, error, trace)
        finally:
            await self._guard.__aexit__(kind, error, trace)


@explains_options(example="monitor.watch(stream, stop_when=monitor.Timeout(300))", words=WORDS, explain=line_for)
def watch(
    stream: Source[T] | SyncSource[T],
    *,
    stop_when: Condition | None = None,
    detectors: Sequence[Detector] | None = DEFAULT,
    policy: Policy | None = STOP_AT_FIRST_LOOP,
    budget: Budget | None = None,
    prices: Price | str | None = None,
    sinks: Sequence[Sink] = (),
    adapter: AdapterFactory | None = None,
    clock: Clock | None = None,
    keep_text_chars: int | None = KEEP_TEXT_CHARS,
    close_grace_s: float | None = CLOSE_GRACE_S,
    isolate: bool = False,
    reraise: bool = False,
) -> Watch[T]:
    """Watch one stream: a run that is one model response.

        limits = monitor.Timeout(300) | monitor.IdleTimeout(30)
        async with monitor.watch(stream, stop_when=limits) as watched:
            async for chunk in watched: ...
        watched.outcome

    A synchronous stream is watched in the same way without `async`. Limits are then checked between
    its objects, and nothing interrupts a read that blocks.

    The arguments are those of `Guard` and of `Guard.watch`.
    """
    guard = Guard(
        stop_when=stop_when,
        detectors=detectors,
        policy=policy,
        budget=budget,
        prices=prices,
        sinks=sinks,
        clock=clock,
        keep_text_chars=keep_text_chars,
        close_grace_s=close_grace_s,
    )
    return Watch(stream, guard, adapter=adapter, isolate=isolate, reraise=reraise)
