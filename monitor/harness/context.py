"""A run's context, kept inside the model's window: measured, told of, made smaller in time, and
made smaller after a refusal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TypeAlias

from monitor._util.codec import to_plain
from monitor.chunks import ToolCall, ToolResult
from monitor.compaction import refusal
from monitor.compaction.pinned import PinnedFacts
from monitor.compaction.preset import Preset
from monitor.compaction.records import CompactionError, CompactionResult
from monitor.compaction.refusal import GiveUp, Recovery, RecoveryStep
from monitor.context.forms import Form
from monitor.context.fullness import Full, Fullness
from monitor.context.history import Committed, History
from monitor.context.media import DropMedia, has_media
from monitor.context.overflow import TOO_LONG, Overflow, OverflowKind, read_failure
from monitor.context.reduction import Reducer, propose_edit
from monitor.context.tokens import total_tokens
from monitor.context.truncate import ClipResults
from monitor.context.window import NEVER_FULL, Window
from monitor.errors import ConfigError
from monitor.events import ContextFull, Event, WindowWarning
from monitor.goal.goal import Goal
from monitor.harness.compaction import DEFAULT
from monitor.harness.compactor import Compactor, Surroundings
from monitor.harness.job import OVER, Job
from monitor.harness.streams.clock import Clock
from monitor.models import ErrorKind, Model, ModelError, ToolSpec
from monitor.outcome import Turn
from monitor.reasons import CompactionFailure, CompactionReason, TerminateReason
from monitor.verdicts import Detection, Stop


def frontier(goal: Goal) -> PinnedFacts:
    """The facts of a run's goal."""
    result = goal.result()
    emitted = {
        name: json.dumps(to_plain(value), ensure_ascii=False, sort_keys=True)
        for name, value in result.get("emitted", {}).items()
    }
    plan = goal.plan
    return PinnedFacts(
        emitted=emitted, outstanding=tuple(result.get("missing", ())), plan=plan.render() if plan is not None else None
    )


