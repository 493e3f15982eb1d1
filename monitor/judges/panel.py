"""The judges of a run: what they read, when each is asked, and what their answers mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from monitor._util.hashing import identity
from monitor.chunks import ToolResult
from monitor.errors import ConfigError
from monitor.events import JudgeAnswered, JudgeAsked, JudgeFailed
from monitor.judges.judge import Judge, JudgeInput, JudgeSchedule
from monitor.outcome import Turn
from monitor.verdicts import Detection, Evidence, Judgement

if TYPE_CHECKING:
    from monitor.judges.doubts import Doubts

EXCERPT_CHARS = 200


class Panel:
    """Keeps what the judges of one run read, and when each is asked. Without judges it keeps
    nothing.
    """

    __slots__ = ("_digest", "_doubts", "_judges", "_suspicion", "task")

    def __init__(self, judges: Sequence[Judge], task: str | None = None, *, doubts: Doubts | None = None) -> None:
        """`doubts`: new ones, which know the steps without news. `None`: nobody does."""
        self._judges: tuple[tuple[Judge, JudgeSchedule], ...] = ()
        if judges:
            names = [judge.name for judge in judges]
            if len(set(names)) < len(names):
                raise ConfigError(f"two judges have the same name; give one of them another name=: {', '.join(names)}")
            # only a run with a judge needs these
            from monitor.judges.digest import Digest  # noqa: PLC0415
            from monitor.judges.suspicion import Suspicion  # noqa: PLC0415

            self._judges = tuple((judge, judge.schedule()) for judge in judges)
            self._digest = Digest()
            self._doubts = doubts
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
        if self._judges and self._doubts is not None:
            self._doubts.request(text)

    def add_turn(self, turn: Turn) -> None:
        """Add a turn that has ended."""
        if self._judges:
            self._digest.add_turn(turn)
            if self._doubts is not None:
                self._doubts.add_turn(turn)
            for call in turn.tool_calls:
                self._suspicion.add_call(call)

    def add_result(self, result: ToolResult) -> None:
        """Add the result of a tool's call."""
        if self._judges:
            self._digest.add_result(result)
            if self._doubts is not None:
                self._doubts.add_result(result)
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
        doubts = "" if self._doubts is None else self._doubts.render()
        told = JudgeInput(self.task, self._digest.render(), turn, doubts)
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


NO_JUDGES: Final = Panel(())
"""The panel of all runs without judges. It keeps nothing."""


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
