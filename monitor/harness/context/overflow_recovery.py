"""A request that the provider refused for its size is made smaller, step by step.

Failures answered: attempts are spent on compactions that remove nothing (OpenClaw #150447). A
history is compacted for a limit that no history could meet (OpenClaw #130096). Errors do not say
what to do.

An episode goes from the first refusal to the next answer. It has an end: a limited number of
compactions, one truncation of results, one removal of media.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from monitor.compaction.records import CompactionError
from monitor.context.history import CommittedEdit
from monitor.context.measure.overflow import TOO_LONG, Overflow, OverflowKind, read_failure
from monitor.context.reduce.media import DropMedia
from monitor.context.reduce.reduction import Reducer, propose_edit
from monitor.context.reduce.truncate import ClipResults
from monitor.harness.context.compaction_job import CompactionJob
from monitor.harness.context.compactor import Compactor
from monitor.models import ErrorKind, ModelError
from monitor.reasons import CompactionFailure, CompactionReason

_NOT_OF_SIZE: Final = frozenset({OverflowKind.RATE_LIMIT, OverflowKind.OTHER})
_MAY_DO_BETTER: Final = frozenset({CompactionFailure.INEFFECTIVE, CompactionFailure.STALE})
"""After any other failure, another compaction of the episode fails as well."""
_DONE: Final = {ClipResults.name: "a truncation of tool results", DropMedia.name: "a replay without media"}


def overflow_of(error: ModelError | None) -> Overflow | None:
    """The overflow that a failed call tells of; `None`: the call failed for another reason."""
    if error is None:
        return None
    found = read_failure(error.message, status=error.status, code=error.code)
    if found is not None and (
        found.kind in TOO_LONG or found.kind in {OverflowKind.HOPELESS, OverflowKind.OUTPUT_TRUNCATED}
    ):
        return found
    return Overflow(OverflowKind.OVERFLOW, "any") if error.kind is ErrorKind.OVERFLOW else None


class OverflowRecovery:
    """Makes the refused requests of one run smaller. The preset's `attempts` is the most
    compactions of one episode.
    """

    def __init__(self, compactor: Compactor) -> None:
        self._compactor = compactor
        self._history = compactor.history
        self._most = compactor.preset.attempts
        self._sent_edits = 0
        self.went_well()

    def sent(self) -> None:
        """The history as it stands was sent to the model."""
        self._sent_edits = len(self._history.edits)

    def went_well(self) -> None:
        """A call was answered: the episode is over."""
        self._compactions = 0
        self._failed = 0
        self._sent_again = 0
        self._reduced: list[str] = []
        self._failure: CompactionFailure | None = None
        self._useless = False
        """A compaction has failed in a way that another one would fail as well."""

    def make_smaller(self, overflow: Overflow) -> Generator[CompactionJob, None, str | None]:
        """The newest request was refused. Yields each compaction that the run has to wait for. If
        the compaction is not over afterwards, the run is.

        Returns `None` if the request may be sent again, or the run is over; else why nothing helps,
        and what a person can do.
        """
        compactor = self._compactor
        if overflow.window_tokens is not None:
            compactor.when.relearned(compactor.when.marks.window.learned(overflow.window_tokens))
        clip, drop = ClipResults.oversized(compactor.when.marks.window.tokens), DropMedia(0)
        if (under_way := compactor.job) is not None:
            yield under_way
            if not under_way.over:
                return None
        if overflow.kind is OverflowKind.HOPELESS or overflow.kind in _NOT_OF_SIZE:
            return self._why(overflow)
        if len(self._history.edits) > self._sent_edits and self._sent_again < max(1, self._most):
            self._sent_again += 1  # counted, so that it ends
            return None
        # Too many bytes: what is large goes first, and costs no call.
        if overflow.kind is OverflowKind.BYTES and (self._reduces(drop) or self._reduces(clip)):
            return None
        while not self._useless and self._compactions < self._most:
            job = compactor.start(_reason(overflow), harder=self._compactions)
            if job is None:
                return None
            self._compactions += 1
            yield job
            if not isinstance(job.outcome, CompactionError):
                return None
            self._failed += 1
            self._failure = job.outcome.failure
            if self._failure is CompactionFailure.ABORTED:
                return self._why(overflow)
            self._useless = self._failure not in _MAY_DO_BETTER
            # What stays may have results that are too large: they are cut before less is kept.
            if self._failure is CompactionFailure.INEFFECTIVE and self._reduces(clip):
                return None
        return None if self._reduces(clip) or self._reduces(drop) else self._why(overflow)

    def _reduces(self, reducer: Reducer) -> bool:
        """Whether `reducer` has made the history smaller, for the first time in this episode."""
        reduction = propose_edit(self._history, reducer) if reducer.name not in self._reduced else None
        if reduction is None or not isinstance(self._history.commit(reduction.edit), CommittedEdit):
            return False
        self._reduced.append(reducer.name)
        self._compactor.reduced(reduction)
        return True

    # --- the words for a person

    def _why(self, overflow: Overflow) -> str:
        used = f"{overflow.used_tokens:,} tokens" if overflow.used_tokens else None
        limit = f"{overflow.limit_tokens:,}" if overflow.limit_tokens else None
        if overflow.kind is OverflowKind.HOPELESS:
            return (
                f"This one request asks for {used or 'more tokens'}, and the account may use {limit or 'fewer'} in a"
                " minute: neither waiting nor compaction helps. Raise the account's limit per minute, ask for a"
                " shorter answer, shorten the instructions, or use another provider."
            )
        if overflow.kind in _NOT_OF_SIZE:
            return "The refusal does not speak of the size of the request: a shorter one would be refused as well."
        if overflow.kind is OverflowKind.BYTES:
            return (
                f"The request has too many bytes.{self._tried()} Send fewer or smaller images and files, have tools"
                " answer with less, or split the task."
            )
        numbers = ", and ".join([f"it has {used}"] * bool(used) + [f"the model takes {limit} tokens"] * bool(limit))
        return f"The request is too long for the model{numbers and ': '}{numbers}.{self._tried()} {self._advice()}"

    def _tried(self) -> str:
        count = self._compactions - self._failed
        done = [f"{count} compaction{'s' if count > 1 else ''}"] * (count > 0)
        done += [text for name, text in _DONE.items() if name in self._reduced]
        tried = f" Not enough: {', '.join(done)}." if done else ""
        return tried + (f" The last compaction failed ({self._failure})." if self._failure is not None else "")

    def _advice(self) -> str:
        ways = "Shorten the instructions or the tools, have tools answer with less, split the task"
        if self._useless or self._compactions < self._most:
            return f"{ways} or use a model with a larger window."
        more = f"{self._most} compaction{'s' if self._most != 1 else ''}"
        return f"{ways}, use a model with a larger window or allow more than {more} for one refusal."


def _reason(overflow: Overflow) -> CompactionReason:
    said = overflow.kind not in {OverflowKind.SILENT, OverflowKind.OUTPUT_TRUNCATED}
    return CompactionReason.OVERFLOW if said else CompactionReason.SILENT_OVERFLOW
