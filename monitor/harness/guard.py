"""Guard: one run over the streams of a loop that the caller already has; `watch()`: a run of one
stream.

Both only perform: `RunCore` decides, `SourceStream` reads and closes.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from monitor._util.checks import check_part, check_parts
from monitor._util.codec import text_of
from monitor.adapters.base import AdapterFactory
from monitor.budget import Budget
from monitor.chunks import ToolCall, ToolResult
from monitor.conditions import Condition
from monitor.context.fullness import Full, Fullness
from monitor.context.history import History
from monitor.context.window import Window, window_of
from monitor.core.run import RunCore
from monitor.detectors import default_detectors
from monitor.detectors.base import Detector
from monitor.errors import ConfigError
from monitor.events import AttemptRetried, Event, TurnStarted
from monitor.goal.goal import MAX_NUDGES, Goal
from monitor.goal.outputs import Outputs
from monitor.harness.checks import CLOSE_GRACE_S, KEEP_TEXT_CHARS, check_bounds, clock_of, ending_by, must_know_price
from monitor.harness.judge_tasks import JudgeTasks
from monitor.harness.streams.clock import Clock
from monitor.harness.streams.source import Source, SourceStream
from monitor.judges.base import Judge, as_judges
from monitor.outcome import Outcome, Turn
from monitor.policy import Policy, StopAtFirstLoop
from monitor.reasons import TerminateReason
from monitor.sinks.base import EventSink, FanOut
from monitor.tools.returned import answered
from monitor.usage import Price
from monitor.verdicts import Compact, Continue, Stop, Verdict

T = TypeVar("T")


_DEFAULT: Any = object()


class Guard:
    """One run. Enter it, watch each stream of your loop through it, tell it the tool results, ask
    it before the next turn.

        async with monitor.Guard(stop_when=monitor.MaxTurns(30) | monitor.Timeout(600)) as guard:
            while True:
                async with guard.watch(stream) as watched:
                    async for chunk in watched: ...
                turn = watched.turn
                if turn.stopped:
                    break  # it failed, was blocked or cut off; or a loop or a limit ended the run
                for call in turn.tool_calls:
                    guard.tool_result(call, ...)
                if isinstance(guard.check(), monitor.Stop):
                    break
                if not turn.tool_calls:
                    guard.finish()  # the model has answered
                    break
        guard.outcome

    `stop_when`: a condition; `None`: no limit. `detectors`: a list replaces the default ones,
    `None` is off; they belong to this run and are reset when it starts. `policy`: what follows from
    a detection; by default a sure loop ends the run. `judge`: who looks at the run from time to
    time, beside it; `task`: what the user asked for, which the judge reads. `outputs`: what the run
    must emit, as a dict of types or a pydantic model class; offer `guard.outputs.declare(sdk)` to
    the model, and let `guard.answer` carry out its calls. `max_nudges`: how often `check` asks for
    missing ones. `budget`: tokens and money, shared by all that are given the same object.
    `prices`: the `Price` of the model, for `CostLimit` and budgets in US dollars. `window`: of the
    model, in tokens or as `monitor.context.window_of(name)`; one in which no agent can work is
    refused, and when the provider's count of a turn comes near to it, `check` answers `Compact`.
    `sinks` receive the events. `keep_text_chars`: how much text of a turn is kept at most (`None`:
    all of it); `text_truncated` says whether more came. `close_grace_s`: how long closing a source
    may take.
    """

    __slots__ = (
        "_clock",
        "_close_grace_s",
        "_core",
        "_entered",
        "_full",
        "_fullness",
        "_judges",
        "_outcome",
        "_sinks",
        "_streams",
        "_tried_inside",
        "_watched",
        "_weighed",
        "_window",
        "outputs",
    )

    def __init__(
        self,
        *,
        stop_when: Condition | None = None,
        detectors: Sequence[Detector] | None = _DEFAULT,
        policy: Policy | None = None,
        judge: Judge | Sequence[Judge] | None = None,
        task: str | None = None,
        outputs: Mapping[str, Any] | type | None = None,
        max_nudges: int | None = MAX_NUDGES,
        budget: Budget | None = None,
        prices: Price | None = None,
        window: Window | int | None = None,
        sinks: Sequence[EventSink] = (),
        clock: Clock | None = None,
        keep_text_chars: int | None = KEEP_TEXT_CHARS,
        close_grace_s: float | None = CLOSE_GRACE_S,
    ) -> None:
        if stop_when is not None and not isinstance(stop_when, Condition):
            raise ConfigError(f"stop_when takes a condition such as monitor.Timeout(300), not {stop_when!r}")
        if policy is not None:
            check_part("policy", policy, "decide")
        check_bounds(keep_text_chars, close_grace_s, max_nudges)
        if budget is not None and not isinstance(budget, Budget):
            raise ConfigError(f"budget takes a monitor.Budget, not {budget!r}")
        if prices is not None and not isinstance(prices, Price):
            raise ConfigError(f"prices takes the monitor.Price of the model that is watched, not {prices!r}")
        if task is not None and not isinstance(task, str):
            raise ConfigError(f"task is what the user asked for, as a text, not {task!r}")
        must_know_price(prices, stop_when, budget, "the model", "prices=monitor.Price(...)")
        self.outputs = Outputs(outputs) if outputs is not None else None
        """What is declared and what was emitted; `None`: nothing is declared."""
        self._sinks = FanOut(check_parts("sinks", sinks, "emit"))
        self._clock = clock_of(clock)
        self._close_grace_s = math.inf if close_grace_s is None else close_grace_s
        self._window = window = window_of(None, config=window)
        self._fullness: Fullness | None = None
        self._full: Full | None = None  # what is still to be said of it
        self._weighed: Turn | None = None
        self._tried_inside = False  # the provider's count of the turn is of several attempts
        self._core = RunCore(
            stop_when=stop_when,
            detectors=(
                default_detectors() if detectors is _DEFAULT else check_parts("detectors", detectors or (), "observe")
            ),
            policy=policy or StopAtFirstLoop(),
            emit=self._emit,
            keep_text_chars=keep_text_chars,
            price=prices,
            budgets=(budget,) if budget is not None else (),
            goal=Goal(self.outputs, max_nudges=max_nudges) if self.outputs is not None else None,
            cuts=True,
            judges=as_judges(judge),
            task=task,
            window=window,
        )
        self._judges = JudgeTasks(self._core, clock=self._clock, close_grace_s=self._close_grace_s, wake=self._wake)
        self._streams = 0
        self._watched: Watched[Any] | None = None
        self._entered = False
        self._outcome: Outcome | None = None

    @property
    def outcome(self) -> Outcome:
        """How the run ended. Always there after the block; before, it is a `ConfigError` to ask."""
        if self._outcome is None:
            raise ConfigError("the outcome is known when the block of the run has been left")
        return self._outcome

    async def __aenter__(self) -> Self:
        if self._entered:
            raise ConfigError("a guard is one run: make a new one for the next")
        self._core.begin(self._clock.now())
        self._entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._watched is not None:
                await self._watched.__aexit__(kind, error, trace)
        finally:
            try:
                await self._judges.close()
            finally:
                ending = ending_by(error)
                crash = error if ending is not None and ending.reason is TerminateReason.ERROR else None
                self._outcome = self._core.terminate(self._clock.now(), ending, crash)

    def __del__(self) -> None:
        if getattr(self, "_entered", False) and self._outcome is None:
            warnings.warn(
                "a Guard was dropped without being closed; use 'async with'", ResourceWarning, source=self, stacklevel=2
            )
            with contextlib.suppress(Exception):  # the program may be at its end, and parts of it gone
                if self._watched is not None:
                    self._watched.destroyed()
                self._core.terminate(
                    self._clock.now(),
                    Stop(TerminateReason.CLOSED_BY_CALLER, "it was dropped without being closed", "caller"),
                )

    def watch(self, stream: Source[T], *, adapter: AdapterFactory | None = None, isolate: bool = False) -> Watched[T]:
        """Watch one stream: the next turn of the run. Use it as `async with`, and iterate over it
        inside.

        `stream`: an async iterator, an awaitable of one, or a function without arguments that
        returns either; with the latter two, opening is under the deadlines as well. `adapter`: who
        reads the objects, if it cannot be told from them. `isolate`: for a source that may ignore
        its cancellation. The source is then opened, read and closed in a task of its own. So an end
        of the run returns within `close_grace_s`, whatever the source does. Without `isolate`,
        nothing ends a read that never returns. It costs some 50 us a chunk, and no read follows one
        that the caller cancels.
        """
        return Watched(stream, self, adapter=adapter, isolate=isolate)

    def tool_result(
        self,
        call: object,
        result: object,
        *,
        is_error: bool = False,
        vetoed: bool = False,
        progress: float | None = None,
    ) -> None:
        """Tell the run what a tool answered.

        `call`: the call from `watched.turn.tool_calls`, the SDK's own call object, its id, or
        `None` (then results are matched in call order). `result`: text as the model will read it;
        anything else is taken as JSON. After the run it does nothing. `vetoed`: you did not carry
        the call out, and `result` says so. It counts neither as an answer nor as an error of the
        tool. `progress`: a number that is to be lowered, such as that of failing tests, for
        `NoProgress`.
        """
        self._must_have_begun()
        self._core.tool_result(
            _identify(call, self._core.open_calls),
            _text_of(result),
            self._clock.now(),
            is_error=is_error,
            vetoed=vetoed,
            progress=progress,
        )

    def answer(self, call: object) -> ToolResult | None:
        """Carry out a call of the run's own tools, `emit_value` and `terminate`; `None`: it is a
        tool of yours.

        `call`: as for `tool_result`, which need not be called for it. Give the text of the result
        to the model.
        """
        self._must_have_begun()
        wanted = _identify(call, self._core.open_calls)
        known = next(
            (open_call for open_call in self._core.open_calls if wanted is None or open_call.id == wanted), None
        )
        return self._core.answer(known, self._clock.now()) if known is not None else None

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """A person is being asked: the run's deadlines stand still meanwhile."""
        self._must_have_begun()
        self._core.pause(self._clock.now())
        try:
            yield
        finally:
            self._core.resume(self._clock.now())

    def check(self) -> Verdict:
        """What to do before the next turn: go on, or what the policy or a limit says. Ask it once a
        turn, after the tool results.

        `Stop` also tells of a model call that failed; that one may be tried again by watching
        another stream, as the same turn. `Compact` tells that the history has come to what may be
        used of `window`, by the provider's own count: make it shorter before the next stream.
        `Compact` comes once, until the count has come down, and only if no other verdict is due. If
        the history stays as long, the provider will refuse the prompt in the end.
        """
        self._must_have_begun()
        verdict = self._core.check(self._clock.now())
        self._weigh()
        if self._full is None or not isinstance(verdict, Continue):
            return verdict
        full, self._full = self._full, None
        return Compact(full.detail)

    def _weigh(self) -> None:
        """How full the window is, by the turn that has just ended."""
        turn = self._core.turn
        if turn is not None and turn is not self._weighed and not self._tried_inside:
            self._weighed = turn
            # the caller keeps the history: what the provider counts is all that is known of it
            if self._fullness is None:
                self._fullness = Fullness(History(), self._window)
            full = self._fullness.after_turn(turn)
            self._full = full or (self._full if self._fullness.full else None)

    def finish(self, detail: str = "the caller says that the goal is reached") -> None:
        """The goal is reached. Call it when the model has answered, after `check`.

        An end that is already decided stays. A last turn that failed, was blocked, was cut off or
        is empty decides the end, and so do missing outputs.
        """
        self._core.finish(detail)

    def abort(self, why: str = "aborted") -> None:
        """End the run now: a pending read is interrupted, the connection closed. From any task,
        thread or signal handler.
        """
        self._core.abort(why)
        self._wake()

    def _wake(self) -> None:
        watched = self._watched
        if watched is not None:
            watched.wake()

    def _emit(self, event: Event) -> None:
        if isinstance(event, TurnStarted | AttemptRetried):  # another stream is another count
            self._tried_inside = isinstance(event, AttemptRetried)
        self._sinks.emit(event)

    def _must_have_begun(self) -> None:
        if not self._entered:
            raise ConfigError("the run has not begun: use the guard inside 'async with guard'")

    def _attach(self, watched: Watched[Any]) -> int:
        """`watched` is the running stream from now on. Returns its number."""
        if not self._entered or self._outcome is not None:
            raise ConfigError("the guard is not running: use guard.watch() inside 'async with guard'")
        if self._watched is not None:
            raise ConfigError("another stream of this guard is still being watched; leave its block first")
        self._watched = watched
        self._streams += 1
        return self._streams - 1

    def _detach(self) -> None:
        self._watched = None


