"""Carries out the compactions of one run, one at a time.

A compaction is a task beside the run. At the high-water mark the run goes on meanwhile. Where it
cannot go on, it waits, under its own deadlines and its abort. The session stores the proposal, or
finds it stale. Then the history is changed in one step without an await, so it is as before or as
after. A proposal whose run has ended is thrown away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel
import anyio.to_thread

from monitor._util.hashing import canonical_json, identity
from monitor.chunks import AskCost, ToolCall, ToolResult
from monitor.context.compaction.attempts import CUT, CompactionInput
from monitor.context.compaction.extractive import Extractive
from monitor.context.compaction.hooks import (
    CompactionError,
    CompactionRecord,
    CompactionResult,
    may_continue,
    of_one_run,
    tell_after,
)
from monitor.context.compaction.pinned import acknowledgement, head_of_messages, sources_of
from monitor.context.compaction.preset import Preset
from monitor.context.compaction.proposal import Proposal, continue_message, propose
from monitor.context.compaction.summarizer import Checkpoint, CompactionProgress
from monitor.context.compaction.triggers import (
    CompactionTrigger,
    Marks,
    Snapshot,
    attributed,
    snapshot,
)
from monitor.context.cut import KeepTokens
from monitor.context.history import History, HistoryEdit, head_of, unread_from
from monitor.context.reduce import Reduction
from monitor.context.tokens import ContextMeter
from monitor.context.window import Window
from monitor.core.replay.recording import RecordingCore
from monitor.core.run import RunCore
from monitor.detectors.calls.front import EXCERPT_CHARS
from monitor.errors import PRESSING, SKIPPED, CompactionFailure, CompactionReason, describe
from monitor.events import ContextNearlyFull, HistoryReduced
from monitor.guard.streams.ask import ask_turn
from monitor.guard.streams.wait import is_leaked
from monitor.messages import UserMessage
from monitor.models import Model, ModelRequest
from monitor.outcome import Turn
from monitor.runs.context.compaction_job import OVER, CompactionJob, Pruning, RunServices
from monitor.sessions.nodes import Node
from monitor.tools.base import Background
from monitor.verdicts import Detection, Evidence
from monitor.wires.fields import Form

# --- A run that repeats itself right after a compaction. Failure answered: the messages that said
# what was done are gone, so the model does it again, is compacted, and does it again (OpenClaw
# #78562).
#
# Other detectors also remember across compactions; this one is quicker, for a short time. Right
# after a compaction, a few equal calls with equal results that had come before it are a loop.
# OpenClaw calls it `compaction_loop_persisted`.

WINDOW: Final = 3
"""The equal results after a compaction that make a finding. The number is OpenClaw's."""
REMEMBERED: Final = 30
"""The number of newest calls before a compaction that are remembered. OpenClaw's number."""


class RepeatsAfterCompaction:
    """Sees the same call with the same result three times in a row right after a compaction, if
    it had come before it as well.

    Give it every result with its call, in order, both without fields that always differ (times, ids
    of requests). Leave out calls of tools that are polled.
    """

    def __init__(self) -> None:
        self._recent: deque[str] = deque(maxlen=REMEMBERED)
        self._seen = 0
        """The number of results so far."""
        self._before: frozenset[str] = frozenset()
        """The results from before the newest compaction; empty: something new has come since."""
        self._key = ""
        self._offsets: list[int] = []

    def compacted(self) -> None:
        """A compaction was accepted: the next results are looked at."""
        self._before = frozenset(self._recent)
        self._key = ""
        self._offsets = []

    def observe(self, call: ToolCall, result: ToolResult) -> Detection | None:
        """A tool has answered. Returns what was found, or `None`. Linear in call and result."""
        if result.vetoed:  # the monitor's own answer to a call that was not carried out
            return None
        arguments = canonical_json(call.arguments)
        text = f"{call.name}({arguments})"
        key = identity(canonical_json([text, result.text, result.is_error]))
        index, self._seen = self._seen, self._seen + 1
        self._recent.append(key)
        if key not in self._before or (self._offsets and key != self._key):
            self._before = frozenset()
            return None
        self._key = key
        self._offsets.append(index)
        if len(self._offsets) < WINDOW:
            return None
        self._before = frozenset()
        return self._detection(call.name, text, len(arguments))

    def _detection(self, tool: str, text: str, length: int) -> Detection:
        count = len(self._offsets)
        return Detection(
            detector="compaction_guard",
            kind="compaction_loop",
            channel="tools",
            level="loop",
            count=count,
            threshold=WINDOW,
            start_offset=self._offsets[0],
            offset=self._offsets[-1],
            evidence=Evidence(text[:EXCERPT_CHARS], identity(text), length, tuple(self._offsets)),
            message=(
                f"right after a compaction, {tool} was called {count} times in a row with arguments and a result that"
                " had come before it"
            ),
        )


