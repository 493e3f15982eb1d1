"""A run's context, kept inside the model's window: measured, reported when full, compacted in time,
and made smaller after a refusal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final, TypeAlias

from monitor._util.codec import to_plain
from monitor.chunks import ToolCall, ToolResult
from monitor.context.compaction.hooks import CompactionError, CompactionResult
from monitor.context.compaction.pinned import PinnedFacts
from monitor.context.compaction.preset import Preset
from monitor.context.history import CommittedEdit, History
from monitor.context.overflow import TOO_LONG, Full, Fullness, Overflow, OverflowKind, read_failure
from monitor.context.reduce import ClipResults, DropMedia, Reducer, propose_edit
from monitor.context.tokens import total_tokens
from monitor.context.window import NEVER_FULL, Window
from monitor.errors import CompactionFailure, CompactionReason, ConfigError, TerminateReason
from monitor.events import ContextFull, WindowWarning
from monitor.goal.goal import Goal
from monitor.messages import AssistantMessage
from monitor.models import ErrorKind, Model, ModelError, ToolSpec
from monitor.outcome import Turn
from monitor.runs.context.compaction import DEFAULT
from monitor.runs.context.compaction_job import OVER, CompactionJob, RunServices
from monitor.runs.context.compactor import Compactor
from monitor.verdicts import Detection, Stop
from monitor.wires.fields import Form

# --- A request that the provider refused for its size is made smaller, step by step.
#
# Failures answered: attempts are spent on compactions that remove nothing (OpenClaw #150447). A
# history is compacted for a limit that no history could meet (OpenClaw #130096). Errors do not
# say what to do.
#
# An episode goes from the first refusal to the next answer. It has an end: a limited number of
# compactions, one truncation of results, one removal of media.

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


class RunContext(Compactor):
    """Measures the context of one run, and reports a full one. With a compaction, it keeps the
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
        self._fullness = Fullness(history, window, preset.headroom)
        meter = self._fullness.meter
        super().__init__(preset, history, model=model, window=window, meter=meter, run=run, form=form, driven=True)
        self._fixed = fixed
        self._off = compaction is None
        self._recovery = OverflowRecovery(self)
        self._warning: str | None = None
        """Emitted as a `WindowWarning` before the first request."""
        if preset is not DEFAULT and window.tokens is None:
            self._warning = f"the window of {model.name} is not known: {NEVER_FULL}"
        self._cut_off: Overflow | None = None

    def shows(self, artifact: str, text: str) -> bool:
        """Whether the model is shown `text` as the result with the full text `artifact`."""
        return any(
            result.artifact == artifact and result.text.startswith(text)
            for message in self.history.messages
            if isinstance(message, AssistantMessage)
            for result in message.results
        )

    def make(self) -> Iterator[CompactionJob | Stop]:
        """Compact the history before the next request, if that is due.

        Yields each compaction that the run has to wait for. If the compaction is not over
        afterwards, the run is. Yields a `Stop` if the request would surely be refused and no
        compaction helps.
        """
        if self._off:
            return
        if self._warning is not None:
            self._run.emit(WindowWarning(self._run.at_s, None, self._warning))
            self._warning = None
        failed: CompactionError | None = None
        for _ in range(MOST_COMPACTIONS):
            self._fullness.meter.fixed(*self._fixed())
            reason = self.due()
            if reason is None:
                break
            waits = self.when.waits_for(reason)
            job = self.start(reason, waited_for=waits)
            if job is None or not waits:
                return
            yield job
            if not job.over:
                return
            failed = job.outcome if isinstance(job.outcome, CompactionError) else None
        # Nothing is due any more, or the compactions did not make enough room.
        why = self.when.surely_too_long
        if why is not None:
            detail = f"{why}; compaction did not help{f': {failed}' if failed is not None else ''}. {WAYS}"
            yield Stop(
                TerminateReason.COMPACTION_INEFFECTIVE, detail, "compaction", limit=self.when.marks.window.tokens
            )

    def under_way(self) -> Iterator[CompactionJob]:
        """The compaction that goes on beside the run, if there is one."""
        if self.job is not None:
            yield self.job

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
            self.when.pressed = CompactionReason.SILENT_OVERFLOW
        elif turn.stopped is None:
            self._recovery.went_well()
            self.when.answered()
            if turn.tool_calls and not several:
                self.stream_finished(total_tokens(turn.usage) or 0)
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

    async def compact(self, reason: CompactionReason = CompactionReason.MANUAL) -> CompactionResult:
        """See `Compactor.compact`. Raises `ConfigError` where compaction is off."""
        if self._off:
            raise ConfigError("this run has no compaction: its supervisor was given compaction=None")
        self._fullness.meter.fixed(*self._fixed())
        return await super().compact(reason)

    def press(self, reason: CompactionReason) -> None:
        """A compaction is due before the next request, for `reason`."""
        self.when.pressed = reason

    def observe(self, call: ToolCall, result: ToolResult) -> Detection | None:
        """See `Compactor.observe`."""
        return None if self._off else super().observe(call, result)

    def turn_began(self) -> None:
        """A turn begins. A summary that is being made goes on beside it."""

    def busy_with(self) -> str | None:
        """The work that the context is busy with, e.g. "a compaction was at work"; added to the
        detail of a timeout.
        """
        return "a compaction was at work" if self.job is not None and self.job.open else None


WAYS = (
    "Shorten the task, the instructions or the tools, have tools answer with less, or use a model with a larger window."
)


def interrupted(why: str | None) -> CompactionError:
    """The error of a compaction whose run ended first. `why`: the detail of the run's end."""
    return CompactionError(CompactionFailure.ABORTED, f"{OVER}: {why}" if why else OVER)
