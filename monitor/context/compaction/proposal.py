"""One compaction, from the history as it stands to an edit that would make it smaller.

Nothing is changed here. The steps are, in this order:

1. Reducers take out what needs no summary. If that is enough, nothing is summarised.
2. The history is cut, and the hooks are asked. Results that the model has not read stay behind the
   cut: they get room before anything older is kept.
3. What stands before the cut is summarised, in one attempt after the other (`attempts.py`).
4. Facts that need no model stand beside the summary word for word (`pinned`).
5. The whole next request is measured (`attempts.py`). Only a request that is small enough becomes a
   `Proposal`; else a `CompactionError` says why.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Final, TypeAlias

from monitor.context.compaction.attempts import (
    CUT,
    FRAME_TOKENS,
    CompactionInput,
    CompactionLadder,
    Pause,
    Rung,
    Sizes,
    nothing,
)
from monitor.context.compaction.hooks import (
    AskTurn,
    CompactionAsked,
    CompactionError,
    CompactionIneffective,
    CompactionRecord,
    CompactionResult,
    Wishes,
    ask_before,
)
from monitor.context.compaction.identifiers import named_in
from monitor.context.compaction.pinned import (
    CONTINUE,
    CONTINUE_WITHOUT_MEDIA,
    LADDER,
    PinnedFacts,
    acknowledgement,
    compose,
    gathered,
    read_back,
    shortened,
    with_known,
)
from monitor.context.compaction.preset import Preset
from monitor.context.compaction.summarizer import Checkpoint, CompactionProgress, Summarizer, Summary, ask_for_summary
from monitor.context.compaction.templates import Content, SummaryTask
from monitor.context.history import COMPACTION, HistoryEdit
from monitor.context.reduce import NAME as SHARE
from monitor.context.reduce import (
    ClipResults,
    Messages,
    OnlySent,
    Reducer,
    difference,
    has_media,
    names_of_calls,
    once,
    without_media,
)
from monitor.context.repairs import repair
from monitor.context.tokens import size_of_text
from monitor.errors import CompactionFailure, CompactionReason, describe
from monitor.messages import AssistantMessage, Message, Text, UserMessage
from monitor.models import Model

MOST_REQUIRED: Final = 12
"""The most names that a summary is asked to contain. OpenClaw's number."""
NAMED_AT_ONCE: Final = 50
"""Messages that are searched for names before other tasks may run: 10 ms, if their results are
long.
"""
COMPACTION_CONTINUE: Final = "compaction_continue"
"""The key that marks a message that asks the model to go on, in its metadata. opencode's name."""
LEFT_OUT: Final = (
    "(What was said and done before this point did not fit and could not be summarised. What follows was recorded as it"
    " happened.)"
)
UNREAD_LEFT_OUT: Final = (
    "(The results of the newest calls were left out, because there was no room for them: {}. Ask for smaller parts.)"
)


@dataclass(slots=True, frozen=True, kw_only=True)
class Proposal:
    """A compaction that makes the request small enough. `edits` are made against
    `CompactionInput.version`, and do not overlap.
    """

    edits: tuple[HistoryEdit, ...]
    result: CompactionResult
    media_removed: bool = False


async def propose(
    preset: Preset,
    given: CompactionInput,
    *,
    model: Model | None,
    ask: AskTurn,
    progress: Callable[[CompactionProgress], None],
    pause: Pause,
    checkpoint: Checkpoint | None = None,
) -> Proposal:
    """The compaction that `preset` makes of `given`. `model` is the run's, asked where the
    preset names none; with `None` no model is asked.

    Raises `CompactionError`, and what a cancellation raises.
    """
    pipeline = _Pipeline(
        preset,
        given,
        None if model is None else preset.model or model,
        partial(ask_for_summary, ask=ask, progress=progress, checkpoint=checkpoint),
        pause,
    )
    return await pipeline.propose()


def continue_message(preset: Preset, proposal: Proposal, reason: CompactionReason) -> UserMessage | None:
    """The message that asks the model to go on after an automatic compaction; `None`: it needs
    none.
    """
    result = proposal.result
    if reason is CompactionReason.MANUAL or result.record is None or result.replayed is not None:
        return None
    if preset.continues == "never" or (preset.continues == "when_needed" and result.kept_messages):
        return None
    overflow = reason is CompactionReason.OVERFLOW and proposal.media_removed
    text = CONTINUE_WITHOUT_MEDIA if overflow else CONTINUE
    return UserMessage((Text(text),), synthetic=True, metadata={COMPACTION_CONTINUE: True})


