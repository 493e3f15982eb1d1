"""What a compaction needs of its run, and what the sinks hear of a run's compactions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from monitor import events
from monitor.compaction.base import Progress
from monitor.compaction.pinned import PinnedFacts
from monitor.compaction.records import CompactionError, CompactionResult
from monitor.context.reduction import Reduction
from monitor.events import Event
from monitor.harness.job import Job
from monitor.harness.streams.clock import Clock
from monitor.usage import AskCost


@dataclass(slots=True, frozen=True, kw_only=True)
class Surroundings:
    """What a compactor needs of the run that it works for. The defaults are for no run."""

    clock: Clock
    emit: Callable[[Event], None]
    close_grace_s: float
    at: Callable[[float], float]
    """Seconds between the beginning of the run and a time of the clock."""
    turns: Callable[[], int] = lambda: 0
    """The number of turns so far."""
    facts: Callable[[], PinnedFacts] = PinnedFacts
    """The outputs and the plan, which a summary must not lose."""
    charge: Callable[[AskCost], None] = lambda _: None
    """Charge the run for a summary."""

    @property
    def at_s(self) -> float:
        """Seconds since the run began."""
        return self.at(self.clock.now())

    def tell(self, event: Callable[..., Event], **fields: Any) -> None:
        """Emit an event of this moment, with these fields."""
        self.emit(event(at_s=self.at_s, turn=self.turns(), **fields))


class Reports:
    """Emits the events of one run's compactions, and numbers those that have begun."""

    def __init__(self, run: Surroundings) -> None:
        self._run = run
        self._number = 0

    def begun(self, job: Job) -> None:
        """The first sign of work: from now on `job` has a number."""
        if job.number:
            return
        self._number += 1
        job.number = self._number
        self._run.tell(
            events.CompactionStarted,
            compaction=job.number,
            reason=job.reason,
            preset=job.preset.name,
            tokens=job.situation.tokens,
            background=not job.waited_for,
            refill=job.refill,
        )

    def progressed(self, job: Job, progress: Progress) -> None:
        """A part of the summary is done."""
        self._run.tell(
            events.CompactionProgressed,
            compaction=job.number,
            done_messages=progress.done_messages,
            of_messages=progress.of_messages,
        )

    def finished(self, job: Job, result: CompactionResult) -> None:
        """`result` is part of the history."""
        self._run.tell(
            events.CompactionFinished,
            compaction=job.number,
            reason=job.reason,
            tokens_before=result.tokens_before,
            tokens_after=result.tokens_after,
            estimator="reported" if result.reported else "estimated",
            kept_messages=result.kept_messages,
            kept_tokens=result.kept_tokens,
            summarised_by=result.summarised_by,
            cost=job.cost,
            reread_tokens=result.reread_tokens,
            replayed=result.replayed,
            after_s=self._run.clock.now() - job.started_at,
            warnings=result.warnings,
        )

    def skipped(self, job: Job, error: CompactionError) -> None:
        """`job` has ended before it began."""
        self._run.tell(events.CompactionSkipped, reason=job.reason, why=error.failure, detail=str(error))

    def failed(self, job: Job, error: CompactionError) -> None:
        """The history is as it was."""
        self._run.tell(
            events.CompactionFailed,
            compaction=job.number,
            failure=error.failure,
            retryable=error.retryable,
            detail=str(error),
            cost=job.cost,
            after_s=self._run.clock.now() - job.started_at,
        )

    def reduced(self, reduction: Reduction) -> None:
        """A reduction is part of the history."""
        self._run.tell(
            events.HistoryReduced,
            kind=reduction.edit.kind,
            saved_tokens=reduction.saved_tokens,
            reread_tokens=reduction.reread_tokens,
            messages=reduction.changed,
        )