def overflow_of(error: ModelError | None) -> Overflow | None:
    """What a failed call says of its request's size; `None`: nothing that making it smaller could
    answer, or that explains why not.
    """
    if error is None:
        return None
    found = read_failure(error.message, status=error.status, code=error.code)
    if found is not None and (
        found.kind in TOO_LONG or found.kind in {OverflowKind.HOPELESS, OverflowKind.OUTPUT_TRUNCATED}
    ):
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
        """The request that was sent last was refused. Yields what is to be waited for; if that is
        not over then, the run is.

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
                case refusal.CompactAgain(harder=harder):
                    failure = yield from self._compact(_reason(overflow), harder)
                    if failure is None:
                        return None
                    step = self._recovery.compaction_failed(failure)
                case refusal.Truncate() if not self._reduce(self._oversized):
                    step = self._first(overflow)
                case refusal.ReplayWithoutMedia() if not self._reduce(DropMedia(0)):
                    step = self._first(overflow)
                case _:
                    return None
        return step

    def _first(self, overflow: Overflow, *, shortened: bool = False) -> RecoveryStep:
        messages = self._history.messages
        return self._recovery.on_overflow(
            overflow,
            oversized=self._oversized.helps(messages),
            media=any(map(has_media, messages)),
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
        reduction = propose_edit(self._history, reducer)
        if reduction is None or not isinstance(self._history.commit(reduction.edit), Committed):
            return False
        self._compactor.tell_reduced(reduction)
        return True


def _reason(overflow: Overflow) -> CompactionReason:
    said = overflow.kind not in {OverflowKind.SILENT, OverflowKind.OUTPUT_TRUNCATED}
    return CompactionReason.OVERFLOW if said else CompactionReason.SILENT_OVERFLOW


MOST_COMPACTIONS = 3
"""Before one request."""

Fixed: TypeAlias = tuple[str | None, Sequence[ToolSpec]]
"""Instructions and tools."""


class RunContext:
    """Sees to it that there is room for the next request of one run.

    `compaction`: `None` measures and tells, and changes nothing. `fixed`: what the next request
    carries besides the history.
    """

    def __init__(
        self,
        compaction: Preset | None,
        history: History,
        *,
        model: Model,
        window: Window,
        run: Surroundings,
        emit: Callable[[Event], None],
        facts: Callable[[], PinnedFacts],
        fixed: Callable[[], Fixed],
        clock: Clock,
        close_grace_s: float,
        wake: Callable[[], None],
        form: Form | None,
    ) -> None:
        self._run = run
        self._emit = emit
        self._fixed = fixed
        self._clock = clock
        self._fullness = Fullness(history, window, *([compaction.headroom] if compaction is not None else []))
        self._compactor: Compactor | None = None
        self._rescue: Rescue | None = None
        self._cut_off: Overflow | None = None
        asked_for = compaction is not None and compaction is not DEFAULT
        self._warning = (
            f"the window of {model.name} is not known: {NEVER_FULL}" if asked_for and window.tokens is None else None
        )
        if compaction is not None:
            self._compactor = Compactor(
                compaction,
                history,
                model=model,
                window=window,
                meter=self._fullness.meter,
                run=run,
                emit=emit,
                facts=facts,
                clock=clock,
                close_grace_s=close_grace_s,
                wake=wake,
                form=form,
                driven=True,
            )
            self._rescue = Rescue(self._compactor, history)

    # --- a request, and its answer

    def make(self) -> Iterator[Job | Stop]:
        """CompactAgain the history before the next request, if that is due.

        Yields each compaction that is to be waited for, because the run cannot go on as it is; if
        it is not over then, the run is. Or why the request is not to be sent: it would surely be
        refused, and nothing makes it smaller.
        """
        compactor = self._compactor
        if compactor is None:
            return
        if self._warning is not None:
            self._emit(WindowWarning(self._run.at(self._clock.now()), None, self._warning))
            self._warning = None
        failed: CompactionError | None = None
        for _ in range(MOST_COMPACTIONS):
            instructions, tools = self._fixed()
            self._fullness.fixed(instructions, tools)
            reason = compactor.due(instructions, tools)
            if reason is None:
                break
            waits = compactor.waits_for(reason)
            job = compactor.start(reason, waited_for=waits)
            if job is None or not waits:
                return
            yield job
            if not job.over:
                return
            failed = job.outcome if isinstance(job.outcome, CompactionError) else None
        why = compactor.surely_too_long
        if why is None:
            return
        detail = f"{why}; compaction did not help{f': {failed}' if failed is not None else ''}. {WAYS}"
        yield Stop(TerminateReason.COMPACTION_INEFFECTIVE, detail, "compaction", limit=compactor.window.tokens)

    def before_call(self) -> None:
        """The history goes out as it stands."""
        self._tell(self._fullness.before_call(*self._fixed()))
        if self._rescue is not None:
            self._rescue.sent()

    def after_call(self, turn: Turn, *, several: bool) -> bool:
        """The answer has come. `several`: the provider's count is of more than this one call.

        Whether there was no room for it: then it is no answer, and `recover` makes room for
        another.
        """
        self._cut_off = None
        full = self._fullness.after_turn(turn) if not several else None
        self._tell(full)
        if self._compactor is None or self._rescue is None:
            return False
        if full is not None and full.overflow is not None:
            if turn.stopped is not None and not turn.tool_calls:
                self._cut_off = Overflow(full.overflow, "any", full.tokens or None, self._fullness.window.tokens)
                return True
            self._compactor.press(CompactionReason.SILENT_OVERFLOW)
        elif turn.stopped is None:
            self._rescue.went_well()
            self._compactor.answered()
            if turn.tool_calls and not several:
                self._compactor.stream_finished(total_tokens(turn.usage) or 0)
        return False

    def refusal(self, turn: Turn) -> Overflow | None:
        """What the failed call says of its request's size; `None`: nothing that `recover` could
        answer.
        """
        return None if self._rescue is None else overflow_of(turn.model_error) or self._cut_off

    def recover(self, refusal: Overflow) -> Iterator[Job | Stop]:
        """Make the refused request smaller. Yields as `make` does; afterwards it may be sent."""
        if self._rescue is not None:
            given_up = yield from self._rescue.make_smaller(refusal)
            if given_up is not None:
                yield Stop(TerminateReason.PROMPT_TOO_LONG, given_up.text, "compaction")

    def _tell(self, full: Full | None) -> None:
        if full is not None:
            at = self._run.at(self._clock.now())
            self._emit(
                ContextFull(
                    at_s=at,
                    turn=self._run.turns,
                    tokens=full.tokens,
                    usable_tokens=full.usable_tokens,
                    detail=full.detail,
                )
            )

    # --- besides

    async def compact(self) -> CompactionResult:
        """Do it now, because somebody wants it. Raises `CompactionError`, and `ConfigError` where
        compaction is off.
        """
        if self._compactor is None:
            raise ConfigError("this run has no compaction: its supervisor was given compaction=None")
        instructions, tools = self._fixed()
        self._fullness.fixed(instructions, tools)
        self._compactor.fixed(instructions, tools)
        return await self._compactor.compact()

    @property
    def stale(self) -> tuple[CompactionResult, ...]:
        """Compactions that came too late: what they cover had been changed."""
        return tuple(proposal.result for proposal in self._compactor.stale) if self._compactor is not None else ()

    def press(self, reason: CompactionReason) -> None:
        """The next request is not to be sent as it stands."""
        if self._compactor is not None:
            self._compactor.press(reason)

    def observe(self, call: ToolCall, result: ToolResult) -> Detection | None:
        """A tool has answered. What repeats right after a compaction, if anything does."""
        return self._compactor.observe(call, result) if self._compactor is not None else None

    def turn_ended(self) -> None:
        """A turn is part of the history."""
        if self._compactor is not None:
            self._compactor.turn_ended()

    def turn_began(self) -> None:
        """A summary that is being made goes on beside the turn."""

    def busy_with(self) -> str | None:
        return "a compaction was at work" if self._compactor is not None and self._compactor.busy else None

    # --- the end

    def last_turn(self) -> None:
        """One more turn instead of the end."""
        if self._compactor is not None:
            self._compactor.reopen()

    def cancel(self) -> None:
        """The run ends: no summary is wanted any more."""
        if self._compactor is not None:
            self._compactor.cancel()

    async def close(self) -> None:
        """Return when nobody is at work, shielded and bounded."""
        if self._compactor is not None:
            await self._compactor.close()


WAYS = (
    "Shorten the task, the instructions or the tools, have tools answer with less, or use a model with a larger window."
)


def interrupted(why: str | None) -> CompactionError:
    """What is raised for a compaction that the end of its run has overtaken."""
    return CompactionError(CompactionFailure.ABORTED, f"{OVER}: {why}" if why else OVER)
