"""The protocol of judges, and when a judge is asked."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, get_args

from monitor._util.hashing import identity
from monitor.chunks import ToolResult
from monitor.errors import ConfigError
from monitor.events import CompactionFinished, JudgeAnswered, JudgeAsked, JudgeFailed
from monitor.models import Model, ModelRequest
from monitor.outcome import Turn
from monitor.verdicts import Detection, Evidence, Fact, Judgement

if TYPE_CHECKING:
    from monitor.judges.digest import IdleSteps


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

    `suspicion`: the score (see `monitor.judges.digest`) from which on the judge is asked before
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


# --------------------------------------------------------------------------------------------------
# The judges of a run: what they read, when each is asked, and what their answers mean.

EXCERPT_CHARS = 200


class RunJudges:
    """Keeps what the judges of one run read, and when each is asked. Without judges it keeps
    nothing.
    """

    __slots__ = ("_digest", "_idle_steps", "_judges", "_suspicion", "task")

    def __init__(
        self, judges: Sequence[Judge], task: str | None = None, *, idle_steps: IdleSteps | None = None
    ) -> None:
        """`idle_steps`: new ones, which know the steps without news. `None`: nobody does."""
        self._judges: tuple[tuple[Judge, JudgeSchedule], ...] = ()
        if judges:
            names = [judge.name for judge in judges]
            if len(set(names)) < len(names):
                raise ConfigError(f"two judges have the same name; give one of them another name=: {', '.join(names)}")
            # only a run with a judge needs these
            from monitor.judges.digest import Digest, Suspicion  # noqa: PLC0415

            self._judges = tuple((judge, judge.schedule()) for judge in judges)
            self._digest = Digest()
            self._idle_steps = idle_steps
            self._suspicion = Suspicion()
        self.task: str | None = task
        """The user's request. `None`: unknown."""

    def counts(self, name: str) -> bool:
        """Whether the tokens of the judge `name` count for the run."""
        return any(judge.counts for judge, _ in self._judges if judge.name == name)

    def __bool__(self) -> bool:
        return bool(self._judges)

    def request(self, text: str) -> None:
        """The user asks for something more."""
        if self._judges:
            if text != self.task:
                self._digest.add_request(text)
            if self._idle_steps is not None:
                self._idle_steps.request(text)

    def set_scene(self, rules: str, tools: Iterable[str]) -> None:
        """The agent's rules, and the names of the tools that it is offered."""
        if self._judges:
            self._digest.set_scene(rules, tools)

    def add_compaction(self, event: CompactionFinished) -> None:
        """The history was compacted."""
        if self._judges:
            self._digest.add_compaction(event.tokens_before, event.tokens_after)

    def add_turn(self, turn: Turn, at_s: float | None = None) -> None:
        """Add a turn that has ended, `at_s` seconds after the run began."""
        if self._judges:
            self._digest.add_turn(turn, at_s)
            if self._idle_steps is not None:
                self._idle_steps.add_turn(turn)
            for call in turn.tool_calls:
                self._suspicion.add_call(call)

    def add_result(self, result: ToolResult, at_s: float | None = None) -> None:
        """Add the result of a tool's call, which came `at_s` seconds after the run began."""
        if self._judges:
            self._digest.add_result(result, at_s)
            if self._idle_steps is not None:
                self._idle_steps.add_result(result)
            self._suspicion.add_result(result)

    def add_warning(self, turn: int, text: str) -> None:
        """Add a message to the agent, e.g. a nudge."""
        if self._judges:
            self._digest.add_warning(turn, text)

    def due(self, turn: int) -> list[tuple[Judge, JudgeInput]]:
        """The judges to be asked now, each with its input. They count as asked."""
        due = [(judge, schedule) for judge, schedule in self._judges if schedule.due(turn, self._suspicion.score)]
        if not due:
            return []
        record = self._digest.render()
        doubts = "" if self._idle_steps is None else self._idle_steps.render(self._digest.turns_shown)
        told = JudgeInput(self.task, record, turn, doubts)
        for _, schedule in due:
            schedule.asked(turn)
        return [(judge, told) for judge, _ in due]

    def answered(self, judge: Judge, judgement: Judgement) -> None:
        """Note that `judge` has answered."""
        self._schedule_of(judge).answered(judgement.confidence)

    def failed(self, judge: Judge) -> None:
        """Note that `judge` gave no answer."""
        self._schedule_of(judge).failed()

    def see_again(self, event: JudgeAsked | JudgeAnswered | JudgeFailed) -> None:
        """In an earlier process a judge was asked, has answered, or has failed."""
        schedule = next((schedule for judge, schedule in self._judges if judge.name == event.judge), None)
        match event:
            case _ if schedule is None:
                pass
            case JudgeAsked(turn=turn):
                schedule.asked(turn)
            case JudgeAnswered(judgement=judgement):
                schedule.answered(judgement.confidence)
            case JudgeFailed():
                schedule.failed()

    def left_alone(self) -> None:
        """The earlier process is gone: nobody answers to what it asked."""
        for _, schedule in self._judges:
            if schedule.in_flight:
                schedule.failed()

    def _schedule_of(self, judge: Judge) -> JudgeSchedule:
        return next(schedule for known, schedule in self._judges if known is judge)


NO_JUDGES: Final = RunJudges(())
"""The judges of all runs without judges. It keeps nothing."""


def detection_of(judge: Judge, told: JudgeInput, judgement: Judgement, turn: int) -> Detection:
    """The detection for a judge's answer. The judge was asked at the start of one turn; its answer
    came in `turn`, perhaps a later one.

    The detection's identity is the judge: when it finds the run stuck again, that is the same loop.
    `count` and `threshold` are in percent; the confidence itself stands in `JudgeAnswered`.
    """
    return Detection(
        detector=judge.name,
        kind="judge",
        channel="messages",
        level="loop",
        count=round(100 * judgement.confidence),
        threshold=round(100 * judge.threshold),
        start_offset=max(0, told.turn - 1),
        offset=max(0, turn - 1),
        evidence=Evidence(judgement.analysis[:EXCERPT_CHARS], identity(judge.name), len(judgement.analysis)),
        message=f"{judgement.judged_by} is {judgement.confidence:.0%} sure that the run is stuck",
    )
