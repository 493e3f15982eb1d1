"""One call on its way to its result: its states, its record, and its tool under its deadlines.

`STEPS` is the whole way of a call, as a table: from each state, the events that may come and the
state that follows. Each step is stored in the ledger before it happens, and the listener hears it.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import anyio.from_thread
import anyio.lowlevel

from monitor.chunks import ToolCall, ToolResult
from monitor.errors import ToolError, ToolErrorKind, leaves_of
from monitor.messages import (
    OPEN,
    UNENTERED,
    ApprovalRequest,
    CallLedger,
    CallRecord,
    CallState,
    comes_after,
    stepped,
)
from monitor.tools.base import Background, CallListener, CallReporter, Clock, ToolContext
from monitor.tools.registry import ToolEntry
from monitor.tools.results.call_results import ToolAnswer, failed, failed_by, result_of
from monitor.verdicts import VETO

if TYPE_CHECKING:
    from monitor.tools.artifacts.artifact_store import Reference

LEDGER_GRACE_S: Final = 5.0
"""The most seconds that the ledger gets to store the ends of calls that were cancelled."""


class CallEvent(StrEnum):
    """What happens to a call. After the first three it is still open."""

    ASKED = "asked"
    """A person is asked whether it may be made."""
    ENTERED = "entered"
    """Its tool is entered, perhaps once more."""
    DEFERRED = "deferred"
    """Its tool says that the result comes later, from outside."""
    ANSWERED = "answered"
    FAILED = "failed"
    REFUSED = "refused"
    UNANSWERED = "unanswered"
    CUT_OFF = "cut_off"
    LOST = "lost"
    """Its tool was entered, and it is not known how far it came."""


ENDS: Final[Mapping[CallEvent, CallState]] = {
    CallEvent.ANSWERED: CallState.DONE,
    CallEvent.FAILED: CallState.FAILED,
    CallEvent.REFUSED: CallState.DENIED,
    CallEvent.UNANSWERED: CallState.EXPIRED,
    CallEvent.CUT_OFF: CallState.CANCELLED,
    CallEvent.LOST: CallState.UNKNOWN,
}
_BEFORE_ENTRY: Final = {CallEvent.ASKED: CallState.AWAITING_APPROVAL, CallEvent.ENTERED: CallState.RUNNING, **ENDS}
STEPS: Final[Mapping[CallState, Mapping[CallEvent, CallState]]] = {
    CallState.INTENDED: _BEFORE_ENTRY,
    CallState.AWAITING_APPROVAL: _BEFORE_ENTRY,
    CallState.RUNNING: {CallEvent.ENTERED: CallState.RUNNING, CallEvent.DEFERRED: CallState.AWAITING_RESULT, **ENDS},
    CallState.AWAITING_RESULT: ENDS,
    CallState.FAILED: {CallEvent.ENTERED: CallState.RUNNING},
    CallState.UNKNOWN: {CallEvent.ENTERED: CallState.RUNNING},
    CallState.DONE: {},
    CallState.DENIED: {},
    CallState.EXPIRED: {},
    CallState.CANCELLED: {},
}
"""State by event: the state that follows. `monitor.messages.may_follow` says the same to a store.
"""

CallEnd: TypeAlias = tuple[CallState, ToolResult]
"""The state in which a call stays, and the result that the model reads."""


@dataclass(slots=True, frozen=True)
class _Notice:
    """What the model reads in the place of a tool's answer."""

    state: CallState
    text: str
    kind: ToolErrorKind = ToolErrorKind.CANCELLED
    vetoed: bool = True


UNKNOWN: Final = _Notice(
    CallState.UNKNOWN,
    f"{VETO} The outcome of this call is unknown: it was begun, and its end was not recorded. It was not made again."
    " Look at what it may have done before you repeat it.",
)
TAKEN: Final = _Notice(
    CallState.UNKNOWN, f"{VETO} This call was not made: another process is carrying out the same call."
)
LATER: Final = _Notice(
    CallState.AWAITING_RESULT,
    f"{VETO} The result of this call comes later, from outside. Do not repeat the call.",
)
UNKEPT: Final = _Notice(
    CallState.FAILED,
    "Error: the result of this tool comes later, and nothing keeps the call until then: it needs a session",
    ToolErrorKind.EXECUTION_FAILED,
    vetoed=False,
)
_MET: Final = {CallState.RUNNING: TAKEN, CallState.AWAITING_RESULT: LATER, CallState.UNKNOWN: UNKNOWN}
"""What the model reads of a call that is in the ledger already, in these states."""
_EVENTS: Final = {ToolErrorKind.DENIED: CallEvent.REFUSED, ToolErrorKind.CANCELLED: CallEvent.CUT_OFF}
"""The events that results with these kinds of errors are. Any other error is a failure."""


