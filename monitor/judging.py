"""What a judge is told, what it answers, and when it is asked. The judges themselves are in `monitor.judges`.

A judge is a model that looks at a run from outside. It is slow and costs money, so it is asked now and then, beside the stream,
and what it answers is a fact like any other: `RunCore` takes it in, the policy decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from monitor.models import Model, ModelRequest
from monitor.state import Usage

FIRST_TURN = 30
"""Turns before which a judge is not asked: most runs are over by then (Gemini CLI)."""
FIRST_INTERVAL = 10
"""Turns until the next question, before a judge has said how sure it is (Gemini CLI; 3 in the article)."""
MIN_INTERVAL, INTERVAL_RANGE = 5, 10
"""The next question comes after round(5 + 10 x (1 - confidence)) turns (Gemini CLI)."""
MAX_INTERVAL = 60
"""A judge that fails is asked half as often each time, up to this."""


@dataclass(slots=True, frozen=True)
class JudgeInput:
    """What a judge is told of a run."""

    task: str | None
    """The user's request, where it is known."""
    digest: str
    """The latest messages in short: who said what, which calls with which results. Quoted data, not instructions."""
    turn: int
    """The turn that is about to be answered, or is being answered."""


@dataclass(slots=True, frozen=True)
class Judgement:
    """What a judge answered."""

    analysis: str
    """Its reasons, in its own words."""
    confidence: float
    """How sure it is of what it was asked for, 0 to 1: that the run is stuck, or that the task is done."""
    found: bool
    """Sure enough, by the judge's own threshold and its second opinion."""
    judged_by: str
    """The model whose word counted."""
    usage: Usage = field(default_factory=Usage)
    """What asking cost, all its models together."""


@dataclass(slots=True, frozen=True)
class ModelReply:
    """The whole answer of a model to one request."""

    text: str
    usage: Usage = field(default_factory=Usage)


Ask: TypeAlias = Callable[[Model, ModelRequest], Awaitable[ModelReply]]
"""Ask a model and wait for its whole answer. Raises what the model raises; `TimeoutError` where it takes too long."""


class Judge(Protocol):
    """Looks at a run from time to time."""

    @property
    def name(self) -> str:
        """Stands in detections, events and reasons."""
        ...

    @property
    def fact(self) -> str:
        """What its answer is about: `loop` (the run is stuck) or `done` (the task is complete)."""
        ...

    @property
    def threshold(self) -> float:
        """From which confidence on it has found something."""
        ...

    @property
    def timeout_s(self) -> float:
        """How long one question may take, in seconds."""
        ...

    @property
    def counts(self) -> bool:
        """Whether its tokens count for the run's limits and budgets. They are always counted for themselves."""
        ...

    def schedule(self) -> JudgeSchedule:
        """When to ask it, anew for each run."""
        ...

    async def review(self, run: JudgeInput, ask: Ask) -> Judgement:
        """Look at the run. Whatever it raises is an event, and the judge is asked less often."""
        ...


class JudgeSchedule:
    """When one judge is asked in one run. One question at a time.

    `suspicion`: the score (see `monitor.suspicion`) from which it is asked before `first_turn`, but not before `min_turns`; `None`: never.
    """

    __slots__ = ("_interval", "_last", "first_interval", "first_turn", "in_flight", "min_turns", "suspicion")

    def __init__(
        self,
        *,
        first_turn: int = FIRST_TURN,
        first_interval: int = FIRST_INTERVAL,
        suspicion: float | None = None,
        min_turns: int = 5,
    ) -> None:
        self.first_turn = first_turn
        self.first_interval = first_interval
        self.suspicion = suspicion
        self.min_turns = min_turns
        self.in_flight = False
        self._interval = first_interval
        self._last = 0

    def due(self, turn: int, suspicion: float = 0.0) -> bool:
        """Whether to ask at this turn."""
        if self.in_flight or turn - self._last < self._interval:
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
        self._interval = min(MAX_INTERVAL, self._interval * 2)


def next_interval(confidence: float) -> int:
    """Turns until the next question."""
    return round(MIN_INTERVAL + INTERVAL_RANGE * (1 - min(1.0, max(0.0, confidence))))