class Watched(SourceStream[T]):
    """One stream of a guard. Iterating it gives the SDK's own objects, unchanged, until the stream
    ends or the run stops.
    """

    __slots__ = ("_guard",)

    def __init__(
        self, source: Source[T], guard: Guard, *, adapter: AdapterFactory | None, isolate: bool = False
    ) -> None:
        if adapter is not None and not callable(adapter):
            raise ConfigError(f"adapter takes an adapter class, not {adapter!r}")
        super().__init__(
            source,
            guard._core,
            clock=guard._clock,
            adapter=adapter,
            close_grace_s=guard._close_grace_s,
            isolate=isolate,
        )
        self._guard = guard

    async def __aenter__(self) -> Self:
        try:
            await super().__aenter__()
            self._index = self._guard._attach(self)
        except ConfigError:
            if inspect.iscoroutine(self._source):
                self._source.close()  # nobody will await it
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await super().__aexit__(kind, error, trace)
        finally:
            self._guard._detach()

    def abort(self, why: str = "aborted") -> None:
        """End the run now; see `Guard.abort`."""
        self._guard.abort(why)


class Watch(Watched[T]):
    """A run of one stream: what `watch()` returns."""

    __slots__ = ()

    @property
    def outcome(self) -> Outcome:
        """How it ended. Always there after the block; before, it is a `ConfigError` to ask."""
        return self._guard.outcome

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


