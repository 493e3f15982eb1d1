"""The goal of one run: whether the run ends by it, and the last turn before it ends without it."""

from __future__ import annotations

from dataclasses import replace

from monitor.core.ending import StreamEnd
from monitor.core.steer_queue import SteerQueue
from monitor.goal.goal import Goal
from monitor.outcome import Turn
from monitor.reasons import TerminateReason
from monitor.verdicts import Continue, Detection, LastTurn, Stop, Verdict

_OWN_WORD = frozenset(
    {
        TerminateReason.GOAL,
        TerminateReason.ABORTED,
        TerminateReason.CANCELLED,
        TerminateReason.CLOSED_BY_CALLER,
        TerminateReason.ERROR,
    }
)
"""Reasons of a last turn that become the reason of the run. After any other, and after a failed
model call, the run ends for the reason it had before its last turn.
"""


class RunGoal:
    """The goal of one run. `rule`: which endings get a last turn. `None`: no ending does."""

    __slots__ = ("_rule", "cause", "goal", "reached")

    def __init__(self, rule: LastTurn | None, goal: Goal | None) -> None:
        self._rule = rule
        self.goal = goal
        self.reached: str | None = None
        """What the caller says that was reached. `None`: nothing."""
        self.cause: Stop | None = None
        """The reason of the run if its last turn does not reach the goal. `None`: it is not in its
        last turn.
        """

    def instead_of(self, stop: Stop) -> LastTurn | None:
        """The last turn that the run gets before it ends by `stop`. `None`: none, because it had
        one or the rule gives none for this reason.
        """
        rule, goal = self._rule, self.goal
        if rule is None or goal is None or self.cause is not None or stop.reason not in rule.after:
            return None
        return replace(rule, text=goal.last_words(stop))

    def by_policy(self, verdict: LastTurn, loop: Stop) -> LastTurn | Stop:
        """A policy's last turn, with the time that the run's own rule gives. Without a rule the run
        gets no last turn: `loop`.
        """
        if self._rule is None:
            return loop
        ways_out = [self.goal.how_to_end()] if self.goal is not None and not verdict.tools else []
        return replace(verdict, text=" ".join([verdict.text, *ways_out]), seconds=self._rule.seconds)

    def judged(self, verdict: Verdict, cause: Stop) -> Stop:
        """How the run ends after its last turn: by the goal if `verdict` says that it was reached,
        else by `cause`, the end that the last turn delayed.
        """
        if isinstance(verdict, Stop):
            if verdict.reason is TerminateReason.TERMINATED and verdict.value == "success":
                return replace(verdict, reason=TerminateReason.GOAL)
            if verdict.reason is TerminateReason.GOAL:
                return verdict
        return cause

    def instead_of_limit(self, stop: Stop) -> Stop | None:
        """The end of a run whose goal was reached in the turn that exceeded the limit `stop`.
        `None`: the run ends by `stop`.
        """
        reached = self.goal.reached() if self.goal is not None and stop.reason in LIMITS else None
        if reached is None:
            return None
        self.cause = self.cause or stop
        return self.judged(reached, self.cause)

    def verdict_on(self, turn: Turn, last: StreamEnd, cut: Detection | None, steers: SteerQueue | None) -> Verdict:
        """The verdict after a turn whose stream ended as `last`, or was left for the loop `cut`.
        Where messages wait in `steers`, a goal that is reached does not end the run.
        """
        goal = self.goal
        if goal is None:
            return Continue()
        verdict: Verdict = goal.reached() or Continue()
        stopped_well = cut is None and (last.failure is None or last.may_go_on) and not last.paused
        if isinstance(verdict, Continue) and not turn.tool_calls and stopped_well:
            verdict = goal.stopped_calling(cut_off=last.failure)
        if self.cause is not None:
            return self.judged(verdict, self.cause)
        if isinstance(verdict, Stop) and steers is not None and steers.waiting:
            steers.run_would_end = True
            goal.go_on()
            return Continue()
        return verdict

    def ending(self, stop: Stop | None, last: StreamEnd | None) -> Stop:
        """The end of a run that `stop` would end. `None`: nothing has ended it. `last`: how its
        last stream ended.
        """
        stop = stop or undecided_end(last, self.reached, goal=self.goal)
        hidden = stop.reason not in _OWN_WORD or (last is not None and stop is last.failure)
        return self.cause if self.cause is not None and hidden else stop


LIMITS = frozenset(
    {
        TerminateReason.MAX_TURNS,
        TerminateReason.TIMEOUT,
        TerminateReason.IDLE_TIMEOUT,
        TerminateReason.MODEL_CALL_LIMIT,
        TerminateReason.TOOL_CALL_LIMIT,
        TerminateReason.TOKEN_LIMIT,
        TerminateReason.COST_LIMIT,
        TerminateReason.BUDGET_UNREACHABLE,
        TerminateReason.BUDGET_BUSY,
    }
)
"""Limits. Outputs that the model has emitted in the turn that exceeds one still count."""


def undecided_end(last: StreamEnd | None, reached: str | None, *, goal: Goal | None) -> Stop:
    """The reason of a run that nothing has ended: it follows from its last stream, or from the
    caller who left.

    `reached`: the caller says that this was reached. It does not turn a failed last stream, or
    missing outputs, into a success.
    """
    if last is not None and not last.left and last.failure is not None:
        return last.failure
    missing = ", ".join(goal.result().get("missing", ())) if goal is not None else ""
    if missing and (reached is not None or (last is not None and not last.left)):
        return Stop(TerminateReason.MISSING_OUTPUTS, f"the run ended without {missing}", "outputs", value=missing)
    if reached is not None:
        return Stop(TerminateReason.GOAL, reached, "caller")
    if last is None or last.left:
        where = "before any stream was read" if last is None else "before the stream had ended"
        return Stop(TerminateReason.CLOSED_BY_CALLER, f"the caller left {where}", "caller")
    return Stop(TerminateReason.STREAM_ENDED, "the stream came to its end", "provider")
