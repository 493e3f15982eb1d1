"""LoopJudge: a model that says whether the run is stuck. It sees what no counter does: different
requests that get the same page, plans that are repeated and never carried out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, get_args

from monitor._util.argument_checks import check_kind, check_model
from monitor._util.explained_options import explains_options
from monitor.errors import ConfigError
from monitor.judges.judge import (
    FIRST_INTERVAL,
    FIRST_TURN,
    SHARE,
    Ask,
    GivenJudges,
    Judge,
    JudgeInput,
    JudgeLines,
    JudgeSchedule,
)
from monitor.judges.question import DONE_INSTRUCTIONS, LOOP_INSTRUCTIONS, REPLY_SCHEMA, question, read_reply
from monitor.messages import Text, UserMessage
from monitor.models import Model, ModelRequest
from monitor.verdicts import Fact, Judgement

THRESHOLD = 0.7
"""The confidence from which on it is a finding (measured: docs/judge.md)."""
TIMEOUT_S = 30.0
"""Seconds for one answer: a small model needs a few. A slower model is not waited for."""
LINES = JudgeLines()


class ModelJudge:
    """A judge that asks one model, and a second one for confirmation.

    - `threshold`: the least confidence for a finding. `lines`: what lower and higher ones mean;
      `None`: each finding is a loop at once, and the confidence decides when the judge is asked
      again.
    - `first_turn`, `first_interval`: when the judge is first asked, and how many turns later again.
    - `share`: the share of the run's tokens that the judge may use. `None`: without a bound.
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
        lines: JudgeLines | None = LINES,
        first_turn: int = FIRST_TURN,
        first_interval: int = FIRST_INTERVAL,
        share: float | None = SHARE,
        timeout_s: float = TIMEOUT_S,
        settings: Mapping[str, Any] | None = None,
        counts: bool = False,
        name: str | None = None,
    ) -> None:
        check_model("model", model)
        if confirm_with is not None:
            check_model("confirm_with", confirm_with)
        for option, part in (("threshold", threshold), ("share", share)):
            if part is not None and not 0 < part <= 1:
                raise ConfigError(f"{option} is {part!r}; give a number above 0 and up to 1")
        check_kind("lines", lines, JudgeLines, "one such as monitor.judges.JudgeLines(sure=0.95)")
        if lines is not None and not 0 <= lines.unsure <= threshold:
            raise ConfigError(f"{lines} with threshold={threshold}: give an unsure from 0 to the threshold")
        if first_turn < 1 or first_interval < 1:
            raise ConfigError("first_turn and first_interval count turns: give 1 or more")
        if not timeout_s > 0:
            raise ConfigError(f"timeout_s is {timeout_s!r}; give a number of seconds above 0")
        self.name = name or f"{self.fact}_judge"
        self.threshold = threshold
        self.timeout_s = timeout_s
        self.counts = counts
        self._model, self._confirm_with = model, confirm_with
        self._settings = dict(settings or {})
        self.lines: JudgeLines | None = lines
        """What lower and higher confidences than `threshold` mean."""
        self._when: dict[str, Any] = {
            "first_turn": first_turn,
            "first_interval": first_interval,
            "lines": lines,
            "share": share,
        }

    def schedule(self) -> JudgeSchedule:
        return JudgeSchedule(**self._when)

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
        return Judgement(**asdict(reply), found=found, judged_by=model.name)


class LoopJudge(ModelJudge):
    """Says whether the run is stuck. From `threshold` on that is a detection, and the policy
    decides what follows.
    """

    fact: Fact = "loop"
    instructions = LOOP_INSTRUCTIONS

    @classmethod
    def article(cls, model: Model, **options: Any) -> LoopJudge:
        """A judge with the numbers of the article on Gemini CLI: first asked at turn 30, and again
        after 3 turns; a loop above 0.9, without steering, and without a bound on tokens.
        """
        given = {"threshold": math.nextafter(0.9, 1.0), "lines": None, "share": None, **options}
        return cls(model, **{"first_turn": 30, "first_interval": 3, **given})


# --------------------------------------------------------------------------------------------------
# DoneJudge: a model that says whether the task is complete. The condition `TaskDone` reads its
# answer.


class DoneJudge(ModelJudge):
    """Says whether the task is complete. Use it with `stop_when=monitor.conditions.TaskDone()`.

    Asked from turn 2 on, because a task may be done at any turn. Asked again after `first_interval`
    turns, until it has given a confidence. By default nothing bounds its share of the tokens.
    """

    fact: Fact = "done"
    instructions = DONE_INSTRUCTIONS

    @explains_options(example="monitor.judges.DoneJudge(monitor.model('google:gemini-2.5-flash'))")
    def __init__(self, model: Model, **options: Any) -> None:
        """The options are those of `LoopJudge`. The threshold is 0.8 here: a run that is stopped
        too early can be continued.
        """
        when = {"first_turn": 2, "first_interval": 1, "lines": None, "share": None}
        super().__init__(model, **{"threshold": 0.8, **when, **options})


# --------------------------------------------------------------------------------------------------
# Judges as callers give them.


def as_judges(given: GivenJudges, named: Callable[[str], Model]) -> tuple[Judge, ...]:
    """`given` as a tuple of judges. `named`: the model of a name. Raises `ConfigError` for anything
    else.
    """
    several: list[Any] = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    return tuple(_as_judge(one, named) for one in several if given is not None)


def _as_judge(given: Any, named: Callable[[str], Model]) -> Judge:
    if isinstance(given, str):
        try:
            given = named(given)
        except ConfigError as error:
            raise ConfigError(f"judge: {error}") from None
    if not isinstance(given, type) and callable(getattr(given, "stream", None)):
        return LoopJudge(given)
    if isinstance(given, type) or not callable(getattr(given, "review", None)):
        raise ConfigError(
            f"judge takes a judge such as monitor.LoopJudge(model), a model or its name, or a list of them, not"
            f" {given!r}: write judge='google:gemini-2.5-flash-lite'"
        )
    missing = [name for name in _PARTS if not hasattr(given, name)]
    if missing:
        raise ConfigError(f"judge: {given!r} has no {', '.join(missing)}")
    if given.fact not in get_args(Fact):
        raise ConfigError(f"judge: the fact of {given.name} is 'loop' or 'done', not {given.fact!r}")
    made: Judge = given
    return made


_PARTS = ("name", "fact", "threshold", "timeout_s", "counts", "schedule")
