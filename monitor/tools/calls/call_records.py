"""The records of calls: each step of a call is stored in the ledger before it happens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

import anyio

from monitor.calls import OPEN, UNENTERED, ApprovalRequest, CallLedger, CallRecord, CallState, stepped
from monitor.chunks import ToolResult
from monitor.tools.calls.call_endings import awaited, ended, lost, made_before, taken, unkept
from monitor.tools.calls.call_job import CallJob
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
