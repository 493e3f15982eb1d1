"""LoopJudge: a model that says whether the run is stuck. It sees what no counter does: requests in
other words that get the same page, plans that are restated and never acted on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from monitor.errors import ConfigError
from monitor.judges.base import FIRST_INTERVAL, FIRST_TURN, MIN_TURNS, Ask, JudgeInput, JudgeSchedule
from monitor.judges.prompts import LOOP_INSTRUCTIONS, question
from monitor.judges.reply import REPLY_SCHEMA, read_reply
from monitor.messages import Text, UserMessage
from monitor.models import Model, ModelRequest
from monitor.verdicts import Fact, Judgement

THRESHOLD = 0.9
"""From here on it is a finding (Gemini CLI)."""
TIMEOUT_S = 30.0
"""A small model answers within a few seconds; who needs longer is not waited for."""


class ModelJudge:
    """What a judge is that asks one model, and a second one for confirmation.

    `threshold`: how sure it must be, inclusive. `first_turn`, `first_interval`: when it is asked
    first, and how soon again before it has answered. `suspicion`: the score from which it is asked
    earlier (`monitor.judges.suspicion.SUSPICIOUS`), not before `min_turns`. `confirm_with`: a
    second model, asked the same where the first is sure enough; then its word counts, for the
    finding and for the next interval. `timeout_s`: for each question. `settings` are passed to the
    models. `counts`: its tokens count for the run's limits.
    """

    fact: ClassVar[Fact]
    instructions: ClassVar[str]

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
        for given in (model, *([confirm_with] if confirm_with is not None else [])):
            if not callable(getattr(given, "stream", None)):
                raise ConfigError(
                    f"{type(self).__name__} takes a model such as monitor.model('google:...'), not {given!r}"
                )
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
        """When to ask it in a run."""
        return JudgeSchedule(
            first_turn=self._first_turn,
            first_interval=self._first_interval,
            suspicion=self._suspicion,
            min_turns=self._min_turns,
        )

    async def review(self, run: JudgeInput, ask: Ask) -> Judgement:
        """Ask the model, and where it is sure the second one. If that one gives no answer, nothing
        is found, and the question failed.
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
        return Judgement(reply.analysis, reply.confidence, reply.confidence >= self.threshold, model.name)


class LoopJudge(ModelJudge):
    """Says whether the run is stuck: at `threshold` and above that is a detection, and the policy
    decides what follows.
    """

    fact = "loop"
    instructions = LOOP_INSTRUCTIONS

    @classmethod
    def article(cls, model: Model, **options: Any) -> LoopJudge:
        """With the numbers of the article on Gemini CLI: asked again after 3 turns at first, and a
        loop above 0.9, not at it.
        """
        return cls(model, **{"first_interval": 3, "threshold": math.nextafter(THRESHOLD, 1.0), **options})
