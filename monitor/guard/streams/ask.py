"""Work beside the stream of a run: a model that is asked one thing, the run's judges, and anything
else that the run awaits. Each is under a deadline, and the end of the run interrupts it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import anyio

from monitor.adapters.adapter import adapter_of
from monitor.chunks import AskCost, Usage
from monitor.conditions import Timeout
from monitor.context.tokens import sizes_by_source
from monitor.core.run import RunCore
from monitor.errors import AdapterError, TerminateReason, describe
from monitor.events import Event
from monitor.guard.streams.source_stream import SourceStream
from monitor.guard.streams.wait import Clock, ErrorOrigin, ReadWait, current_task, make_wait
from monitor.judges.judge import Judge, JudgeInput, checked
from monitor.models import Model, ModelRequest
from monitor.outcome import Turn
from monitor.policy import ObserveOnly
from monitor.tools.base import Background
from monitor.verdicts import Judgement, Stop

REPLY_CHARS = 50_000
"""How much of an answer is kept. A judge's answer has a few hundred characters, a summary a few
thousand.
"""


async def ask_turn(
    model: Model,
    request: ModelRequest,
    *,
    timeout_s: float,
    clock: Clock,
    close_grace_s: float,
    charge: Callable[[AskCost], None],
    emit: Callable[[Event], None] | None = None,
    core_of: Callable[..., RunCore] = RunCore,
) -> Turn:
    """The turn in which `model` answers `request`, also if it failed or was cut off. `charge` gets
    the cost of the call, also of a cancelled one. `emit` gets the events of the call. `core_of`
    makes the core that watches it.

    Raises `TimeoutError`, and any exception that comes before the answer begins.
    """
    core = core_of(
        stop_when=Timeout(timeout_s), policy=ObserveOnly(), emit=emit or _nobody, keep_text_chars=REPLY_CHARS
    )
    core.begin(clock.now())
    stream: SourceStream[Any] = SourceStream(
        lambda: model.stream(request),
        core,
        clock=clock,
        adapter=adapter_of(model),
        close_grace_s=close_grace_s,
    )
    try:
        async with stream:
            async for _ in stream:
                pass
    finally:
        outcome = core.terminate(clock.now())
        charge(
            AskCost(
                _with_input(outcome.usage, request) if outcome.usage_estimated else outcome.usage,
                outcome.usage_estimated,
            )
        )
    if outcome.reason is TerminateReason.TIMEOUT:
        raise TimeoutError(f"{model.name} did not answer within {timeout_s:g} s")
    return replace(
        stream.turn,
        stopped=None if outcome.ok else Stop(outcome.reason, outcome.detail, outcome.source),
        error=outcome.error,
    )


async def ask(
    model: Model,
    request: ModelRequest,
    *,
    timeout_s: float,
    clock: Clock,
    close_grace_s: float,
    charge: Callable[[AskCost], None],
) -> str:
    """The text that `model` answers to `request`. `charge` gets the cost of the call, also if the
    call fails or is cancelled.

    Raises what the model raises, `TimeoutError`, or `AdapterError` for an incomplete answer.
    """
    turn = await ask_turn(model, request, timeout_s=timeout_s, clock=clock, close_grace_s=close_grace_s, charge=charge)
    if turn.error is not None:
        raise turn.error
    if turn.stopped is not None:
        raise AdapterError(f"{model.name}: {turn.stopped.detail}")
    return turn.text


def _with_input(usage: Usage, request: ModelRequest) -> Usage:
    """`usage`, with an estimate of the input if the provider did not report it. A question beside a
    run is long, and its answer short.
    """
    if usage.input_tokens:
        return usage
    tokens = sum(size.tokens for size in sizes_by_source(request).values())
    return replace(usage, input_tokens=tokens, total_tokens=usage.total_tokens + tokens)


def _nobody(event: Event) -> None:
    """A listener that ignores every event."""


# --------------------------------------------------------------------------------------------------
# Awaits work of a run other than its stream. The end of the run interrupts it.


class Interruptible:
    """Awaits work (tools, a delay, a compaction) under the deadlines and the abort of one run."""

    def __init__(self, core: RunCore, clock: Clock) -> None:
        self._core = core
        self._clock = clock
        self._waiting: ReadWait | None = None
        self._in_block: set[ReadWait] = set()
        """Waits in the caller's block, while no task drives the run."""

    async def under_deadlines(self, work: Callable[[], Awaitable[object]]) -> bool:
        """Await `work` as the task that drives the run. False: the run ended, and `work` was
        interrupted.
        """
        # The wait is made before the limits are checked, so that an abort from another thread finds
        # it.
        wait = self._waiting = make_wait(self._core, self._clock)
        self._core.replanned = wait.follow
        try:
            await self._await(wait, work)
        finally:
            self._waiting = None
            self._core.replanned = _nothing
        return not self.is_over()

    async def in_block(self, work: Callable[[], Awaitable[object]]) -> None:
        """Await `work` in the caller's block. The end of the run interrupts `work`."""
        wait = make_wait(self._core, self._clock)
        self._in_block.add(wait)
        try:
            await self._await(wait, work)
        finally:
            self._in_block.discard(wait)

    async def until(self, due: float) -> bool:
        """Sleep until the clock shows `due`. False: the run ended before."""
        return self._clock.now() >= due or await self.under_deadlines(lambda: _sleep(self._clock, due))

    def is_over(self) -> bool:
        """Whether the run must end now. The deadline is checked first, because that is cheap."""
        now = self._clock.now()
        return now >= self._core.deadline and self._core.must_stop(now)

    def interrupt(self) -> None:
        """End the work of the driving task, if there is any."""
        if self._waiting is not None:
            self._waiting.interrupt()

    def wake(self) -> None:
        """Make each pending wait check the deadline of the run. May be called from any thread or
        signal handler.
        """
        for pending in (self._waiting, *tuple(self._in_block)):
            if pending is not None:
                pending.wake()

    async def _await(self, wait: ReadWait, work: Callable[[], Awaitable[object]]) -> None:
        try:
            if self.is_over():
                return
            wait.follow()
            wait.enter()
            try:
                await work()
            except BaseException as error:
                if wait.leave(error) is not ErrorOrigin.OURS:
                    raise
            else:
                wait.leave(None)
        finally:
            wait.close()


