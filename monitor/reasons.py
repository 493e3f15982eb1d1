"""The two words for "why it ended": a model turn has a finish reason, a run has a terminate
reason.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["CompactionFailure", "CompactionReason", "FinishReason", "TerminateReason"]


class FinishReason(StrEnum):
    """Why the model stopped writing one turn, in four classes that hold for every provider.

    Adapters keep the provider's own word beside it (`TurnFinished.raw_finish_reason`).
    """

    DONE = "done"
    """The model said all it wanted, tool calls included."""
    LENGTH = "length"
    """The output limit cut the turn off."""
    MALFORMED = "malformed"
    """The provider could not read what its own model wrote; the same request may well succeed."""
    BLOCKED = "blocked"
    """A safety, licence or policy filter ended the turn."""
    REPETITION = "repetition"
    """The provider's own repetition check ended the turn."""


REPETITION_WORDS = frozenset({"repetition", "repetition_detected"})
"""What servers say whose own check has stopped the model: vLLM's `finish_reason` and `stop_reason`,
and those compatible with it.
"""


class TerminateReason(StrEnum):
    """Why a run ended. Every run ends with exactly one of these."""

    GOAL = "goal"
    """What was asked for has been reached."""
    TERMINATED = "terminated"
    """The model called the terminate tool."""
    STREAM_ENDED = "stream_ended"
    """The watched stream came to its own good end."""
    MAX_TURNS = "max_turns"
    TIMEOUT = "timeout"
    """The run took longer than it was given."""
    IDLE_TIMEOUT = "idle_timeout"
    """The provider sent nothing for too long."""
    MODEL_CALL_LIMIT = "model_call_limit"
    TOOL_CALL_LIMIT = "tool_call_limit"
    TOKEN_LIMIT = "token_limit"
    COST_LIMIT = "cost_limit"
    LOOP_DETECTED = "loop_detected"
    CONSECUTIVE_ERRORS = "consecutive_errors"
    MISSING_OUTPUTS = "missing_outputs"
    """The run ended by itself without all of its declared outputs."""
    CONDITION_MET = "condition_met"
    """A condition of the caller's own became true."""
    PAUSED = "paused"
    PROMPT_TOO_LONG = "prompt_too_long"
    """The provider refused the request because it does not fit the model's window."""
    WINDOW_TOO_SMALL = "window_too_small"
    COMPACTION_INEFFECTIVE = "compaction_ineffective"
    RATE_LIMITED = "rate_limited"
    BLOCKED = "blocked"
    """A safety, licence or policy filter refused the prompt or the answer."""
    INVALID_STREAM = "invalid_stream"
    """The provider said that its model wrote something unreadable, or sent what is no valid
    stream.
    """
    TRUNCATED = "truncated"
    """The stream stopped before the model had finished: no finish reason came, or the output limit
    cut it.
    """
    ABORTED = "aborted"
    """Somebody called `abort()`."""
    CANCELLED = "cancelled"
    """A cancellation from outside went through the run, and goes on."""
    CLOSED_BY_CALLER = "closed_by_caller"
    """The caller left early, by `break` or by leaving the block."""
    ERROR = "error"
    """An exception: the provider's, a detector's, or the caller's own (which goes on)."""


SUCCESSES = frozenset({TerminateReason.GOAL, TerminateReason.STREAM_ENDED})
"""Reasons that are a success by themselves; `terminated` is one or not by what the model said."""


class CompactionReason(StrEnum):
    """Why the history is made smaller."""

    HIGH_WATER = "high_water"
    """The context has come to the mark: it is done beside the run, which goes on."""
    CEILING = "ceiling"
    """There is no room left to go on meanwhile: the run waits."""
    OVERFLOW = "overflow"
    """The provider has refused the request."""
    SILENT_OVERFLOW = "silent_overflow"
    """It has answered, and not read all of it, or had no room for the answer."""
    MANUAL = "manual"
    """Somebody asked for it."""


PRESSING = frozenset({CompactionReason.CEILING, CompactionReason.OVERFLOW, CompactionReason.SILENT_OVERFLOW})
"""The run cannot go on without it: where the summary fails, less is kept rather than nothing
done.
"""


class CompactionFailure(StrEnum):
    """What became of a compaction that was none. The history is then as it was."""

    NOTHING_TO_COMPACT = "nothing_to_compact"
    INEFFECTIVE = "ineffective"
    """The next request would not be small enough."""
    STALE = "stale"
    """Another edit has changed what it covers."""
    CANCELLED = "cancelled"
    """A hook did not want it."""
    ABORTED = "aborted"
    """The run ended, or was aborted, meanwhile."""
    TIMEOUT = "timeout"
    EMPTY = "empty"
    """The model said nothing that can be read, twice."""
    TRUNCATED = "truncated"
    """The summary was cut off at the output limit."""
    TOOL_CALL = "tool_call"
    """The model wanted to go on with the work instead of summarising it."""
    REJECTED = "rejected"
    """The summary lacks sections, also after it was sent back once."""
    TOO_LONG = "too_long"
    """The request for the summary does not fit its own model."""
    PROVIDER = "provider"
    """The call failed for another reason."""
    CRASHED = "crashed"
    """The caller's code, or the store, raised something."""
    INVALID = "invalid"
    """What it would put in place is nothing that a provider takes."""


RETRYABLE = frozenset({CompactionFailure.TIMEOUT, CompactionFailure.EMPTY, CompactionFailure.STALE})
"""Failures that another try may get past as things stand. So may some of a `PROVIDER`: those that
pass.
"""

SKIPPED = frozenset({CompactionFailure.NOTHING_TO_COMPACT, CompactionFailure.CANCELLED})
"""Not failures of the compaction: it was not begun."""