BY_ITSELF: Final = frozenset({CompactionReason.HIGH_WATER, CompactionReason.CEILING})
"""Reasons for which a filled context is the cause."""
GONE_ON_WITH: Final = frozenset({CompactionFailure.TIMEOUT, CompactionFailure.ABORTED, CompactionFailure.PROVIDER})
"""After these failures, the next try goes on from the finished part of the summary. After others,
that part may have been the cause.
"""


class Compactor:
    """Keeps one run's history inside the window.

    `form`: the provider's form of the history. `driven`: a run adds the model's answers to the
    history, so an answer or a request follows a summary; else the caller's user speaks next.
    """

    def __init__(
        self,
        preset: Preset,
        history: History,
        *,
        model: Model | None,
        window: Window,
        meter: ContextMeter,
        run: RunServices,
        form: Form | None = None,
        driven: bool = False,
    ) -> None:
        self.preset = preset
        self._stale: list[CompactionResult] = []
        self._store = of_one_run(preset.store)
        self.history = history
        self._model = model
        self._meter = meter
        self._run = run
        self._form: Form | None = form
        self._driven = driven
        self.when = CompactionTrigger(
            Marks(window, preset.headroom, preset.low_water), history, meter, background=preset.background
        )
        self.job: CompactionJob | None = None
        """The job that is under way, if there is one."""
        self._checkpoint: Checkpoint | None = None
        self._late_warnings: list[str] = []
        self._closed = False
        self._repeats = RepeatsAfterCompaction()
        self._after: Snapshot | None = None
        self._given_up: list[Background] = []
        """Tasks that did not end when they were cancelled."""
        self._pruning = Pruning(
            preset.after_turn,
            history,
            meter,
            head=self._head,
            done=self.reduced,
            failed=self._late_warnings.append,
        )

    @property
    def stale(self) -> tuple[CompactionResult, ...]:
        """Compactions that came too late: what they cover had been changed."""
        return tuple(self._stale)

    def due(self) -> CompactionReason | None:
        """Why the next request must be made smaller before it is sent; `None`: it need not be."""
        reason = self.when.before_request()
        tokens, limit = self.when.count.tokens, self.when.marks.high
        if self.when.warn(tokens):
            self._run.tell(ContextNearlyFull, tokens=tokens, limit_tokens=limit)
        return reason

    def stream_finished(self, tokens: int) -> None:
        """An answer has come, and the provider has counted `tokens`: the tools may run while the
        summary is made.
        """
        if self.job is None and self.when.during_calls(tokens):
            self.start(CompactionReason.HIGH_WATER, waited_for=False)

    # --- one compaction

    def start(self, reason: CompactionReason, *, harder: int = 0, waited_for: bool = True) -> CompactionJob | None:
        """Begin a compaction, and return its job; the job under way, if there is one. `None`: the
        run is over.

        In a run's last turn, and mostly with the breaker open, no model is asked.
        """
        if self._closed:
            return None
        if self.job is not None:
            self.job.waited_for |= waited_for
            return self.job
        self.when.pressed = None
        if self.when.marks.high is None:
            self.when.recount()
        model = self._model if self.when.may_ask_model(reason) else None
        job = CompactionJob(self.preset, model, self._situation(reason, harder), self._run, waited_for=waited_for)
        if self._after is not None and reason in BY_ITSELF:
            job.refill = attributed(self._after, self._snapshot())
        self._set_to_work(job)
        return job

    def _set_to_work(self, job: CompactionJob) -> None:
        self.job = job
        job.begin(
            partial(self._work, job),
            timeout_s=self.preset.timeout_s,
            then=partial(self._ended, job),
            give_up=partial(self._give_up, job),
        )

    def _snapshot(self) -> Snapshot:
        request = ModelRequest(self.history.messages, self._meter.instructions, self._meter.tools)
        return snapshot(request, self._run.turns())

    def _situation(self, reason: CompactionReason, harder: int) -> CompactionInput:
        history, when = self.history, self.when
        head = self._head()
        unread = unread_from(history.messages, head=head)
        if unread is not None and history.originals_before(unread + 1) <= when.read:
            unread = None
        behind = history.behind(unread, unread + 1) if unread is not None else ()
        return CompactionInput(
            messages=history.messages,
            version=history.version,
            head=head,
            instructions=self._meter.instructions,
            tools=self._meter.tools,
            marks=when.marks,
            tokens=when.count.tokens,
            reported=when.count.reported > 0,
            scale=self._meter.scale,
            reason=reason,
            harder=harder,
            facts=self._run.facts(),
            form=self._form,
            originals_before=history.originals_before,
            unread=unread,
            original=behind[0] if len(behind) == 1 else None,
        )

    def _head(self) -> int:
        return max(head_of(self.history), head_of_messages(self.history.messages))

    async def outcome(self, job: CompactionJob) -> CompactionResult | CompactionError:
        """The outcome of `job`, as soon as it is known."""
        if not job.over:
            over = anyio.Event()
            job.tell(over.set)
            await over.wait()
        return job.outcome or CompactionError(CompactionFailure.ABORTED, OVER)

    async def compact(self, reason: CompactionReason = CompactionReason.MANUAL) -> CompactionResult:
        """Compact now, and wait for the result; a compaction that is under way counts. Raises
        `CompactionError`.
        """
        under_way = self.job
        outcome = await self.outcome(under_way) if under_way is not None else None
        if not isinstance(outcome, CompactionResult):
            self.when.recount()
            job = self.start(reason)
            outcome = await self.outcome(job) if job is not None else CompactionError(CompactionFailure.ABORTED, OVER)
        if isinstance(outcome, CompactionError):
            raise outcome
        return outcome

    async def _work(self, job: CompactionJob) -> None:
        result = None
        try:
            result = await self._compacted(job)
            await tell_after(self.preset.hooks, result, self._late_warnings)
        except CompactionError as error:
            job.crashed = error.failure is CompactionFailure.INVALID
            self._failed(job, error)
        except BaseException as error:  # the caller's code: the run goes on as it is
            if not isinstance(error, Exception) and not is_leaked(error):
                raise
            if result is not None:
                self._late_warnings.append(f"a hook after the compaction raised {describe(error)}")
                return
            job.crashed = True
            self._failed(job, CompactionError(CompactionFailure.CRASHED, describe(error)))

    async def _compacted(self, job: CompactionJob) -> CompactionResult:
        preset, place = job.preset, self._run.record.place()
        proposal = await propose(
            preset,
            await self._with_reference_list(job.situation),
            model=job.model,
            ask=partial(self._ask, job),
            progress=partial(self._progressed, job),
            pause=anyio.lowlevel.checkpoint,
            checkpoint=self._checkpoint,
        )
        goes_on = continue_message(preset, proposal, job.reason) if job.waited_for else None
        if goes_on is not None and not await may_continue(preset.hooks, proposal.result, self._late_warnings):
            goes_on = None
        return await self._commit(job, proposal, goes_on, place)

    async def _with_reference_list(self, situation: CompactionInput) -> CompactionInput:
        """`situation` with the list of all references of the run, if it has any."""
        text = "\n".join(dict.fromkeys(sources_of(self.history.originals)))
        kept = await self._run.keep(text) if text else None
        return replace(situation, facts=replace(situation.facts, reference_list=kept)) if kept else situation

    async def _ask(self, job: CompactionJob, model: Model, request: ModelRequest) -> Turn:
        job.raise_unless_wanted()
        job.begun()
        left = job.deadline - self._run.clock.now()
        if left <= 0:
            raise TimeoutError(self._too_slow)
        job.model_calls += 1
        made = self._run.record.exchange(job.number, model.name, request)
        try:
            made.turn = await ask_turn(
                model,
                request,
                timeout_s=left,
                clock=self._run.clock,
                close_grace_s=self._run.close_grace_s,
                charge=partial(self._charge, job),
                emit=made.events.append,
                core_of=RunCore if made.log is None else partial(RecordingCore, made.log),
            )
        finally:
            made.over = True
        return made.turn

    def _charge(self, job: CompactionJob, cost: AskCost) -> None:
        job.cost += cost
        self._run.charge(cost)

    def _progressed(self, job: CompactionJob, progress: CompactionProgress) -> None:
        """A part is done. The first part gives the job as much time again."""
        job.raise_unless_wanted()
        job.extend(self.preset.timeout_s)
        if progress.checkpoint is not None:
            self._checkpoint = progress.checkpoint
        job.progressed(progress)

    async def _commit(
        self, job: CompactionJob, proposal: Proposal, goes_on: UserMessage | None, place: Node | None
    ) -> CompactionResult:
        """Put all of `proposal` into the session and the history, or nothing. The session decides
        first, and nothing is awaited behind it.
        """
        job.raise_unless_wanted()
        record, edits = self._placed(proposal, goes_on)
        self._refuse_stale(proposal, edits)
        if record is not None:
            job.begun()
            if not await self._run.record.store(job.number, record, place):
                self._stale.append(proposal.result)
                raise CompactionError(CompactionFailure.STALE, "the session went on from another node meanwhile")
            if not job.open:  # nobody waits for it any more
                raise CompactionError(CompactionFailure.ABORTED, OVER)
            self._refuse_stale(proposal, edits)
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
        self._checkpoint = None
        self.when.pressed = None
        self.when.accepted(made_do=record is not None and self._made_do(record))
        self._repeats.compacted()
        self._after = self._snapshot()
        warnings = (*self._late_warnings, *proposal.result.warnings)
        self._late_warnings.clear()
        result = job.outcome = replace(
            proposal.result,
            messages=self.history.messages,
            record=record,
            cost=job.cost,
            model_calls=job.model_calls,
            warnings=warnings,
        )
        job.finished(result)
        return result

    def _refuse_stale(self, proposal: Proposal, edits: Sequence[HistoryEdit]) -> None:
        for edit in edits:
            if (stale := self.history.refuses(edit)) is not None:
                self._stale.append(proposal.result)
                raise CompactionError(
                    CompactionFailure.STALE, f"what it covers has been changed by: {stale.by.edit.kind}"
                )

    def _placed(
        self, proposal: Proposal, goes_on: UserMessage | None
    ) -> tuple[CompactionRecord | None, tuple[HistoryEdit, ...]]:
        """The record and the edits of `proposal`, with the roles of the messages alternating.

        In a run, an answer may have come since the proposal was made, or comes next: then nothing
        stands between the summary and the answer. Before a user's message, the acknowledgement
        does.
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
        """Whether the compaction was made without the wanted summary."""
        wanted = self.preset.summarizer.name if self.preset.summarizer is not None else None
        return record.summarised_by in {Extractive.name, CUT} and record.summarised_by != wanted

    def _failed(self, job: CompactionJob, error: CompactionError) -> None:
        if not job.open:
            return
        job.open = False
        job.outcome = error
        if error.failure not in GONE_ON_WITH:
            self._checkpoint = None
        self.when.failed(error.failure, job.reason, job.situation.tokens, before_read=error.retryable)
        if (error.failure in SKIPPED or error.failure is CompactionFailure.ABORTED) and not job.number:
            job.skipped(error)
        else:
            job.failed(error)

    def _ended(self, job: CompactionJob) -> None:
        """The task of `job` has ended, perhaps before it began, or it is given up."""
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

    def _without_others(self, job: CompactionJob) -> None:
        """Compact without a model and without parts of the caller: the run cannot go on otherwise.

        For a job that took too long, this is the same compaction. A job that has crashed has
        failed, and this is another one.
        """
        why = "the first try has crashed" if job.crashed else self._too_slow
        self._late_warnings.append(f"made without a model and without parts of the caller: {why}")
        job.open = False
        job.disarm()
        alone = replace(self.preset, hooks=(), summarizer=None, steps=(), keep=KeepTokens())
        job.instead = CompactionJob(alone, None, job.situation, self._run, waited_for=job.waited_for)
        job.instead.take_over(job)
        self._set_to_work(job.instead)

    def _settle(self, job: CompactionJob) -> None:
        failure, why = (CompactionFailure.TIMEOUT, self._too_slow) if job.expired else (CompactionFailure.ABORTED, OVER)
        self._failed(job, CompactionError(failure, why))
        job.disarm()
        if self.job is job:
            self.job = None
        job.settle()

    @property
    def _too_slow(self) -> str:
        return f"it took longer than {self.preset.timeout_s:g} s"

    def _give_up(self, job: CompactionJob, task: Background) -> None:
        """Wait for `task` no longer. Its result is thrown away."""
        self._given_up.append(task)
        self._ended(job)

    # --- beside compactions

    def reduced(self, reduction: Reduction) -> None:
        """A reduction is part of the history."""
        self._run.tell(
            HistoryReduced,
            kind=reduction.edit.kind,
            saved_tokens=reduction.saved_tokens,
            reread_tokens=reduction.reread_tokens,
            messages=reduction.changed,
        )

    def observe(self, call: ToolCall, result: ToolResult) -> Detection | None:
        """A tool has answered. Returns what repeats right after a compaction, or `None`."""
        return self._repeats.observe(call, result)

    def turn_ended(self) -> None:
        """A turn has become part of the history."""
        if not self._closed and self.job is None:
            self._pruning.turn_ended()

    # --- the end

    def cancel(self) -> None:
        """The run ends: its compaction is cancelled."""
        self._closed = True
        if self.job is not None:
            self.job.cancel()
        self._pruning.cancel()

    def last_turn(self) -> None:
        """The run gets one more turn instead of its end. Its compactions are made without a
        model.
        """
        self._closed = False
        self.when.hurried = True

    async def close(self) -> None:
        """Return when no task is at work any more, shielded and bounded."""
        self.cancel()
        job, tasks = self.job, self._tasks()
        try:
            if tasks:
                with anyio.move_on_after(self._run.close_grace_s, shield=True):
                    for task in tasks:
                        await task.wait()
        finally:
            if job is not None:
                self._settle(job)
            for task in tasks:
                if not task.ended:
                    task.give_up()

    def _tasks(self) -> list[Background]:
        """The tasks of the compactor that have not ended."""
        tasks = (self.job.task if self.job is not None else None, self._pruning.task, *self._given_up)
        return [task for task in tasks if task is not None and not task.ended]
