"""The protocol of judges, and when a judge is asked."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, get_args

from monitor.errors import ConfigError
from monitor.models import Model, ModelRequest
from monitor.verdicts import Fact, Judgement

FIRST_TURN = 30
"""The turn at whose start a judge is first asked: most runs are over by then (Gemini CLI)."""
FIRST_INTERVAL = 10
"""Turns from the first question to the next one if the first got no answer (Gemini CLI; 3 in the
article).
"""
MIN_INTERVAL, INTERVAL_RANGE = 5, 10
"""The next question comes after round(5 + 10 x (1 - confidence)) turns (Gemini CLI)."""
MAX_INTERVAL = 60
"""Longest interval, in turns. With each failure a judge is asked half as often, up to this."""
MIN_TURNS = 5
"""Judges are not asked about shorter runs, however suspicious they look."""


@dataclass(slots=True, frozen=True)
class JudgeInput:
    """The facts about a run that a judge reads."""

    task: str | None
    """The user's request. `None`: unknown."""
    digest: str
    """The latest messages in short: who said what, which calls got which results. Quoted data, not
    instructions.
    """
    turn: int
    """The turn that is about to be answered, or is being answered."""
    doubts: str = ""
    """The latest steps that add nothing, as far as counting can see, a line each. Quoted data."""


def checked(answer: object) -> Judgement:
    """`answer`, if it is a valid judgement. Raises `ConfigError` if not: a judge may be the
    caller's code.
    """
    if not isinstance(answer, Judgement):
        raise ConfigError(f"a judge answers with a Judgement, not {answer!r}")
    confidence: object = answer.confidence
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0 <= confidence <= 1:
        raise ConfigError(f"a judgement's confidence is a number between 0 and 1, not {confidence!r}")
    return answer


Ask: TypeAlias = Callable[[Model, ModelRequest], Awaitable[str]]
"""Ask a model and wait for the whole text of its answer; its tokens are counted. Raises what the
model raises. Raises `TimeoutError` if it takes too long, `AdapterError` if the answer is
incomplete.
"""


class Judge(Protocol):
    """Answers a question about a run from time to time."""

    @property
    def name(self) -> str:
        """The name that stands in detections, events and reasons."""
        ...

    @property
    def fact(self) -> str:
        """The subject of the judge's answer: `loop` or `done`, see `Fact`."""
        ...

    @property
    def threshold(self) -> float:
        """The confidence from which on the judge has found something."""
        ...

    @property
    def timeout_s(self) -> float:
        """How long one model may take to answer, in seconds."""
        ...

    @property
    def counts(self) -> bool:
        """Whether the judge's tokens count for the run's limits and budgets. `Outcome.judge_usage`
        has them in any case.
        """
        ...

    def schedule(self) -> JudgeSchedule:
        """A new schedule for a run."""
        ...

    async def review(self, run: JudgeInput, ask: Ask, /) -> Judgement:
        """Judge the run. An exception becomes an event, and the judge is asked less often."""
        ...


class JudgeSchedule:
    """When one judge is asked in one run: one question at a time, always at the start of a turn.

    `suspicion`: the score (see `monitor.judges.suspicion`) from which on the judge is asked before
    `first_turn`, but not before `min_turns`. `None`: it never is.
    """

    __slots__ = ("_interval", "_last", "first_interval", "first_turn", "in_flight", "min_turns", "suspicion")

    def __init__(
        self,
        *,
        first_turn: int = FIRST_TURN,
        first_interval: int = FIRST_INTERVAL,
        suspicion: float | None = None,
        min_turns: int = MIN_TURNS,
    ) -> None:
        self.first_turn: int = first_turn
        self.first_interval: int = first_interval
        self.suspicion: float | None = suspicion
        self.min_turns: int = min_turns
        self.in_flight: bool = False
        self._interval = first_interval
        self._last: int | None = None

    def due(self, turn: int, suspicion: float = 0.0) -> bool:
        """Whether to ask the judge at this turn."""
        if self.in_flight or (self._last is not None and turn - self._last < self._interval):
            return False
        suspected = self.suspicion is not None and turn >= self.min_turns and suspicion >= self.suspicion
        return turn >= self.first_turn or suspected

    def asked(self, turn: int) -> None:
        """The judge was asked at this turn."""
        self.in_flight = True
        self._last = turn

    def answered(self, confidence: float) -> None:
        """The judge has answered. The higher `confidence`, the sooner it is asked again."""
        self.in_flight = False
        self._interval = next_interval(confidence)

    def failed(self) -> None:
        """The judge gave no answer: the next interval is twice as long."""
        self.in_flight = False
        self._interval = max(self._interval, min(MAX_INTERVAL, 2 * self._interval))


def next_interval(confidence: float) -> int:
    """Turns until the next question. Half a turn is rounded up, as in Gemini CLI; `round` would
    round it to even.
    """
    return math.floor(MIN_INTERVAL + INTERVAL_RANGE * (1 - min(1.0, max(0.0, confidence))) + 0.5)


def as_judges(given: object) -> tuple[Judge, ...]:
    """`given` as a tuple of judges: one judge, several, or `None`. Raises `ConfigError` for
    anything else.
    """
    if given is None:
        return ()
    several: list[Any] = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    for judge in several:
        if isinstance(judge, type) or not callable(getattr(judge, "review", None)):
            raise ConfigError(
                f"judge takes a judge such as monitor.LoopJudge(model), or a list of judges, not {judge!r}: write"
                " judge=monitor.LoopJudge(monitor.model('google:gemini-2.5-flash'))"
            )
        missing = [name for name in _PARTS if not hasattr(judge, name)]
        if missing:
            raise ConfigError(f"judge: {judge!r} has no {', '.join(missing)}")
        if judge.fact not in get_args(Fact):
            raise ConfigError(f"judge: the fact of {judge.name} is 'loop' or 'done', not {judge.fact!r}")
    return tuple(several)


_PARTS = ("name", "fact", "threshold", "timeout_s", "counts", "schedule")