def end_with(result: ToolResult) -> CallEnd:
    """The end of a call with this result."""
    event = CallEvent.ANSWERED if not result.is_error else CallEvent.FAILED
    if result.is_error and result.error_kind is not None:
        event = _EVENTS.get(result.error_kind, event)
    return ENDS[event], result


@dataclass(slots=True, eq=False)
class CallsOfRun:
    """The parts that the calls of one run share: where their steps go, and the clock."""

    ledger: CallLedger | None
    """`None` keeps no records."""
    listener: CallListener
    clock: Clock
    run_id: str
    at: Callable[[float], float]
    """Turns a time of the clock into seconds since the run began."""
    defers: bool
    """The ledger keeps a call whose result comes later, until it is there."""
    grace_s: float
    """The seconds after its deadline until a tool that has not ended is abandoned."""
    resumes: bool = False
    """The run goes on in its session, and so do its calls of tools that resume."""
    awaited: dict[str, str] = field(default_factory=dict)
    """The calls whose results come later: what each waits for, by its key."""
    cut_off: frozenset[str] = frozenset()
    """The keys of the calls that were running when the process of the run ended."""
    late: deque[CallJob] = field(default_factory=deque)
    """Calls whose abandoned threads have ended since `Scheduler.say_late`."""
    _thread: int = 0
    _token: Any = None

    @property
    def is_recorded(self) -> bool:
        """Whether anybody wants the records of the calls."""
        return self.ledger is not None or self.listener.listens

    async def recover(self, comes: Collection[str]) -> Sequence[CallRecord]:
        """See `Scheduler.recover`."""
        if self.ledger is None:
            return []
        running = [one for one in await self.ledger.open_calls(self.run_id) if one.state is CallState.RUNNING]
        self.cut_off = frozenset(one.key for one in running)
        unknown = [stepped(record, state=CallState.UNKNOWN) for record in running if record.call_id not in comes]
        for record in unknown:
            await self.ledger.advance(record)
            self.listener.changed(record)
        return unknown

    async def intended(self, jobs: Sequence[CallJob]) -> None:
        """The calls are about to be made. A call that the ledger has already gets its end."""
        if self._token is None:
            self._thread = threading.get_ident()
            self._token = anyio.lowlevel.current_token()
        if self.ledger is not None:
            known = await self.ledger.intend([job.record for job in jobs])
            for job, record in zip(jobs, known, strict=True):
                job.meet(record)
            return
        for job in jobs:
            job.stored = CallState.INTENDED
            if self.listener.listens:
                self.listener.changed(job.record)

    async def store_rest(self, jobs: Sequence[CallJob]) -> None:
        """The calls have their ends, and were perhaps cancelled."""
        if all(job.outcome is None or not job.owned or job.stored is job.outcome[0] for job in jobs):
            return
        with anyio.move_on_after(LEDGER_GRACE_S, shield=True):
            for job in jobs:
                await job.store()

    def in_loop(self, do: Callable[[], None]) -> None:
        """Call `do` in the event loop's thread. After the end of the loop nothing is called."""
        if threading.get_ident() == self._thread:
            do()
        else:
            with contextlib.suppress(RuntimeError):  # the loop is over
                anyio.from_thread.run_sync(do, token=self._token)


