"""`Guard`: one run over the streams of the caller's own loop.

It only performs: `RunCore` decides, `SourceStream` reads and closes.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import logging
import math
import pickle
import time
import uuid
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, Unpack, overload

from monitor._util.argument_checks import check_kind, check_part, check_parts
from monitor._util.codec import text_of
from monitor._util.explained_options import explains_options
from monitor.adapters.adapter import AdapterFactory
from monitor.budget import Budget
from monitor.chunks import Price, ToolCall, ToolResult
from monitor.conditions import Condition
from monitor.conditions.condition import check_condition, leaves
from monitor.context.history import History
from monitor.context.overflow import Full, Fullness
from monitor.context.window import UNKNOWN, Window, window_of
from monitor.core.run import RunCore
from monitor.detectors.detector import Detector
from monitor.errors import ConfigError, TerminateReason, describe
from monitor.events import AttemptRetried, Event, RunIdentity, RunStarted, StreamClosed, TurnEnded, TurnStarted
from monitor.goal.goal import MAX_NUDGES, Goal
from monitor.goal.outputs import Outputs
from monitor.guard.async_sinks import fan_out
from monitor.guard.guard_streams import Covered, GuardStreams, RunCounts, Watched
from monitor.guard.options import (
    CLOSE_GRACE_S,
    KEEP_TEXT_CHARS,
    WORDS,
    check_bounds,
    checked_judges,
    clock_of,
    ending_by,
    line_for,
    must_know_price,
)
from monitor.guard.streams.one_stream import SyncSource
from monitor.guard.streams.source_stream import Source
from monitor.guard.streams.wait import Clock
from monitor.judges.judge import GivenJudges
from monitor.outcome import Outcome, OutputT, RunState, Turn
from monitor.policy import Policy, StopAtFirstLoop
from monitor.sinks.base import Sink, checked_sinks
from monitor.tools.masking import Secrets
from monitor.tools.results.call_results import answered
from monitor.verdicts import Compact, Continue, Stop, Verdict

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from monitor.goal.declared import Declaration
    from monitor.guard.options import GuardOptions
    from monitor.guard.streams.ask import JudgeTasks


# --------------------------------------------------------------------------------------------------
# How full the model's window is, by the provider's count: the caller keeps the history, so
# nothing else is known of it.


class WindowCount:
    """The provider's counts of the turns of one guard, compared with the window."""

    __slots__ = ("_full", "_fullness", "_weighed", "_window", "tried_inside")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._fullness: Fullness | None = None
        self._full: Full | None = None
        self._weighed: Turn | None = None
        self.tried_inside = False
        """Whether the count of the running turn covers several attempts, and so says nothing."""

    def weigh(self, turn: Turn | None) -> None:
        """Compare the count of the turn that has just ended with the window."""
        if turn is not None and turn is not self._weighed and not self.tried_inside:
            self._weighed = turn
            if self._fullness is None:
                self._fullness = Fullness(History(), self._window)
            full = self._fullness.after_turn(turn)
            self._full = full or (self._full if self._fullness.full else None)

    def news(self) -> Full | None:
        """The full window, where it has become full since the last question."""
        full, self._full = self._full, None
        return full


# --------------------------------------------------------------------------------------------------
# The calls of a turn as callers name them: by the call, by an object of the SDK, or by its id.


def names(call: object, known: ToolCall) -> bool:
    """Whether `call` is `known`, or names it."""
    try:
        return call is known.raw or identify(call, ()) == known.id
    except ConfigError:
        return False


def identify(call: object, open_calls: Sequence[ToolCall]) -> str | None:
    """The id of a call, however the caller names it."""
    if call is None or isinstance(call, str):
        return call
    if isinstance(call, ToolCall):
        return call.id
    for known in open_calls:
        if known.raw is call:
            return known.id
    for name in ("call_id", "id"):  # an item of OpenAI's responses has both, and results refer to the first
        found = call.get(name) if isinstance(call, Mapping) else getattr(call, name, None)
        if isinstance(found, str):
            return found
    raise ConfigError(
        f"cannot tell which call this result belongs to: {type(call).__name__} has no id and is not an open call of"
        " this turn; pass the call of watched.turn.tool_calls, or None for the oldest open one"
    )


