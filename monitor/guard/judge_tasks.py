"""Asks the judges of a run: each question has its own task, beside the stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import anyio

from monitor.chunks import AskCost
from monitor.core.run import RunCore
from monitor.errors import describe
from monitor.guard.streams.ask import ask
from monitor.guard.streams.wait import Clock, current_task
from monitor.judges.judge import Judge, JudgeInput, checked
from monitor.models import Model, ModelRequest
from monitor.tools.base import Background
from monitor.verdicts import Judgement

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
        for judge, told in self._core.judges_due(self._clock.now()):
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