@dataclass(slots=True, eq=False)
class CallJob(CallReporter):
    """One call on its way to its result. It is the `CallReporter` of its tool."""

    run: CallsOfRun
    call: ToolCall
    entry: ToolEntry
    key: str
    """The identity of the action, see `monitor.messages.call_key`."""
    turn: int
    index: int
    kept_record: CallRecord | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    outcome: CallEnd | None = None
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
    kept_from: str = ""
    """What a sandbox has kept its tool from."""
    left_thread: bool = False
    entered: bool = False
    begun_at: float = 0.0
    idle_due: float = math.inf
    hard_due: float = math.inf

    @property
    def record(self) -> CallRecord:
        """The record of the call, made when it is first needed: most runs have no ledger and no
        listener.
        """
        if self.kept_record is None:
            self.kept_record = CallRecord(
                run=self.run.run_id,
                call_id=self.call.id,
                tool=self.call.name,
                arguments=self.call.arguments,
                key=self.key,
                turn=self.turn,
                index=self.index,
                idempotent=self.entry.traits.idempotent,
            )
        return self.kept_record

    def change(self, **changes: Any) -> None:
        """Change the record of the call. It is stored with the next step."""
        self.kept_record = stepped(self.record, **changes)

    # ------------------------------------------------------------------ its steps

    def meet(self, known: CallRecord) -> None:
        """Compare the call with `known`, its record in the ledger. It may be there already, from a
        run that was interrupted or from another process.
        """
        run, traits = self.run, self.entry.traits
        self.stored = known.state
        again = traits.idempotent or (traits.resumes and run.resumes)
        unknown = known.state is CallState.UNKNOWN or known.key in run.cut_off
        self.owned = known.state in UNENTERED or known.key in run.cut_off or (unknown and again)
        if known.state in UNENTERED or (unknown and again):
            if known is not self.kept_record:
                state = known.state if known.state in UNENTERED else CallState.INTENDED
                self.kept_record = stepped(known, state=state)
            if run.listener.listens:
                run.listener.changed(self.record)
        elif known.key in run.cut_off:
            self.kept_record = known
            self.outcome = self.end(UNKNOWN)
        elif known.state in _MET or known.text is None:
            if known.state is CallState.AWAITING_RESULT:
                run.awaited[known.key] = known.tool
            self.outcome = self.end(_MET.get(known.state, UNKNOWN))
        else:
            result = ToolResult(self.call.id, self.call.name, known.text, known.is_error)
            result = replace(result, error_kind=known.error_kind, vetoed=known.vetoed, artifact=known.artifact)
            self.outcome = known.state, result

    async def asked(self, request: ApprovalRequest) -> bool:
        """A person is asked about the call. False: another process carries it out.

        A call that is made again after an unknown outcome keeps its state until it is running.
        """
        return self.stored not in UNENTERED or await self._step(CallEvent.ASKED, approval=request.id)

    async def enter(self) -> bool:
        """The tool is about to be entered. False: another process carries the call out."""
        now = self.run.clock.now()
        if self.run.is_recorded and not await self._step(
            CallEvent.ENTERED, attempt=self.record.attempt + 1, started_at_s=self.run.at(now)
        ):
            return False
        self.stored, self.begun_at, self.entered = CallState.RUNNING, now, True
        return True

    async def defer(self) -> CallEnd:
        """The result of the call comes later."""
        if self.run.ledger is None or not self.run.defers:
            return self.end(UNKEPT)
        if not await self._step(CallEvent.DEFERRED):
            return self.end(TAKEN)
        self.run.awaited[self.key] = self.deferred or self.call.name
        return self.end(LATER)

    async def _step(self, event: CallEvent, **changes: Any) -> bool:
        """Store a step of the call, then tell it. False: another process carries it out."""
        if not self.run.is_recorded:
            return True
        assert self.stored is not None  # noqa: S101 - every call is intended first
        state, ledger = STEPS[self.stored].get(event), self.run.ledger
        step = stepped(self.record, state=state, **changes)
        if event is CallEvent.ASKED and step == self.record:
            return True
        if state is None or (ledger is not None and not await ledger.advance(step)):
            self.owned = False
            return False
        self.kept_record, self.stored = step, step.state
        self.run.listener.changed(step)
        return True

    # ------------------------------------------------------------------ its end

    def end(self, notice: _Notice) -> CallEnd:
        """The end of the call with `notice`."""
        return notice.state, failed(self.call, notice.text, notice.kind, vetoed=notice.vetoed)

    def cut_off(self, why: str) -> CallEnd:
        """The end of a call that was interrupted, before its tool was entered or while it ran."""
        if self.stored is not CallState.RUNNING:
            return self.end(_Notice(CallState.CANCELLED, f"{VETO} This call was not made: {why}."))
        text = f"{VETO} This call was not carried out to its end: {why}."
        if not self.left_thread:
            return self.end(_Notice(CallState.CANCELLED, text))
        text += " It could not be stopped: what it does after this is not known."
        return self.end(_Notice(CallState.UNKNOWN, text))

    async def store(self) -> None:
        """The call has its end: store it."""
        assert self.outcome is not None  # noqa: S101 - the callers see to it
        state, ledger = self.outcome[0], self.run.ledger
        if ledger is None:
            self.stored = state
        elif self.owned and state is not self.stored and state not in OPEN:
            self._end_record()
            await ledger.advance(self.record)
            self.stored = state

    def settle(self) -> float:
        """The call gets its result, in this one place, and the listener hears of its end. Returns
        the seconds that it took.
        """
        assert self.outcome is not None  # noqa: S101 - the callers see to it
        state, self.result = self.outcome
        seconds = self.run.clock.now() - self.begun_at if self.entered else 0.0
        object.__setattr__(self.result, "duration_s", seconds)  # this object was made here, nobody has seen it yet
        if self.owned and self.run.listener.listens and state not in OPEN:
            if self.record.state is not state:
                self._end_record()
            self.run.listener.changed(self.record)
        return seconds

    def _end_record(self) -> None:
        assert self.outcome is not None  # noqa: S101 - the callers see to it
        state, result = self.outcome
        self.change(
            state=state,
            ended_at_s=self.run.at(self.run.clock.now()),
            text=result.text,
            is_error=result.is_error,
            error_kind=result.error_kind,
            vetoed=result.vetoed,
            artifact=result.artifact,
        )

    # ------------------------------------------------------------------ the reporter of its tool

    async def output(self, text: str, stream: str) -> None:
        if self.result is None:
            await self.run.listener.output(self.call, stream, text)

    def progress(self, done: float | None, total: float | None, note: str) -> None:
        def note_it() -> None:
            if self.result is None:
                timeout_s = self.entry.traits.timeout_s
                if timeout_s is not None and self.hard_due < math.inf:
                    self.idle_due = self.run.clock.now() + timeout_s
                self.run.listener.progressed(self.call, done, total, note)

        self.run.in_loop(note_it)

    def process_started(self, pid: int) -> None:
        self.run.in_loop(lambda: self.run.listener.process_started(self.call, pid))

    def thread_left(self) -> None:
        self.left_thread = True

    def thread_ended(self) -> None:
        self.run.late.append(self)


