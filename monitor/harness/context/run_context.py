"""A run's context, kept inside the model's window: measured, reported when full, compacted in time,
and made smaller after a refusal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from monitor._util.codec import to_plain
from monitor.chunks import ToolCall, ToolResult
from monitor.compaction.pinned import PinnedFacts
from monitor.compaction.preset import Preset
from monitor.compaction.records import CompactionError, CompactionResult
from monitor.context.history import History
from monitor.context.measure.fullness import Full, Fullness
from monitor.context.measure.overflow import Overflow
from monitor.context.measure.tokens import total_tokens
from monitor.context.measure.window import NEVER_FULL, Window
from monitor.errors import ConfigError
from monitor.events import ContextFull, WindowWarning
from monitor.goal.goal import Goal
from monitor.harness.context.compaction import DEFAULT
from monitor.harness.context.compaction_job import OVER, CompactionJob, RunServices
from monitor.harness.context.compactor import Compactor
from monitor.harness.context.overflow_recovery import OverflowRecovery, overflow_of
from monitor.messages import AssistantMessage
from monitor.models import Model, ToolSpec
from monitor.outcome import Turn
from monitor.reasons import CompactionFailure, CompactionReason, TerminateReason
from monitor.verdicts import Detection, Stop
from monitor.wires.forms import Form


def frontier(goal: Goal) -> PinnedFacts:
    """The outputs and the plan of `goal`, which a compaction must not forget."""
    result = goal.result()
    emitted = {
        name: json.dumps(to_plain(value), ensure_ascii=False, sort_keys=True)
        for name, value in result.get("emitted", {}).items()
    }
    plan = goal.plan
    return PinnedFacts(
        emitted=emitted, outstanding=tuple(result.get("missing", ())), plan=plan.render() if plan is not None else None
    )


MOST_COMPACTIONS = 3
"""At most this many compactions are made before one request."""

Fixed: TypeAlias = tuple[str | None, Sequence[ToolSpec]]
"""The instructions and the tools of a request."""


class RunContext:
    """Measures the context of one run, and reports a full one. With a compactor, it keeps the
    context inside the window: compacts it in time, and after a refusal.

    `fixed`: what the next request carries besides the history. `compaction`: `None` measures and
    reports, and changes nothing.
    """

    def __init__(
        self,
        compaction: Preset | None,
        history: History,
        *,
        model: Model,
        window: Window,
        run: RunServices,
        fixed: Callable[[], Fixed],
        form: Form | None,
    ) -> None:
        preset = compaction or DEFAULT
        self._run = run
        self._history = history
        self._fixed = fixed
        self._fullness = Fullness(history, window, preset.headroom)
        self._off = compaction is None
        self._compactor = Compactor(
            preset, history, model=model, window=window, meter=self._fullness.meter, run=run, form=form, driven=True
        )
        self._recovery = OverflowRecovery(self._compactor)
        self._warning: str | None = None
        """Emitted as a `WindowWarning` before the first request."""
        if preset is not DEFAULT and window.tokens is None:
            self._warning = f"the window of {model.name} is not known: {NEVER_FULL}"
        self._cut_off: Overflow | None = None

    def shows(self, artifact: str, text: str) -> bool:
        """Whether the model is shown `text` as the result with the full text `artifact`."""
        return any(
            result.artifact == artifact and result.text.startswith(text)
            for message in self._history.messages
            if isinstance(message, AssistantMessage)
            for result in message.results
        )

    # --- a request, and its answer

    def make(self) -> Iterator[CompactionJob | Stop]:
        """Compact the history before the next request, if that is due.

        Yields each compaction that the run has to wait for. If the compaction is not over
        afterwards, the run is. Yields a `Stop` if the request would surely be refused and no
        compaction helps.
        """
        compactor = self._compactor
        if self._off:
            return
        if self._warning is not None:
            self._run.emit(WindowWarning(self._run.at_s, None, self._warning))
            self._warning = None
        failed: CompactionError | None = None
        for _ in range(MOST_COMPACTIONS):
            self._fullness.meter.fixed(*self._fixed())
            reason = compactor.due()
            if reason is None:
                break
            waits = compactor.when.waits_for(reason)
            job = compactor.start(reason, waited_for=waits)
            if job is None or not waits:
                return
            yield job
            if not job.over:
                return
            failed = job.outcome if isinstance(job.outcome, CompactionError) else None
        # Nothing is due any more, or the compactions did not make enough room.
        why = compactor.when.surely_too_long
        if why is not None:
            detail = f"{why}; compaction did not help{f': {failed}' if failed is not None else ''}. {WAYS}"
            yield Stop(
                TerminateReason.COMPACTION_INEFFECTIVE, detail, "compaction", limit=compactor.when.marks.window.tokens
            )

    def under_way(self) -> Iterator[CompactionJob]:
        """The compaction that goes on beside the run, if there is one."""
        if self._compactor.job is not None:
            yield self._compactor.job

    def before_call(self) -> None:
        """The history as it stands is sent to the model."""
        self._report(self._fullness.before_call(*self._fixed()))
        self._recovery.sent()

    def request_tokens(self) -> int:
        """About how many tokens the next request has: rather too many than too few."""
        self._fullness.meter.fixed(*self._fixed())
        return self._fullness.meter.count().high

    def after_call(self, turn: Turn, *, several: bool) -> bool:
        """The answer has come. `several`: the provider's count is of several attempts.

        True: the window had no room for the answer, so it does not count, and `recover` makes room
        for another.
        """
        full = self._fullness.after_turn(turn) if not several else None
        self._report(full)
        self._cut_off = None
        if self._off:
            return False
        if full is not None and full.overflow is not None:
            if turn.stopped is not None and not turn.tool_calls:
                self._cut_off = Overflow(full.overflow, "any", full.tokens or None, self._fullness.window.tokens)
                return True
            self._compactor.when.pressed = CompactionReason.SILENT_OVERFLOW
        elif turn.stopped is None:
            self._recovery.went_well()
            self._compactor.when.answered()
            if turn.tool_calls and not several:
                self._compactor.stream_finished(total_tokens(turn.usage) or 0)
        return False

    def refusal(self, turn: Turn) -> Overflow | None:
        """The overflow that the failed call tells of; `None`: nothing that `recover` could
        answer.
        """
        return None if self._off else overflow_of(turn.model_error) or self._cut_off

    def recover(self, refusal: Overflow) -> Iterator[CompactionJob | Stop]:
        """Make the refused request smaller. Yields as `make` does; afterwards it may be sent."""
        why = yield from self._recovery.make_smaller(refusal)
        if why is not None:
            yield Stop(TerminateReason.PROMPT_TOO_LONG, why, "compaction")

    def _report(self, full: Full | None) -> None:
        if full is not None:
            self._run.tell(ContextFull, tokens=full.tokens, usable_tokens=full.usable_tokens, detail=full.detail)

    # --- between requests

    async def compact(self) -> CompactionResult:
        """Compact now, because the caller asks for it. Raises `CompactionError`, and `ConfigError`
        where compaction is off.
        """
        if self._off:
            raise ConfigError("this run has no compaction: its supervisor was given compaction=None")
        self._fullness.meter.fixed(*self._fixed())
        return await self._compactor.compact()

    @property
    def stale(self) -> tuple[CompactionResult, ...]:
        """Compactions that came too late: what they cover had been changed."""
        return tuple(proposal.result for proposal in self._compactor.stale)

    def press(self, reason: CompactionReason) -> None:
        """A compaction is due before the next request, for `reason`."""
        self._compactor.when.pressed = reason

    def observe(self, call: ToolCall, result: ToolResult) -> Detection | None:
        """A tool has answered. Returns what repeats right after a compaction, if anything does."""
        return None if self._off else self._compactor.observe(call, result)

    def turn_ended(self) -> None:
        """A turn has become part of the history."""
        self._compactor.turn_ended()

    def turn_began(self) -> None:
        """A turn begins. A summary that is being made goes on beside it."""

    def busy_with(self) -> str | None:
        """The work that the context is busy with, e.g. "a compaction was at work"; added to the
        detail of a timeout.
        """
        job = self._compactor.job
        return "a compaction was at work" if job is not None and job.open else None

    # --- the end

    def last_turn(self) -> None:
        """The run gets one more turn instead of its end."""
        self._compactor.reopen()

    def cancel(self) -> None:
        """The run ends: a summary that is being made is cancelled."""
        self._compactor.cancel()

    async def close(self) -> None:
        """Return when no task of the context is at work any more, shielded and bounded."""
        await self._compactor.close()


WAYS = (
    "Shorten the task, the instructions or the tools, have tools answer with less, or use a model with a larger window."
)


def interrupted(why: str | None) -> CompactionError:
    """The error of a compaction whose run ended first. `why`: the detail of the run's end."""
    return CompactionError(CompactionFailure.ABORTED, f"{OVER}: {why}" if why else OVER)