T = TypeVar("T")

DEFAULT: Any = object()
"""In the place of detectors: those that a guard has by default."""
STOP_AT_FIRST_LOOP: Final = StopAtFirstLoop()
"""The policy of a guard that was given none. Shared by all runs: it has no state."""


class Guard(Generic[OutputT]):
    """One run. Enter the guard, watch each stream of your loop with `watch`, pass each result to
    `tool_result`, and call `check` before the next turn.

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

    The options:

    - `agent`: a name for the envelopes of its events, such as `"researcher"`.
    - `stop_when`: a condition; `None`: no limit.
    - `detectors`: a list replaces the default ones, `None` is off. They belong to this run and are
      reset when it starts. Detectors and a policy of another run that is not over are copied.
    - `policy`: what follows from a detection; by default a sure loop ends the run. `None` is the
      default as well.
    - `judge`: who looks at the run from time to time, beside it: a model, its name such as
      `"google:gemini-2.5-flash-lite"`, a judge, or several. `task`: the user's request, which the
      judge reads.
    - `outputs`: what the run must emit: a dict of types, a pydantic model class, a dataclass, a
      TypedDict, or a union of classes. Offer `guard.outputs.declare(sdk)` to the model, and let
      `guard.answer` carry out its calls.
      `max_nudges`: how often `check` asks for missing outputs.
    - `budget`: tokens and money, shared by all runs with the same object. `prices`: the `Price` of
      the model, or its name in the table of list prices, such as `"claude-sonnet-4-5"`; for
      `CostLimit`, budgets in US dollars and the cost in the outcome.
    - `window`: the model's window, in tokens or as `monitor.context.window_of(name)`. A window that
      is too small for an agent is refused. When the provider's count of a turn comes near the
      window, `check` returns `Compact`.
    - `sinks`: they receive the events. `clock`: by default the system's.
    - `keep_text_chars`: how much text of a turn is kept at most (`None`: all of it);
      `text_truncated` says whether more came.
    - `close_grace_s`: how long closing a source may take, in seconds.
    """

    __slots__ = (
        "__weakref__",
        "_above",
        "_asked",
        "_call",
        "_children",
        "_clock",
        "_core",
        "_entered",
        "_judges",
        "_limited",
        "_named",
        "_secrets",
        "_seen",
        "_sinks",
        "_started",
        "_window",
        "agents",
        "options",
        "outputs",
        "streams",
    )

    # A type checker reads `A | B` as a form of a type only where nothing else is allowed.
    @overload
    def __init__(self, *, outputs: TypeForm[OutputT], **options: Unpack[GuardOptions]) -> None: ...
    @overload
    def __init__(self, *, outputs: Mapping[str, Any] | None = None, **options: Unpack[GuardOptions]) -> None: ...
    @explains_options(example="monitor.Guard(stop_when=monitor.MaxTurns(30))", words=WORDS, explain=line_for)
    def __init__(
        self,
        *,
        agent: str = "",
        stop_when: Condition | None = None,
        detectors: Sequence[Detector] | None = DEFAULT,
        policy: Policy | None = STOP_AT_FIRST_LOOP,
        judge: GivenJudges = None,
        task: str | None = None,
        outputs: Declaration | None = None,
        max_nudges: int | None = MAX_NUDGES,
        budget: Budget | None = None,
        prices: Price | str | None = None,
        window: Window | int | None = None,
        sinks: Sequence[Sink] = (),
        clock: Clock | None = None,
        keep_text_chars: int | None = KEEP_TEXT_CHARS,
        close_grace_s: float | None = CLOSE_GRACE_S,
    ) -> None:
        self.options: dict[str, Any] = {name: value for name, value in locals().items() if name != "self"}
        """The options, as they were given."""
        check_condition("stop_when", stop_when, "monitor.Timeout(300)")
        if policy is not None and policy is not STOP_AT_FIRST_LOOP:
            check_part("policy", policy, "decide")
        check_bounds(keep_text_chars, close_grace_s, max_nudges)
        check_kind("budget", budget, Budget, "a monitor.Budget")
        price = _price_given(prices)
        check_kind("task", task, str, "what the user asked for, as a text")
        must_know_price(price, stop_when, budget, "the model", _PRICES)
        self.outputs: Outputs | None = Outputs(outputs) if outputs is not None else None
        """The declared outputs, with the emitted values. `None`: no outputs are declared."""
        check_kind("agent", agent, str, "a name")
        self._named = agent
        self._clock = clock_of(clock)
        grace_s = math.inf if close_grace_s is None else close_grace_s
        self._sinks, awaited = fan_out(checked_sinks(sinks), grace_s, emit=self._emit)
        window = UNKNOWN if window is None else window_of(None, config=window)
        self._window = WindowCount(window)
        judges = checked_judges(judge, stop_when, outputs=outputs is not None, plan=False)
        self._above: Guard[Any] | None = None
        self._call: str | None = None
        self._children: list[Guard[Any]] = []
        self.agents: object = None
        """What the integration of a framework keeps of the agents of this run."""
        of_calls = None
        if policy is not None and policy is not STOP_AT_FIRST_LOOP:
            policy = self._own(policy)
        if detectors is DEFAULT:
            from monitor.detectors.defaults import OF_CALLS, of_text  # noqa: PLC0415 - for guards that have them

            detectors, of_calls = of_text(), OF_CALLS
        self._core = RunCore(
            stop_when=stop_when,
            detectors=[
                self._own(one) for one in check_parts("detectors", () if detectors is None else detectors, "observe")
            ],
            of_calls=of_calls,
            policy=policy or STOP_AT_FIRST_LOOP,
            emit=self._emit,
            keep_text_chars=keep_text_chars,
            price=price,
            budgets=(budget,) if budget is not None else (),
            goal=Goal(self.outputs, max_nudges=max_nudges) if self.outputs is not None else None,
            cuts=True,
            judges=judges,
            task=task,
            window=window,
        )
        self._judges: JudgeTasks | None = None
        if judges:
            from monitor.guard.streams.ask import JudgeTasks  # noqa: PLC0415 - for guards that have judges only

            self._judges = JudgeTasks(self._core, clock=self._clock, close_grace_s=grace_s, wake=self._wake)
        self._seen = RunCounts()
        self._limited = stop_when is not None or budget is not None
        self._started: tuple[str, ...] = ()
        self._entered = False
        self._asked = False
        """`check` has answered that the run has ended."""
        self._secrets = Secrets()
        self.streams = GuardStreams(  # for the integrations of frameworks
            self._core,
            clock=self._clock,
            close_grace_s=grace_s,
            awaited=awaited,
            seen=self._seen,
            guard=weakref.ref(self),
        )

    @explains_options(example="guard.child('reviewer')")
    def child(self, agent: str = "", *, call: object = None) -> Guard[Any]:
        """Another agent of this run: a guard for its streams, results and checks. Enter it with
        `async with` or `with`, in any task or thread, while this guard is entered.

        Children and their parent run side by side. They share the limits, the budget, `abort` and
        the end: what ends one of them ends them all, also while they write. Each has its own turns,
        open calls, detectors and policy, which are copies of this guard's. Its events have its own
        identity, with the identity of this guard above it. Judges and declared outputs stay with
        this guard.

        `agent`: its name, for the events. `call`: the call of this guard's model that has started
        the agent, as for `tool_result`.
        """
        from monitor.guard.guard import fresh_parts  # noqa: PLC0415 - a run of one agent needs none

        self._must_have_begun()
        shared = {name: value for name, value in self.options.items() if name not in _OF_THE_RUN}
        child: Guard[Any] = Guard(agent=agent, **fresh_parts(shared))
        child._join(self, identify(call, self._core.open_calls))
        return child

    @property
    def root(self) -> Guard[Any]:
        """The guard of the run of which this one is an agent. The first agent is the run itself."""
        return self if self._above is None else self._above.root

    def begun_child(self, agent: str = "") -> Guard[Any]:
        """A child that has begun without a block of its own. It ends with this guard, or by
        `end_agent`.
        """
        child = self.child(agent)
        child._begin()
        return child

    def another_stream(self) -> GuardStreams:
        """For the streams of this guard: those of another agent, which has begun."""
        return self.begun_child().streams

    def end_agent(self) -> None:
        """End a child that has no block, and its own children. What they have used still counts."""
        self._leave(None, None)

    def started(self, other: Guard[Any]) -> bool:
        """Whether `other` is a child of this guard, or of a child of it."""
        above = other._above
        while above is not None and above is not self:
            above = above._above
        return above is self

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls of the newest turn that have no result yet, oldest first."""
        return tuple(self._core.open_calls)

    @property
    def turn(self) -> Turn | None:
        """The newest turn that has ended. `None`: there is none."""
        return self._core.turn

    @property
    def stop(self) -> Stop | None:
        """Why the run ends. `None`: that is not decided."""
        return self._core.decided

    @property
    def streaming(self) -> bool:
        """Whether one of its streams is being watched."""
        return self.streams.watched is not None

    @property
    def failed(self) -> bool:
        """Whether its last model call failed, and may be made again."""
        return self._core.failed_attempt is not None

    def _join(self, above: Guard[Any], call: str | None) -> None:
        """Become an agent of the run of `above`."""
        self._above, self._call = above, call
        self._seen, self._secrets, self._limited = above._seen, above._secrets, above._limited
        self._seen.agents += 1
        self._sinks, awaited = fan_out((), self.streams.close_grace_s, above=above._sinks.for_nested, emit=self._emit)
        self.streams.seen, self.streams.awaited = self._seen, awaited
        above._core.add_agent(self._core, self._wake, own_wake=above._wake)
        above._children.append(self)

    @property
    def outcome(self) -> Outcome[OutputT]:
        """How the run ended. Reading it before the block is left raises `ConfigError`."""
        return self.streams.ended()

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._leave_children(kind, error, trace)
            if isinstance(self.streams.watched, Watched):
                await self.streams.watched.__aexit__(kind, error, trace)
        finally:
            try:
                if self._judges is not None:
                    await self._judges.close()
            finally:
                ending = ending_by(error)
                crash = error if ending is not None and ending.reason is TerminateReason.ERROR else None
                self._end(ending, crash)
                if self.streams.awaited.sinks:
                    await self.streams.awaited.close()

    async def _leave_children(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the children, whose streams may be read by other tasks."""
        for child in [*self._children]:
            if child.streams.read_here:
                await child.__aexit__(kind, error, trace)
            else:
                child._leave(ending_by(error), error)

    def _leave(self, ending: Stop | None, error: BaseException | None) -> None:
        """End this agent without an event loop. A stream that another thread reads is woken."""
        for child in [*self._children]:
            child._leave(ending, error)
        if self.streams.watched is not None:
            if self.stop is None:
                self._core.abort("the block of the guard was left")
            self._wake()
        self._end(ending, error if isinstance(error, Exception) else None)

    def __enter__(self) -> Self:
        """For a loop without an event loop. Watch each stream with `watch` and `with`; limits are
        checked between its objects, and nothing interrupts a read that blocks.
        """
        if self._judges is not None:
            raise ConfigError("a judge is asked beside the run, which needs an event loop: use 'async with'")
        if self.streams.awaited.sinks:
            raise ConfigError("an asynchronous sink is awaited beside the run, in an event loop: use 'async with'")
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(_ending_by_sync(error), error)

    def _begin(self) -> None:
        if self._entered:
            raise ConfigError("a guard is one run: make a new one for the next")
        if self._above is None:
            self._refuse_shared(self.options["stop_when"])
        if self._sinks.told:
            id, above = uuid.uuid4().hex, self._above._sinks.identity if self._above is not None else None
            self._sinks.identity = RunIdentity(
                run=id,
                root=above.root if above is not None else id,
                parent=above.run if above is not None else None,
                call=self._call,
                agent=self._named,
                began_s=above.began_s if above is not None else time.time(),
            )
        self._core.begin(self._clock.now())
        self._entered = self.streams.open = True

    def _end(self, ending: Stop | None, error: BaseException | None) -> None:
        self.streams.open = False
        self.streams.read |= ending is not None or self._above is not None or bool(self._sinks.told)
        if self._above is not None and self in self._above._children:
            self._above._children.remove(self)
        self.streams.outcome = self._secrets.outcome(self._core.terminate(self._clock.now(), ending, error))

    def __del__(self) -> None:
        if not getattr(self, "_entered", False):
            return
        outcome = self.streams.outcome
        if outcome is None:
            warnings.warn(
                "a Guard was dropped without being closed; use 'async with'", ResourceWarning, source=self, stacklevel=2
            )
            with contextlib.suppress(Exception):  # at the end of the program some modules may be gone
                if self.streams.watched is not None:
                    self.streams.watched.destroyed()
                self._core.terminate(
                    self._clock.now(),
                    Stop(TerminateReason.CLOSED_BY_CALLER, "it was dropped without being closed", "caller"),
                )
        elif not (outcome.ok or self.streams.read or outcome.source in {"abort", "caller"}):
            said = "a run ended with %s (%s), and nobody read its outcome: look at outcome.ok behind its block"
            _log.warning(said, outcome.reason.value, outcome.detail)

    @explains_options(example="async with guard.watch(stream) as watched:")
    def watch(
        self,
        stream: Source[T] | SyncSource[T],
        *,
        adapter: AdapterFactory | None = None,
        isolate: bool = False,
        reraise: bool = False,
    ) -> Watched[T]:
        """Watch one stream: the next turn of the run. Use it as `async with`, and iterate over it
        inside.

        `stream`: an async iterator, an awaitable of one, or a function without arguments that
        returns either. With the latter two, the deadlines also cover the opening. `adapter`: the
        adapter class, if the objects do not show which SDK made them. `isolate`: for a source that
        may ignore its cancellation. The source is then opened, read and closed in its own task, so
        an end of the run returns within `close_grace_s`. Without `isolate`, nothing ends a read
        that never returns. Isolation costs about 50 us a chunk, and after a read that the caller
        cancels, no further read is possible.

        A synchronous stream is watched in `with`, inside `with guard`. `reraise`: an exception of
        the SDK that ended the stream is raised when the block is left, for code that has its own
        `except`.
        """
        return Watched(stream, self.streams, adapter=adapter, isolate=isolate, reraise=reraise)

    def _own(self, part: Any) -> Any:
        """`part`, for this run alone. What another run has is copied, because detectors and
        policies have a state.
        """
        return _copied(part) if self._is_shared(part) else part

    def _is_shared(self, part: object) -> bool:
        """Whether another guard has `part`, and its run is not over. If not, this one has it."""
        holder: Any = _HOLDERS.get(id(part))
        if holder is not self and hasattr(holder, "streams") and holder.streams.outcome is None:
            return True
        _HOLDERS[id(part)] = self
        return False

    def _refuse_shared(self, stop_when: Condition | None) -> None:
        """Raise `ConfigError` for a condition with a state that serves another run as well."""
        for part in leaves(stop_when) if stop_when is not None else ():
            kind = type(part)
            if not kind.__module__.startswith("monitor.") and self._is_shared(part) and _keeps_state(part):
                raise ConfigError(
                    f"stop_when: a {kind.__name__} keeps a state, and another run has the same one: write"
                    f" {kind.__name__}(...) for each guard"
                )

    @explains_options(example="guard.tool_result(call, 'its text')", has_effects=True)
    def tool_result(
        self,
        call: object,
        result: object,
        *,
        is_error: bool = False,
        vetoed: bool = False,
        progress: float | None = None,
    ) -> None:
        """Pass the result of a tool to the run.

        `call`: the call from `watched.turn.tool_calls`, the SDK's own call object, its id, or
        `None` (then results are matched in call order). `result`: text as the model will read it;
        anything else is taken as JSON. Raises `ConfigError` for a result that belongs to no open
        call, and after `check` has said that the run has ended. When the block is left,
        `tool_result` does nothing.
        `vetoed`: you did not carry the call out, and `result` says so. A vetoed result counts
        neither as an answer nor as an error of the tool. `progress`: a number that is to be
        lowered, such as that of failing tests, for `NoProgress`.
        """
        self._must_have_begun()
        owner = self._owner_of(call)
        if owner is not self:
            owner.tool_result(call, result, is_error=is_error, vetoed=vetoed, progress=progress)
            return
        if inspect.iscoroutine(result):
            name = result.__name__
            result.close()
            raise ConfigError(
                f"the result is a coroutine that nobody has awaited: write guard.tool_result(call, await {name}(...))"
            )
        if self.streams.open:
            self._must_go_on()
            self._must_match(call, result)
            self._seen.results += 1
        self._core.tool_result(
            identify(call, self._core.open_calls),
            _text_of(result),
            self._clock.now(),
            is_error=is_error,
            vetoed=vetoed,
            progress=progress,
        )

    def new_task(self, text: str) -> None:
        """The user asks for something else in the same run: the next question of a chat or of a
        batch. Detectors and policy begin again, because equal answers to different questions are no
        loop. Turns, limits and budgets go on. `text`: the user's request.
        """
        self._must_have_begun()
        self._core.new_task(text, self._clock.now())

    def _must_match(self, call: object, result: object) -> None:
        """Raise `ConfigError` if `call` is no open call, and list those that are open."""
        waiting = self._core.open_calls
        if waiting and (call is None or any(names(call, known) for known in waiting)):
            return
        if any(names(result, known) for known in waiting):
            raise ConfigError("the call and its result are swapped: write guard.tool_result(call, 'its text')")
        if not waiting and self.streams.told:
            raise self.streams.ended_before()
        identify(call, waiting)
        which = ", ".join(f"{known.name} ({known.id!r})" for known in waiting)
        raise ConfigError(
            f"the result belongs to no open call of the newest turn: {call!r:.60} is none of {which or 'them'}; write"
            " for call in watched.turn.tool_calls: guard.tool_result(call, ...), once for each"
        )

    def _must_go_on(self) -> None:
        """Raise `ConfigError` if `check` has said that the run has ended."""
        if self._asked and self.streams.open:
            raise self.streams.ended_before()

    def _owner_of(self, call: object) -> Guard[Any]:
        """The agent whose model has made `call`: this one, unless only a child has it open."""
        if call is None or not self._children:
            return self
        for agent in (self, *self._children):
            if any(names(call, known) for known in agent._core.open_calls):
                return agent
        return self

    def answer(self, call: object) -> ToolResult | None:
        """Answer a call that the policy refuses, or carry out one of the run's own tools,
        `emit_value` and `terminate`. `None`: the call is of one of your tools.

        `call`: as for `tool_result`, which you need not call for it. Send the text of the result to
        the model.
        """
        self._must_have_begun()
        wanted = identify(call, self._core.open_calls)
        known = next(
            (open_call for open_call in self._core.open_calls if wanted is None or open_call.id == wanted), None
        )
        answer = self._core.answer_call(known, self._clock.now()) if known is not None else None
        self._seen.results += answer is not None
        return answer

    def coverage(self) -> tuple[Covered, ...]:
        """The things that this guard needs, and whether it has them so far: a result that is never
        passed on or a usage that is never reported makes detectors and limits blind. Read it after
        a run.
        """
        self._seen.inside = sum(guard._core.results_inside for guard in (self, *self._children))
        return self._seen.covered(limits=self._limited, detectors=self._started)

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
        """The verdict before the next turn: go on, or the verdict of the policy or of a limit. Call
        it once a turn, after the tool results.

        `Stop` is also returned for a failed model call. Such a call may be tried again by watching
        another stream, as the same turn. `Compact` says that the history has filled the usable part
        of `window`, by the provider's own count: make it shorter before the next stream. `Compact`
        comes once, until the count has come down, and only if no other verdict is due. If the
        history stays as long, the provider will refuse the prompt in the end.

        After the `Stop` that ends the run, `check`, `tool_result` and `watch` raise `ConfigError`:
        leave the loop. `guard.stop` can be read at any time.
        """
        self._must_have_begun()
        self._must_go_on()
        verdict = self.verdict()
        self._asked = isinstance(verdict, Stop) and self.stop is not None
        self.streams.told = self.streams.told or self._asked
        return verdict

    def verdict(self) -> Verdict:
        """As `check`, for the integrations of frameworks, which may ask again after the end."""
        self._seen.checks += 1
        verdict = self._core.check(self._clock.now())
        self._window.weigh(self._core.turn)
        if isinstance(verdict, Continue) and (full := self._window.news()) is not None:
            return Compact(full.detail)
        return verdict

    def finish(self, detail: str = "the caller says that the goal is reached") -> None:
        """End the run with `goal`. Call it when the model has answered, after `check`.

        An end that is already decided stays. A last turn that failed, was blocked, was cut off or
        is empty decides the end, and so do missing outputs.
        """
        self._core.finish(detail)

    def abort(self, why: str = "aborted") -> None:
        """End the run now: a pending read is interrupted, the connection closed. From any task,
        thread or signal handler.
        """
        check_kind("why", why, str, "a text")
        self.streams.abort(why)

    def _wake(self) -> None:
        self.streams.wake()

    def _emit(self, event: Event) -> None:
        match event:
            case TurnStarted() | AttemptRetried():  # each stream has its own count
                self._window.tried_inside = isinstance(event, AttemptRetried)
            case RunStarted():
                self._started = event.detectors
            case TurnEnded() | StreamClosed():
                self._seen.hear(event)
                self._secrets.learn(event)
            case _:
                pass
        if self._sinks.told:
            self._sinks.emit(self._secrets.event(event))

    def _must_have_begun(self) -> None:
        if not self._entered:
            raise ConfigError("the run has not begun: use the guard inside 'async with guard'")


