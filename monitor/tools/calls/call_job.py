"""One call on its way to its result, and the calls of one response."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio

from monitor.chunks import ToolCall, ToolResult
from monitor.errors import ToolErrorKind
from monitor.messages import OPEN, CallRecord, CallState, stepped
from monitor.tools.base import Alarm
from monitor.tools.protocols import CallListener
from monitor.tools.registry import ToolEntry
from monitor.tools.results.call_results import failed
from monitor.verdicts import VETO

if TYPE_CHECKING:
    from monitor.tools.artifacts.artifact_store import Reference


WRITES = ("edit", "execute")
"""Kinds of tools whose calls run one after the other, in their order."""


class CallRuntime(Protocol):
    """The parts of a scheduler that a call uses while its tool runs."""

    listener: CallListener
    now: Callable[[], float]
    late: deque[CallJob]

    def in_loop(self, do: Callable[[], None]) -> None:
        """Call `do` in the event loop's thread."""
        ...


@dataclass(slots=True, eq=False)
class CallJob:
    """One call on its way to its result. It is the `CallReporter` of its tool."""

    runtime: CallRuntime
    call: ToolCall
    entry: ToolEntry
    run_id: str
    key: str
    """The identity of the action, see `monitor.messages.call_key`."""
    turn: int
    index: int
    kept_record: CallRecord | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    outcome: tuple[CallState, ToolResult] | None = None
    """The end of the call, before it is stored and the listener is informed."""
    result: ToolResult | None = None
    stored: CallState | None = None
    """The state that stands in the ledger. `None`: nothing stands there yet."""
    owned: bool = True
    """Whether this process stores the end of the call. False: another process carries the call out,
    or has done so.
    """
    scope: anyio.CancelScope | None = None
    after: Sequence[CallJob] = ()
    """The calls before it that it waits for."""
    ended: anyio.Event | None = None
    why: str | None = None
    """The reason why this scheduler cancels the call. A cancellation from outside has none."""
    status: str | None = None
    """The line of the result that is never cut."""
    reference: Reference | None = None
    """Where the text of the result came from, if its tool says so."""
    deferred: str | None = None
    """What the call waits for, if its tool has deferred its result."""
    timed_out: bool = False
    left_thread: bool = False
    entered: bool = False
    begun_at: float = 0.0
    idle_due: float = math.inf
    hard_due: float = math.inf
    alarm: Alarm | None = None

    @property
    def record(self) -> CallRecord:
        """The record of the call, made when it is first needed: most runs have no ledger and no
        listener.
        """
        if self.kept_record is None:
            self.kept_record = CallRecord(
                run=self.run_id,
                call_id=self.call.id,
                tool=self.call.name,
                arguments=self.call.arguments,
                key=self.key,
                turn=self.turn,
                index=self.index,
                idempotent=self.entry.traits.idempotent,
            )
        return self.kept_record

    @record.setter
    def record(self, record: CallRecord) -> None:
        self.kept_record = record

    async def output(self, text: str, stream: str) -> None:
        if self.result is None:
            await self.runtime.listener.output(self.call, stream, text)

    def progress(self, done: float | None, total: float | None, note: str) -> None:
        def note_it() -> None:
            if self.result is None:
                timeout_s = self.entry.traits.timeout_s
                if timeout_s is not None and self.hard_due < math.inf:
                    self.idle_due = self.runtime.now() + timeout_s
                self.runtime.listener.progressed(self.call, done, total, note)

        self.runtime.in_loop(note_it)

    def process_started(self, pid: int) -> None:
        self.runtime.in_loop(lambda: self.runtime.listener.process_started(self.call, pid))

    def thread_left(self) -> None:
        self.left_thread = True

    def thread_ended(self) -> None:
        self.runtime.late.append(self)


@dataclass(slots=True, eq=False)
class CallBatch:
    """The calls of one response of the model."""

    jobs: list[CallJob]
    finished: Callable[[ToolResult, float], object] | None
    scope: anyio.CancelScope | None = None
    """The scope of its task group, or of the wait for its turn. `None`: it has not begun to wait.
    """
    fatal: list[BaseException] = field(default_factory=list)
    begun: bool = False
    aborted: bool = False
    why: str | None = None
    """Why the batch was ended. `None`: nobody has said."""


def set_order(jobs: Sequence[CallJob]) -> None:
    """Set for each call the calls that it waits for. Calls that have their end already wait for
    none.
    """
    barrier: list[CallJob] = []
    writer: list[CallJob] = []
    readers: list[CallJob] = []
    since: list[CallJob] = []
    for job in jobs:
        if job.outcome is not None:
            continue
        traits = job.entry.traits
        if traits.alone:
            job.after = [*barrier, *since]
            barrier, writer, readers, since = [job], [], [], []
        else:
            job.after = barrier
            if traits.kind in WRITES:
                job.after = [*barrier, *writer, *readers]
                writer, readers = [job], []
            elif traits.kind == "read":
                job.after = [*barrier, *writer]
                readers.append(job)
            since.append(job)
        for other in job.after:
            if other.ended is None:
                other.ended = anyio.Event()


# --------------------------------------------------------------------------------------------------
# The ends of calls: the state and the result of a call that was interrupted, that was made
# before, or whose outcome is unknown.

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


# --------------------------------------------------------------------------------------------------
# Counts how often each tool has asked the model to make its call again, and bounds it.


class AskedTries:
    """The tries that tools have asked for with `ToolRetry`, in one run. The calls of one response
    count once, because the model has made them all before it read the first answer.
    """

    def __init__(self) -> None:
        self._asked: dict[str, int] = {}
        self._last: dict[str, int] = {}
        """The turn in which the tool has asked last."""

    def counted(self, job: CallJob, result: ToolResult) -> ToolResult:
        """`result`. If its tool has asked for another try, it says how many are left."""
        name = job.call.name
        if result.error_kind is not ToolErrorKind.RETRY:
            if not result.is_error:
                self._asked.pop(name, None)
            return result
        if name not in self._asked or self._last[name] != job.turn or job.turn == 0:
            self._asked[name] = self._asked.get(name, 0) + 1
        self._last[name] = job.turn
        left = job.entry.traits.model_retries - self._asked[name] + 1
        if left > 0:
            times = "once" if left == 1 else f"{left} times"
            return replace(result, text=f"{result.text}\nCorrect the call and make it again; you may do so {times}.")
        said = "It has asked for other calls too often: do not call it in this way again, and go on without it."
        return replace(result, text=f"{result.text}\n{said}", error_kind=ToolErrorKind.EXECUTION_FAILED)
