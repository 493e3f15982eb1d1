"""`take_turn`: one turn of one session, as a step that an engine may run any number of times.

The session is the truth, and the engine only decides who runs it. A step that runs again finds its
turn in the session, and hands back the same receipt. So an engine that repeats steps has no effect
twice: calls are stored before their effects, and a receipt is stored together with its turn.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, cast

import anyio
from anyio import to_thread

from monitor.chunks import NO_USAGE
from monitor.errors import (
    BudgetUnreachable,
    ConfigError,
    SessionBusy,
    SessionDamaged,
    SessionLost,
    SessionUnavailable,
    StoreError,
    TerminateReason,
)
from monitor.fleet.control import Control, StepPostponed, StepStore
from monitor.fleet.jobs import FleetJob, Sessions, Supervisors, attempt, job_of, losses_of, receipts_of
from monitor.fleet.receipts import MAX_LOSSES, STUCK_WORKER, UNKNOWN_HEAD, Receipt
from monitor.messages import ApprovalAnswer, ApprovalRequest
from monitor.outcome import Outcome
from monitor.runs.record.session_reading import outcome_in
from monitor.runs.run_parts import RunRequest
from monitor.runs.supervised_run import Run
from monitor.runs.supervisor import Supervisor
from monitor.sessions.closed_runs import MAIN, RunRecord, RunStage, SessionStore
from monitor.sessions.nodes import Node
from monitor.tools.approvals.approvers import PendingApprovals
from monitor.tools.base import Background

LOOK_S: Final = 1.0
"""A running step looks this often whether its session is to be aborted."""


def is_passing(error: Exception) -> bool:
    """Whether a step that has raised `error` is to be tried again, for as long as it takes: a store
    is away, another worker has the session, or the shared budget could not be had. Every other
    `StoreError` is a refusal, which stays the same however often the step is tried.
    """
    return isinstance(error, SessionBusy | SessionLost | SessionUnavailable | BudgetUnreachable | StepPostponed)


async def take_turn(
    supervisors: Supervisors,
    sessions: Sessions,
    id: str,
    turn: int,
    *,
    control: Control | None = None,
    max_losses: int = MAX_LOSSES,
    began: Callable[[Run[Any]], object] = lambda _: None,
) -> Receipt:
    """Make turn `turn` of the session `id`, and return its receipt. If it is stored already, return
    the same receipt without asking the model.

    `control`: where aborts and answers stand. `max_losses`: when this number of workers has died in
    one turn without any progress, the run is parked. `began`: is called with the run, before its
    turn is made.

    Raises `SessionBusy` while another worker has the session, and `UnknownSupervisor` if this
    worker cannot carry out the run. Raises `StepPostponed` if the shared budget could not be had
    for too long: the step is to be tried again. Raises `ConfigError` if the turn before is not
    stored.
    """
    async with sessions.open(id) as store:
        path = await store.active_path()
        receipts = receipts_of(path)
        if 1 <= turn <= len(receipts):
            return receipts[turn - 1]
        if turn != len(receipts) + 1:
            raise ConfigError(f"turn {turn} of the session {id} cannot be made: {len(receipts)} turns are stored")
        job = job_of(path)
        if job is None:
            raise ConfigError(f"the session {id} has no job: enter one first")
        supervisor = supervisors.find(job.supervisor, job.version)
        step = _TurnAttempt(
            supervisor=supervisor,
            store=store,
            id=id,
            turn=turn,
            job=job,
            path=path,
            before=receipts[-1] if receipts else None,
            control=control,
            began=began,
        )
        return await step.take(max_losses)


@dataclass(slots=True, kw_only=True)
class _TurnAttempt:
    """One attempt of a worker to make one turn."""

    supervisor: Supervisor[Any]
    store: SessionStore
    id: str
    turn: int
    job: FleetJob
    path: Sequence[Node]
    before: Receipt | None
    control: Control | None
    began: Callable[[Run[Any]], object]

    async def take(self, max_losses: int) -> Receipt:
        """Make the turn, as `take_turn` describes it."""
        before = self.before
        ended = sum(not one.open for one in await self.store.calls())
        storing = StepStore(self.store, attempt(self.turn, ended))
        if before is not None and before.next == "end":
            raise ConfigError(f"the session {self.id} has ended with turn {before.turn}: {before.reason}")
        known = await self._known()
        if known is not None and known.state is RunStage.ENDED:  # somebody has gone on with it by hand
            outcome = await outcome_in(self.store, known.id)
            if outcome is None:
                raise SessionDamaged(f"the session {self.id} does not say how its run has ended")
            return await storing.add(self._receipt(known.id, outcome))
        losses = losses_of(self.path, storing.attempt)
        if losses >= max_losses:
            return await storing.add(self._parked(losses))
        await self._carry_out(known, storing)
        if storing.stored is None:
            raise SessionUnavailable(f"turn {self.turn} of the session {self.id} was not stored")
        return storing.stored

    async def _known(self) -> RunRecord | None:
        """The run of the session, if it has begun."""
        runs = [one for one in await self.store.runs() if one.purpose == MAIN]
        return runs[-1] if runs else None

    async def _carry_out(self, known: RunRecord | None, storing: StepStore) -> None:
        """Go on with the run for one turn, and look meanwhile whether it is to be aborted."""
        store = cast("SessionStore", storing)
        supervisor = await self._asking()
        asked = RunRequest(session=store, resumed=known)
        if known is None:
            asked = replace(asked, task=self.job.task, run_id=self.id)
        run: Run[Any] = Run(supervisor, asked)
        run.hand_over(at_turn=self._boundary)
        storing.receipt = lambda outcome: replace(self._receipt(run.id, outcome), evidence=run.evidence())
        self.began(run)
        if (why := await self._aborted()) is not None:
            run.abort(why)
        watch = Background(partial(self._watch, run), "agent-monitor abort") if self.control is not None else None
        try:
            async with run:
                async for _ in run:
                    pass
        finally:
            if watch is not None:
                watch.cancel()
                with anyio.CancelScope(shield=True):
                    await watch.wait()
        if isinstance(run.outcome.error, StoreError) and storing.stored is None:
            raise run.outcome.error

    @property
    def _boundary(self) -> int:
        """The number of turns after which this step ends. A step after a question ends the turn in
        which it was asked.
        """
        before = self.before
        if before is None:
            return 1
        return before.turns if before.reason == TerminateReason.PAUSED.value else before.turns + 1

    async def _aborted(self) -> str | None:
        return await to_thread.run_sync(self.control.aborted, self.id) if self.control is not None else None

    async def _watch(self, run: Run[Any]) -> None:
        """Look each second whether the run is to be aborted."""
        clock = self.supervisor.clock
        while True:
            rung = anyio.Event()
            alarm = clock.call_at(clock.now() + LOOK_S, rung.set)
            try:
                await rung.wait()
            finally:
                alarm.cancel()
            with contextlib.suppress(StoreError):  # it is looked at again in a second
                if (why := await self._aborted()) is not None:
                    run.abort(why)
                    return

    async def _asking(self) -> Supervisor[Any]:
        """The supervisor; questions that have no approver wait for `Control.answer`."""
        if self.supervisor.calls.approver is not None or self.control is None:
            return self.supervisor
        asked = [one.request for one in await self.store.approvals(only_open=True)]
        late = [
            ApprovalAnswer(id=one.id, decision="expired", reason="nobody has answered in time")
            for one in asked
            if one.expires_at is not None and one.expires_at <= time.time()
        ]
        copied = copy.copy(self.supervisor)
        answers = await to_thread.run_sync(self.control.answers, self.id)
        copied.calls = replace(copied.calls, approver=_answered(asked, (*answers, *late)))
        return copied

    def _is_answered(self, asked: Sequence[ApprovalRequest]) -> bool:
        """Whether one of these questions was answered while other calls of the turn went on. Nobody
        would wake the run for that answer again.
        """
        if self.control is None or self.supervisor.calls.approver is not None:
            return False
        return bool(_answered(asked, self.control.answers(self.id)).answered_calls)

    # ------------------------------------------------------------------ receipts

    def _receipt(self, run: str, outcome: Outcome[Any]) -> Receipt:
        """The receipt of this step. The store adds the newest node to it."""
        waits = outcome.reason is TerminateReason.PAUSED
        goes_on = outcome.reason is TerminateReason.WORKER_STOPPING
        answered = waits and self._is_answered(outcome.pending)
        expiries = [one.expires_at for one in outcome.pending if one.expires_at is not None]
        return Receipt(
            session=self.id,
            run=run,
            turn=self.turn,
            turns=outcome.turns,
            head=UNKNOWN_HEAD,
            next="turn" if goes_on or answered else "wait" if waits else "end",
            reason=outcome.reason.value,
            detail=outcome.detail,
            ok=outcome.ok,
            usage=outcome.usage,
            cost_usd=outcome.cost_usd,
            wake_at_s=min(expiries) if waits and not answered and expiries else None,
        )

    def _parked(self, losses: int) -> Receipt:
        """The receipt of a turn in which one worker after the other has died."""
        before = self.before
        return Receipt(
            session=self.id,
            run=before.run if before is not None else self.id,
            turn=self.turn,
            turns=before.turns if before is not None else 0,
            head=UNKNOWN_HEAD,
            next="park",
            reason=STUCK_WORKER,
            detail=f"{losses} workers have died in this turn, one after the other, without any progress",
            usage=before.usage if before is not None else NO_USAGE,
            cost_usd=before.cost_usd if before is not None else None,
        )


def _answered(asked: Sequence[ApprovalRequest], answers: Sequence[ApprovalAnswer]) -> PendingApprovals:
    """The questions, and the answers that fit them."""
    pending = PendingApprovals(requests=asked, wall=lambda: 0.0)  # an answer may be read after its question expired
    for answer in answers:
        if answer.id in pending.requests:
            with contextlib.suppress(ConfigError):  # it was given for another call: the question stays open
                pending.answer(answer)
    return pending
