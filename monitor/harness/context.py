"""A run's context, kept inside the model's window: measured, reported when full, compacted in time,
and made smaller after a refusal.
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
    """What a compaction must not forget of `goal`: the outputs and the plan."""
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
    """What a failed call says of its request's size; `None`: the call failed for another reason."""
    if error is None:
        return None
    found = read_failure(error.message, status=error.status, code=error.code)
    if found is not None and (
        found.kind in TOO_LONG or found.kind in {OverflowKind.HOPELESS, OverflowKind.OUTPUT_TRUNCATED}
    ):
        return found
    return Overflow(OverflowKind.OVERFLOW, "any") if error.kind is ErrorKind.OVERFLOW else None


class Rescue:
    """Makes the request of one run smaller after a provider has refused it for its size."""

    def __init__(self, compactor: Compactor, history: History) -> None:
        self._compactor = compactor
        self._history = history
        self._recovery = Recovery(compactor.preset.attempts)
        self._sent_edits = 0

    def sent(self) -> None:
        """The history as it stands was sent to the model."""
        self._sent_edits = len(self._history.edits)

    def went_well(self) -> None:
        """A call was answered."""
        self._recovery.went_well()

    def make_smaller(self, overflow: Overflow) -> Generator[Job, None, GiveUp | None]:
        """The newest request was refused. Yields each compaction that the run has to wait for. If
        the compaction is not over afterwards, the run is.

        Returns `None` if the request may be sent again, or the run is over.
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
        """How the compaction failed; `None`: it succeeded, or the run is over."""
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
"""At most this many compactions are made before one request."""

Fixed: TypeAlias = tuple[str | None, Sequence[ToolSpec]]
"""Instructions and tools."""


class RunContext:
    """Measures the context of one run, and reports a full one. Changes nothing: the run has no
    compaction.

    `fixed`: what the next request carries besides the history.
    """

    def __init__(
        self,
        fullness: Fullness,
        *,
        run: Surroundings,
        emit: Callable[[Event], None],
        fixed: Callable[[], Fixed],
        clock: Clock,
    ) -> None:
        self._fullness = fullness
        self._run = run
        self._emit = emit
        self._fixed = fixed
        self._clock = clock

    # --- a request, and its answer

    def make(self) -> Iterator[Job | Stop]:
        """Compact the history before the next request, if that is due.

        Yields each compaction that the run has to wait for. If the compaction is not over
        afterwards, the run is. Yields a `Stop` if the request would surely be refused and no
        compaction helps.
        """
        return iter(())

    def before_call(self) -> None:
        """The history as it stands is sent to the model."""
        self._report(self._fullness.before_call(*self._fixed()))

    def after_call(self, turn: Turn, *, several: bool) -> bool:
        """The answer has come. `several`: the provider's count is of several attempts.

        True: the window had no room for the answer, so it does not count, and `recover` makes room
        for another.
        """
        self._measured(turn, several=several)
        return False

    def refusal(self, turn: Turn) -> Overflow | None:
        """What the failed call says of its request's size; `None`: nothing that `recover` could
        answer.
        """
        return None

    def recover(self, refusal: Overflow) -> Iterator[Job | Stop]:
        """Make the refused request smaller. Yields as `make` does; afterwards it may be sent."""
        return iter(())

    def _measured(self, turn: Turn, *, several: bool) -> Full | None:
        full = self._fullness.after_turn(turn) if not several else None
        self._report(full)
        return full

    def _report(self, full: Full | None) -> None:
        if full is not None:
            self._emit(
                ContextFull(
                    at_s=self._at(),
                    turn=self._run.turns,
                    tokens=full.tokens,
                    usable_tokens=full.usable_tokens,
                    detail=full.detail,
                )
            )

    def _at(self) -> float:
        return self._run.at(self._clock.now())

    # --- between requests

    async def compact(self) -> CompactionResult:
        """Compact now, because the caller asks for it. Raises `CompactionError`, and `ConfigError`
        where compaction is off.
        """
        raise ConfigError("this run has no compaction: its supervisor was given compaction=None")

    @property
    def stale(self) -> tuple[CompactionResult, ...]:
        """Compactions that came too late: what they cover had been changed."""
        return ()

    def press(self, reason: CompactionReason) -> None:
        """A compaction is due before the next request, for `reason`."""

    def observe(self, call: ToolCall, result: ToolResult) -> Detection | None:
        """A tool has answered. Returns what repeats right after a compaction, if anything does."""
        return None

    def turn_ended(self) -> None:
        """A turn is part of the history."""

    def turn_began(self) -> None:
        """A turn begins. A summary that is being made goes on beside it."""

    def busy_with(self) -> str | None:
        """What the context is busy with, e.g. "a compaction was at work"; added to the detail of a
        timeout.
        """
        return None

    # --- the end

    def last_turn(self) -> None:
        """The run gets one more turn instead of its end."""

    def cancel(self) -> None:
        """The run ends: a summary that is being made is cancelled."""

    async def close(self) -> None:
        """Return when no task of the context is at work any more, shielded and bounded."""


class CompactingContext(RunContext):
    """Keeps the context of one run inside the window: compacts it in time, and after a refusal."""

    def __init__(
        self,
        compactor: Compactor,
        history: History,
        fullness: Fullness,
        *,
        run: Surroundings,
        emit: Callable[[Event], None],
        fixed: Callable[[], Fixed],
        clock: Clock,
        warning: str | None,
    ) -> None:
        """`warning`: emitted as a `WindowWarning` before the first request."""
        super().__init__(fullness, run=run, emit=emit, fixed=fixed, clock=clock)
        self._compactor = compactor
        self._rescue = Rescue(compactor, history)
        self._cut_off: Overflow | None = None
        self._warning = warning

    def make(self) -> Iterator[Job | Stop]:
        compactor = self._compactor
        if self._warning is not None:
            self._emit(WindowWarning(self._at(), None, self._warning))
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
        # Nothing is due any more, or the compactions did not make enough room.
        why = compactor.surely_too_long
        if why is None:
            return
        detail = f"{why}; compaction did not help{f': {failed}' if failed is not None else ''}. {WAYS}"
        yield Stop(TerminateReason.COMPACTION_INEFFECTIVE, detail, "compaction", limit=compactor.window.tokens)

    def before_call(self) -> None:
        super().before_call()
        self._rescue.sent()

    def after_call(self, turn: Turn, *, several: bool) -> bool:
        self._cut_off = None
        full = self._measured(turn, several=several)
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
        return overflow_of(turn.model_error) or self._cut_off

    def recover(self, refusal: Overflow) -> Iterator[Job | Stop]:
        given_up = yield from self._rescue.make_smaller(refusal)
        if given_up is not None:
            yield Stop(TerminateReason.PROMPT_TOO_LONG, given_up.text, "compaction")

    async def compact(self) -> CompactionResult:
        instructions, tools = self._fixed()
        self._fullness.fixed(instructions, tools)
        self._compactor.fixed(instructions, tools)
        return await self._compactor.compact()

    @property
    def stale(self) -> tuple[CompactionResult, ...]:
        return tuple(proposal.result for proposal in self._compactor.stale)

    def press(self, reason: CompactionReason) -> None:
        self._compactor.press(reason)

    def observe(self, call: ToolCall, result: ToolResult) -> Detection | None:
        return self._compactor.observe(call, result)

    def turn_ended(self) -> None:
        self._compactor.turn_ended()

    def busy_with(self) -> str | None:
        return "a compaction was at work" if self._compactor.busy else None

    def last_turn(self) -> None:
        self._compactor.reopen()

    def cancel(self) -> None:
        self._compactor.cancel()

    async def close(self) -> None:
        await self._compactor.close()


def context_of(
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
) -> RunContext:
    """The context of a run. `compaction`: `None` measures and reports, and changes nothing."""
    if compaction is None:
        return RunContext(Fullness(history, window), run=run, emit=emit, fixed=fixed, clock=clock)
    fullness = Fullness(history, window, compaction.headroom)
    compactor = Compactor(
        compaction,
        history,
        model=model,
        window=window,
        meter=fullness.meter,
        run=run,
        emit=emit,
        facts=facts,
        clock=clock,
        close_grace_s=close_grace_s,
        wake=wake,
        form=form,
        driven=True,
    )
    asked_for = compaction is not DEFAULT
    warning = f"the window of {model.name} is not known: {NEVER_FULL}" if asked_for and window.tokens is None else None
    return CompactingContext(
        compactor, history, fullness, run=run, emit=emit, fixed=fixed, clock=clock, warning=warning
    )


WAYS = (
    "Shorten the task, the instructions or the tools, have tools answer with less, or use a model with a larger window."
)


def interrupted(why: str | None) -> CompactionError:
    """The error of a compaction whose run ended first. `why`: the detail of the run's end."""
    return CompactionError(CompactionFailure.ABORTED, f"{OVER}: {why}" if why else OVER)
