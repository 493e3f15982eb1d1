"""One compaction under way: its task, its deadline, what the sinks hear of it, and who waits for
its outcome.

A task that runs out of time is cancelled. A task that does not let itself be cancelled is given up
after a grace period: nobody waits for it, and its result is thrown away. Beside compactions, old
results are pruned after a turn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, Final

import anyio.to_thread

from monitor import events
from monitor.chunks import AskCost
from monitor.context.compaction.attempts import CompactionInput
from monitor.context.compaction.hooks import CompactionError, CompactionResult
from monitor.context.compaction.pinned import PinnedFacts
from monitor.context.compaction.preset import Preset
from monitor.context.compaction.summarizer import CompactionProgress
from monitor.context.history import CommittedEdit, History, unread_from
from monitor.context.reduce import OnlySent, Reducer, Reduction, propose_for
from monitor.context.tokens import ContextMeter
from monitor.errors import CompactionFailure, CompactionReason, describe
from monitor.events import Event
from monitor.guard.streams.wait import Alarm, Clock
from monitor.models import Model
from monitor.runs.record.compaction_runs import CompactionNumbers
from monitor.tools.base import Background

LATE_S: Final = 5.0
"""Seconds that a task has beyond its deadline: hooks may still return, models are asked no more."""
OVER: Final = "the run ended before it was done"


async def _kept_nowhere(_: str) -> None:
    """There is no store."""


@dataclass(slots=True, frozen=True, kw_only=True)
class RunServices:
    """The parts of a run that its compactor uses. The defaults are for no run."""

    clock: Clock
    emit: Callable[[Event], None]
    close_grace_s: float
    at: Callable[[float], float]
    """Seconds between the beginning of the run and a time of the clock."""
    turns: Callable[[], int] = lambda: 0
    """The number of turns so far."""
    facts: Callable[[], PinnedFacts] = PinnedFacts
    """The outputs and the plan, which a summary must not lose."""
    keep: Callable[[str], Awaitable[str | None]] = _kept_nowhere
    """Keep a text outside of the context, and say how the model reads it, if anybody keeps it."""
    charge: Callable[[AskCost], None] = lambda _: None
    """Charge the run for the cost of a summary."""
    record: CompactionNumbers = field(default_factory=CompactionNumbers)
    """Numbers the run's compactions, and stores them where the run has a session."""

    @property
    def at_s(self) -> float:
        """The number of seconds since the run began."""
        return self.at(self.clock.now())

    def tell(self, event: Callable[..., Event], **fields: Any) -> None:
        """Emit an event of this moment, with these fields."""
        self.emit(event(at_s=self.at_s, turn=self.turns(), **fields))


