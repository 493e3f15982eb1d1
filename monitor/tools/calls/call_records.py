"""The records of calls: each step of a call is stored in the ledger before it happens."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import anyio

from monitor.chunks import ToolResult
from monitor.goal.goal import RESERVED
from monitor.messages import (
    OPEN,
    UNENTERED,
    ApprovalRequest,
    CallLedger,
    CallRecord,
    CallState,
    Message,
    comes_after,
    stepped,
)
from monitor.tools.base import ToolContext
from monitor.tools.calls.call_job import CallJob, awaited, ended, lost, made_before, taken, unkept
from monitor.tools.functions import FunctionTool
from monitor.tools.protocols import CallListener

LEDGER_GRACE_S: Final = 5.0
"""The most seconds that the ledger gets to store the ends of calls that were cancelled."""


class CallRecords:
    """The steps of one run's calls, for the ledger and the listener.

    `ledger`: `None` keeps no records. `defers`: it keeps a call whose result comes later, until it
    is there. `at`: turns a time of the clock into seconds since the run began.
    """

    def __init__(
        self,
        ledger: CallLedger | None,
        listener: CallListener,
        *,
        run_id: str,
        at: Callable[[float], float],
        defers: bool,
    ) -> None:
        self._ledger = ledger
        self._listener = listener
        self._run_id = run_id
        self._at = at
        self._defers = defers
        self.resumes = False
        """The run goes on in its session, and so do its calls of tools that resume."""
        self.awaited: dict[str, str] = {}
        """The calls whose results come later: what each waits for, by its key."""
        self._cut_off: frozenset[str] = frozenset()
        """The keys of the calls that were running when the process of the run ended."""

    async def recover(self, comes: Collection[str]) -> Sequence[CallRecord]:
        """See `Scheduler.recover`."""
        if self._ledger is None:
            return []
        running = [one for one in await self._ledger.open_calls(self._run_id) if one.state is CallState.RUNNING]
        self._cut_off = frozenset(one.key for one in running)
        unknown = [stepped(record, state=CallState.UNKNOWN) for record in running if record.call_id not in comes]
        for record in unknown:
            await self._ledger.advance(record)
            self._listener.changed(record)
        return unknown

    async def intended(self, jobs: Sequence[CallJob]) -> None:
        """The calls are about to be made. A call that the ledger has already gets its end."""
        if self._ledger is None:
            for job in jobs:
                job.stored = CallState.INTENDED
                if self._listener.listens:
                    self._listener.changed(job.record)
        else:
            known = await self._ledger.intend([job.record for job in jobs])
            for job, record in zip(jobs, known, strict=True):
                self._meet(job, record)

    def _meet(self, job: CallJob, known: CallRecord) -> None:
        """Compare a call with `known`, its record in the ledger. It may be there already, from a
        run that was interrupted or from another process.
        """
        job.stored = known.state
        job.owned = False
        traits = job.entry.traits
        again = traits.idempotent or (traits.resumes and self.resumes)
        unknown = known.state is CallState.UNKNOWN or known.key in self._cut_off
        if known.state in UNENTERED or (unknown and again):
            job.owned = True
            if known is not job.record:
                state = known.state if known.state in UNENTERED else CallState.INTENDED
                job.record = stepped(known, state=state)
            if self._listener.listens:
                self._listener.changed(job.record)
        elif known.key in self._cut_off:
            job.owned, job.record = True, known
            job.outcome = lost(job)
        else:
            if known.state is CallState.AWAITING_RESULT:
                self.awaited[known.key] = known.tool
            job.outcome = made_before(job, known)

    async def awaits_approval(self, job: CallJob, request: ApprovalRequest) -> bool:
        """A person is asked about the call. False: another process carries it out.

        A call that is made again after an unknown outcome keeps its state until it is running.
        """
        if job.stored not in UNENTERED or (self._ledger is None and not self._listener.listens):
            return True
        waiting = stepped(job.record, state=CallState.AWAITING_APPROVAL, approval=request.id)
        return waiting == job.record or await self._advanced(job, waiting)

    async def running(self, job: CallJob, now: float) -> bool:
        """The tool is about to be entered. False: another process carries the call out."""
        if self._ledger is None and not self._listener.listens:
            return True
        attempt = job.record.attempt + 1
        return await self._advanced(
            job, stepped(job.record, state=CallState.RUNNING, attempt=attempt, started_at_s=self._at(now))
        )

    async def awaits_result(self, job: CallJob) -> tuple[CallState, ToolResult]:
        """The result of the call comes later."""
        if self._ledger is None or not self._defers:
            return unkept(job)
        if not await self._advanced(job, stepped(job.record, state=CallState.AWAITING_RESULT)):
            return taken(job)
        self.awaited[job.key] = job.deferred or job.call.name
        return awaited(job)

    async def _advanced(self, job: CallJob, step: CallRecord) -> bool:
        """Store a step of the call. False: another process carries it out."""
        if self._ledger is not None and not await self._ledger.advance(step):
            job.owned = False
            return False
        job.record, job.stored = step, step.state
        self._listener.changed(step)
        return True

    async def store(self, job: CallJob, now: float) -> None:
        """The call has its end."""
        assert job.outcome is not None  # noqa: S101 - the callers see to it
        state, result = job.outcome
        if self._ledger is None:
            job.stored = state
        elif job.owned and state is not job.stored and state not in OPEN:
            job.record = ended(job.record, state, result, self._at(now))
            await self._ledger.advance(job.record)
            job.stored = state

    async def store_rest(self, jobs: Sequence[CallJob], now: float) -> None:
        """The calls have their ends, and were perhaps cancelled."""
        if all(job.outcome is None or not job.owned or job.stored is job.outcome[0] for job in jobs):
            return
        with anyio.move_on_after(LEDGER_GRACE_S, shield=True):
            for job in jobs:
                await self.store(job, now)

    def settled(self, job: CallJob, now: float) -> None:
        """The call has its result: the listener hears of its end."""
        assert job.outcome is not None  # noqa: S101 - the callers see to it
        state, result = job.outcome
        if job.owned and self._listener.listens and state not in OPEN:
            if job.record.state is not state:
                job.record = ended(job.record, state, result, self._at(now))
            self._listener.changed(job.record)


# --------------------------------------------------------------------------------------------------
# Special tools, which a model calls to change its run.
#
# The first three of `SPECIAL` belong to the run, which offers them if it has declared outputs or
# a plan. The others are ordinary tools for `tools=`. With `ToolContext.run` more such tools can
# be written.

SPECIAL: Final[Mapping[str, str]] = {
    "terminate": "ends the run, with success or failure",
    "emit_value": "hands over a declared output",
    "update_plan": "changes the plan, or the state of a step",
    "pause": "stands still until a person says how it goes on",
    "checkpoint": "stores the conversation so far",
}
"""The effect of each special tool on the run."""

assert set(SPECIAL) >= RESERVED  # noqa: S101 - the table names every tool of the run itself


def pause_tool() -> FunctionTool[..., Any]:
    """A tool by which the model asks a person before it goes on.

    The question goes to the run's approver: approved, the model goes on; refused, it reads the
    reason. With `PendingApprovals` the run ends as `paused`. Without an approver the call is
    refused.
    """

    async def pause(question: str) -> str:  # noqa: ARG001 - the person reads it
        """Stop and ask a person. Use it when you cannot decide by yourself."""
        return "A person has read this and says: go on."

    return FunctionTool(pause, needs_approval=True, alone=True)


def checkpoint_tool(save: Callable[[tuple[Message, ...], str], Any]) -> FunctionTool[..., Any]:
    """A tool by which the model stores the conversation before a risky step.

    `save` is called with the messages so far and the model's note; it may be async.
    """

    async def checkpoint(note: str, context: ToolContext) -> str:
        """Store the conversation so far, with a note on what comes next."""
        saved = save(context.run.history, note)
        if inspect.isawaitable(saved):
            await saved
        return "The conversation is stored."

    return FunctionTool(checkpoint, alone=True)


# --------------------------------------------------------------------------------------------------
# A ledger of calls in memory: for runs that end with their process, and for tests.


class InMemoryLedger:
    """Keeps the calls of all runs that share this object, as long as the object lives."""

    def __init__(self) -> None:
        self._records: dict[str, CallRecord] = {}
        self._open: dict[str, dict[str, None]] = {}
        """Keys of the open calls of each run, in order."""

    async def intend(self, records: Sequence[CallRecord]) -> Sequence[CallRecord]:
        for record in records:
            if record.key not in self._records:
                self._put(record)
        return [self._records[record.key] for record in records]

    async def advance(self, record: CallRecord) -> bool:
        if not comes_after(record, self._records.get(record.key)):
            return False
        self._put(record)
        return True

    async def find(self, key: str) -> CallRecord | None:
        return self._records.get(key)

    async def open_calls(self, run: str) -> Sequence[CallRecord]:
        return [self._records[key] for key in self._open.get(run, ())]

    def _put(self, record: CallRecord) -> None:
        self._records[record.key] = record
        if record.open:
            self._open.setdefault(record.run, {})[record.key] = None
        elif (keys := self._open.get(record.run)) is not None:
            keys.pop(record.key, None)
            if not keys:
                del self._open[record.run]