# --------------------------------------------------------------------------------------------------
# The tool of a call, under its deadlines: seconds without progress, and seconds in all.


async def run_tool(job: CallJob, context: ToolContext) -> CallEnd:
    """Run the tool of a call. Raises the exceptions that are no results: a cancellation from
    outside, and an exception that ends programs.
    """
    traits = job.entry.traits
    if traits.timeout_s is None and traits.hard_timeout_s is None:
        answer, _ = await _call(job, context)
        return end_with(answer)
    return await _TimedTool(job, context).end()


class _TimedTool:
    """A tool in a task of its own. If it ignores its cancellation, nobody waits for it."""

    def __init__(self, job: CallJob, context: ToolContext) -> None:
        self._job = job
        self._context = context
        self._deadline = anyio.CancelScope()
        """Is cancelled when a deadline is reached."""
        self._timed_out = False
        self._scope = anyio.CancelScope()
        self._said: tuple[ToolResult, bool] | None = None
        """See `_call`."""
        self._raised: BaseException | None = None

    async def end(self) -> CallEnd:
        """The end of the call."""
        job, traits = self._job, self._job.entry.traits
        job.idle_due = job.begun_at + (traits.timeout_s or math.inf)
        job.hard_due = job.begun_at + (traits.hard_timeout_s or math.inf)
        self._arm()
        try:
            with self._deadline:
                await self._answer()
        finally:
            self._alarm.cancel()
        if self._said is not None and not self._timed_out:
            return end_with(self._said[0])
        return self._too_late()

    def _arm(self) -> None:
        """Set the alarm. If the deadline has moved when it rings, it is set again."""
        self._alarm = self._job.run.clock.call_at(min(self._job.idle_due, self._job.hard_due), self._ring)

    def _ring(self) -> None:
        if self._job.run.clock.now() < min(self._job.idle_due, self._job.hard_due):
            self._arm()
        else:
            self._timed_out = True
            self._deadline.cancel()

    async def _answer(self) -> None:
        """Wait for the answer. A cancellation ends the call; if it goes on, it is abandoned."""
        task = Background(self._work, f"tool {self._job.call.name}", then=self._has_ended)
        try:
            await task.wait()
        except anyio.get_cancelled_exc_class():
            await self._stop(task)
            # A cancelled tool may have worded an answer. A scope raises its cancellation again,
            # a task does not.
            if self._said is None or anyio.current_effective_deadline() > -math.inf:
                raise
        if self._raised is not None:
            raise self._raised

    async def _stop(self, task: Background) -> None:
        self._scope.cancel()
        try:
            with anyio.move_on_after(self._job.run.grace_s, shield=True):
                await task.wait()
        except BaseException:  # cancelled once more: at once, then
            task.cancel()
            raise
        if not task.ended:
            self._job.left_thread = True
            task.give_up()

    async def _work(self) -> None:
        with self._scope:
            try:
                self._said = await _call(self._job, self._context)
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:  # noqa: BLE001 - raised again in the task that waits
                self._raised = error

    def _has_ended(self) -> None:
        if self._job.left_thread and self._job.result is not None:
            self._job.thread_ended()

    def _too_late(self) -> CallEnd:
        """The end of a call that took too long. The model reads the answer to the cancellation, if
        the tool itself has worded it.
        """
        job, (said, last_words) = self._job, self._said or (None, False)
        text = f"Error: {self._limit()}"
        if said is not None and last_words:
            text = f"{text}\n{said.text}"
        elif said is not None and not said.is_error:
            job.run.listener.dropped(job.call, text)
        event = CallEvent.LOST if job.left_thread else CallEvent.FAILED
        return ENDS[event], failed(job.call, text, ToolErrorKind.TIMEOUT)

    def _limit(self) -> str:
        """For the model: the deadline that was reached, and the limits."""
        job, name, traits = self._job, self._job.call.name, self._job.entry.traits
        if traits.hard_timeout_s is None or traits.timeout_s is None:
            return f"{name} did not answer within {traits.timeout_s or traits.hard_timeout_s:g} s"
        limits = f"its limits are {traits.timeout_s:g} s without progress and {traits.hard_timeout_s:g} s in all"
        if job.hard_due <= job.idle_due:
            return f"{name} did not end within {traits.hard_timeout_s:g} s; {limits}"
        return f"{name} made no progress for {traits.timeout_s:g} s; {limits}"


