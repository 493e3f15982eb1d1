"""The compactions of one run: when, one at a time, and what becomes of them.

A compaction is a task beside the run. At the high-water mark the run goes on meanwhile; where it
cannot, it waits, under its own deadlines and its abort. What the task proposes is committed in one
step, without an await in between, so the history is as before or as after. One whose run has ended
is thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

import anyio
import anyio.to_thread

from monitor import events
from monitor.chunks import ToolCall, ToolResult
from monitor.compaction.base import Checkpoint, Progress
from monitor.compaction.extractive import Extractive
from monitor.compaction.hooks import may_continue, tell_after
from monitor.compaction.keep import KeepTokens
from monitor.compaction.measure import Situation
from monitor.compaction.pinned import PinnedFacts, acknowledgement, head_of_messages
from monitor.compaction.preset import Preset
from monitor.compaction.proposal import Proposal, continue_message, propose
from monitor.compaction.records import CompactionError, CompactionRecord, CompactionResult, of_one_run
from monitor.compaction.refill import Snapshot, attributed, snapshot
from monitor.compaction.repeats import RepeatsAfterCompaction
from monitor.compaction.rungs import CUT
from monitor.compaction.watermarks import Hysteresis, Marks
from monitor.context.forms import Form
from monitor.context.history import Committed, History, HistoryEdit
from monitor.context.reduction import Reduction, propose_for
from monitor.context.tokens import ContextMeter, TokenCount
from monitor.context.turns import head_of, unread_from
from monitor.context.unread import Sparing
from monitor.context.window import Window, WindowSource
from monitor.errors import describe
from monitor.events import Event
from monitor.harness.job import OVER, Job
from monitor.harness.streams.ask import ask_turn
from monitor.harness.streams.background import Background
from monitor.harness.streams.clock import Clock
from monitor.harness.streams.wait import is_leaked
from monitor.messages import UserMessage
from monitor.models import Model, ModelRequest, ToolSpec
from monitor.outcome import Turn
from monitor.reasons import PRESSING, SKIPPED, CompactionFailure, CompactionReason
from monitor.usage import AskCost
from monitor.verdicts import Detection

WORTH_A_LOOK_TOKENS: Final = 5_000
"""Tokens by which the context must grow before it is pruned after a turn again."""
BY_ITSELF: Final = frozenset({CompactionReason.HIGH_WATER, CompactionReason.CEILING})
"""Reasons that mean: the context has been filled."""
GONE_ON_WITH: Final = frozenset({CompactionFailure.TIMEOUT, CompactionFailure.ABORTED, CompactionFailure.PROVIDER})
"""After these the part of a summary that is done is good; after others it may be what was wrong."""


class Surroundings(Protocol):
    """What a compactor needs of the run that it works for."""

    @property
    def turns(self) -> int:
        """The number of turns so far."""
        ...

    def at(self, now: float) -> float:
        """Seconds since the run began."""
        ...

    def charge_compaction(self, cost: AskCost, now: float) -> None:
        """Charge the run for a summary that has cost `cost`."""
        ...


class Compactor:
    """Keeps one run's history inside the window. `wake` lets a pending read see what a summary's
    price has changed.

    `facts`: what is known besides the messages, asked anew each time. `form`: in which the history
    is sent. `driven`: who sends it adds what the model answers, so that behind a summary comes an
    answer or a request; else its user says the next word.
    """

    def __init__(
        self,
        preset: Preset,
        history: History,
        *,
        model: Model | None,
        window: Window,
        meter: ContextMeter,
        run: Surroundings,
        emit: Callable[[Event], None],
        facts: Callable[[], PinnedFacts],
        clock: Clock,
        close_grace_s: float,
        wake: Callable[[], None],
        form: Form | None = None,
        driven: bool = False,
    ) -> None:
        self.preset = preset
        self.stale: list[Proposal] = []
        """Proposals that came too late: the messages they cover had been changed."""
        self._store = of_one_run(preset.store)
        self.history = history
        self._model = model
        self._meter = meter
        self._run = run
        self._emit = emit
        self._facts = facts
        self._clock = clock
        self._close_grace_s = close_grace_s
        self._wake = wake
        self._form = form
        self._driven = driven
        self._hysteresis = Hysteresis(Marks(window, preset.headroom, preset.low_water))
        self._pressed: CompactionReason | None = None
        self._fixed: tuple[str | None, tuple[ToolSpec, ...]] = (None, ())
        self._count = TokenCount(0, 0, 0)
        self._job: Job | None = None
        self._number = 0
        self._checkpoint: Checkpoint | None = None
        self._late_warnings: list[str] = []
        self._closed = False
        self._hurried = False
        self._repeats = RepeatsAfterCompaction()
        self._after: Snapshot | None = None
        self._given_up: list[Background] = []
        """Tasks that did not let themselves be cancelled."""
        self._pruning: Background | None = None
        self._pruned_at = 0
        """The tokens at the last pruning, or the fewest since."""
        self._read = 0
        """The number of originals that the model has answered to."""
        self._nothing_at: int | None = None
        """The number of originals when there was nothing to compact at the mark."""
        self._waits_for_reading = False
        """There was nothing because of results that the model had not read."""

    @property
    def window(self) -> Window:
        """As far as it is known by now."""
        return self._hysteresis.marks.window

    def learned(self, window_tokens: int) -> None:
        """The provider has stated its limit."""
        self._hysteresis.relearned(self.window.learned(window_tokens))

    # --- when

    def due(self, instructions: str | None, tools: Sequence[ToolSpec]) -> CompactionReason | None:
        """Why the next request, with these, is to be made smaller before it is sent; `None`: it
        need not be.
        """
        self.fixed(instructions, tools)
        if self._hysteresis.marks.high is None:  # only a refusal tells: there is nothing to count for
            return self._pressed
        self._look_for_users()
        self._count = self._meter.count()
        if self._hysteresis.warn(self._count.tokens):
            limit = self._hysteresis.marks.high or 0
            self._emit(events.ContextNearlyFull(self._at(), self._run.turns, self._count.tokens, limit))
        return self._pressed or self._due(self._count.tokens)

    def _due(self, tokens: int) -> CompactionReason | None:
        reason = self._hysteresis.due(tokens)
        return None if reason is CompactionReason.HIGH_WATER and self._hurried else reason

    @property
    def surely_too_long(self) -> str | None:
        """Why the request that was last asked about will be refused, whatever the estimate is off
        by; `None`: it may well be taken.
        """
        window, count = self.window, self._count
        if window.tokens is None or window.source is WindowSource.DEFAULT or count.low <= window.tokens:
            return None
        return (
            f"the next request has about {count.tokens:,} tokens, at least {count.low:,}, and the window has"
            f" {window.tokens:,}"
        )

    def fixed(self, instructions: str | None, tools: Sequence[ToolSpec]) -> None:
        """What every request carries besides the history."""
        self._fixed = (instructions, tuple(tools))

    def answered(self) -> None:
        """The model has answered to the history as it stands: none of its results is unread."""
        self._read = self.history.originals_before(len(self.history))
        if self._waits_for_reading:
            self._something_changed()

    def _something_changed(self) -> None:
        self._hysteresis.changed()
        self._nothing_at, self._waits_for_reading = None, False

    def _look_for_users(self) -> None:
        """A new message of the user may be where the history can be cut: then it is worth another
        look.
        """
        if self._nothing_at is None:
            return
        messages = self.history.messages
        new = self.history.originals_before(len(messages)) - self._nothing_at
        if any(isinstance(message, UserMessage) for message in messages[max(0, len(messages) - new) :]):
            self._something_changed()

    def stream_finished(self, tokens: int) -> None:
        """An answer has come, and the provider has counted `tokens`: the tools may run while the
        summary is made.
        """
        if (
            not tokens
            or not self.preset.background
            or self._job is not None
            or self._due(tokens) is not CompactionReason.HIGH_WATER
        ):
            return
        count = self._meter.count()  # what the provider counted may have been made smaller while it answered
        if self._due(count.tokens) is CompactionReason.HIGH_WATER:
            self._count = count
            self.start(CompactionReason.HIGH_WATER, waited_for=False)

    def press(self, reason: CompactionReason) -> None:
        """The next request must not be sent as it stands, whatever is counted."""
        self._pressed = reason

    def waits_for(self, reason: CompactionReason) -> bool:
        """Whether the run waits for a compaction for this reason."""
        return reason is not CompactionReason.HIGH_WATER or not self.preset.background

    # --- one compaction

    def start(self, reason: CompactionReason, *, harder: int = 0, waited_for: bool = True) -> Job | None:
        """Begin one, unless one is under way: then it is that one. `None`: the run is over.

        With the breaker open, or in a run's last turn, one that has to be is made without a model.
        """
        if self._closed:
            return None
        if self._job is not None:
            self._job.waited_for |= waited_for
            return self._job
        self._pressed = None
        if self._hysteresis.marks.high is None:
            self._count = self._meter.count()
        model = self._model if not self._hurried and (reason not in PRESSING or self._hysteresis.asks_model) else None
        job = Job(
            self.preset,
            model,
            reason,
            self._situation(reason, harder),
            self._clock,
            close_grace_s=self._close_grace_s,
            waited_for=waited_for,
        )
        if (
            self._after is not None
            and reason in BY_ITSELF
            and (refill := attributed(self._after, self._snapshot())) is not None
        ):
            job.refill = refill.text
        self._set_to_work(job)
        return job

    def _set_to_work(self, job: Job) -> None:
        self._job = job
        job.begin(
            partial(self._work, job),
            timeout_s=self.preset.timeout_s,
            then=partial(self._ended, job),
            give_up=partial(self._give_up, job),
        )

    def _snapshot(self) -> Snapshot:
        instructions, tools = self._fixed
        return snapshot(ModelRequest(self.history.messages, instructions, tools), self._run.turns)

    def _situation(self, reason: CompactionReason, harder: int) -> Situation:
        history, (instructions, tools) = self.history, self._fixed
        head, read = self._head(), self._messages_read()
        unread = unread_from(history.messages, head=head)
        behind = history.behind(unread, unread + 1) if unread is not None else ()
        return Situation(
            messages=history.messages,
            version=history.version,
            head=head,
            instructions=instructions,
            tools=tools,
            marks=self._hysteresis.marks,
            tokens=self._count.tokens,
            reported=self._count.reported > 0,
            scale=self._meter.scale,
            reason=reason,
            harder=harder,
            facts=self._facts(),
            form=self._form,
            originals_before=history.originals_before,
            read=read,
            original=behind[0] if len(behind) == 1 else None,
        )

    def _messages_read(self) -> int:
        """The number of messages at the beginning that the model has answered to, as far as the run
        knows.
        """
        history = self.history
        read = len(history)
        while read > 0 and history.originals_before(read) > self._read:
            read -= 1
        return read

    @property
    def busy(self) -> bool:
        """Whether a summary is being made."""
        return self._job is not None and self._job.open

    def _head(self) -> int:
        history = self.history
        return head_of(history) if history.edits else head_of_messages(history.messages)

    @property
    def job(self) -> Job | None:
        """The job that is under way, if any."""
        return self._job

    async def outcome(self, job: Job) -> CompactionResult | CompactionError:
        """The outcome of `job`, as soon as it is known."""
        if not job.over:
            over = anyio.Event()
            job.tell(over.set)
            await over.wait()
        return job.outcome or CompactionError(CompactionFailure.ABORTED, OVER)

    async def compact(self, reason: CompactionReason = CompactionReason.MANUAL) -> CompactionResult:
        """Do one now, and wait for it; one that is under way counts. Raises `CompactionError`."""
        if (under_way := self._job) is not None and isinstance(
            outcome := await self.outcome(under_way), CompactionResult
        ):
            return outcome
        self._count = self._meter.count()
        job = self.start(reason)
        if job is None:
            raise CompactionError(CompactionFailure.ABORTED, OVER)
        outcome = await self.outcome(job)
        if isinstance(outcome, CompactionError):
            raise outcome
        return outcome

    async def _work(self, job: Job) -> None:
        result = await self._compacted(job)
        if result is None:
            return
        try:
            self._late_warnings += await tell_after(self.preset.hooks, result)
        except BaseException as error:
            if not is_leaked(error):
                raise
            self._late_warnings.append(f"a hook after the compaction raised {describe(error)}")

    async def _compacted(self, job: Job) -> CompactionResult | None:
        preset = job.preset
        try:
            proposal = await propose(
                preset,
                job.situation,
                model=job.model,
                ask=partial(self._ask, job),
                progress=partial(self._progressed, job),
                checkpoint=self._checkpoint,
            )
            goes_on = continue_message(preset, proposal, job.reason) if job.waited_for else None
            if goes_on is not None and not await may_continue(preset.hooks, proposal.result, self._late_warnings):
                goes_on = None
            return self._commit(job, proposal, goes_on)
        except CompactionError as error:
            job.crashed = error.failure is CompactionFailure.INVALID
            self._failed(job, error)
            return None
        except BaseException as error:  # the caller's code: the run goes on as it is
            if not isinstance(error, Exception) and not is_leaked(error):
                raise
            job.crashed = True
            self._failed(job, CompactionError(CompactionFailure.CRASHED, describe(error)))
            return None

    async def _ask(self, job: Job, model: Model, request: ModelRequest) -> Turn:
        job.raise_unless_wanted()
        self._begun(job)
        left = job.deadline - self._clock.now()
        if left <= 0:
            raise TimeoutError(self._too_slow)
        job.model_calls += 1
        return await ask_turn(
            model,
            request,
            timeout_s=left,
            clock=self._clock,
            close_grace_s=self._close_grace_s,
            charge=partial(self._charge, job),
        )

    def _charge(self, job: Job, cost: AskCost) -> None:
        job.cost += cost
        self._run.charge_compaction(cost, self._clock.now())
        self._wake()

    def _progressed(self, job: Job, progress: Progress) -> None:
        """A part is done: that is worth as much time again, once."""
        job.raise_unless_wanted()
        self._begun(job)
        job.extend(self.preset.timeout_s)
        if progress.checkpoint is not None:
            self._checkpoint = progress.checkpoint
        self._emit(
            events.CompactionProgressed(
                at_s=self._at(),
                turn=self._run.turns,
                compaction=job.number,
                done_messages=progress.done_messages,
                of_messages=progress.of_messages,
            )
        )

    def _begun(self, job: Job) -> None:
        if job.number:
            return
        self._number += 1
        job.number = self._number
        situation = job.situation
        self._emit(
            events.CompactionStarted(
                at_s=self._at(),
                turn=self._run.turns,
                compaction=job.number,
                reason=job.reason,
                preset=self.preset.name,
                tokens=situation.tokens,
                background=not job.waited_for,
                refill=job.refill,
            )
        )

    def _commit(self, job: Job, proposal: Proposal, goes_on: UserMessage | None) -> CompactionResult:
        """All of it or nothing. Nothing is awaited here."""
        job.raise_unless_wanted()
        record, edits = self._placed(proposal, goes_on)
        for edit in edits:
            if (stale := self.history.refuses(edit)) is not None:
                self.stale.append(proposal)
                raise CompactionError(
                    CompactionFailure.STALE, f"what it covers has been changed by: {stale.by.edit.kind}"
                )
        if record is not None and self._store is not None:
            try:
                self._store.add(record)
            except Exception as error:
                raise CompactionError(CompactionFailure.CRASHED, describe(error)) from error
        for edit in reversed(edits):
            self.history.commit(edit)
        if goes_on is not None:
            self.history.append(goes_on)
        job.open = False
        self._checkpoint = self._pressed = None
        self._hysteresis.accepted(made_do=record is not None and self._made_do(record))
        self._repeats.compacted()
        self._after = self._snapshot()
        self._begun(job)
        warnings, self._late_warnings = (*self._late_warnings, *proposal.result.warnings), []
        result = job.outcome = replace(
            proposal.result,
            messages=self.history.messages,
            record=record,
            cost=job.cost,
            model_calls=job.model_calls,
            warnings=warnings,
        )
        self._emit(
            events.CompactionFinished(
                at_s=self._at(),
                turn=self._run.turns,
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
                after_s=self._clock.now() - job.started_at,
                warnings=warnings,
            )
        )
        return result

    def _placed(
        self, proposal: Proposal, goes_on: UserMessage | None
    ) -> tuple[CompactionRecord | None, tuple[HistoryEdit, ...]]:
        """The record and the edits as they fit in now.

        An answer may have come since the proposal was made, or will come next: then nothing stands
        between it and the summary. Where a user speaks next, the model has answered. So roles
        alternate.
        """
        record, edits = proposal.result.record, proposal.edits
        if record is None or not self._driven:
            return record, edits
        compaction, *others = edits
        behind = self.history.messages[compaction.stop : compaction.stop + 1] or (goes_on,)
        begins = record.shown[:1]
        shown = (*begins, acknowledgement()) if isinstance(behind[0], UserMessage) else begins
        return replace(record, shown=shown), (replace(compaction, replacement=shown), *others)

    def _made_do(self, record: CompactionRecord) -> bool:
        """Whether something else had to do instead of a summary."""
        wanted = self.preset.summarizer.name if self.preset.summarizer is not None else None
        return record.summarised_by in {Extractive.name, CUT} and record.summarised_by != wanted

    def _failed(self, job: Job, error: CompactionError) -> None:
        if not job.open:
            return
        job.open = False
        job.outcome = error
        if error.failure not in GONE_ON_WITH:
            self._checkpoint = None
        if error.failure is not CompactionFailure.ABORTED:  # which says nothing of the next one
            self._hysteresis.failed(error.failure, job.reason, job.situation.tokens)
        if error.failure is CompactionFailure.NOTHING_TO_COMPACT and job.reason is CompactionReason.HIGH_WATER:
            self._nothing_at = self.history.originals_before(len(self.history))
            self._waits_for_reading = error.retryable
        if (error.failure in SKIPPED or error.failure is CompactionFailure.ABORTED) and not job.number:
            self._emit(
                events.CompactionSkipped(
                    at_s=self._at(), turn=self._run.turns, reason=job.reason, why=error.failure, detail=str(error)
                )
            )
            return
        self._begun(job)
        after_s = self._clock.now() - job.started_at
        self._emit(
            events.CompactionFailed(
                at_s=self._at(),
                turn=self._run.turns,
                compaction=job.number,
                failure=error.failure,
                retryable=error.retryable,
                detail=str(error),
                cost=job.cost,
                after_s=after_s,
            )
        )

    def _ended(self, job: Job) -> None:
        """Its task has ended, one way or another, perhaps before it began; or it is not waited for
        any longer.
        """
        unfinished = job.crashed or (job.open and job.expired)
        if (
            unfinished
            and job.reason in PRESSING
            and job.preset is self.preset
            and not job.cancelled
            and not self._closed
        ):
            self._without_others(job)
        else:
            self._settle(job)

    def _without_others(self, job: Job) -> None:
        """The run cannot go on without it: what is left to do needs no model, and no code of the
        caller's.

        One that took too long goes on so. One that the caller's code has crashed has failed, and
        this is another one.
        """
        why = "it has crashed before" if job.crashed else self._too_slow
        self._late_warnings.append(f"neither a model nor parts of the caller's: {why}")
        job.open = False
        job.disarm()
        alone = replace(self.preset, hooks=(), summarizer=None, steps=(), keep=KeepTokens())
        job.instead = Job(
            alone,
            None,
            job.reason,
            job.situation,
            self._clock,
            close_grace_s=self._close_grace_s,
            waited_for=job.waited_for,
        )
        job.instead.take_over(job)
        self._set_to_work(job.instead)

    def _settle(self, job: Job) -> None:
        failure, why = (CompactionFailure.TIMEOUT, self._too_slow) if job.expired else (CompactionFailure.ABORTED, OVER)
        self._failed(job, CompactionError(failure, why))
        job.disarm()
        if self._job is job:
            self._job = None
        job.settle()

    @property
    def _too_slow(self) -> str:
        return f"it took longer than {self.preset.timeout_s:g} s"

    def _give_up(self, job: Job, task: Background) -> None:
        """Wait for `task` no longer. If it ever ends, its result is thrown away."""
        self._given_up.append(task)
        self._ended(job)

    # --- beside compactions

    def observe(self, call: ToolCall, result: ToolResult) -> Detection | None:
        """A tool has answered. What repeats right after a compaction, if anything does."""
        return self._repeats.observe(call, result)

    def turn_ended(self) -> None:
        """A turn is part of the history. What `after_turn` takes out goes in the background, once
        enough has come for a look.
        """
        reducers = self.preset.after_turn
        if (
            not reducers
            or self._closed
            or self._job is not None
            or (self._pruning is not None and not self._pruning.ended)
        ):
            return
        tokens = self._meter.count().tokens
        self._pruned_at = min(self._pruned_at, tokens)
        if tokens >= self._pruned_at + WORTH_A_LOOK_TOKENS:
            self._pruned_at = tokens
            self._pruning = Background(self._prune, "agent-monitor prune")

    async def _prune(self) -> None:
        """In a thread: looking takes as long as the history is."""
        history = self.history
        messages, version, head = history.messages, history.version, self._head()
        unread = unread_from(messages, head=head)
        reducers = [Sparing(reducer, unread) for reducer in self.preset.after_turn]
        try:
            look = partial(propose_for, messages, version, *reducers, head=head)
            reduction = await anyio.to_thread.run_sync(look, abandon_on_cancel=True)
            done = reduction is not None and not self._closed and isinstance(history.commit(reduction.edit), Committed)
        except Exception as error:  # noqa: BLE001 - a reducer may be the caller's code
            self._late_warnings.append(f"after a turn: {describe(error)}")
            return
        if done and reduction is not None:
            self._pruned_at = self._meter.count().tokens
            self.tell_reduced(reduction)

    def tell_reduced(self, reduction: Reduction) -> None:
        """A reduction is part of the history."""
        kind = reduction.edit.kind
        self._emit(
            events.HistoryReduced(
                at_s=self._at(),
                turn=self._run.turns,
                kind=kind,
                saved_tokens=reduction.saved_tokens,
                reread_tokens=reduction.reread_tokens,
                messages=reduction.changed,
            )
        )

    # --- the end

    def cancel(self) -> None:
        """The run ends: no summary is wanted any more."""
        self._closed = True
        if self._job is not None:
            self._job.cancel()
        if self._pruning is not None:
            self._pruning.cancel()

    def reopen(self) -> None:
        """One more turn instead of the end: what has to be is made without a model, and at once."""
        self._closed = False
        self._hurried = True

    async def close(self) -> None:
        """Return when nobody is at work, shielded and bounded."""
        self.cancel()
        job, tasks = self._job, self._tasks()
        try:
            if tasks:
                with anyio.move_on_after(self._close_grace_s, shield=True):
                    for task in tasks:
                        await task.wait()
        finally:
            if job is not None:
                self._settle(job)
            for task in tasks:
                if not task.ended:
                    task.give_up()

    def _tasks(self) -> list[Background]:
        """The tasks that have not ended."""
        tasks = (self._job.task if self._job is not None else None, self._pruning, *self._given_up)
        return [task for task in tasks if task is not None and not task.ended]

    def _at(self) -> float:
        return self._run.at(self._clock.now())
