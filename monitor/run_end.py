"""How a run ends: the reason if nothing was decided before, and the outcome."""

from __future__ import annotations

from monitor.assignment import Assignment
from monitor.events import StreamClosed
from monitor.judging import AskCost
from monitor.outcome import Outcome, Turn, succeeded
from monitor.reasons import TerminateReason
from monitor.spending import Spending
from monitor.stream_end import StreamEnd
from monitor.verdicts import Stop

LIMITS = frozenset(
    {
        TerminateReason.MAX_TURNS,
        TerminateReason.TIMEOUT,
        TerminateReason.IDLE_TIMEOUT,
        TerminateReason.MODEL_CALL_LIMIT,
        TerminateReason.TOOL_CALL_LIMIT,
        TerminateReason.TOKEN_LIMIT,
        TerminateReason.COST_LIMIT,
    }
)
"""Endings that say nothing against what the model has handed over in the same turn."""


def undecided_end(last: StreamEnd | None, goal: str | None, *, told: bool, assignment: Assignment | None) -> Stop:
    """The reason of a run that nothing has ended: its last stream, or whoever left it.

    `goal`: what the caller says was reached; it hides a failure of the last stream, unless the caller was `told` of that.
    """
    if last is not None and not last.left and last.failure is not None and (goal is None or told):
        return last.failure
    if goal is not None:
        return Stop(TerminateReason.GOAL, goal, "caller")
    if last is None or last.left:
        where = "before any stream was read" if last is None else "before the stream had ended"
        return Stop(TerminateReason.CLOSED_BY_CALLER, f"the caller left {where}", "caller")
    missing = ", ".join(assignment.result().get("missing", ())) if assignment is not None else ""
    if missing:
        return Stop(TerminateReason.MISSING_OUTPUTS, f"the run ended without {missing}", "outputs", value=missing)
    return Stop(TerminateReason.STREAM_ENDED, "the stream came to its end", "provider")


def outcome_of(
    stop: Stop,
    *,
    error: BaseException | None,
    turn: Turn | None,
    turns: int,
    elapsed_s: float,
    assignment: Assignment | None,
    spending: Spending,
    judge_cost: AskCost,
    compaction_cost: AskCost,
    recovered_from: Stop | None,
    closing: StreamClosed | None,
) -> Outcome:
    """The outcome of a run that ends by `stop`. `turn`: its last one. `recovered_from`: the end that a last turn came instead of."""
    ok = succeeded(stop.reason) or (stop.reason is TerminateReason.TERMINATED and stop.value == "success")
    usage, cost_usd = spending.total()
    return Outcome(
        ok=ok,
        reason=stop.reason,
        detail=stop.detail,
        source=stop.source,
        limit=stop.limit,
        value=stop.value,
        evidence=stop.evidence,
        **(assignment.result() if assignment is not None else {}),
        text=turn.text if turn else "",
        usage=usage,
        usage_estimated=spending.estimated,
        cost_usd=cost_usd,
        judge_usage=judge_cost.usage,
        judge_usage_estimated=judge_cost.estimated,
        compaction_usage=compaction_cost.usage,
        turns=turns,
        elapsed_s=elapsed_s,
        recovered_from=recovered_from.reason if recovered_from is not None and ok else None,
        closed=closing.closed if closing else True,
        chunks_after_decision=closing.chunks_dropped if closing else 0,
        closed_after_s=closing.after_s if closing else None,
        error=None if ok else error,
    )
