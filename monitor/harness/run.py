"""Run: one run of a supervisor, driven to its goal, or to an honest reason.

`RunCore` decides, `SourceStream` reads and closes, `RunContext` keeps the context inside the
window; this performs. The rules of this file:

1. No task of ours outlives the call that started it, and none runs while the caller's body does:
   the run goes on only when somebody asks for its next event. So there is no scope, timeout or task
   group around a `yield`. (The exceptions: a judge's question, and a summary of the history, go on
   beside the run, and end with it at the latest.)
2. Whatever can take time (a stream, the tools, a delay) is under the run's deadlines and its abort,
   and is left in order.
3. What happened goes into the history once, whole: a message with the results of its calls,
   whatever interrupted them.
"""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

import anyio
import anyio.from_thread
import anyio.lowlevel

from monitor._util.quoting import foreign
from monitor.budget import Budget
from monitor.chunks import Chunk, ToolCall, ToolResult
from monitor.compaction.records import CompactionResult
from monitor.conditions import Condition, MaxTurns, Timeout
from monitor.conditions.base import AnyOf
from monitor.context.history import History
from monitor.context.raw import RawMessage
from monitor.core.run import RunCore
from monitor.detectors import default_detectors
from monitor.errors import ConfigError
from monitor.events import (
    AttemptRetried,
    ChunkReceived,
    Event,
    HistoryRepaired,
    Nudged,
    RetryScheduled,
    ToolFinished,
    ToolStarted,
    ToolWithdrawn,
)
from monitor.goal.goal import Goal
from monitor.goal.outputs import TERMINATE
from monitor.harness.checks import ending_by, must_know_price
from monitor.harness.context import RunContext, frontier, interrupted
from monitor.harness.job import Job
from monitor.harness.judge_tasks import JudgeTasks
from monitor.harness.options import RunOptions
from monitor.harness.outgoing import Outgoing
from monitor.harness.streams.clock import Clock
from monitor.harness.streams.source import SourceStream
from monitor.harness.streams.wait import Wait, Whose, current_task, make_wait
from monitor.messages import AssistantMessage, Message, Repair, Text, UserMessage
from monitor.models import ModelRequest, ToolSpec
from monitor.outcome import Outcome, Turn
from monitor.reasons import CompactionReason, TerminateReason
from monitor.sinks.base import FanOut
from monitor.state import RunState
from monitor.tools.base import carry_out_all
from monitor.usage import Price, price_of
from monitor.verdicts import VETO, Compact, Continue, LastTurn, Nudge, Stop, Verdict, WithdrawTool

RunPhase: TypeAlias = Literal["idle", "running", "finished", "error"]


@dataclass(frozen=True)
class DefaultLimits(AnyOf):
    """What a run is held to that was given no limit. An end by it says so."""

    def evaluate(self, state: RunState) -> Stop | None:
        stop = AnyOf.evaluate(self, state)
        said = "the default of a run that is given no limit; stop_when= sets another"
        return stop and replace(stop, source=f"default {stop.source}", detail=f"{stop.detail}, {said}")


DEFAULT_LIMITS = DefaultLimits((MaxTurns(100), Timeout(3600)))
"""Gemini CLI gives a whole conversation with its user 100 turns, and an agent that nobody watches
should not need more of them, nor more than an hour. A loop that no detector sees costs some dollars
in it, and not a weekend's.
"""
SUBAGENT_LIMITS = DefaultLimits((MaxTurns(30), Timeout(600)))
"""Of a run that is called as a tool: its caller waits for it, and nobody looks at it meanwhile.
Gemini CLI's numbers.
"""


def _limits_of(supervisor: RunOptions, *, as_tool: bool) -> Condition | None:
    """What the run is held to besides its budget."""
    if supervisor.limits_given:
        return supervisor.stop_when
    if as_tool:
        return SUBAGENT_LIMITS
    budgets = supervisor.budget.chain if supervisor.budget is not None else ()
    return None if any(budget.tokens is not None or budget.usd is not None for budget in budgets) else DEFAULT_LIMITS


@dataclass(slots=True, eq=False)
class Caller:
    """What a run that is called as a tool takes from the run that calls it."""

    core: RunCore
    clock: Clock
    budgets: tuple[Budget, ...]
    supervisors: tuple[RunOptions, ...]
    """Whose run it is, and whose tool that one is, and so on."""
    wake: Callable[[], None]
    """Let it see at once whether it has to end."""
    called: set[Run] = field(default_factory=set)
    """The runs that are at work for it; its abort is theirs."""