_log = logging.getLogger("monitor")
_HOLDERS: weakref.WeakValueDictionary[int, Guard[Any]] = weakref.WeakValueDictionary()
"""The newest guard of each detector, policy and condition that was given, by the id of the part."""
_OF_THE_RUN = frozenset({"agent", "judge", "max_nudges", "outputs", "sinks", "task"})
"""Options that the agents of a run do not share: its children get the sinks in another way."""


_PRICES = "prices='claude-sonnet-4-5', the name of the model, or prices=monitor.Price(...)"


def _price_given(prices: Price | str | None) -> Price | None:
    """The price that a caller gives, by itself or by the name of a model."""
    if not isinstance(prices, str):
        check_kind("prices", prices, Price, "the monitor.Price of the model that is watched, or its name")
        return prices
    from monitor.prices import list_price, table_facts  # noqa: PLC0415 - for guards that name a model only

    if (price := list_price(prices)) is None:
        raise ConfigError(
            f"prices: the {table_facts()} do not have {prices!r}: write prices=monitor.Price(2.5, 10.0), in US dollars"
            " per million tokens of input and output"
        )
    return price


def _ending_by_sync(error: BaseException | None) -> Stop | None:
    """The end of a run without an event loop, if nothing was decided before."""
    if isinstance(error, KeyboardInterrupt):
        return Stop(TerminateReason.CANCELLED, "the program was interrupted", "caller")
    if error is None or isinstance(error, Exception):
        return Stop(TerminateReason.ERROR, describe(error), "caller") if error is not None else None
    return Stop(TerminateReason.CLOSED_BY_CALLER, describe(error), "caller")


