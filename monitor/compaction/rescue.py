"""A request that the provider has refused for its size, made smaller: the steps of `monitor.compaction.recover`, carried out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from monitor.compacting import CompactionError, CompactionFailure, CompactionReason, CompactionResult
from monitor.compaction import recover
from monitor.compaction.compactor import Compactor
from monitor.compaction.recover import GiveUp, Recovery, Step
from monitor.context.history import Committed, History
from monitor.context.media import DropMedia
from monitor.context.overflow import TOO_LONG, Overflow, OverflowKind, read_failure
from monitor.context.reduction import Reducer, propose
from monitor.context.truncate import ClipResults
from monitor.messages import AssistantMessage, Media
from monitor.models import ErrorKind, ModelError

Wait: TypeAlias = Callable[[Callable[[], Awaitable[object]]], Awaitable[bool]]
"""Await something under the run's deadlines. False: the run ended meanwhile."""


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
        self._sent_version = 0

    def sent(self) -> None:
        """The history as it stands is on its way."""
        self._sent_version = self._history.version

    def went_well(self) -> None:
        """A call was answered."""
        self._recovery.went_well()

    async def make_smaller(self, overflow: Overflow, wait: Wait) -> GiveUp | None:
        """The request that was sent last was refused. `None`: it may be sent again, or the run is over."""
        compactor, messages = self._compactor, self._history.messages
        if overflow.window_tokens is not None:
            compactor.learned(overflow.window_tokens)
        if compactor.at_work and not await wait(compactor.wait):
            return None
        last = messages[-1] if messages else None
        step = self._recovery.on_overflow(
            overflow,
            can_compact=True,
            oversized=self._oversized.helps(self._history.messages),
            media=self._has_media(),
            tools_ran=isinstance(last, AssistantMessage) and bool(last.results),
            shortened=self._history.version > self._sent_version,
        )
        while True:
            done = await self._perform(step, wait)
            if done is None or isinstance(done, GiveUp):
                return done
            step = done

    async def _perform(self, step: Step, wait: Wait) -> Step | None:
        """Carry it out. `None`: done; else the next step."""
        match step:
            case recover.Compact(harder=harder):
                self._compactor.start(CompactionReason.OVERFLOW, harder=harder)
                if not await wait(self._compactor.wait):
                    return None
                last = self._compactor.last
                if isinstance(last, CompactionResult):
                    return None
                failure = last.failure if isinstance(last, CompactionError) else CompactionFailure.ABORTED
                return self._recovery.compaction_failed(failure)
            case recover.Truncate():
                if self._reduce(self._oversized):
                    return None
                return self._recovery.compaction_failed(CompactionFailure.NOTHING_TO_COMPACT)
            case recover.ReplayWithoutMedia():
                if self._reduce(DropMedia(0)):
                    return None
                return self._recovery.compaction_failed(CompactionFailure.NOTHING_TO_COMPACT)
            case recover.Retry():
                return None
        return step

    @property
    def _oversized(self) -> ClipResults:
        return ClipResults.oversized(self._compactor.window.tokens)

    def _has_media(self) -> bool:
        return any(isinstance(part, Media) for message in self._history.messages for part in message.content)

    def _reduce(self, reducer: Reducer) -> bool:
        reduction = propose(self._history, reducer)
        if reduction is None or not isinstance(self._history.commit(reduction.edit), Committed):
            return False
        self._compactor.tell_reduced(reduction)
        return True