class Run:
    """One run of a supervisor: an async iterator of its events, the last of which is
    `RunTerminated`.
    """

    def __init__(
        self,
        supervisor: RunOptions,
        task: str | UserMessage,
        *,
        streams: bool,
        history: Sequence[RawMessage | Message] | None = None,
        caller: Caller | None = None,
        as_tool: bool = False,
    ) -> None:
        """`history`: in the place of the supervisor's own. `caller`: what it takes from the run
        whose tool it is, if that is a run.
        """
        if not isinstance(task, str | UserMessage):
            raise ConfigError(f"the task is a text or a UserMessage, not {task!r}")
        self._supervisor = supervisor
        self._caller = caller
        self._clock = caller.clock if caller is not None else supervisor.clock
        self._now = self._clock.now
        self._streams = streams
        self._events: deque[Event] = deque()
        self._news: anyio.Event | None = None
        """The driver waits for a compaction, and comes back sooner where there is something to hand
        out.
        """
        self._sinks = FanOut(supervisor.sinks)
        plan = supervisor.plan.fresh() if supervisor.plan is not None else None
        outputs = supervisor.outputs.fresh() if supervisor.outputs is not None else None
        self._goal = Goal(outputs, plan, max_nudges=supervisor.max_nudges)
        own = (supervisor.budget,) if supervisor.budget is not None else ()
        budgets = own if caller is None else (*own, *(budget.share() for budget in caller.budgets))
        supervisors = (supervisor, *(caller.supervisors if caller is not None else ()))
        self._core = RunCore(
            stop_when=_limits_of(supervisor, as_tool=as_tool),
            detectors=default_detectors() if supervisor.detectors is None else copy.deepcopy(supervisor.detectors),
            policy=copy.deepcopy(supervisor.policy),
            emit=self._emit,
            keep_text_chars=supervisor.keep_text_chars,
            price=supervisor.price if caller is None else _price_known_to(supervisors),
            budgets=budgets,
            goal=self._goal,
            last_turn=supervisor.last_turn,
            cuts=True,
            supervised=True,
            parent=caller.core if caller is not None else None,
            judges=supervisor.judges,
            task=_words(task),
            window=supervisor.window,
        )
        self._judges = JudgeTasks(
            self._core, clock=self._clock, close_grace_s=supervisor.close_grace_s, wake=self._wake
        )
        self.as_caller = Caller(self._core, self._clock, budgets, supervisors, self._wake)
        first = _said_by_others(task)
        given = supervisor.given if history is None else supervisor.taken_in(history)
        self._instructions = given.instructions
        self._history = History((*given.messages, first))
        self._outgoing = Outgoing(self._history, supervisor.form, given.repairs, self._repaired)
        self._context = RunContext(
            supervisor.compaction,
            self._history,
            model=supervisor.model,
            window=supervisor.window,
            run=self._core,
            emit=self._emit,
            facts=lambda: frontier(self._goal),
            fixed=lambda: (self._instructions, tuple(self._offered())),
            clock=self._clock,
            close_grace_s=supervisor.close_grace_s,
            wake=self._wake,
            form=supervisor.form,
        )
        self._core.companions.append(self._context)
        self._retried_inside = False  # the provider's count of the turn is of several attempts
        if plan is not None and (step := self._goal.first_step()) is not None:
            self._say(step)
        self._phase: RunPhase = "idle"
        self._thread = threading.get_ident()
        self._streams_opened = 0
        self._withdrawn: set[str] = set()
        self._only: tuple[str, ...] | None = None
        self._reading: SourceStream[Any] | None = None
        self._waiting: Wait | None = None
        self._asides: set[Wait] = set()
        """Where the caller waits for the run while nobody drives it."""
        self._driver: AsyncGenerator[None, None] | None = None
        self._at_work = False  # somebody is in `_driver`
        self._seen_out: anyio.Event | None = None
        self._outcome: Outcome | None = None

    @property
    def phase(self) -> RunPhase:
        """`idle` before the block is entered, `running` in it, then `finished`, or `error` where an
        exception ended it.
        """
        return self._phase

    @property
    def outcome(self) -> Outcome:
        """How the run ended. Before it has, it is a `ConfigError` to ask."""
        if self._outcome is None:
            raise ConfigError("the outcome is known when the run has ended")
        return self._outcome

    @property
    def history(self) -> tuple[Message, ...]:
        """The messages of the run so far, as the model is shown them."""
        return self._history.messages

    @property
    def originals(self) -> tuple[Message, ...]:
        """Every message of the run as it was said, also what a compaction put a summary in the
        place of.
        """
        return self._history.originals

    @property
    def stale_compactions(self) -> tuple[CompactionResult, ...]:
        """Compactions that were done and not made part of the history, because what they cover had
        been changed meanwhile.
        """
        return self._context.stale

    async def compact(self) -> CompactionResult:
        """Make the history smaller now; one that is under way counts. From the caller's block, from
        a tool, or from another task.

        Raises `CompactionError` where there is nothing to compact, where it failed, and where the
        run ends before it is done.
        """
        if self._outcome is not None and not self._outcome.ok:
            raise interrupted(self._outcome.detail)
        if self._phase != "running":
            raise ConfigError(f"this run is {self._phase}: compact it while it runs")
        result: CompactionResult | None = None

        async def work() -> None:
            nonlocal result
            result = await self._context.compact()

        if self._at_work:
            await work()
        else:  # nobody else looks at the run's deadlines and its abort meanwhile
            await self._aside(work)
        if result is None:
            self._is_over()
            raise interrupted(self._core.stop.detail if self._core.stop is not None else None)
        return result

    def abort(self, why: str = "aborted") -> None:
        """End the run now: whatever it is waiting for is interrupted, the connection closed. From
        any task, thread or signal handler.
        """
        self._core.abort(why)
        for run in tuple(self.as_caller.called):
            run.abort(why)
        self._wake()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A person is being asked: the run's deadlines stand still meanwhile. For tools, which find
        the run in their `ToolContext`; also for plain functions, which run in a thread.
        """
        self._in_loop(lambda: self._core.pause(self._now()))
        try:
            yield
        finally:
            self._in_loop(lambda: self._core.resume(self._now()))

    def _in_loop(self, do: Callable[[], None]) -> None:
        """Deadlines are followed by alarms, which belong to the event loop's thread."""
        if threading.get_ident() == self._thread:
            do()
        else:
            anyio.from_thread.run_sync(do)

    # ------------------------------------------------------------------ the block and the iteration

    async def __aenter__(self) -> Self:
        if self._phase != "idle":
            raise ConfigError(f"this run is {self._phase}: a run is used once, begin another with supervisor.stream()")
        self._phase = "running"
        self._thread = threading.get_ident()
        if self._caller is not None:
            self._caller.called.add(self)
        self._core.begin(self._now())
        self._driver = self._drive()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._driver is None:
            return
        ending = ending_by(error) or Stop(
            TerminateReason.CLOSED_BY_CALLER, "the caller left before the run had ended", "caller"
        )
        if current_task() is None:
            self._destroyed(ending, error)
            return
        if self._at_work:
            await self._see_the_other_task_out(ending, error)
        try:
            if not self._at_work:
                self._at_work = True
                await self._driver.aclose()
        finally:
            self._at_work = False
            await self._context.close()  # somebody may have asked for a compaction of a run that never went
            self._end(ending, error)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        if self._driver is None:
            raise ConfigError("enter the run before reading it: async with supervisor.stream(task) as run")
        if self._at_work:
            raise ConfigError("this run is already being read by another task")
        while not self._events:
            if self._outcome is not None or self._seen_out is not None:
                raise StopAsyncIteration
            self._at_work = True
            try:
                await self._driver.__anext__()
            except StopAsyncIteration:
                self._end(None, None)
            except Exception as error:
                if isinstance(error, ConfigError):  # the caller's own mistake
                    self._end(ending_by(error), error)
                    raise
                self._core.fail(error, "run", self._now())  # a part of the caller's that nobody else has caught
                self._end(None, None)
            # a cancellation from outside, or the end of the program: the run cannot go on after it
            except BaseException as error:
                if current_task() is None:
                    self._destroyed(ending_by(error), error)
                self._end(ending_by(error), error)
                raise
            finally:
                self._came_out()
        return self._events.popleft()

    def _destroyed(self, ending: Stop | None, error: BaseException | None) -> None:
        """The task is destroyed with its event loop: nothing can be awaited, so nothing is
        closed.
        """
        if self._reading is not None:
            self._reading.destroyed()
        self._end(ending, error)

    async def _see_the_other_task_out(self, ending: Stop, error: BaseException | None) -> None:
        """The block is left while another task is still at work in it: that one finishes first."""
        self._core.leave(ending, error if isinstance(error, Exception) else None, self._now())
        self._seen_out = anyio.Event()
        self._wake()
        with anyio.move_on_after(self._supervisor.close_grace_s, shield=True):
            await self._seen_out.wait()

    def _came_out(self) -> None:
        self._at_work = False
        if self._seen_out is not None:
            self._seen_out.set()

    def _end(self, ending: Stop | None, error: BaseException | None) -> None:
        if self._outcome is not None:
            return
        self._outcome = self._core.terminate(self._now(), ending, error if isinstance(error, Exception) else None)
        self._phase = "error" if self._outcome.reason is TerminateReason.ERROR else "finished"
        if self._caller is not None:
            self._caller.called.discard(self)
            self._caller.wake()

    # ------------------------------------------------------------------ the loop

    async def _drive(self) -> AsyncGenerator[None, None]:
        """Check, call, stream, act on the calls, tell the core, perform its verdict. Yields
        wherever there may be events to hand out.
        """
        core = self._core
        try:
            while self._perform(core.check(self._now())):
                tries = _Tries()
                while tries.again:
                    async with aclosing(self._served(self._context.make())) as waiting:
                        async for _ in waiting:
                            yield
                    if core.stop is not None:
                        break
                    if self._events:
                        yield
                    stream = self._reading = self._open()
                    results: dict[str, ToolResult] = {}
                    try:
                        async with stream:
                            async for _ in stream:
                                if self._events:
                                    yield
                        self._after_call(stream.turn)
                        yield
                        calls = self._begin_calls(stream.turn, results)
                        if self._events:
                            yield
                        await self._carry_out(calls, results)
                    finally:
                        self._reading = None
                        self._record(results)
                    yield
                    async with aclosing(self._before_another(stream.turn, tries)) as waiting:
                        async for _ in waiting:
                            yield
        finally:
            try:
                await self._judges.close()
            finally:
                await self._context.close()

    def _perform(self, verdict: Verdict) -> bool:
        """Do what the core says until it has no more to say. False: the run is over."""
        said: list[str] = []
        while not isinstance(verdict, Continue):
            match verdict:
                case Stop():
                    return False
                case Nudge(text):
                    self._emit(Nudged(self._at(), self._core.turns, text))
                    said.append(text)
                case WithdrawTool(name, text):
                    self._withdrawn.add(name)
                    self._emit(ToolWithdrawn(self._at(), self._core.turns, name, text))
                    said.append(text)
                case LastTurn(text, tools):
                    self._core.begin_last_turn(verdict, self._now())
                    self._context.last_turn()
                    self._only = tools or tuple(spec.name for spec in self._goal.last_tools)
                    said = [text]
                case Compact():
                    self._context.press(CompactionReason.MANUAL)
            verdict = self._core.check(self._now())
        if said:
            self._say("\n\n".join(said))
        return True

    def _open(self) -> SourceStream[Any]:
        """The next model call, as a stream that is opened by its first read."""
        supervisor = self._supervisor
        self._outgoing.before_call()
        request = ModelRequest(
            messages=self._history.messages,
            instructions=self._instructions,
            tools=tuple(self._offered()),
            tool_choice=supervisor.tool_choice,
            settings=supervisor.model_settings,
        )
        self._retried_inside = False
        self._context.before_call()
        model = supervisor.model
        return SourceStream(
            lambda: model.stream(request),
            self._core,
            clock=self._clock,
            adapter=getattr(model, "adapter", None),
            close_grace_s=supervisor.close_grace_s,
            index=self._count_stream(),
            listener=self._heard if self._streams else None,
        )

    def _repaired(self, repairs: tuple[Repair, ...], problems: tuple[str, ...]) -> None:
        self._emit(HistoryRepaired(self._at(), self._core.turns, repairs, problems))

    def _after_call(self, turn: Turn) -> None:
        if turn.number and self._context.after_call(turn, several=self._retried_inside):
            self._core.retract()

    async def _served(
        self, needs: Iterator[Job | Stop], error: BaseException | None = None
    ) -> AsyncGenerator[None, None]:
        """Wait for the compactions that the next request needs. Where there is none that helps, the
        run ends, with `error`.

        Yields whenever there are events to hand out: a compaction may take minutes.
        """
        for need in needs:
            if isinstance(need, Stop):
                self._core.leave(need, error, self._now())
                return
            while not need.over:
                if self._events:
                    yield
                    continue
                self._news = news = anyio.Event()
                need.tell(news.set)
                try:
                    if not await self._under_deadlines(news.wait):
                        return
                finally:
                    self._news = None

    async def _before_another(self, turn: Turn, tries: _Tries) -> AsyncGenerator[None, None]:
        """What has to be done before another attempt at a turn that has failed, if there is to be
        one.
        """
        core = self._core
        tries.begin()
        failure = core.failed_attempt
        if failure is None:
            return
        delay_s: float | None = 0.0
        if (refusal := self._context.refusal(turn)) is not None:
            async with aclosing(self._served(self._context.recover(refusal), turn.error)) as waiting:
                async for _ in waiting:
                    yield
        else:
            tries.failures += 1
            delay_s = self._supervisor.retries.delay_s(tries.failures, turn.model_error)
        if core.stop is not None or delay_s is None:
            return
        core.will_retry(delay_s)
        self._emit(
            RetryScheduled(at_s=self._at(), turn=turn.number, attempt=tries.number, after_s=delay_s, why=failure.detail)
        )
        due = self._now() + delay_s
        yield
        tries.again = self._now() >= due or await self._under_deadlines(lambda: _sleep(self._clock, due))

    # ------------------------------------------------------------------ tools and history

    def _offered(self) -> Iterator[ToolSpec]:
        """The tools of the next call: the run's own and the caller's, but for what was
        withdrawn.
        """
        specs = [*self._goal.tools, *(tool.spec for tool in self._supervisor.tools.values())]
        return (spec for spec in specs if self._may_call(spec.name))

    def _may_call(self, name: str) -> bool:
        return name not in self._withdrawn and (self._only is None or name in self._only)

    def _begin_calls(self, turn: Turn, results: dict[str, ToolResult]) -> Sequence[ToolCall]:
        """Carry out the calls of the run's own tools; the others, which are about to be."""
        core = self._core
        if turn.number == 0 or core.void or not core.takes_own_calls:
            return ()
        # what it emits counts before it ends the run
        for call in sorted(turn.tool_calls, key=lambda call: call.name == TERMINATE):
            result = self._answer(call)
            if result is not None:
                results[call.id] = result
        if core.stop is not None:
            return ()
        calls = [call for call in turn.tool_calls if call.id not in results]
        for call in calls:
            self._emit(ToolStarted(self._at(), core.turns, call))
        return calls

    def _record(self, results: Mapping[str, ToolResult]) -> None:
        """Put what the model said into the history, every call with its result."""
        content, turn = self._core.take_reply(self._supervisor.looped_text), self._core.turn
        if content and turn is not None:
            answered = (
                _shown(results.get(call.id) or _not_carried_out(call)) for call in content if isinstance(call, ToolCall)
            )
            self._outgoing.append(AssistantMessage(content, tuple(answered), turn.finish_reason))
            self._context.turn_ended()

    def _answer(self, call: ToolCall) -> ToolResult | None:
        """The result of a call that needs no tool of the caller's."""
        if self._may_call(call.name):
            result = self._core.answer(call, self._now())
        else:
            text = f"{VETO} This call was not made: {call.name} is not available any more."
            self._core.tool_result(call.id, text, self._now(), is_error=True, vetoed=True)
            result = ToolResult(call.id, call.name, text, is_error=True, vetoed=True)
        if result is not None and result.is_error:  # what was accepted has an event of its own
            self._emit(ToolFinished(self._at(), self._core.turns, result, 0.0))
        return result

    async def _carry_out(self, calls: Sequence[ToolCall], results: dict[str, ToolResult]) -> None:
        """Carry out the calls of the caller's tools."""
        if not calls:
            # nothing in this turn may have given other tasks a chance, or a cancellation
            await anyio.lowlevel.checkpoint()
            return
        started = self._now()
        number = self._core.turns
        by_id = {call.id: call for call in calls}

        def finished(result: ToolResult, _: float) -> None:
            results[result.id] = result
            now = self._now()
            self._emit(ToolFinished(self._at(), number, result, now - started))
            self._core.tool_result(result.id, result.text, now, is_error=result.is_error)
            detection = self._context.observe(by_id[result.id], result)
            if detection is not None:
                self._core.found(detection, now)
            if self._core.stop is not None and self._waiting is not None:
                self._waiting.interrupt()

        own = [spec.name for spec in self._goal.tools]
        await self._under_deadlines(lambda: carry_out_all(calls, self._supervisor.tools, self, finished, others=own))

    # ------------------------------------------------------------------ helpers

    async def _under_deadlines(self, work: Callable[[], Awaitable[object]]) -> bool:
        """Await something that is no stream. False: the run ended meanwhile, and it was
        interrupted.
        """
        core = self._core
        # before the look: an abort from another thread finds it, whenever it comes
        wait = self._waiting = make_wait(core, self._clock)
        core.replanned = wait.follow
        try:
            await self._interruptible(wait, work)
        finally:
            self._waiting = None
            core.replanned = _nothing
        return not self._is_over()

    async def _aside(self, work: Callable[[], Awaitable[object]]) -> None:
        """The same, in the caller's block."""
        wait = make_wait(self._core, self._clock)
        self._asides.add(wait)
        try:
            await self._interruptible(wait, work)
        finally:
            self._asides.discard(wait)

    async def _interruptible(self, wait: Wait, work: Callable[[], Awaitable[object]]) -> None:
        try:
            if self._is_over():
                return
            wait.follow()
            wait.enter()
            try:
                await work()
            except BaseException as error:
                if wait.leave(error) is not Whose.OURS:
                    raise
            else:
                wait.leave(None)
        finally:
            wait.close()

    def _is_over(self) -> bool:
        now = self._now()
        return now >= self._core.deadline and self._core.must_stop(now)

    def _wake(self) -> None:
        for pending in (self._reading, self._waiting, *tuple(self._asides)):
            if pending is not None:
                pending.wake()

    def _say(self, text: str) -> None:
        """One user message, at the end: what the provider has cached of the history stays good."""
        self._history.append(UserMessage((Text(text),), synthetic=True))

    def _count_stream(self) -> int:
        self._streams_opened += 1
        return self._streams_opened - 1

    def _at(self) -> float:
        return self._core.at(self._now())

    def _heard(self, chunk: Chunk) -> None:
        self._events.append(ChunkReceived(self._at(), self._core.turns, chunk))

    def _emit(self, event: Event) -> None:
        if isinstance(event, AttemptRetried):
            self._retried_inside = True
        if self._streams:
            self._events.append(event)
            if self._news is not None:
                self._news.set()
        self._sinks.emit(event)