@dataclass(slots=True, eq=False)
class CompactionJob:
    """One compaction, which may have two tasks: a job that ran out of time is done again `instead`,
    without a model.
    """

    preset: Preset
    model: Model | None
    """The model that writes the summary. `None`: no model is asked."""
    situation: CompactionInput
    run: RunServices
    _: KW_ONLY
    waited_for: bool
    """Whether the run waits for the outcome."""
    number: int = 0
    """0: `CompactionStarted` has not been emitted."""
    cost: AskCost = field(default_factory=AskCost)
    model_calls: int = 0
    refill: str | None = None
    started_at: float = field(init=False)
    deadline: float = field(init=False)
    open: bool = True
    """The job has neither finished nor failed."""
    cancelled: bool = False
    crashed: bool = False
    """The caller's code raised an error that nothing else has caught, or made messages that no
    provider takes.
    """
    expired: bool = False
    """The job ran out of time and is cancelled."""
    task: Background | None = None
    instead: CompactionJob | None = None
    """The job that replaces this one. Its outcome is the outcome of this job, too."""
    _alarm: Alarm | None = None
    _extended: bool = False
    _give_up: Callable[[Background], None] = field(init=False)
    _outcome: CompactionResult | CompactionError | None = None
    _over: bool = False
    _told: list[Callable[[], object]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.started_at = self.deadline = self.run.clock.now()

    @property
    def reason(self) -> CompactionReason:
        """Why the history is compacted."""
        return self.situation.reason

    # --- its time

    def begin(
        self,
        work: Callable[[], Coroutine[Any, Any, None]],
        *,
        timeout_s: float,
        then: Callable[[], object],
        give_up: Callable[[Background], None],
    ) -> None:
        """Start a task with `work`; `then` is called when the task has ended. After `timeout_s` and
        `LATE_S` the task is cancelled. If it does not end then, `give_up` is called with it.
        """
        self.deadline = self.run.clock.now() + timeout_s
        self._give_up = give_up
        self.task = Background(work, "agent-monitor compaction", then=then)
        self._arm()

    def extend(self, seconds: float) -> None:
        """Move the deadline by `seconds`, once in the life of the job."""
        if not self._extended:
            self._extended = True
            self.deadline += seconds

    def raise_unless_wanted(self) -> None:
        """Raise `CompactionError` in a task that has swallowed its cancellation, before it does
        anything more.
        """
        if not self.open or self.cancelled:
            raise CompactionError(CompactionFailure.ABORTED, OVER)

    def cancel(self) -> None:
        """End the job's task: its outcome is not wanted any more."""
        if not self.cancelled:
            self.cancelled = True
            self._strike()

    def disarm(self) -> None:
        """No timer of the job fires any more."""
        if self._alarm is not None:
            self._alarm.cancel()

    def _arm(self) -> None:
        self._alarm = self.run.clock.call_at(self.deadline + LATE_S, self._check_deadline)

    def _check_deadline(self) -> None:
        """The alarm: the deadline may have been moved since it was set."""
        if self.run.clock.now() < self.deadline + LATE_S:
            self._arm()
        else:
            self.expired = True
            self._strike()

    def _strike(self) -> None:
        """Cancel the task. If it has not ended after the grace period, it is given up."""
        if self.task is not None and not self.task.ended:
            self.disarm()
            self._alarm = self.run.clock.call_at(
                self.run.clock.now() + self.run.close_grace_s, partial(self._give_up, self.task)
            )
            self.task.cancel()

    # --- what the sinks hear of it

    def begun(self) -> None:
        """The first sign of work: from now on the job has a number."""
        if self.number:
            return
        self.number = self.run.record.next_number()
        self.run.tell(
            events.CompactionStarted,
            compaction=self.number,
            reason=self.reason,
            preset=self.preset.name,
            tokens=self.situation.tokens,
            background=not self.waited_for,
            refill=self.refill,
        )

    def progressed(self, progress: CompactionProgress) -> None:
        """The summary has grown by a part that is done."""
        self.begun()
        self.run.tell(
            events.CompactionProgressed,
            compaction=self.number,
            done_messages=progress.done_messages,
            of_messages=progress.of_messages,
        )

    def finished(self, result: CompactionResult) -> None:
        """`result` is part of the history."""
        self.begun()
        self.run.tell(
            events.CompactionFinished,
            compaction=self.number,
            reason=self.reason,
            tokens_before=result.tokens_before,
            tokens_after=result.tokens_after,
            estimator="reported" if result.reported else "estimated",
            kept_messages=result.kept_messages,
            kept_tokens=result.kept_tokens,
            summarised_by=result.summarised_by,
            cost=self.cost,
            reread_tokens=result.reread_tokens,
            replayed=result.replayed,
            after_s=self.run.clock.now() - self.started_at,
            warnings=result.warnings,
        )

    def skipped(self, error: CompactionError) -> None:
        """The job has ended before it began."""
        self.run.tell(events.CompactionSkipped, reason=self.reason, why=error.failure, detail=str(error))

    def failed(self, error: CompactionError) -> None:
        """The job has failed, and the history is as it was."""
        self.begun()
        self.run.tell(
            events.CompactionFailed,
            compaction=self.number,
            failure=error.failure,
            retryable=error.retryable,
            detail=str(error),
            cost=self.cost,
            after_s=self.run.clock.now() - self.started_at,
        )

    # --- its outcome

    @property
    def outcome(self) -> CompactionResult | CompactionError | None:
        """The result or the error; `None`: not known yet."""
        return self.instead.outcome if self.instead is not None else self._outcome

    @outcome.setter
    def outcome(self, outcome: CompactionResult | CompactionError) -> None:
        self._outcome = outcome

    @property
    def over(self) -> bool:
        """Whether the outcome is known, and the hooks have heard it."""
        return self.instead.over if self.instead is not None else self._over

    def tell(self, heard: Callable[[], object]) -> None:
        """Call `heard` when the job is over."""
        if self.instead is not None:
            self.instead.tell(heard)
        else:
            self._told.append(heard)

    def take_over(self, job: CompactionJob) -> None:
        """Replace `job`: all who wait for `job` now wait for this one. A crashed job has been
        reported as failed, so its number and cost are not taken over.
        """
        if not job.crashed:
            self.number, self.cost, self.model_calls, self.started_at = (
                job.number,
                job.cost,
                job.model_calls,
                job.started_at,
            )
        self.refill = job.refill
        self._told, job._told = job._told, []

    def settle(self) -> None:
        """Tell everybody who waits that the job is over."""
        self._over = True
        told, self._told = self._told, []
        for heard in told:
            heard()


# --- The pruning of a history after a turn, in the background.

WORTH_A_LOOK_TOKENS: Final = 5_000
"""Tokens by which the context must grow before it is pruned after a turn again."""


@dataclass(slots=True)
class Pruning:
    """Applies `reducers` to a history beside the run, in a thread: a look takes as long as the
    history is. `done` gets each reduction that the history has taken, `failed` what went wrong.
    """

    reducers: Sequence[Reducer]
    history: History
    meter: ContextMeter
    _: KW_ONLY
    head: Callable[[], int]
    done: Callable[[Reduction], None]
    failed: Callable[[str], None]
    task: Background | None = None
    cancelled: bool = False
    pruned_at: int = 0
    """The tokens at the last look, or the fewest since."""

    def turn_ended(self) -> None:
        """A turn is part of the history. Once enough has come for a look, one begins."""
        if not self.reducers or (self.task is not None and not self.task.ended):
            return
        tokens = self.meter.count().tokens
        self.pruned_at = min(self.pruned_at, tokens)
        if tokens >= self.pruned_at + WORTH_A_LOOK_TOKENS:
            self.pruned_at = tokens
            self.cancelled = False
            self.task = Background(self._prune, "agent-monitor prune")

    def cancel(self) -> None:
        """The run ends: what is found is not wanted any more."""
        self.cancelled = True
        if self.task is not None:
            self.task.cancel()

    async def _prune(self) -> None:
        history, head = self.history, self.head()
        messages = history.messages
        unread = unread_from(messages, head=head)
        reducers = [OnlySent(reducer, unread) for reducer in self.reducers]
        try:
            look = partial(propose_for, messages, history.version, *reducers, head=head)
            reduction = await anyio.to_thread.run_sync(look, abandon_on_cancel=True)
            if reduction is None or self.cancelled or not isinstance(history.commit(reduction.edit), CommittedEdit):
                return
        except Exception as error:  # noqa: BLE001 - a reducer may be the caller's code
            self.failed(f"after a turn: {describe(error)}")
            return
        self.pruned_at = self.meter.count().tokens
        self.done(reduction)
