"""Counts each step of a recorded run once, however often it was recorded: in a copy of its file, in
a session that was resumed or forked, in an archive.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from monitor._util.hashing import chained
from monitor.chunks import NO_USAGE, Usage
from monitor.transcripts.analysis.recorded_steps import (
    NO_NUMBERS,
    NO_STEPS,
    NUMBERS,
    StepNumbers,
    StepRow,
    begin_alike,
    difference,
    tokens_of,
)
from monitor.transcripts.analysis.scan import ModelOutput
from monitor.transcripts.analysis.survey import SurveyedRun


class Copies:
    """The steps that were counted, and the part of a further run that was not."""

    def __init__(self) -> None:
        self._counted: dict[int, tuple[int, bytes]] = {}
        """The beginning and the numbers of each step, by its mark."""
        self._runs: dict[tuple[str, int], tuple[str, bool]] = {}
        """The id of each counted run, and whether it has a loop. The keys are its format with the
        mark of its opening, and with that of its end.
        """

    def without(self, run: SurveyedRun) -> SurveyedRun | None:
        """`run` with the numbers of its new steps alone. `None`: all of its steps were counted.
        The end of a step that was cut is new.
        """
        rows = list(run.steps.rows())
        begins = [message for _, message, _, _ in rows]
        if run.ended.totals is not None:
            rows.append(_sums(run, rows))
        before, new = zip(*(self._count(mark, beginning, numbers) for mark, _, beginning, numbers in rows), strict=True)
        opening, end = ((run.format, rows[at][0]) for at in (0, len(begins) - 1))
        is_copy = opening not in self._runs and all(before[1 : len(begins)])
        goes_on = (end if is_copy else opening) in self._runs
        id, looped = self._runs.get(end if is_copy else opening, (run.id, False))
        rest = replace(run, steps=NO_STEPS)
        if any(before):
            if len(rows) > len(begins) and not goes_on:
                new = new[:-1]  # the sums of a fork may have those of the steps that were counted
            turns = sum(before[1 : len(begins)])
            rest = replace(rest, began=run.began._replace(run=id), goes_on=goes_on, copied_turns=turns)
            rest = _told_anew(_of_steps(rest, new), begins, [looped or one is None for one in new])
            spent = rest.cost_usd or rest.usage not in {None, NO_USAGE}
            if rest.total == ModelOutput() and not (rest.errors or rest.findings or spent):
                return None
        self._runs[opening] = self._runs[end] = id, looped or rest.loops
        return rest

    def _count(self, mark: int, beginning: int, packed: bytes) -> tuple[bool, StepNumbers | None]:
        """Whether the step was known, and its new numbers. `None`: it has none."""
        known = self._counted.get(mark)
        if known is not None and not begin_alike(known[0], beginning):  # another step at the same time
            mark = chained(mark, f"{beginning}")
            known = self._counted.get(mark)
        if known is None:
            self._counted[mark] = beginning, packed
            return False, NUMBERS.unpack(packed)
        if known[1] == packed:
            return True, None
        now, then = NUMBERS.unpack(packed), NUMBERS.unpack(known[1])
        self._counted[mark] = known[0] | beginning, NUMBERS.pack(*map(max, now, then))
        more = difference(now, then)
        return True, more if any(more) else None


def _sums(run: SurveyedRun, rows: Sequence[StepRow]) -> StepRow:
    """The numbers that the recording of a whole run names beyond those of its steps, as a step."""
    tokens = tokens_of(run.usage or NO_USAGE)
    flags = run.usage is not None, run.cost_usd is not None, run.cost_partial, run.cost_listed
    steps = _added(NUMBERS.unpack(numbers) for _, _, _, numbers in rows)
    more = difference((0, 0, 0, 0, 0, *tokens, run.cost_usd or 0.0, *flags), steps)
    return chained(rows[0][0], "sums"), rows[-1][1], 0, NUMBERS.pack(*more)


def _added(steps: Iterable[StepNumbers]) -> tuple[Any, ...]:
    return tuple(sum(column) for column in zip(NO_NUMBERS, *steps, strict=True))


def _of_steps(run: SurveyedRun, steps: Sequence[StepNumbers | None]) -> SurveyedRun:
    """`run` with the numbers of `steps` alone. Where these have no response, 0 is known."""
    turns, chars, calls, _, errors, *tokens, usd, used, priced, partial, listed = _added(filter(None, steps))
    return replace(
        run,
        total=ModelOutput(chars, calls, turns),
        errors=errors,
        usage=Usage(*tokens) if used or (run.usage is not None and not turns) else None,
        cost_usd=usd if priced or (run.cost_usd is not None and not turns) else None,
        cost_partial=bool(partial),
        cost_listed=bool(listed),
    )


def _told_anew(run: SurveyedRun, begins: Sequence[int], known: Sequence[bool]) -> SurveyedRun:
    """`run` with the findings alone that are in no step that is `known`. The steps begin at the
    messages `begins`.
    """

    def is_new(message: int) -> bool:
        return not known[bisect_right(begins, message) - 1]

    rest = replace(run, findings=tuple(one for one in run.findings if is_new(one.message)))
    if run.ended_by is None or is_new(run.ended_by.message):
        return rest if rest.loops else replace(rest, loop=None, loop_usd=None)
    return replace(
        rest,
        ended_by=None,
        loop=None,
        loop_usd=None,
        saved=ModelOutput(),
        saved_tokens=None if run.saved_tokens is None else 0,
        saved_usd=None if run.saved_usd is None else 0.0,
    )
