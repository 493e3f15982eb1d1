"""A last turn instead of the end: which ends have one, and what it changes about how the run ends."""

from __future__ import annotations

from dataclasses import replace

from monitor.assignment import Assignment
from monitor.reasons import TerminateReason
from monitor.verdicts import LastTurn, Stop, Verdict

_OWN_WORD = frozenset(
    {
        TerminateReason.GOAL,
        TerminateReason.ABORTED,
        TerminateReason.CANCELLED,
        TerminateReason.CLOSED_BY_CALLER,
        TerminateReason.ERROR,
    }
)
"""Endings of a last turn that are the run's; after any other, and a failure of its model, the run ends as it would have without it."""


class Recovery:
    """The last turn of one run. `rule`: when there is one; `None`: never."""

    __slots__ = ("_assignment", "_rule", "cause")

    def __init__(self, rule: LastTurn | None, assignment: Assignment | None) -> None:
        self._rule = rule
        self._assignment = assignment
        self.cause: Stop | None = None
        """How the run ends if its last turn does not reach the goal; `None`: it is not in its last turn."""

    def instead_of(self, stop: Stop) -> LastTurn | None:
        """The last turn that comes before this end, once, where the rule has one for it."""
        rule, assignment = self._rule, self._assignment
        if rule is None or assignment is None or self.cause is not None or stop.reason not in rule.after:
            return None
        return replace(rule, text=assignment.last_words(stop))

    def by_policy(self, verdict: LastTurn, loop: Stop) -> LastTurn | Stop:
        """A policy's last turn is like any other: as long as the run gives one, or none at all."""
        if self._rule is None:
            return loop
        ways_out = [self._assignment.how_to_end()] if self._assignment is not None and not verdict.tools else []
        return replace(verdict, text=" ".join([verdict.text, *ways_out]), seconds=self._rule.seconds)

    def judged(self, verdict: Verdict, cause: Stop) -> Stop:
        """The last turn is over: the goal, or `cause`, what was to be the end without it."""
        if isinstance(verdict, Stop):
            if verdict.reason is TerminateReason.TERMINATED and verdict.value == "success":
                return replace(verdict, reason=TerminateReason.GOAL)
            if verdict.reason is TerminateReason.GOAL:
                return verdict
        return cause

    def ending(self, stop: Stop, failure: Stop | None) -> Stop:
        """How the run ends that would end by `stop`. `failure`: of the last stream."""
        hidden = stop.reason not in _OWN_WORD or stop is failure
        return self.cause if self.cause is not None and hidden else stop
