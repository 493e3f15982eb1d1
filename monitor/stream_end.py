"""How a stream ended, and what that means for its run."""

from __future__ import annotations

from dataclasses import dataclass

from monitor.models import ModelError
from monitor.policy import stop_for
from monitor.reasons import FinishReason, TerminateReason
from monitor.tally import TurnTally
from monitor.verdicts import Detection, Stop

_BAD_FINISH = {
    FinishReason.LENGTH: (TerminateReason.TRUNCATED, "the output limit cut the answer off"),
    FinishReason.MALFORMED: (TerminateReason.INVALID_STREAM, "the provider could not read what its model wrote"),
    FinishReason.BLOCKED: (TerminateReason.BLOCKED, "a filter of the provider refused the prompt or the answer"),
}


@dataclass(slots=True, frozen=True)
class StreamEnd:
    """How the last stream ended."""

    failure: Stop | None = None
    """Why that was no good end."""
    error: BaseException | None = None
    """The exception behind it."""
    void: bool = False
    """The attempt failed as such: the next stream is the same turn again, and what this one contributed does not count."""
    left: bool = False
    """The caller left it before its end."""
    may_go_on: bool = False
    """It is no good end of a run, but the model may well be asked to go on: its output limit, or its loop, cut it off."""


def stream_end(
    tally: TurnTally,
    *,
    finished: bool,
    error: BaseException | None,
    model_error: ModelError | None,
    cut: Detection | None,
    must_finish: bool,
    blank: bool,
) -> StreamEnd:
    """How a stream ended of which `tally` came. `finished`: by itself; else it failed, or was left, perhaps for the loop `cut`."""
    if model_error is not None:
        return failed(error, model_error)
    if cut is not None or not finished:
        return left(cut)
    return ended(tally, must_finish=must_finish, blank=blank)


def failed(error: BaseException | None, model_error: ModelError) -> StreamEnd:
    """The model call failed."""
    wait = f"; it asks to wait {model_error.retry_after_s:g} s" if model_error.retry_after_s is not None else ""
    said = model_error.code or model_error.status
    return StreamEnd(Stop(model_error.reason, model_error.message + wait, "provider", value=said), error, void=True)


def left(cut: Detection | None) -> StreamEnd:
    """It was left before its end: for the loop in it, or by the caller."""
    if cut is not None:
        return StreamEnd(stop_for(cut), may_go_on=True)
    return StreamEnd(Stop(TerminateReason.CLOSED_BY_CALLER, "the caller left before the stream had ended", "caller"), left=True)


def ended(tally: TurnTally, *, must_finish: bool, blank: bool) -> StreamEnd:
    """It came to its own end. `must_finish`: it should have said why. `blank`: nothing can be seen of the answer that is owed."""
    finish = tally.finish
    if finish is None and must_finish:
        detail = "the stream stopped without a finish reason: the answer is not complete"
        return StreamEnd(Stop(TerminateReason.TRUNCATED, detail, "provider"), void=True)
    if finish is not None and finish.finish_reason in _BAD_FINISH:
        reason, detail = _BAD_FINISH[finish.finish_reason]
        return StreamEnd(
            Stop(reason, f"{detail} ({finish.raw_finish_reason or finish.finish_reason.value})", "provider"),
            void=finish.finish_reason is FinishReason.MALFORMED,
            may_go_on=finish.finish_reason is FinishReason.LENGTH,
        )
    if blank:
        what = "it thought, and said nothing" if tally.reasoning_chars else "it said nothing"
        return StreamEnd(Stop(TerminateReason.INVALID_STREAM, f"the model's answer is empty: {what}", "provider"), void=True)
    return StreamEnd()