@dataclass(slots=True)
class _Tries:
    """The attempts at one turn."""

    number: int = 1
    failures: int = 0
    """But for requests that were refused for their size."""
    again: bool = True

    def begin(self) -> None:
        """The next one, if there is to be one."""
        self.number += 1
        self.again = False


def _words(task: str | UserMessage) -> str:
    return task if isinstance(task, str) else " ".join(part.text for part in task.content if isinstance(part, Text))


def _price_known_to(supervisors: Sequence[RunOptions]) -> Price | None:
    """What the model of the first of them costs, by its own prices or by those of the runs above,
    if these have to know.
    """
    model = supervisors[0].model.name
    price = next((price for above in supervisors if (price := price_of(above.prices, model)) is not None), None)
    for above in supervisors:
        must_know_price(price, above.stop_when, above.budget, model, f"prices={{{model!r}: monitor.Price(...)}}")
    return price


def _said_by_others(task: str | UserMessage) -> UserMessage:
    """The task as the model reads it: nobody who gives one speaks for the monitor, also where
    another model wrote it.
    """
    if isinstance(task, str):
        return UserMessage((Text(foreign(task)),))
    content = tuple(Text(foreign(part.text)) if isinstance(part, Text) else part for part in task.content)
    return task if content == task.content else replace(task, content=content)


def _shown(result: ToolResult) -> ToolResult:
    """A result as the model reads it: what a tool said is not the monitor's."""
    text = result.text if result.vetoed else foreign(result.text)
    return result if text == result.text else replace(result, text=text)


def _not_carried_out(call: ToolCall) -> ToolResult:
    return ToolResult(
        call.id, call.name, f"{VETO} This call was not carried out to its end.", is_error=True, vetoed=True
    )


async def _sleep(clock: Clock, until: float) -> None:
    rung = anyio.Event()
    alarm = clock.call_at(until, rung.set)
    try:
        await rung.wait()
    finally:
        alarm.cancel()


def _nothing() -> None:
    """Nothing is being waited for."""
