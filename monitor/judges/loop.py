"""LoopJudge: a model that says whether the run is stuck. It sees what no counter does: different
requests that get the same page, plans that are repeated and never carried out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from monitor._util.argument_checks import check_model
from monitor._util.explained_options import explains_options
from monitor.errors import ConfigError
from monitor.judges.judge import (
    FIRST_INTERVAL,
    FIRST_TURN,
    MIN_TURNS,
    Ask,
    JudgeInput,
    JudgeSchedule,
)
from monitor.judges.question import DONE_INSTRUCTIONS, LOOP_INSTRUCTIONS, REPLY_SCHEMA, question, read_reply
from monitor.messages import Text, UserMessage
from monitor.models import Model, ModelRequest
from monitor.verdicts import Fact, Judgement

THRESHOLD = 0.9
"""The confidence from which on it is a finding (Gemini CLI)."""
TIMEOUT_S = 30.0
"""Seconds for one answer: a small model needs a few. A slower model is not waited for."""


class ModelJudge:
    """A judge that asks one model, and a second one for confirmation.

    - `threshold`: the least confidence for a finding.
    - `first_turn`, `first_interval`: when the judge is first asked, and how soon again before it
      has answered.
    - `suspicion`: the score from which on it is asked earlier
      (`monitor.judges.digest.SUSPICIOUS`), not before `min_turns`.
    - `confirm_with`: a second model, asked the same if the first is sure enough. Its answer then
      counts, for the finding and for the next interval.
    - `timeout_s`: seconds for each question.
    - `settings`: passed to the models.
    - `counts`: the judge's tokens count for the run's limits.
    """

    fact: Fact
    instructions: str

    @explains_options(example="monitor.LoopJudge(monitor.model('google:gemini-2.5-flash'))")
    def __init__(
        self,
        model: Model,
        *,
        confirm_with: Model | None = None,
        threshold: float = THRESHOLD,
        first_turn: int = FIRST_TURN,
        first_interval: int = FIRST_INTERVAL,
        suspicion: float | None = None,
        min_turns: int = MIN_TURNS,
        timeout_s: float = TIMEOUT_S,
        settings: Mapping[str, Any] | None = None,
        counts: bool = False,
        name: str | None = None,
    ) -> None:
        check_model("model", model)
        if confirm_with is not None:
            check_model("confirm_with", confirm_with)
        if not 0 < threshold <= 1:
            raise ConfigError(f"threshold is {threshold!r}; give a number above 0 and up to 1")
        if first_turn < 1 or first_interval < 1 or min_turns < 1:
            raise ConfigError("first_turn, first_interval and min_turns count turns: give 1 or more")
        if suspicion is not None and not 0 < suspicion <= 1:
            raise ConfigError(
                f"suspicion is {suspicion!r}; give a score above 0 and up to 1, or None to wait for first_turn"
            )
        if not timeout_s > 0:
            raise ConfigError(f"timeout_s is {timeout_s!r}; give a number of seconds above 0")
        self.name = name or f"{self.fact}_judge"
        self.threshold = threshold
        self.timeout_s = timeout_s
        self.counts = counts
        self._model, self._confirm_with = model, confirm_with
        self._settings = dict(settings or {})
        self._first_turn, self._first_interval = first_turn, first_interval
        self._suspicion, self._min_turns = suspicion, min_turns

    def schedule(self) -> JudgeSchedule:
        return JudgeSchedule(
            first_turn=self._first_turn,
            first_interval=self._first_interval,
            suspicion=self._suspicion,
            min_turns=self._min_turns,
        )

    async def review(self, run: JudgeInput, ask: Ask) -> Judgement:
        """Ask the model, and if it is sure the second one. If the second gives no answer, the
        question failed and nothing is found.
        """
        request = ModelRequest(
            (UserMessage((Text(question(run)),)),),
            instructions=self.instructions,
            settings=self._settings,
            reply_schema=REPLY_SCHEMA,
        )
        judgement = await self._asked(self._model, request, ask)
        if judgement.found and self._confirm_with is not None:
            judgement = await self._asked(self._confirm_with, request, ask)
        return judgement

    async def _asked(self, model: Model, request: ModelRequest, ask: Ask) -> Judgement:
        reply = read_reply(await ask(model, request))
        found = reply.confidence >= self.threshold
        said = reply.repeats, reply.advice, reply.ask_person
        return Judgement(reply.analysis, reply.confidence, found, model.name, *said)


class LoopJudge(ModelJudge):
    """Says whether the run is stuck. From `threshold` on that is a detection, and the policy
    decides what follows.
    """

    fact: Fact = "loop"
    instructions = LOOP_INSTRUCTIONS

    @classmethod
    def article(cls, model: Model, **options: Any) -> LoopJudge:
        """A judge with the numbers of the article on Gemini CLI: first asked again after 3 turns; a
        finding only above 0.9.
        """
        return cls(model, **{"first_interval": 3, "threshold": math.nextafter(THRESHOLD, 1.0), **options})


# --------------------------------------------------------------------------------------------------
# DoneJudge: a model that says whether the task is complete. The condition `TaskDone` reads its
# answer.


class DoneJudge(ModelJudge):
    """Says whether the task is complete. Use it with `stop_when=monitor.conditions.TaskDone()`.

    Asked from turn 2 on, because a task may be done at any turn. Asked again after `first_interval`
    turns, until it has given a confidence.
    """

    fact: Fact = "done"
    instructions = DONE_INSTRUCTIONS

    @explains_options(example="monitor.judges.DoneJudge(monitor.model('google:gemini-2.5-flash'))")
    def __init__(self, model: Model, **options: Any) -> None:
        """The options are those of `LoopJudge`. The threshold is 0.8 here: a run that is stopped
        too early can be continued.
        """
        super().__init__(model, **{"first_turn": 2, "first_interval": 1, "threshold": 0.8, **options})
