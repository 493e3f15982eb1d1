"""What may be given as a judge."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, get_args

from monitor.errors import ConfigError
from monitor.models import Model, ModelRequest
from monitor.verdicts import Fact, Judgement

FIRST_TURN = 30
"""The turn at whose start a judge is asked first: most runs are over by then (Gemini CLI)."""
FIRST_INTERVAL = 10
"""Turns from the first question to the next one, where the first was not answered (Gemini CLI; 3 in
the article).
"""
MIN_INTERVAL, INTERVAL_RANGE = 5, 10
"""The next question comes after round(5 + 10 x (1 - confidence)) turns (Gemini CLI)."""
MAX_INTERVAL = 60
"""A judge that fails is asked half as often each time, up to this."""
MIN_TURNS = 5
"""Shorter runs are not asked about, however suspicious they look."""


@dataclass(slots=True, frozen=True)
class JudgeInput:
    """What a judge is told of a run."""

    task: str | None
    """The user's request, where it is known."""
    digest: str
    """The latest messages in short: who said what, which calls with which results. Quoted data, not
    instructions.
    """
    turn: int
    """The turn that is about to be answered, or is being answered."""


def checked(answer: object) -> Judgement:
    """What a judge answered. Raises `ConfigError` for what is no judgement: a judge may be the
    caller's code.
    """
    if not isinstance(answer, Judgement):
        raise ConfigError(f"a judge answers with a Judgement, not {answer!r}")
    confidence: object = answer.confidence
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0 <= confidence <= 1:
        raise ConfigError(f"a judgement's confidence is a number between 0 and 1, not {confidence!r}")
    return answer


Ask: TypeAlias = Callable[[Model, ModelRequest], Awaitable[str]]
"""Ask a model and wait for the whole text of its answer. Raises what the model raises,
`TimeoutError` where it takes too long, `AdapterError` where the answer did not come to its end.
What it costs is counted.
"""


class Judge(Protocol):
    """Looks at a run from time to time."""

    @property
    def name(self) -> str:
        """Stands in detections, events and reasons."""
        ...

    @property
    def fact(self) -> Fact:
        """What its answer is about."""
        ...

    @property
    def threshold(self) -> float:
        """From which confidence on it has found something; stands in the detection."""
        ...

    @property
    def timeout_s(self) -> float:
        """How long one model may take to answer, in seconds."""
        ...

    @property
    def counts(self) -> bool:
        """Whether its tokens count for the run's limits and budgets. They are always counted for
        themselves.
        """
        ...

    def schedule(self) -> JudgeSchedule:
        """When to ask it, anew for each run."""
        ...

    async def review(self, run: JudgeInput, ask: Ask) -> Judgement:
        """Look at the run. What it raises is an event, and the judge is asked less often."""
        ...


class JudgeSchedule:
    """When one judge is asked in one run: one question at a time, always at the start of a turn.

    `suspicion`: the score (see `monitor.judges.suspicion`) from which it is asked before
    `first_turn`, but not before `min_turns`; `None`: never.
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
        self.first_turn = first_turn
        self.first_interval = first_interval
        self.suspicion = suspicion
        self.min_turns = min_turns
        self.in_flight = False
        self._interval = first_interval
        self._last: int | None = None

    def due(self, turn: int, suspicion: float = 0.0) -> bool:
        """Whether to ask at this turn."""
        if self.in_flight or (self._last is not None and turn - self._last < self._interval):
            return False
        suspected = self.suspicion is not None and turn >= self.min_turns and suspicion >= self.suspicion
        return turn >= self.first_turn or suspected

    def asked(self, turn: int) -> None:
        """The question is on its way."""
        self.in_flight = True
        self._last = turn

    def answered(self, confidence: float) -> None:
        """The surer it is, the sooner it is asked again."""
        self.in_flight = False
        self._interval = next_interval(confidence)

    def failed(self) -> None:
        """It gave no answer."""
        self.in_flight = False
        self._interval = max(self._interval, min(MAX_INTERVAL, 2 * self._interval))


def next_interval(confidence: float) -> int:
    """Turns until the next question. Half a turn is rounded up, as Gemini CLI does it, and not to
    even as `round` would.
    """
    return math.floor(MIN_INTERVAL + INTERVAL_RANGE * (1 - min(1.0, max(0.0, confidence))) + 0.5)


def as_judges(given: object) -> tuple[Judge, ...]:
    """A judge, several, or none (`None`). `ConfigError` for anything else."""
    if given is None:
        return ()
    several: list[Any] = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    for judge in several:
        if isinstance(judge, type) or not callable(getattr(judge, "review", None)):
            raise ConfigError(
                f"judge takes a judge such as monitor.LoopJudge(model), or a list of judges, not {judge!r}"
            )
        missing = [name for name in _PARTS if not hasattr(judge, name)]
        if missing:
            raise ConfigError(f"judge: {judge!r} has no {', '.join(missing)}")
        if judge.fact not in get_args(Fact):
            raise ConfigError(f"judge: the fact of {judge.name} is 'loop' or 'done', not {judge.fact!r}")
    return tuple(several)


_PARTS = ("name", "fact", "threshold", "timeout_s", "counts", "schedule")