def watch(
    stream: Source[T],
    *,
    stop_when: Condition | None = None,
    detectors: Sequence[Detector] | None = _DEFAULT,
    policy: Policy | None = None,
    budget: Budget | None = None,
    prices: Price | None = None,
    sinks: Sequence[EventSink] = (),
    adapter: AdapterFactory | None = None,
    clock: Clock | None = None,
    keep_text_chars: int | None = KEEP_TEXT_CHARS,
    close_grace_s: float | None = CLOSE_GRACE_S,
    isolate: bool = False,
) -> Watch[T]:
    """Watch one stream: a run that is one model response.

        limits = monitor.Timeout(300) | monitor.IdleTimeout(30)
        async with monitor.watch(stream, stop_when=limits) as watched:
            async for chunk in watched: ...
        watched.outcome

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
    return Watch(stream, guard, adapter=adapter, isolate=isolate)


def _text_of(result: object) -> str:
    """Media is named, not written out."""
    try:
        return answered(result)[0]
    except ValueError:
        return text_of(result)


def _identify(call: object, open_calls: Sequence[ToolCall]) -> str | None:
    """The id of a call, however the caller names it."""
    if call is None or isinstance(call, str):
        return call
    if isinstance(call, ToolCall):
        return call.id
    for known in open_calls:
        if known.raw is call:
            return known.id
    for name in ("call_id", "id"):  # an item of OpenAI's responses has both, and its results name the first
        found = call.get(name) if isinstance(call, Mapping) else getattr(call, name, None)
        if isinstance(found, str):
            return found
    raise ConfigError(
        f"cannot tell which call this result belongs to: {type(call).__name__} has no id and is no open call of this"
        " turn; pass the call of watched.turn.tool_calls, or None for the oldest open one"
    )
