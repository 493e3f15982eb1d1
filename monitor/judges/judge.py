"""The protocol of judges, and when a judge is asked."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from monitor._util.hashing import identity
from monitor.chunks import AskCost, ToolResult
from monitor.errors import ConfigError
from monitor.events import CompactionFinished
from monitor.models import Model, ModelRequest
from monitor.outcome import Turn
from monitor.verdicts import Detection, Evidence, Judgement, Level

if TYPE_CHECKING:
    from monitor.judges.digest import IdleSteps


FIRST_TURN = 8
"""The turn at whose start a judge is first asked (measured: docs/judge.md)."""
FIRST_INTERVAL = 6
"""Turns from the first question to the next one."""
LEAST_STEPS = 5
"""A doubt makes a judge be asked earlier, but not before this many steps: calls that are answered,
and turns without a call. A judge sees enough in five steps (measured: docs/judge.md).
"""
RECHECK_STEPS = 3
"""Steps that an agent has after it was steered, before its judge is asked again."""
SHARE = 0.03
"""The share of the run's tokens that a judge of loops may use."""
QUESTION_TOKENS = 900
"""Tokens of a question without its record, and of the answer: the instructions have 600."""
CHARS_PER_TOKEN = 4
"""Characters of English a token, as an estimate."""
MIN_INTERVAL, INTERVAL_RANGE = 5, 10
"""Without lines, the next question comes after round(5 + 10 x (1 - confidence)) turns (Gemini CLI).
"""
MAX_INTERVAL = 60
"""Longest interval, in turns. With each failure a judge is asked half as often, up to this."""


@dataclass(slots=True, frozen=True, kw_only=True)
class JudgeLines:
    """What a judge's confidence means, beside its `threshold`. From `threshold` on the agent is
    steered by a sentence. If a later answer is as high, the run is stuck. Measured: docs/judge.md.
    """

    unsure: float = 0.5
    """From here on the judge is asked again soon. Below it the run is acquitted: doubts are taken
    back, and the gap to the next question grows.
    """
    sure: float = 0.9
    """From here on the run is stuck at once, if a detector has found something, too."""


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


GivenJudge: TypeAlias = Judge | Model | str
"""A judge, or the model of a `LoopJudge`, or its name: "google:gemini-2.5-flash-lite"."""
GivenJudges: TypeAlias = GivenJudge | Sequence[GivenJudge] | None
"""One judge, several, or none."""