_Ask: TypeAlias = Callable[[Summarizer, SummaryTask], Awaitable[Summary]]


class _Pipeline:
    """The state of one compaction."""

    def __init__(self, preset: Preset, given: CompactionInput, model: Model | None, ask: _Ask, pause: Pause) -> None:
        self._preset = preset
        self._now = given
        self._ask = ask
        self._pause = pause
        self._size = Sizes(preset, given)
        self._ladder = CompactionLadder(preset, given, self._size, model=model)
        self._named = once(named_in)
        self._beside = cache(self._pinned_before)
        self._warnings: list[str] = []
        self._wishes = Wishes()
        self._previous, self._pinned = self._read_earlier()

    # --- the steps

    async def propose(self) -> Proposal:
        """Steps 1 to 5 of the module's docstring. Raises `CompactionError`."""
        now, preset = self._now, self._preset
        if len(now.messages) <= self._now.head:
            raise nothing("there is nothing behind the last compaction" if self._now.head else "the history is empty")
        # 1. what can go without a summary
        await self._size.weigh(self._pause)
        smaller, names = self._reduced(preset.steps)
        await self._pause()
        if names and self._size.request(smaller) < self._enough:
            return self._reduction(smaller, names)
        # A step took whole turns, and that is not enough: they are summarised with the others.
        if len(smaller) != len(now.messages):
            smaller, names = self._reduced(())
        if now.reason is CompactionReason.OVERFLOW:
            smaller = (*smaller[:-1], without_media(smaller[-1]))
        await self._reserve_pins()
        if (sharing := self._sharing(smaller, names)) is not None:
            return sharing
        # 2. where the history is cut, and what the hooks want
        cut = self._ladder.cut(smaller)
        covered = now.messages[self._now.head : cut.index]
        asked = CompactionAsked(reason=now.reason, messages=covered, previous=self._previous, tokens=now.tokens)
        self._wishes = await ask_before(preset.hooks, asked)
        self._warnings += self._wishes.warnings
        # 3. to 5. one attempt after the other
        failed: CompactionError | None = None
        for rung in self._ladder.rungs(smaller, cut):
            if failed is not None and not rung.may_help(failed):
                continue
            try:
                return await self._on(rung, smaller)
            except CompactionError as error:
                failed = error
            name = f"{rung.summarizer.name} " if rung.summarizer is not None else ""
            self._warnings.append(f"{rung.note}: {str(failed).removeprefix(name)}")
        raise failed or nothing("no way of summarising was given")

    def _read_earlier(self) -> tuple[str | None, PinnedFacts]:
        """The summary of the earlier compaction, if there was one, and the facts that it pinned."""
        head = self._now.messages[: self._now.head]
        text = next((part.text for message in head[:1] for part in message.content if isinstance(part, Text)), None)
        return (text and read_back(text)) or (text, PinnedFacts())

    def _reduced(self, steps: Sequence[Reducer]) -> tuple[Messages, list[str]]:
        """The messages as `steps` reduce them, and the names of the steps that did something."""
        messages, names = self._now.messages, []
        limited: list[Reducer] = [OnlySent(step, self._now.unread) for step in steps]
        for step in (ClipResults.oversized(self._now.window.tokens), *limited):
            try:
                less = step.reduce(messages, head=self._now.head)
            except Exception as error:  # noqa: BLE001 - the caller's code: a compaction does not fail for it
                self._warnings.append(f"{step.name} raised {describe(error)}")
                continue
            if less is not messages:
                messages = less
                names.append(step.name)
        return messages, names

    @property
    def _enough(self) -> int:
        """With fewer tokens than this after the steps, no summary is made. A manual compaction
        makes one all the same, unless the context was above the low-water mark.
        """
        if self._now.reason is not CompactionReason.MANUAL:
            return self._size.target
        low = self._now.marks.low
        return 0 if low is None or self._size.before < low else min(low, self._size.target)

    def _reduction(self, smaller: Messages, names: Sequence[str]) -> Proposal:
        """The proposal without a summary: `smaller`, as the steps called `names` have made it."""
        edit = _reducing(self._now, smaller)
        result = self._result(smaller, smaller[self._now.head :], by="+".join(dict.fromkeys(names)))
        reread = sum(map(self._size.tokens, smaller[edit.start :]))
        return Proposal(edits=(edit,), result=replace(result, reread_tokens=reread))

    def _result(self, messages: Messages, kept: Messages, *, by: str) -> CompactionResult:
        tokens_after = self._size.request(messages)
        return CompactionResult(
            messages=messages,
            record=None,
            tokens_before=self._size.before,
            tokens_after=tokens_after,
            reported=self._now.reported,
            summarised_by=by,
            kept_messages=len(kept),
            kept_tokens=sum(map(self._size.tokens, kept)),
            reread_tokens=tokens_after - self._size.fixed,
            warnings=tuple(self._warnings),
        )

    # --- what was not read yet

    def _sharing(self, messages: Messages, names: Sequence[str]) -> Proposal | None:
        """The proposal that only clips unread results; `None`: that is not enough, or not needed.

        It is for histories with little before these results: no more than a summary and its pinned
        facts would have.
        """
        now, unread = self._now, self._now.unread
        if unread is None or now.reason is CompactionReason.HIGH_WATER:
            return None
        before, wants = (sum(map(self._size.tokens, part)) for part in (messages[:unread], messages[unread:]))
        room = self._size.free - before - 1
        if wants <= self._size.room or room < self._size.room:
            return None
        less = (*messages[:unread], *self._ladder.clipped(messages[unread:], room >> now.harder))
        return self._reduction(less, (*names, SHARE)) if self._size.request(less) < self._size.target else None

    # --- one attempt

    async def _on(self, rung: Rung, messages: Messages) -> Proposal:
        """The proposal of `rung`. Raises `CompactionError` if the attempt fails."""
        now, cut = self._now, rung.cut
        covered, tail = now.messages[self._now.head : cut.index], self._ladder.tail(messages, rung)
        facts, pinned = self._beside(cut.index)
        await self._pause()
        if rung.summarizer is None:
            lost = now.messages[now.unread] if now.unread is not None and cut.index > now.unread else None
            said, text = self._cut_short(facts, tail, lost)
            summary = Summary(text=said, by=CUT)
        else:
            # Without any summary the request must be small enough already: else no model is asked.
            self._check(self._size.request(self._shown(pinned, tail) + tail))
            summary = await self._ask(rung.summarizer, self._task(rung, covered, facts, pinned))
            text = compose(summary.text, facts, max_tokens=self._size.pinned_tokens)
        shown = self._shown(text, tail)
        result = self._result((*shown, *tail), tail, by=summary.by)
        self._check(result.tokens_after, last=rung.summarizer is None, newest=tail)
        if repair(result.messages, form=now.form)[1] and not repair(now.messages, form=now.form)[1]:
            raise CompactionError(CompactionFailure.INVALID, "the provider would refuse the history that it makes")
        edits = [HistoryEdit(now.version, 0, cut.index, shown, COMPACTION, f"summarised by {summary.by}")]
        if any(new is not old for new, old in zip(tail, now.messages[cut.index :], strict=True)):
            edits.append(_reducing(now, (*now.messages[: cut.index], *tail)))
        record = CompactionRecord(
            summary=summary.text,
            shown=shown,
            first_kept=now.originals_before(cut.index),
            tokens_before=result.tokens_before,
            tokens_after=result.tokens_after,
            preset=self._preset.name,
            reason=now.reason,
            summarised_by=summary.by,
            details=facts.details,
        )
        replays = now.reason is CompactionReason.OVERFLOW and bool(tail) and isinstance(tail[-1], UserMessage)
        return Proposal(
            edits=tuple(edits),
            result=replace(result, record=record, replayed=len(result.messages) - 1 if replays else None),
            media_removed=any(map(has_media, covered)),
        )

    def _shown(self, text: str, tail: Messages) -> Messages:
        """The messages that stand before `tail`: `text`, and the acknowledgement where a user's
        message comes next, so that roles alternate.
        """
        begins = UserMessage((Text(text),), synthetic=True)
        next_one = tail[0] if tail else None
        last = self._now.messages[-1]
        if isinstance(next_one, AssistantMessage) or (
            next_one is None and isinstance(last, AssistantMessage) and last.results
        ):
            return (begins,)
        return begins, acknowledgement()

    def _task(self, rung: Rung, covered: Messages, facts: PinnedFacts, pinned: str) -> SummaryTask:
        return SummaryTask(
            messages=self._wishes.messages or covered,
            previous=self._previous,
            template=self._preset.template.of(_held_in(covered, facts), self._previous),
            pinned=pinned,
            identifiers=facts.identifiers[:MOST_REQUIRED],
            details=facts.details,
            max_tokens=rung.summary_tokens,
            split_turn=rung.cut.turn_start is not None,
            hints=tuple(self._wishes.hints),
            prompt=self._wishes.prompt,
        )

    def _cut_short(self, facts: PinnedFacts, tail: Messages, lost: Message | None) -> tuple[str, str]:
        """The summary and the text of a rung where nobody summarises: the earlier summary, as far
        as there is room, and a sentence on what is missing.

        `lost`: the turn whose results the model has not read, if it is missing, too.
        """
        size, kept = self._size, self._size.request(tail)
        end = min(size.target, size.before) if kept < size.target else self._now.window.tokens or size.before
        free = size.estimated(end - 1 - kept) - FRAME_TOKENS
        least = size_of_text(LEFT_OUT).tokens
        room = min(size.summary_tokens, (free - least) // 3)
        earlier = [shortened(self._previous, chars) for chars in LADDER] if self._previous is not None else []
        texts = (text if LEFT_OUT in text else f"{text}\n\n{LEFT_OUT}" for text in earlier)
        said = next((text for text in texts if size_of_text(text).tokens <= room), LEFT_OUT)
        if lost is not None:
            said = f"{said}\n{UNREAD_LEFT_OUT.format(names_of_calls(lost))}"
        pinned = max(0, min(size.pinned_tokens, free - size_of_text(said).tokens))
        return said, compose(said, facts, max_tokens=pinned)

    # --- what stands beside the summary

    async def _reserve_pins(self) -> None:
        """Find out how much room the pinned facts need, wherever the history will be cut."""
        covered = self._now.messages[self._now.head :]
        for number, message in enumerate(covered, 1):
            self._named(message)
            if number % NAMED_AT_ONCE == 0:
                await self._pause()
        text = compose("", self._facts(covered), max_tokens=self._size.most_pinned)
        self._size.pin(size_of_text(text).tokens)

    def _pinned_before(self, index: int) -> tuple[PinnedFacts, str]:
        """The facts of the messages before `index`, and their text without a summary."""
        facts = self._facts(self._now.messages[self._now.head : index])
        return facts, compose("", facts, max_tokens=self._size.pinned_tokens)

    def _facts(self, covered: Messages) -> PinnedFacts:
        """The facts of the `covered` messages, of the earlier compaction, and of the given."""
        facts = gathered(covered, self._pinned, named=self._named)
        facts = with_known(facts, self._now.facts, again=self._previous is not None)
        return replace(
            facts,
            rules=self._now.facts.rules or self._preset.rules or facts.rules,
            notes=(*self._now.facts.notes, *self._wishes.notes),
        )

    def _check(self, tokens_after: int, *, last: bool = False, newest: Messages = ()) -> None:
        """Raise `CompactionIneffective` if the next request would have `tokens_after` tokens, and
        that is not below the target. On the `last` rung, a request that is smaller than now and
        fits into the window is enough.
        """
        if tokens_after < self._size.target:
            return
        window = self._now.window.tokens
        if last and tokens_after < self._size.before and (window is None or tokens_after < window):
            return
        message = (
            f"the next request would have {tokens_after:,} tokens, now {self._size.before:,}; it must have less than"
            f" {self._size.target:,}"
        )
        if last and newest:
            message += f". Instructions, tools and the newest request alone have {self._size.request(newest):,}"
        elif self._size.fixed >= self._size.target:
            message += f". Instructions and tools alone have {self._size.fixed:,}"
        raise CompactionIneffective(
            message, tokens_before=self._size.before, tokens_after=tokens_after, target_tokens=self._size.target
        )


def _reducing(now: CompactionInput, smaller: Messages) -> HistoryEdit:
    """The edit that puts `smaller` in the place of the messages of `now`."""
    note = "old results, arguments and media are shown in short"
    return HistoryEdit(now.version, *difference(now.messages, smaller), "reduction", note)


def _held_in(covered: Messages, facts: PinnedFacts) -> set[Content]:
    """What the covered messages hold, so that a summary has something to say of it."""
    results = [result for one in covered if isinstance(one, AssistantMessage) for result in one.results]
    found: dict[Content, bool] = {
        "calls": bool(results),
        "errors": any(result.is_error for result in results),
        "files": bool(facts.details.files_read or facts.details.files_modified),
        "user_messages": any(isinstance(one, UserMessage) and not one.synthetic for one in covered),
    }
    return {content for content, held in found.items() if held}