def _text_of(result: object) -> str:
    """The text of a result. Media is replaced by its name."""
    try:
        return answered(result)[0]
    except ValueError:
        return text_of(result)


# --------------------------------------------------------------------------------------------------
# The parts of a guard for another agent: its own detectors and policy, that have seen nothing.


def fresh_parts(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a guard for another agent of its run. Detectors and policy are copied, because
    they have a state; everything else is shared.
    """
    detectors, policy = options["detectors"], options["policy"]
    if isinstance(detectors, Sequence):
        detectors = [_copied(one) for one in detectors]
    return {**options, "detectors": detectors, "policy": _copied(policy)}


def _keeps_state(condition: Condition) -> bool:
    """Whether looking at a run changes the condition, tried on a copy. `False`: unknown, or not."""
    with contextlib.suppress(Exception):  # a condition may be the caller's code, and whatever it holds may refuse
        tried = copy.deepcopy(condition)
        before = pickle.dumps(vars(tried))
        tried.evaluate(RunState())
        return before != pickle.dumps(vars(tried))
    return False


def _copied(part: Any) -> Any:
    """A copy that shares only what cannot be copied, such as a lock or a client."""
    try:
        return copy.deepcopy(part)
    except Exception:  # noqa: BLE001 - a part may be the caller's code, and whatever it holds may refuse
        made = copy.copy(part)
        for name, value in getattr(part, "__dict__", {}).items():
            with contextlib.suppress(Exception):
                setattr(made, name, copy.deepcopy(value))
        return made