class JudgeSchedule:
    """When one judge is asked in one run, and what its answers mean: one question at a time, always
    at the start of a turn.

    `first_turn`, `first_interval`: when it is first asked, and how many turns later again. `lines`:
    what its confidence means; doubts then make it be asked earlier. `None`: each finding is a loop.
    `share`: the share of the run's tokens that it may use. `None`: without a bound.
    """

    __slots__ = (
        "_acquittals",
        "_from_step",
        "_interval",
        "_last",
        "_spent",
        "_steered",
        "first_interval",
        "first_turn",
        "in_flight",
        "lines",
        "share",
    )

    def __init__(
        self,
        *,
        first_turn: int = FIRST_TURN,
        first_interval: int = FIRST_INTERVAL,
        lines: JudgeLines | None = None,
        share: float | None = None,
    ) -> None:
        self.first_turn: int = first_turn
        self.first_interval: int = first_interval
        self.lines: JudgeLines | None = lines
        self.share: float | None = share
        self.in_flight: bool = False
        self._interval = first_interval
        self._last: int | None = None
        self._from_step = self._acquittals = self._spent = 0
        self._steered = False

    def due(self, turn: int, steps: int = 0, *, doubted: bool = False) -> bool:
        """Whether to ask the judge at this turn. `steps`: see `LEAST_STEPS`. `doubted`: a detector
        has found something.
        """
        if self.in_flight:
            return False
        doubted = doubted and self.lines is not None
        if self._last is None:
            return turn >= self.first_turn or (doubted and steps >= LEAST_STEPS)
        interval = self._interval // 2 if doubted else self._interval
        return turn - self._last >= interval and steps >= self._from_step

    def can_pay(self, question_tokens: int, run_tokens: int) -> bool:
        """Whether a question of `question_tokens` is within the judge's share."""
        return self.share is None or self._spent + question_tokens <= self.share * run_tokens

    def asked(self, turn: int) -> None:
        """The judge was asked at this turn."""
        self.in_flight = True
        self._last = turn

    def answered(self, judgement: Judgement, *, tokens: int = 0, steps: int = 0, doubted: bool = False) -> Level | None:
        """The judge has answered. `tokens`: the cost of the question. Returns the level of its
        finding: `suspect` steers the agent, `loop` says that the run is stuck. `None`: none.
        """
        self.in_flight = False
        self._spent += tokens
        confidence, lines = judgement.confidence, self.lines
        if lines is None:
            self._interval = next_interval(confidence)
            return "loop" if judgement.found else None
        if judgement.found:
            stuck = self._steered or (doubted and confidence >= lines.sure)
            self._steered, self._acquittals = True, 0
            self._interval, self._from_step = 1, steps + RECHECK_STEPS
            return "loop" if stuck else "suspect"
        if self.acquits(judgement):
            self._steered = False
            self._interval = min(MAX_INTERVAL, self.first_interval + self._acquittals * (self._acquittals + 3))
            self._acquittals += 1
        else:
            self._interval, self._acquittals = max(1, min(self._interval, self.first_interval) // 2), 0
        return None

    def acquits(self, judgement: Judgement) -> bool:
        """Whether the judge says that the run gets on."""
        return not judgement.found and (self.lines is None or judgement.confidence < self.lines.unsure)

    def failed(self, *, tokens: int = 0) -> None:
        """The judge gave no answer: the next interval is twice as long."""
        self.in_flight = False
        self._spent += tokens
        self._interval = max(self._interval, min(MAX_INTERVAL, 2 * self._interval))


def next_interval(confidence: float) -> int:
    """Turns until the next question. Half a turn is rounded up, as in Gemini CLI; `round` would
    round it to even.
    """
    return math.floor(MIN_INTERVAL + INTERVAL_RANGE * (1 - min(1.0, max(0.0, confidence))) + 0.5)


# --------------------------------------------------------------------------------------------------
# The judges of a run: what they read, when each is asked, and what their answers mean.

EXCERPT_CHARS = 200


class RunJudges:
    """Keeps what the judges of one run read, and when each is asked. Without judges it keeps
    nothing.
    """

    __slots__ = ("_digest", "_history_tokens", "_idle_steps", "_judges", "_sent_tokens", "_steps", "doubt", "task")

    def __init__(
        self, judges: Sequence[Judge], task: str | None = None, *, idle_steps: IdleSteps | None = None
    ) -> None:
        """`idle_steps`: new ones, which know the steps without news. `None`: nobody does."""
        self._judges: dict[str, tuple[Judge, JudgeSchedule]] = {}
        if judges:
            names = [judge.name for judge in judges]
            if len(set(names)) < len(names):
                raise ConfigError(f"two judges have the same name; give one of them another name=: {', '.join(names)}")
            # only a run with a judge needs it
            from monitor.judges.digest import Digest  # noqa: PLC0415

            self._judges = {judge.name: (judge, judge.schedule()) for judge in judges}
            self._digest = Digest()
            self._idle_steps = idle_steps
        self.task: str | None = task
        """The user's request. `None`: unknown."""
        self.doubt: Level | None = None
        """The surest finding of the detectors since a judge has last acquitted the run."""
        self._steps = self._history_tokens = self._sent_tokens = 0

    def counts(self, name: str) -> bool:
        """Whether the tokens of the judge `name` count for the run."""
        return name in self._judges and self._judges[name][0].counts

    def knows(self, name: str) -> bool:
        """Whether one of the judges has this name."""
        return name in self._judges

    def __bool__(self) -> bool:
        return bool(self._judges)

    @property
    def judge_loops(self) -> bool:
        """Whether one of them says whether the run is stuck."""
        return any(judge.fact == "loop" for judge, _ in self._judges.values())

    def request(self, text: str) -> None:
        """The user asks for something more."""
        if self._judges:
            if text != self.task:
                self._digest.add_request(text)
            if self._idle_steps is not None:
                self._idle_steps.request(text)

    def found(self, detection: Detection) -> None:
        """A detector has found something: the run is doubted."""
        if self._judges and self.doubt != "loop":
            self.doubt = detection.level

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
            self._steps += not turn.tool_calls
            self._sent_tokens += self._history_tokens  # the history is sent with each request
            self._history_tokens += turn.usage.output_tokens

    def add_result(self, result: ToolResult, at_s: float | None = None) -> None:
        """Add the result of a tool's call, which came `at_s` seconds after the run began."""
        if self._judges:
            self._digest.add_result(result, at_s)
            if self._idle_steps is not None:
                self._idle_steps.add_result(result)
            self._steps += 1
            self._history_tokens += len(result.text) // CHARS_PER_TOKEN

    def add_warning(self, turn: int, text: str) -> None:
        """Add a message to the agent, e.g. a nudge."""
        if self._judges:
            self._digest.add_warning(turn, text)

    def due(self, turn: int, tokens: int = 0, *, at_once: bool = False) -> list[tuple[Judge, JudgeInput]]:
        """The judges to be asked now, each with its input. They count as asked.

        `tokens`: those that the run has used, as far as they are known. `at_once`: a finding waits
        for a judge of loops.
        """
        doubted = self.doubt is not None
        due = [
            (judge, schedule)
            for judge, schedule in self._judges.values()
            if schedule.due(turn, self._steps, doubted=doubted)
            or (at_once and judge.fact == "loop" and not schedule.in_flight)
        ]
        if not due:
            return []
        record = self._digest.render()
        doubts = "" if self._idle_steps is None else self._idle_steps.render(self._digest.turns_shown)
        told = JudgeInput(self.task, record, turn, doubts)
        cost = QUESTION_TOKENS + (len(told.digest) + len(told.doubts)) // CHARS_PER_TOKEN
        tokens = max(tokens, self._sent_tokens + self._history_tokens)
        due = [(judge, schedule) for judge, schedule in due if schedule.can_pay(cost, tokens)]
        for _, schedule in due:
            schedule.asked(turn)
        return [(judge, told) for judge, _ in due]

    def asked(self, name: str, turn: int) -> None:
        """The judge `name` was asked at this turn."""
        self._judges[name][1].asked(turn)

    def answered(self, name: str, judgement: Judgement | None, cost: AskCost) -> tuple[Level | None, bool | None]:
        """The judge `name` has answered; `None`: it has failed. Returns the level of its finding,
        see `JudgeSchedule.answered`, and whether a judge of loops has acquitted the run.
        """
        judge, schedule = self._judges[name]
        if judgement is None:
            schedule.failed(tokens=cost.usage.total_tokens)
            return None, False if judge.fact == "loop" else None
        level = schedule.answered(
            judgement, tokens=cost.usage.total_tokens, steps=self._steps, doubted=self.doubt is not None
        )
        if judge.fact != "loop":
            return None, None
        acquitted = schedule.acquits(judgement)
        if acquitted:
            self.doubt = None
        return level, acquitted

    def left_alone(self) -> None:
        """The earlier process is gone: nobody answers to what it asked."""
        for _, schedule in self._judges.values():
            if schedule.in_flight:
                schedule.failed()


NO_JUDGES: Final = RunJudges(())
"""The judges of all runs without judges. It keeps nothing."""


def detection_of(judge: Judge, told: JudgeInput, judgement: Judgement, turn: int, level: Level) -> Detection:
    """The detection for a judge's answer. The judge was asked at the start of one turn; its answer
    came in `turn`, perhaps a later one.

    The detection's identity is the judge: when it finds the run stuck again, that is the same loop.
    `count` and `threshold` are in percent; the confidence itself stands in `JudgeAnswered`. The
    excerpt of a suspicion is the judge's sentence for the agent, that of a loop its reasons.
    """
    note = judgement.advice if level == "suspect" and judgement.advice else judgement.analysis
    if level == "suspect" and judgement.ask_person:
        note = f"A person must be asked. {note}"
    return Detection(
        detector=judge.name,
        kind="judge",
        channel="messages",
        level=level,
        count=round(100 * judgement.confidence),
        threshold=round(100 * judge.threshold),
        start_offset=max(0, told.turn - 1),
        offset=max(0, turn - 1),
        evidence=Evidence(note[:EXCERPT_CHARS], identity(judge.name), len(note)),
        message=f"{judgement.judged_by} is {judgement.confidence:.0%} sure that the run is stuck",
    )
