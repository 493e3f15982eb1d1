"""The judges of a run at work: each question in a task of its own, beside the stream."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from monitor._wait import Background, Clock
from monitor.ask import ask
from monitor.judging import Judge, JudgeInput, ModelReply
from monitor.models import Model, ModelRequest
from monitor.run import RunCore


class JudgeTasks:
    """Asks when `RunCore` says so, and tells it the answers. `wake` lets a pending read see what they changed."""

    def __init__(self, core: RunCore, *, clock: Clock, close_grace_s: float, wake: Callable[[], None]) -> None:
        self._core = core
        self._clock = clock
        self._close_grace_s = close_grace_s
        self._wake = wake
        self._tasks: set[Background] = set()

    def ask_due(self) -> None:
        """A turn has started: ask whoever is due."""
        for judge, told in self._core.judges_due(self._clock.now()):
            self._start(judge, told)

    async def close(self) -> None:
        """The run is over: no answer is wanted any more. Returns when nobody is at work, shielded and bounded."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            with anyio.move_on_after(self._close_grace_s, shield=True):
                for task in tasks:
                    await task.wait()

    def _start(self, judge: Judge, told: JudgeInput) -> None:
        async def question() -> None:
            try:
                await self._question(judge, told)
            finally:
                self._tasks.discard(task)

        task = Background(question, f"agent-monitor {judge.name}")
        self._tasks.add(task)

    async def _question(self, judge: Judge, told: JudgeInput) -> None:
        async def asked(model: Model, request: ModelRequest) -> ModelReply:
            return await ask(model, request, timeout_s=judge.timeout_s, clock=self._clock, close_grace_s=self._close_grace_s)

        try:
            judgement = await judge.review(told, asked)
        except Exception as error:  # noqa: BLE001 - a judge has no say in how a run ends by failing
            self._core.judge_failed(judge, told, error, self._clock.now())
        else:
            self._core.judge_answer(judge, told, judgement, self._clock.now())
            self._wake()
