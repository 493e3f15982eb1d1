"""Why something ended: a model turn has a finish reason, a run has a terminate reason."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["CompactionFailure", "CompactionReason", "FinishReason", "TerminateReason", "ToolErrorKind"]
__dir__ = __all__.copy


class FinishReason(StrEnum):
    """Why the model stopped writing one turn, in classes that hold for every provider.

    Adapters keep the provider's own word beside it (`TurnFinished.raw_finish_reason`).
    """

    DONE = "done"
    """The model completed its turn, tool calls included."""
    LENGTH = "length"
    """The output limit cut the turn off."""
    MALFORMED = "malformed"
    """The provider could not read what its own model wrote; the same request may well succeed."""
    BLOCKED = "blocked"
    """A safety, licence or policy filter ended the turn."""
    REPETITION = "repetition"
    """The provider's own repetition check ended the turn."""
    INTERRUPTED = "interrupted"
    """The turn ended before it was whole, and not at its output limit: it was cancelled at the
    service, or it goes on in another request.
    """
    UNKNOWN = "unknown"
    """The provider's word is not known, so the turn may be whole or not."""


REPETITION_WORDS = frozenset({"repetition", "repetition_detected"})
"""The words of servers whose own check has stopped the model: `finish_reason` and `stop_reason` of
vLLM and compatible servers.
"""


class TerminateReason(StrEnum):
    """Why a run ended. Every run ends with exactly one of these."""

    GOAL = "goal"
    """The run reached its goal: every output, the answer, or the end of the plan."""
    TERMINATED = "terminated"
    """The model called the terminate tool."""
    STREAM_ENDED = "stream_ended"
    """The watched stream came to its own good end."""
    MAX_TURNS = "max_turns"
    TIMEOUT = "timeout"
    """The run took longer than its limit."""
    IDLE_TIMEOUT = "idle_timeout"
    """The provider sent nothing for too long."""
    MODEL_CALL_LIMIT = "model_call_limit"
    TOOL_CALL_LIMIT = "tool_call_limit"
    TOKEN_LIMIT = "token_limit"
    COST_LIMIT = "cost_limit"
    BUDGET_UNREACHABLE = "budget_unreachable"
    """The store of the shared budget did not answer for too long."""
    BUDGET_BUSY = "budget_busy"
    """The shared budget has enough that is not spent, and other runs held it for too long."""
    LOOP_DETECTED = "loop_detected"
    CONSECUTIVE_ERRORS = "consecutive_errors"
    MISSING_OUTPUTS = "missing_outputs"
    """The run ended by itself without all of its declared outputs."""
    CONDITION_MET = "condition_met"
    """A condition of the caller's own became true."""
    PAUSED = "paused"
    WORKER_STOPPING = "worker_stopping"
    """The process has left the run at the boundary between two turns: `Run.hand_over()`. The run
    itself has not ended. `Supervisor.resume` goes on with it, in any process.
    """
    PROMPT_TOO_LONG = "prompt_too_long"
    """The provider refused the request because it does not fit the model's window."""
    WINDOW_TOO_SMALL = "window_too_small"
    COMPACTION_INEFFECTIVE = "compaction_ineffective"
    RATE_LIMITED = "rate_limited"
    BLOCKED = "blocked"
    """A safety, licence or policy filter refused the prompt or the answer."""
    INVALID_STREAM = "invalid_stream"
    """The provider said that its model wrote something unreadable, or what the provider sent is not
    a valid stream.
    """
    TRUNCATED = "truncated"
    """The stream stopped before the model had finished: no finish reason came, or the output limit
    cut it.
    """
    ABORTED = "aborted"
    """Somebody called `abort()`."""
    CANCELLED = "cancelled"
    """A cancellation from outside ended the run, and is raised further."""
    CLOSED_BY_CALLER = "closed_by_caller"
    """The caller left early, by `break` or by leaving the block."""
    ERROR = "error"
    """An exception: the provider's, a detector's, or the caller's own (which is raised further)."""


