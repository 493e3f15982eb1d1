"""Every exception that agent-monitor raises, apart from those that stand with their parts:
`CompactionError`, `ArtifactGone`, `ArtifactsFull`.

    MonitorError
      ConfigError       the call or the configuration is wrong; fix the code
        MissingExtra    an optional package is not installed; the message names the extra
      AdapterError      a provider object or a recorded file cannot be read as a stream
      SourceFailed      a stream raised a cancellation that nobody had asked for
      RunFailed         raised on request only, by `Outcome.raise_for_reason()`
      StoppedByGuard    a guard has ended a run inside another framework's loop
      StoreError        stored data cannot be read or written
        SessionNotFound     there is no session at this place
        SessionBusy         another owner has the session
        SessionLost         the session was taken from this owner, or its file was replaced
        SessionDamaged      the session's file is damaged, or is no session
        SessionTooNew       the session was written by a newer version
        SessionUnavailable  the disk is full, or the place of the session cannot be reached now
        BudgetUnreachable   the store of a shared budget does not answer
      ToolError         raised by a tool: its message is what the model reads
        ToolRetry           raised by a tool: the model is asked to make the call again
      RecordedError     an exception of another process, read back from JSON; never raised

A run that ends is an `Outcome`, not an exception.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

__all__ = [
    "AdapterError",
    "BudgetUnreachable",
    "CompactionFailure",
    "CompactionReason",
    "ConfigError",
    "FinishReason",
    "MissingExtra",
    "MonitorError",
    "RecordedError",
    "SessionBusy",
    "SessionDamaged",
    "SessionLost",
    "SessionNotFound",
    "SessionOwner",
    "SessionTooNew",
    "SessionUnavailable",
    "SourceFailed",
    "StoreError",
    "TerminateReason",
    "ToolError",
    "ToolErrorKind",
    "ToolRetry",
]
__dir__ = __all__.copy

# --------------------------------------------------------------------------------------------------
# Why something ended: a model turn has a finish reason, a run has a terminate reason.


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


REMOVED: Final = "(key removed)"
"""Stands in a message where a key was."""
KEY_STARTS: Final = (
    *("sk", "rk", "pk", "gsk", "xai", "hf", "ghp", "gho", "ghs", "ghu", "github_pat", "glpat"),
    *("AIza", "ya29", "AKIA", "ASIA"),
)
"""How the keys of services begin."""
_KEYS: Final = re.compile(
    rf"\b(?:{'|'.join(KEY_STARTS)})[-_.A-Za-z0-9]{{16,}}|(?<=\b[Bb]earer )[-._~+/=A-Za-z0-9]{{8,}}"
)
"""Keys in the forms that services give them, and any word behind `Bearer`."""
_HEADERS: Final = ("authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key")
_LEAST_OF_KEYS: Final = 18
"""The least characters of a key that begins like those of services."""
_SHORT_CHARS: Final = 200
"""A text up to this is a sentence, whose words are soon counted."""
_LEAST_CHARS: Final = 8
"""A shorter value of such a header is not taken for a key: servers that need no key get `none` or
`x`, and other messages contain those words too.
"""
_CAUSES: Final = 5
_CLEANED: Final = "_message_without_keys"
"""The attribute of an exception in which its message without keys is kept."""


def message_of(error: BaseException) -> str:
    """The text of `str(error)` without keys, also if the exception's own `__str__` fails."""
    known = _of(error, _CLEANED)
    if isinstance(known, str):
        return known
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - an SDK's exception may raise anything
        return "(its message cannot be read)"
    return without_keys(said, error)


def forget_keys(error: BaseException, *holders: object) -> None:
    """Make `message_of(error)` leave out the keys of `holders`. Needed where the exception itself
    does not know what was sent.
    """
    said = message_of(error)
    if (clean := without_keys(said, *holders)) != said:
        error.__dict__[_CLEANED] = clean


def without_keys(text: str, *holders: object) -> str:
    """`text` without the keys that were sent with the requests of `holders`, and without anything
    that looks like a key.

    `holders`: exceptions, responses and streams of an SDK. Some services repeat a refused key in
    the error message.
    """
    for key in {key for holder in holders for key in _sent_keys(holder)}:
        text = text.replace(key, REMOVED)
    return _KEYS.sub(REMOVED, text) if _may_have_key(text) else text


def keys_in(text: str) -> list[str]:
    """The parts of `text` that look like a key."""
    return _KEYS.findall(text) if _may_have_key(text) else []


def _may_have_key(text: str) -> bool:
    """Whether a search for keys is worth its time: it takes 50 times as long as this."""
    if "earer " in text:
        return True
    if len(text) < _SHORT_CHARS and max(map(len, text.split()), default=0) < _LEAST_OF_KEYS:
        return False
    for start in KEY_STARTS:
        at = text.find(start)
        while at >= 0:
            if at == 0 or not (text[at - 1].isalnum() or text[at - 1] == "_"):
                return True
            at = text.find(start, at + 1)
    return False


def _sent_keys(holder: object) -> Iterator[str]:
    for one in _with_causes(holder):
        response = _of(one, "response")
        for request in (_of(holder, name) for holder in (one, response) for name in ("request", "request_info")):
            headers = _of(request, "headers")
            for name in _HEADERS if isinstance(headers, Mapping) else ():
                value = str(headers.get(name) or "").rpartition(" ")[2]
                if len(value) >= _LEAST_CHARS:
                    yield value


