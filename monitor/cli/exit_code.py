"""How a run ended, as an exit code. `monitor.view.status` says it in words."""

from __future__ import annotations

from typing import Final

from monitor.cli import INTERRUPTED
from monitor.errors import TerminateReason
from monitor.outcome import Outcome

UNREAD = 141
"""The exit code of a program that ended because the reader of its output had gone."""
GAVE_UP, WRONG_USE, LIMIT, LOOP, MISSING, PROVIDER, CRASHED, WAITS = 1, 2, 3, 4, 5, 6, 7, 8
"""Exit codes of `run`. 0: the goal was reached. 130: Ctrl-C."""

_CODES: Final = {
    TerminateReason.TERMINATED: GAVE_UP,
    TerminateReason.MAX_TURNS: LIMIT,
    TerminateReason.MODEL_CALL_LIMIT: LIMIT,
    TerminateReason.TOOL_CALL_LIMIT: LIMIT,
    TerminateReason.TOKEN_LIMIT: LIMIT,
    TerminateReason.COST_LIMIT: LIMIT,
    TerminateReason.TIMEOUT: LIMIT,
    TerminateReason.IDLE_TIMEOUT: LIMIT,
    TerminateReason.CONDITION_MET: LIMIT,
    TerminateReason.CONSECUTIVE_ERRORS: LIMIT,
    TerminateReason.WINDOW_TOO_SMALL: LIMIT,
    TerminateReason.LOOP_DETECTED: LOOP,
    TerminateReason.MISSING_OUTPUTS: MISSING,
    TerminateReason.RATE_LIMITED: PROVIDER,
    TerminateReason.PROMPT_TOO_LONG: PROVIDER,
    TerminateReason.COMPACTION_INEFFECTIVE: PROVIDER,
    TerminateReason.BLOCKED: PROVIDER,
    TerminateReason.INVALID_STREAM: PROVIDER,
    TerminateReason.TRUNCATED: PROVIDER,
    TerminateReason.BUDGET_UNREACHABLE: PROVIDER,
    TerminateReason.BUDGET_BUSY: PROVIDER,
    TerminateReason.PAUSED: WAITS,
    TerminateReason.WORKER_STOPPING: WAITS,
    TerminateReason.ABORTED: INTERRUPTED,
    TerminateReason.CANCELLED: INTERRUPTED,
    TerminateReason.CLOSED_BY_CALLER: INTERRUPTED,
}


def exit_code(outcome: Outcome) -> int:
    """0: ok; else one number for each family of reasons."""
    if outcome.ok:
        return 0
    if outcome.reason is TerminateReason.ERROR:
        return PROVIDER if outcome.source == "provider" else CRASHED
    return _CODES.get(outcome.reason, CRASHED)