async def _sleep(clock: Clock, until: float) -> None:
    rung = anyio.Event()
    alarm = clock.call_at(until, rung.set)
    try:
        await rung.wait()
    finally:
        alarm.cancel()


def _nothing() -> None:
    """Does nothing: no wait follows the deadline."""


# --------------------------------------------------------------------------------------------------
# The judges of a run: each question has its own task.

MOST_GRACE_S = 5.0
"""How long the run waits for a judge that ignores its cancellation, in seconds."""


class JudgeTasks:
    """Asks the judges that `RunCore` names at the start of each turn, and passes their answers to
    it. When the run ends, its open questions are cancelled.

    Each question is reported to the core once: answered, or failed. `wake` makes a pending read
    check whether an answer ended the run.
    """

    def __init__(self, core: RunCore, *, clock: Clock, close_grace_s: float, wake: Callable[[], None]) -> None:
        self._core = core
        self._clock = clock
        self._close_grace_s = min(close_grace_s, MOST_GRACE_S)
        self._wake = wake
        self._open: dict[_Question, Background] = {}
        core.background_work += (self,)

    async def close(self) -> None:
        """Cancel all questions, because the run is over. Returns when all tasks have ended,
        shielded from cancellation and bounded in time.
        """
        if not self._open:
            return
        if current_task() is None:  # the run is destroyed with its event loop, and its questions too
            for question in tuple(self._open):
                self._failed(question, _CANCELLED)
            return
        self.cancel()
        tasks = tuple(self._open.values())
        try:
            with anyio.move_on_after(self._close_grace_s, shield=True):
                for task in tasks:
                    await task.wait()
        finally:
            for task in tasks:
                if not task.ended:
                    task.give_up()
            for question in tuple(self._open):
                self._failed(question, _CANCELLED)  # it never began, or it ignores its cancellation

    async def heard(self) -> None:
        """Return when every question has its answer, or has failed."""
        for task in tuple(self._open.values()):
            await task.wait()

    def turn_began(self) -> None:
        """Ask all judges that are due in this turn."""
        for judge, told in self._core.judges_due(self._core.waiting_since):  # when the turn began
            question = _Question(judge, told)
            self._open[question] = Background(partial(self._put, question), f"agent-monitor {judge.name}")

    def busy_with(self) -> str | None:
        """Always `None`: a judge never holds up the run."""
        return None

    def cancel(self) -> None:
        """Cancel all questions that are open."""
        for task in self._open.values():
            task.cancel()

    async def _put(self, question: _Question) -> None:
        async def asked(model: Model, request: ModelRequest) -> str:
            return await ask(
                model,
                request,
                timeout_s=question.judge.timeout_s,
                clock=self._clock,
                close_grace_s=self._close_grace_s,
                charge=question.charge,
            )

        try:
            judgement = checked(await question.judge.review(question.told, asked))
        except Exception as error:  # noqa: BLE001 - a judge that fails must not end the run
            self._failed(question, describe(error))
        else:
            self._answered(question, judgement)
        finally:
            self._failed(question, _CANCELLED)

    def _answered(self, question: _Question, judgement: Judgement) -> None:
        if self._open.pop(question, None) is not None:
            self._core.judge_answer(question.judge, question.told, judgement, self._clock.now(), cost=question.cost)
            self._wake()

    def _failed(self, question: _Question, why: str) -> None:
        """Report that `question` failed, unless it has been answered or has failed before."""
        if self._open.pop(question, None) is not None:
            self._core.judge_failed(question.judge, question.told, why, self._clock.now(), cost=question.cost)
            self._wake()


class _Question:
    """One question, and its cost so far."""

    def __init__(self, judge: Judge, told: JudgeInput) -> None:
        self.judge = judge
        self.told = told
        self.cost = AskCost()

    def charge(self, cost: AskCost) -> None:
        """Count a model call of the question."""
        self.cost += cost


_CANCELLED = "it was cancelled before it had answered"