RESUMABLE = frozenset({TerminateReason.PAUSED, TerminateReason.WORKER_STOPPING})
"""Reasons for which a process leaves a run that has not ended: it is to be resumed."""

PASSING_REASONS = frozenset({TerminateReason.BUDGET_UNREACHABLE, TerminateReason.BUDGET_BUSY})
"""Reasons that may be over in a minute: the same run may well succeed later. An engine tries its
step again.
"""

SUCCESSES = frozenset({TerminateReason.GOAL, TerminateReason.STREAM_ENDED})
"""Reasons that always mean success. For `terminated` it depends on what the model said."""


class CompactionReason(StrEnum):
    """Why the history is made smaller."""

    HIGH_WATER = "high_water"
    """The context has reached the fill level at which it is compacted. The run goes on meanwhile.
    """
    CEILING = "ceiling"
    """No room is left to go on meanwhile: the run waits."""
    OVERFLOW = "overflow"
    """The provider has refused the request."""
    SILENT_OVERFLOW = "silent_overflow"
    """The provider answered, but did not read all of the request, or had no room for the answer."""
    MANUAL = "manual"
    """The program asked for it, by a call or by its policy."""


PRESSING = frozenset({CompactionReason.CEILING, CompactionReason.OVERFLOW, CompactionReason.SILENT_OVERFLOW})
"""Reasons for which the run cannot go on without a compaction. If the summary fails, less of the
history is kept.
"""


class CompactionFailure(StrEnum):
    """Why a compaction failed. The history is then unchanged."""

    NOTHING_TO_COMPACT = "nothing_to_compact"
    INEFFECTIVE = "ineffective"
    """The next request would still be too large."""
    STALE = "stale"
    """Another edit has changed the messages that the summary covers."""
    CANCELLED = "cancelled"
    """A hook refused the compaction."""
    ABORTED = "aborted"
    """The run ended, or was aborted, meanwhile."""
    TIMEOUT = "timeout"
    EMPTY = "empty"
    """The model twice gave no readable answer."""
    TRUNCATED = "truncated"
    """The summary was cut off at the output limit."""
    TOOL_CALL = "tool_call"
    """The model wanted to go on with the work instead of summarising it."""
    REJECTED = "rejected"
    """The summary lacks sections, even after it was sent back once."""
    TOO_LONG = "too_long"
    """The request for the summary does not fit the window of its own model."""
    PROVIDER = "provider"
    """The call failed for another reason."""
    CRASHED = "crashed"
    """The caller's code, or the store, raised something."""
    INVALID = "invalid"
    """No provider would accept the messages that the compaction made."""


class ToolErrorKind(StrEnum):
    """Why a call of a tool failed."""

    UNKNOWN_TOOL = "unknown_tool"
    INVALID_ARGUMENTS = "invalid_arguments"
    DENIED = "denied"
    """A person or a rule refused the call."""
    NOT_FOUND = "not_found"
    """The thing that the call is about does not exist: a file, a page, a process."""
    PERMISSION = "permission"
    """The operating system, or a service, refused it."""
    OUTSIDE_WORKSPACE = "outside_workspace"
    WRITE_FAILED = "write_failed"
    """A file could not be written, e.g. because the disk is full."""
    STALE = "stale"
    """The run has not read the file that it wants to change, or the file has changed since."""
    SHELL_FAILED = "shell_failed"
    """A command could not be started."""
    RETRY = "retry"
    """The tool has asked the model to correct the call and to make it again."""
    EXECUTION_FAILED = "execution_failed"
    """The tool said that it failed."""
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    UNHANDLED = "unhandled"
    """An exception that the tool did not expect."""


RETRYABLE = frozenset({CompactionFailure.TIMEOUT, CompactionFailure.EMPTY, CompactionFailure.STALE})
"""Failures after which another attempt may succeed without any change. A `PROVIDER` failure is not
listed: only some kinds pass.
"""

SKIPPED = frozenset({CompactionFailure.NOTHING_TO_COMPACT, CompactionFailure.CANCELLED})
"""Reasons for which a compaction was not begun."""
