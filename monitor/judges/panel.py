"""The judges of a run: what they are told, who is asked when, and what their answers mean as
findings.
"""

from __future__ import annotations

from collections.abc import Sequence

from monitor._util.hashing import identity
from monitor.chunks import ToolResult
from monitor.errors import ConfigError
from monitor.judges.base import Judge, JudgeInput, JudgeSchedule
from monitor.judges.digest import Digest
from monitor.judges.suspicion import Suspicion
from monitor.outcome import Turn
from monitor.verdicts import Detection, Evidence, Judgement

EXCERPT_CHARS = 200


class Panel:
    """Keeps the judges' books. With no judge in it, it keeps none."""

    __slots__ = ("_digest", "_judges", "_suspicion", "task")

    def __init__(self, judges: Sequence[Judge], task: str | None = None) -> None:
        self._judges: list[tuple[Judge, JudgeSchedule]] = [(judge, judge.schedule()) for judge in judges]
        names = [judge.name for judge in judges]
        if len(set(names)) < len(names):
            raise ConfigError(f"two judges have the same name; give one of them another name=: {', '.join(names)}")
        if judges:
            self._digest = Digest()
            self._suspicion = Suspicion()
        self.task = task
        """The user's request, where it is known."""

    def __bool__(self) -> bool:
        return bool(self._judges)

    def add_turn(self, turn: Turn) -> None:
        """A turn has ended."""
        if self._judges:
            self._digest.add_turn(turn)
            for call in turn.tool_calls:
                self._suspicion.add_call(call)

    def add_result(self, result: ToolResult) -> None:
        """A tool has answered."""
        if self._judges:
            self._digest.add_result(result)
            self._suspicion.add_result(result)

    def add_warning(self, turn: int, text: str) -> None:
        """The agent was told something by whoever drives it."""
        if self._judges:
            self._digest.add_warning(turn, text)

    def due(self, turn: int) -> list[tuple[Judge, JudgeInput]]:
        """Who is to be asked now, and what they are told. They count as asked."""
        due = [(judge, schedule) for judge, schedule in self._judges if schedule.due(turn, self._suspicion.score)]
        if not due:
            return []
        told = JudgeInput(self.task, self._digest.render(), turn)
        for _, schedule in due:
            schedule.asked(turn)
        return [(judge, told) for judge, _ in due]

    def answered(self, judge: Judge, judgement: Judgement) -> None:
        """It has its answer."""
        self._schedule_of(judge).answered(judgement.confidence)

    def failed(self, judge: Judge) -> None:
        """It has none."""
        self._schedule_of(judge).failed()

    def _schedule_of(self, judge: Judge) -> JudgeSchedule:
        return next(schedule for known, schedule in self._judges if known is judge)


def detection_of(judge: Judge, told: JudgeInput, judgement: Judgement, turn: int) -> Detection:
    """A judge's finding, asked at the start of one turn and heard in `turn`, perhaps a later one.

    Its identity is the judge: when it finds the run stuck again, that is the same loop, in other
    words. `count` and `threshold` are in percent; the confidence itself stands in `JudgeAnswered`.
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
