"""The ends of calls: the state and the result of a call that was interrupted, that was made before,
or whose outcome is unknown.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from monitor.calls import OPEN, CallRecord, CallState, stepped
from monitor.chunks import ToolResult
from monitor.reasons import ToolErrorKind
from monitor.tools.calls.call_job import CallJob
from monitor.tools.results.call_results import failed
from monitor.verdicts import VETO

UNKNOWN: Final = (
    f"{VETO} The outcome of this call is unknown: it was begun, and its end was not recorded. It was not made again."
    " Look at what it may have done before you repeat it."
)
TAKEN: Final = f"{VETO} This call was not made: another process is carrying out the same call."
LATER: Final = f"{VETO} The result of this call comes later, from outside. Do not repeat the call."
UNKEPT: Final = "Error: the result of this tool comes later, and nothing keeps the call until then: it needs a session"
_ENDS: Final = {
    ToolErrorKind.DENIED: CallState.DENIED,
    ToolErrorKind.CANCELLED: CallState.CANCELLED,
}


def state_of(result: ToolResult) -> CallState:
    """The state in which a call with this result ends."""
    if not result.is_error:
        return CallState.DONE
    return _ENDS.get(result.error_kind, CallState.FAILED) if result.error_kind is not None else CallState.FAILED


def ended(record: CallRecord, state: CallState, result: ToolResult, at_s: float) -> CallRecord:
    """`record` at the end of its call. A call that waits for an answer has no end yet."""
    if state in OPEN:
        return record
    return stepped(
        record,
        state=state,
        ended_at_s=at_s,
        text=result.text,
        is_error=result.is_error,
        error_kind=result.error_kind,
        vetoed=result.vetoed,
        artifact=result.artifact,
    )


def taken(job: CallJob) -> tuple[CallState, ToolResult]:
    """The end of a call that another process carries out."""
    return CallState.UNKNOWN, failed(job.call, TAKEN, ToolErrorKind.CANCELLED, vetoed=True)


def awaited(job: CallJob) -> tuple[CallState, ToolResult]:
    """The state of a call whose result comes later."""
    return CallState.AWAITING_RESULT, failed(job.call, LATER, ToolErrorKind.CANCELLED, vetoed=True)


def unkept(job: CallJob) -> tuple[CallState, ToolResult]:
    """The end of a call whose result comes later, in a run that cannot wait for it."""
    return CallState.FAILED, failed(job.call, UNKEPT, ToolErrorKind.EXECUTION_FAILED)


def lost(job: CallJob) -> tuple[CallState, ToolResult]:
    """The end of a call whose tool was entered by a process that has died since."""
    return CallState.UNKNOWN, failed(job.call, UNKNOWN, ToolErrorKind.CANCELLED, vetoed=True)


def made_before(job: CallJob, known: CallRecord) -> tuple[CallState, ToolResult]:
    """The end of a call that the ledger has already: it is not made again."""
    if known.state is CallState.RUNNING:
        return taken(job)
    if known.state is CallState.AWAITING_RESULT:
        return awaited(job)
    if known.state is CallState.UNKNOWN or known.text is None:
        return lost(job)
    result = ToolResult(job.call.id, job.call.name, known.text, known.is_error)
    return known.state, replace(result, error_kind=known.error_kind, vetoed=known.vetoed, artifact=known.artifact)


def cut_off(job: CallJob, why: str) -> tuple[CallState, ToolResult]:
    """The end of a call that was interrupted, before its tool was entered or while it ran."""
    if job.stored is not CallState.RUNNING:
        text = f"{VETO} This call was not made: {why}."
        return CallState.CANCELLED, failed(job.call, text, ToolErrorKind.CANCELLED, vetoed=True)
    text = f"{VETO} This call was not carried out to its end: {why}."
    if job.left_thread:
        text += " It could not be stopped: what it does after this is not known."
    state = CallState.UNKNOWN if job.left_thread else CallState.CANCELLED
    return state, failed(job.call, text, ToolErrorKind.CANCELLED, vetoed=True)