async def _call(job: CallJob, context: ToolContext) -> tuple[ToolResult, bool]:
    """The answer of the tool, and whether the tool itself has worded it. A cancelled tool may word
    an answer too.
    """
    tool = job.entry.tool
    assert tool is not None  # noqa: S101 - a call of no tool was answered before
    try:
        value = await tool.call(job.arguments, context)
        job.status, job.reference, job.deferred, job.kept_from = None, None, None, ""
        if isinstance(value, ToolAnswer):
            job.status, job.reference, job.kept_from = value.status, value.reference, value.kept_from
            job.deferred = value.text if value.deferred else None
        return result_of(job.call, value), isinstance(value, ToolAnswer)
    except Exception as error:  # noqa: BLE001 - a tool may raise anything
        return failed_by(job.call, error, anyio.get_cancelled_exc_class()), isinstance(error, ToolError)
    except BaseException as error:
        cancelled = anyio.get_cancelled_exc_class()
        leaves = list(leaves_of(error))
        if not all(isinstance(leaf, Exception | cancelled) for leaf in leaves):
            raise
        ends = [leaf for leaf in leaves if isinstance(leaf, cancelled)]
        if ends and anyio.current_effective_deadline() == -math.inf:  # this task itself is cancelled
            raise ends[0] from None
        return failed_by(job.call, error, cancelled), False


# --------------------------------------------------------------------------------------------------
# A ledger of calls in memory: for runs that end with their process, and for tests.


class InMemoryLedger:
    """Keeps the calls of all runs that share this object, as long as the object lives."""

    def __init__(self) -> None:
        self._records: dict[str, CallRecord] = {}

    async def intend(self, records: Sequence[CallRecord]) -> Sequence[CallRecord]:
        return [self._records.setdefault(record.key, record) for record in records]

    async def advance(self, record: CallRecord) -> bool:
        if not comes_after(record, self._records.get(record.key)):
            return False
        self._records[record.key] = record
        return True

    async def find(self, key: str) -> CallRecord | None:
        return self._records.get(key)

    async def open_calls(self, run: str) -> Sequence[CallRecord]:
        return [record for record in self._records.values() if record.run == run and record.open]
