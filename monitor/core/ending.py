"""How a stream ended, whether a last turn replaces the end, and how the run ends: its one reason
and its outcome.
"""

from __future__ import annotations

from dataclasses import dataclass

from monitor._util.drafts import frozen
from monitor.calls import ApprovalRequest
from monitor.core.limits import Spending
from monitor.core.turn import TurnTally
from monitor.events import StreamClosed
from monitor.goal.goal import Goal
from monitor.messages import Message, SteerMessage
from monitor.models import ModelError
from monitor.outcome import Outcome, OutcomeDraft, Turn, is_success
from monitor.policy import stop_for
from monitor.reasons import FinishReason, TerminateReason
from monitor.verdicts import Detection, Stop
from monitor.wires.finish_words import PAUSED

_BAD_FINISH = {
    FinishReason.LENGTH: (TerminateReason.TRUNCATED, "the output limit cut the answer off"),
    FinishReason.MALFORMED: (TerminateReason.INVALID_STREAM, "the provider could not read what its model wrote"),
    FinishReason.BLOCKED: (TerminateReason.BLOCKED, "a filter of the provider refused the prompt or the answer"),
    FinishReason.INTERRUPTED: (TerminateReason.TRUNCATED, "the answer was ended before it was whole"),
    FinishReason.UNKNOWN: (
        TerminateReason.TRUNCATED,
        "the answer may not be whole: it ended with a finish reason that is not known",
    ),
}
_MAY_GO_ON = {FinishReason.LENGTH, FinishReason.INTERRUPTED, FinishReason.UNKNOWN}
"""The model may be asked to go on with such an answer."""


@dataclass(slots=True, frozen=True)
class StreamEnd:
    """How the last stream ended."""

    failure: Stop | None = None
    """Why the stream failed. `None`: it ended well."""
    error: BaseException | None = None
    """The exception behind `failure`."""
    void: bool = False
    """The attempt failed: the next stream is the same turn again, and this stream does not count.
    """
    left: bool = False
    """The caller left the stream before its end."""
    may_go_on: bool = False
    """The run cannot end here, but the model may be asked to go on: its output limit, or its loop,
    cut the answer off.
    """
    paused: bool = False
    """The service goes on with the answer once it gets it back: the model is not to be asked for
    it.
    """


SPOKEN_OVER = Stop(TerminateReason.CLOSED_BY_CALLER, "the stream was ended for a message to the run", "steer")
"""Why a stream was ended for a message. The run goes on."""
_GOOD_END = StreamEnd()
_SPOKEN_OVER = StreamEnd(SPOKEN_OVER, may_go_on=True)


def stream_end(
    tally: TurnTally,
    *,
    finished: bool,
    error: BaseException | None,
    model_error: ModelError | None,
    cut: Detection | None,
    must_finish: bool,
    blank: bool,
    spoken_over: bool = False,
) -> StreamEnd:
    """How a stream ended. `tally`: its counts and pieces. `finished`: it ended by itself; else it
    failed, or was left, perhaps because of the loop `cut`, or for a message (`spoken_over`).
    """
    if model_error is not None:
        return failed(error, model_error)
    if spoken_over and cut is None:
        return _SPOKEN_OVER
    if cut is not None or not finished:
        return left(cut)
    return ended(tally, must_finish=must_finish, blank=blank)


def failed(error: BaseException | None, model_error: ModelError) -> StreamEnd:
    """The end of a stream whose model call failed."""
    wait = f"; it asks to wait {model_error.retry_after_s:g} s" if model_error.retry_after_s is not None else ""
    said = model_error.code or model_error.status
    return StreamEnd(Stop(model_error.reason, model_error.message + wait, "provider", value=said), error, void=True)


def left(cut: Detection | None) -> StreamEnd:
    """The end of a stream that was left early: because of the loop `cut`, or by the caller."""
    if cut is not None:
        return StreamEnd(stop_for(cut), may_go_on=True)
    return StreamEnd(
        Stop(TerminateReason.CLOSED_BY_CALLER, "the caller left before the stream had ended", "caller"), left=True
    )