def _with_causes(holder: object) -> Iterator[object]:
    for _ in range(_CAUSES):
        if holder is None:
            return
        yield holder
        holder = _of(holder, "__cause__") or _of(holder, "__context__")


def _of(holder: object, name: str) -> Any:
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001 - as above
        return None


def leaves_of(error: BaseException) -> Iterator[BaseException]:
    """`error`; if it is a group of exceptions, those in it."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves_of(inner)
    else:
        yield error


def describe(error: BaseException) -> str:
    """Type and message in one line."""
    name, message = type(error).__name__, message_of(error)
    return f"{name}: {message}" if message else name


class MonitorError(Exception):
    """Root of all errors of this library."""


class ConfigError(MonitorError):
    """An argument, or a combination of arguments, is invalid. The message names it and the fix."""


class MissingExtra(ConfigError):
    """An optional package is needed for this and is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package!r} is not installed; run: pip install 'agent-monitor[{extra}]'")
        self.package = package
        self.extra = extra

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str]]:
        return type(self), (self.package, self.extra)


class AdapterError(MonitorError):
    """A provider's object, or a line of a recorded file, breaks the rules of its format."""


class SourceFailed(MonitorError):
    """A stream raised a cancellation that nobody requested of the reading task, or a
    `GeneratorExit`. `__cause__` is that exception.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)

    @classmethod
    def by(cls, cause: BaseException) -> SourceFailed:
        """The error for `cause`, which the stream raised."""
        failed = cls(f"the stream raised {describe(cause)}, which was not requested")
        failed.__cause__ = cause
        return failed


class StoreError(MonitorError):
    """Stored data cannot be read or written."""


class SessionNotFound(StoreError):
    """There is no session at this place: none was made under its name, or it was removed."""


@dataclass(slots=True, frozen=True, kw_only=True)
class SessionOwner:
    """The process that has a session open for writing."""

    pid: int
    started_at_s: float
    """Seconds since 1970 at which the owner opened the session."""
    host: str
    program: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} ({self.program})"


class SessionBusy(StoreError):
    """Another owner has the session open for writing. The session is as it was; readers can read
    it.
    """

    def __init__(self, session: str, owner: SessionOwner | None, why: str = "") -> None:
        who = str(owner) if owner is not None else "another process"
        said = f"the session {session} is in use by {who}{f': {why}' if why else ''}"
        super().__init__(f"{said}. Nothing was changed, and it can still be read.")
        self.session = session
        self.owner = owner
        """`None`: the owner is not known."""
        self.why = why

    def __reduce__(self) -> tuple[type[SessionBusy], tuple[str, SessionOwner | None, str]]:
        return type(self), (self.session, self.owner, self.why)


class SessionLost(StoreError):
    """The session was taken over by another owner, or its file was replaced while it was open.

    Everything that was acknowledged before is stored. This owner has written nothing since, and
    cannot write any more.
    """


class SessionDamaged(StoreError):
    """The file is damaged, or is no session. It was not changed: copy it before anything else."""


class SessionTooNew(StoreError):
    """The session was written by a newer version of the library. It was not changed."""

    def __init__(self, session: str, found: int, known: int) -> None:
        super().__init__(
            f"the session {session} has format {found}, and this version knows formats up to {known}: update"
            " agent-monitor. The file was not changed."
        )
        self.session = session
        self.found = found
        self.known = known

    def __reduce__(self) -> tuple[type[SessionTooNew], tuple[str, int, int]]:
        return type(self), (self.session, self.found, self.known)


class SessionUnavailable(StoreError):
    """The disk is full, the file is read only, the disk has failed, or the database cannot be
    reached. Everything acknowledged before is stored. The write that raised this error is not
    acknowledged. It may succeed later.
    """


class BudgetUnreachable(StoreError):
    """The store of a shared budget does not answer. Whether its last step was done is not known."""


class ToolError(MonitorError):
    """A tool could not do its work. The message goes to the model unchanged, so it should say what
    to do instead. `kind`: the class of the failure.
    """

    def __init__(self, message: str = "", *, kind: ToolErrorKind | str = ToolErrorKind.EXECUTION_FAILED) -> None:
        super().__init__(message)
        self.kind = ToolErrorKind(kind)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args, {"kind": self.kind}


class ToolRetry(ToolError):
    """A tool asks the model to correct its call and to make it again. The message says why. The
    model is asked `model_retries` times in a row, see `monitor.tools.ToolTraits`; after that it
    reads that the tool has failed.
    """

    def __init__(self, message: str = "", *, kind: ToolErrorKind | str = ToolErrorKind.RETRY) -> None:
        super().__init__(message, kind=kind)


class RecordedError(MonitorError):
    """An exception of a JSON record: the name of its type, and its message."""

    def __init__(self, type_name: str, message: str) -> None:
        super().__init__(message)
        self.type_name = type_name
        self.message = message

    def __reduce__(self) -> tuple[type[RecordedError], tuple[str, str]]:
        return type(self), (self.type_name, self.message)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordedError) and (self.type_name, self.message) == (other.type_name, other.message)

    def __hash__(self) -> int:
        return hash((self.type_name, self.message))
