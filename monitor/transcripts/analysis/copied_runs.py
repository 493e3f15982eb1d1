"""Counts each step of a recorded run once, however often it was recorded: in a copy of its file, in
a session that was resumed or forked, in an archive.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

from monitor.transcripts.analysis.cost import UNKNOWN_COST, RunCost, known_sum
from monitor.transcripts.analysis.recorded_steps import NO_STEPS, RecordedStep
from monitor.transcripts.analysis.scan import ModelOutput
from monitor.transcripts.analysis.survey import SurveyedRun
from monitor.usage import NO_USAGE, Usage


@dataclass(slots=True, frozen=True)
class _Counted:
    """The numbers of a run up to its last step."""

    total: ModelOutput
    errors: int
    usage: Usage | None
    usd: float | None


class Copies:
    """The steps that were counted, and the part of a further run that was not."""

    def __init__(self) -> None:
        self._counted: set[int] = set()
        self._ends: dict[int, _Counted] = {}
        """The numbers of each run, by the mark of its last step."""
        self._looped: dict[tuple[str, str], bool] = {}
        """Whether a run has a loop, by its format and id."""

    def without(self, run: SurveyedRun) -> SurveyedRun | None:
        """`run` with the numbers of its new steps alone. `None`: all of its steps were counted."""
        marks = run.steps.marks
        seen = [mark in self._counted for mark in marks]
        known = next((at for at, is_seen in enumerate(seen) if not is_seen), len(seen))
        earlier = self._ends.get(marks[known - 1]) if known and not any(seen[known:]) else None
        self._counted.update(marks)
        if marks:
            self._ends[marks[-1]] = _Counted(run.total, run.errors, run.usage, run.cost_usd)
        id = run.format, run.id
        if not any(seen):
            self._looped[id] = run.loops
            return replace(run, steps=NO_STEPS)
        if all(seen):
            return None
        rest = _told_anew(run, seen, looped=self._looped.get(id, False))
        rest = replace(rest, steps=NO_STEPS, copied_turns=sum(seen), goes_on=id in self._looped)
        self._looped[id] = self._looped.get(id, False) or rest.loops
        return _new_steps(rest, run.steps.unpacked(), seen) if earlier is None else _difference(rest, earlier)


def _told_anew(run: SurveyedRun, seen: Sequence[bool], *, looped: bool) -> SurveyedRun:
    """`run` with the findings in its new steps alone. `looped`: the earlier part of the run has a
    loop, so no other loop counts.
    """
    begins = [step.message for step in run.steps.unpacked()]

    def is_new(message: int) -> bool:
        return not looped and not seen[max(bisect_right(begins, message) - 1, 0)]

    rest = replace(run, findings=tuple(one for one in run.findings if is_new(one.message)))
    if run.ended_by is None or is_new(run.ended_by.message):
        return rest
    return replace(
        rest,
        ended_by=None,
        saved=ModelOutput(),
        saved_tokens=None if run.saved_tokens is None else 0,
        saved_usd=None if run.saved_usd is None else 0.0,
    )


def _difference(run: SurveyedRun, earlier: _Counted) -> SurveyedRun:
    """`run` with the numbers after those of `earlier`, with which it begins."""
    usage, usd = run.usage, run.cost_usd
    if usage is not None and earlier.usage is not None:
        usage = Usage(*(max(one - other, 0) for one, other in zip(astuple(usage), astuple(earlier.usage), strict=True)))
    if usd is not None and earlier.usd is not None:
        usd = max(usd - earlier.usd, 0.0)
    errors = max(run.errors - earlier.errors, 0)
    return replace(run, total=run.total - earlier.total, errors=errors, usage=usage, cost_usd=usd)


def _new_steps(run: SurveyedRun, steps: Sequence[RecordedStep], seen: Sequence[bool]) -> SurveyedRun:
    """`run` with the numbers of those `steps` that were not `seen`."""
    new = [step for step, is_seen in zip(steps, seen, strict=True) if not is_seen]
    used = [step.usage for step in new if step.usage is not None]
    cost = UNKNOWN_COST
    for step in new:
        usd = known_sum(cost.usd, step.cost.usd)
        cost = RunCost(usd, cost.partial or step.cost.partial, cost.listed or step.cost.listed)
    return replace(
        run,
        total=ModelOutput(sum(step.chars for step in new), sum(step.tool_calls for step in new), len(new)),
        errors=sum(step.errors for step in new),
        usage=sum(used, NO_USAGE) if used else None,
        cost_usd=cost.usd,
        cost_partial=cost.partial,
        cost_listed=cost.listed,
    )
