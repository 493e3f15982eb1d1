"""`watch()`: a run of one stream."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self, TypeAlias, TypeVar, Unpack

from monitor._util.explained_options import explains_options
from monitor.adapters.adapter import AdapterFactory
from monitor.budget import Budget
from monitor.chunks import Price
from monitor.conditions import Condition
from monitor.detectors.detector import Detector
from monitor.errors import ConfigError
from monitor.goal.declared import Declaration
from monitor.guard.checks import CLOSE_GRACE_S, KEEP_TEXT_CHARS, WORDS, line_for
from monitor.guard.guard import DEFAULT, STOP_AT_FIRST_LOOP, Guard, GuardOptions, fresh_parts
from monitor.guard.guard_streams import Watched, WatchedSync
from monitor.guard.streams.source_stream import Source
from monitor.guard.streams.wait import Clock
from monitor.guard.sync_stream import SyncSource
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


# --------------------------------------------------------------------------------------------------
# `guarding(...)`: guards of one kind, one for each run, for an agent that is built once.

_running: ContextVar[tuple[RunGuard, ...]] = ContextVar("running_guards", default=())


class Guarding:
    """Makes a fresh guard for each run. An agent that is built once, with this object in the place
    of a guard, serves many runs and requests side by side.

        guarded = monitor.guarding(stop_when=monitor.MaxTurns(30))
        agent = Agent(GuardedModel(model, guarded))     # once

        async with guarded() as guard:                  # for each run
            result = await agent.run("...")
        guard.outcome

    All that runs inside the block belongs to its guard. So do the tasks that are started there, and
    the threads that get its context variables, as those of `asyncio.to_thread` do.
    """

    def __init__(self, pattern: Guard[Any]) -> None:
        """`pattern`: a guard that is never entered, with the options of all of them."""
        self._pattern = pattern

    def __call__(self) -> RunGuard:
        """The guard of the next run. Its detectors and its policy have seen nothing. A budget,
        sinks and prices are shared by all runs.
        """
        return RunGuard(self, **fresh_parts(self._pattern.options))

    if not TYPE_CHECKING:  # type checkers refuse `with` by themselves, if they know of no such methods

        def __enter__(self) -> Never:
            raise ConfigError("call it: write 'async with guarded() as guard:' or 'with guarded() as guard:'")

        __exit__ = __aexit__ = __aenter__ = __enter__

    @property
    def current(self) -> Guard[Any]:
        """The guard of the run that goes on here. Raises `ConfigError` outside of all runs."""
        for guard in reversed(_running.get()):
            if guard.kind is self:
                return guard
        raise ConfigError(
            "no guard of this monitor.guarding(...) is running here: write 'async with guarded() as guard:' around"
            " the run"
        )


class RunGuard(Guard[Any]):
    """A guard of a `Guarding`. While its block is entered, it is the one that is `current`."""

    __slots__ = ("_token", "kind")

    def __init__(self, kind: Guarding, **options: Any) -> None:
        super().__init__(**options)
        self.kind = kind
        """The object that has made this guard."""
        self._token: Token[tuple[RunGuard, ...]] | None = None

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._token = _running.set((*_running.get(), self))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave_context()
        await super().__aexit__(kind, error, trace)

    def __enter__(self) -> Self:
        super().__enter__()
        self._token = _running.set((*_running.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave_context()
        super().__exit__(kind, error, trace)

    def _leave_context(self) -> None:
        """The block is left, perhaps in another task than it was entered: its context is gone."""
        token, self._token = self._token, None
        if token is not None and self in _running.get():
            try:
                _running.reset(token)
            except ValueError:
                _running.set(tuple(guard for guard in _running.get() if guard is not self))


GuardSource: TypeAlias = Guard[Any] | Guarding
"""A guard, or what makes one for each run."""


def guard_here(source: GuardSource) -> Guard[Any]:
    """The guard of the run that goes on here."""
    return source.current if isinstance(source, Guarding) else source


@explains_options(example="monitor.guarding(stop_when=monitor.MaxTurns(30))")
def guarding(*, outputs: Declaration | None = None, **options: Unpack[GuardOptions]) -> Guarding:
    """What makes a guard for each run, with these options of `Guard`; see `Guarding`. Raises
    `ConfigError` for options that a guard does not take.
    """
    pattern: Any = Guard
    return Guarding(pattern(outputs=outputs, **options))
