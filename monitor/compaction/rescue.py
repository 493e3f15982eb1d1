"""A request that the provider has refused for its size, made smaller: the steps of `monitor.compaction.recover`, carried out."""

from __future__ import annotations

from collections.abc import Generator

from monitor.compacting import CompactionError, CompactionFailure, CompactionReason
from monitor.compaction import recover
from monitor.compaction.compactor import Compactor, Job
from monitor.compaction.recover import GiveUp, Recovery, Step
from monitor.context.history import Committed, History
from monitor.context.media import DropMedia
from monitor.context.overflow import TOO_LONG, Overflow, OverflowKind, read_failure
from monitor.context.reduction import Reducer, propose
from monitor.context.truncate import ClipResults
from monitor.messages import Media
from monitor.models import ErrorKind, ModelError


def overflow_of(error: ModelError | None) -> Overflow | None:
    """What a failed call says of its request's size; `None`: nothing that making it smaller could answer, or that explains why not."""
    if error is None:
        return None
    found = read_failure(error.message, status=error.status, code=error.code)
    if found is not None and (found.kind in TOO_LONG or found.kind in {OverflowKind.HOPELESS, OverflowKind.OUTPUT_TRUNCATED}):
        return found
    return Overflow(OverflowKind.OVERFLOW, "any") if error.kind is ErrorKind.OVERFLOW else None


class Rescue:
    """The recovery of one run."""

    def __init__(self, compactor: Compactor, history: History) -> None:
        self._compactor = compactor
        self._history = history
        self._recovery = Recovery(compactor.preset.attempts)
        self._sent_edits = 0

    def sent(self) -> None:
        """The history as it stands is on its way."""
        self._sent_edits = len(self._history.edits)

    def went_well(self) -> None:
        """A call was answered."""
        self._recovery.went_well()

    def make_smaller(self, overflow: Overflow) -> Generator[Job, None, GiveUp | None]:
        """The request that was sent last was refused. Yields what is to be waited for; if that is not over then, the run is.

        `None`: it may be sent again, or the run is over.
        """
        compactor = self._compactor
        if overflow.window_tokens is not None:
            compactor.learned(overflow.window_tokens)
        if (under_way := compactor.job) is not None:
            yield under_way
            if not under_way.over:
                return None
        step = self._first(overflow, shortened=len(self._history.edits) > self._sent_edits)
        while not isinstance(step, GiveUp):
            match step:
                case recover.Compact(harder=harder):
                    failure = yield from self._compact(_reason(overflow), harder)
                    if failure is None:
                        return None
                    step = self._recovery.compaction_failed(failure)
                case recover.Truncate() if not self._reduce(self._oversized):
                    step = self._first(overflow)
                case recover.ReplayWithoutMedia() if not self._reduce(DropMedia(0)):
                    step = self._first(overflow)
                case _:
                    return None
        return step

    def _first(self, overflow: Overflow, *, shortened: bool = False) -> Step:
        messages = self._history.messages
        return self._recovery.on_overflow(
            overflow,
            oversized=self._oversized.helps(messages),
            media=any(isinstance(part, Media) for message in messages for part in message.content),
            shortened=shortened,
        )

    def _compact(self, reason: CompactionReason, harder: int) -> Generator[Job, None, CompactionFailure | None]:
        """How it failed; `None`: it did not, or the run is over."""
        job = self._compactor.start(reason, harder=harder)
        if job is None:
            return None
        yield job
        return job.outcome.failure if isinstance(job.outcome, CompactionError) else None

    @property
    def _oversized(self) -> ClipResults:
        return ClipResults.oversized(self._compactor.window.tokens)

    def _reduce(self, reducer: Reducer) -> bool:
        reduction = propose(self._history, reducer)
        if reduction is None or not isinstance(self._history.commit(reduction.edit), Committed):
            return False
        self._compactor.tell_reduced(reduction)
        return True


def _reason(overflow: Overflow) -> CompactionReason:
    said = overflow.kind not in {OverflowKind.SILENT, OverflowKind.OUTPUT_TRUNCATED}
    return CompactionReason.OVERFLOW if said else CompactionReason.SILENT_OVERFLOW