def ended(tally: TurnTally, *, must_finish: bool, blank: bool) -> StreamEnd:
    """The end of a stream that ended by itself. `must_finish`: it should have given a finish
    reason. `blank`: an answer was expected, and nothing in it is visible.
    """
    finish = tally.finish
    if finish is None and must_finish:
        detail = "the stream stopped without a finish reason: the answer is not complete"
        return StreamEnd(Stop(TerminateReason.TRUNCATED, detail, "provider"), void=True)
    says_why = finish is not None and (must_finish or finish.finish_reason is not FinishReason.UNKNOWN)
    if finish is not None and says_why and finish.finish_reason in _BAD_FINISH:
        reason, detail = _BAD_FINISH[finish.finish_reason]
        return StreamEnd(
            Stop(reason, f"{detail} ({finish.raw_finish_reason or finish.finish_reason.value})", "provider"),
            void=finish.finish_reason is FinishReason.MALFORMED,
            may_go_on=finish.finish_reason in _MAY_GO_ON,
            paused=finish.raw_finish_reason in PAUSED and not blank,
        )
    if blank:
        what = "it thought, and said nothing" if tally.reasoning_chars else "it said nothing"
        return StreamEnd(
            Stop(TerminateReason.INVALID_STREAM, f"the model's answer is empty: {what}", "provider"), void=True
        )
    return _GOOD_END


def end_of(turn: Turn) -> StreamEnd:
    """How the stream of a stored turn ended."""
    stop = turn.stopped
    if turn.model_error is not None:
        return failed(turn.error, turn.model_error)
    if stop is None:
        return _GOOD_END
    if stop.reason is TerminateReason.LOOP_DETECTED:
        return StreamEnd(stop, may_go_on=True)
    if stop == SPOKEN_OVER:
        return _SPOKEN_OVER
    if stop.source != "provider":  # the run was stopped in the middle of it
        return left(None)
    may_go_on = turn.finish_reason in _MAY_GO_ON
    void = stop.reason in {TerminateReason.TRUNCATED, TerminateReason.INVALID_STREAM} and not may_go_on
    return StreamEnd(
        stop, turn.error, void=void, may_go_on=may_go_on, paused=may_go_on and turn.raw_finish_reason in PAUSED
    )


def outcome_of(
    stop: Stop,
    *,
    error: BaseException | None,
    turn: Turn | None,
    turns: int,
    elapsed_s: float,
    goal: Goal | None,
    spending: Spending,
    recovered_from: Stop | None,
    closing: StreamClosed | None,
    pending: tuple[ApprovalRequest, ...] = (),
    returned: tuple[SteerMessage, ...] = (),
    history: tuple[Message, ...] = (),
) -> Outcome:
    """The outcome of a run that ends by `stop`. `turn`: its last one. `recovered_from`: the end
    that a last turn replaced.
    """
    ok = is_success(stop)
    usage, cost_usd = spending.total()
    result = goal.result() if goal is not None else {}
    draft = OutcomeDraft(
        ok=ok,
        reason=stop.reason,
        detail=stop.detail,
        source=stop.source,
        limit=stop.limit,
        value=stop.value,
        evidence=stop.evidence,
        output=result.get("output"),
        emitted=result.get("emitted", {}),
        missing=result.get("missing", []),
        text=turn.text if turn else "",
        text_truncated=turn is not None and turn.text_truncated,
        usage=usage,
        usage_estimated=spending.estimated,
        cost_usd=cost_usd,
        judge_usage=spending.judges.usage,
        judge_usage_estimated=spending.judges.estimated,
        compaction_usage=spending.compactions.usage,
        turns=turns,
        elapsed_s=elapsed_s,
        recovered_from=recovered_from.reason if recovered_from is not None and ok else None,
        closed=closing.closed if closing else True,
        chunks_after_decision=closing.chunks_dropped if closing else 0,
        closed_after_s=closing.after_s if closing else None,
        pending=pending,
        returned=returned,
        history=history,
        error=None if ok else error,
    )
    return frozen(draft, Outcome)
