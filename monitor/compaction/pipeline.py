"""One compaction, from the history as it stands to an edit that would make it smaller. Nothing is changed here.

1. What can go without a summary goes; if that is enough, that is all. 2. The history is cut, and the hooks are asked. 3. What stands before
the cut is summarised: where that fails, in fewer words, or only the older half of it; and where the run cannot go on as it is, without
a model, or not at all. 4. What is known without a model stands beside the summary word for word. 5. The whole next request is
measured. Only one that is small enough becomes a `Proposal`; else a `CompactionError` says what became of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from monitor.compacting import (
    PRESSING,
    AskTurn,
    CompactionError,
    CompactionFailure,
    CompactionIneffective,
    CompactionReason,
    CompactionRecord,
    CompactionResult,
)
from monitor.compaction.base import Checkpoint, Progress, Summarizer, Summary, SummaryTask
from monitor.compaction.extractive import Extractive
from monitor.compaction.hooks import CompactionAsked, Wishes, ask_before
from monitor.compaction.identifiers import newest_identifiers
from monitor.compaction.marks import Marks
from monitor.compaction.pinned import CONTINUE, CONTINUE_WITHOUT_MEDIA, PinnedFacts, acknowledgement, compose, gathered, read_back
from monitor.compaction.preset import Preset
from monitor.compaction.summarize import LivePrefix, ModelSummarizer
from monitor.context.cut import Cut, cut_by_tokens, cut_by_turns
from monitor.context.forms import Form
from monitor.context.history import HistoryEdit
from monitor.context.media import without_media
from monitor.context.reduction import Messages, difference, reduced
from monitor.context.repair import repair
from monitor.context.tokens import message_tokens, size_of_text, size_of_tools
from monitor.context.truncate import ClipResults
from monitor.context.turns import COMPACTION
from monitor.context.window import Window, window_of
from monitor.messages import Message, Text, UserMessage
from monitor.models import Model, ToolSpec

PINNED_SHARE: Final = 0.25
"""Of the target, for what stands beside the summary word for word. A summary gets a sixth at most, what is kept has the rest."""
SUMMARY_SHARE: Final = 1 / 6
LEAST_TOKENS: Final = 400
"""For a summary, and for what is pinned: below this they say nothing."""
LEAST_GAIN: Final = 0.05
"""A compaction under pressure that saves less is none. Ours."""
CUT: Final = "cut"
"""Stands where a summary says by whom it is: nobody made one."""
LEFT_OUT: Final = (
    "(What was said and done before this point did not fit and could not be summarised. What follows was recorded as it happened.)"
)


@dataclass(slots=True, frozen=True, kw_only=True)
class Situation:
    """What is to be made smaller, and how small."""

    messages: Messages
    version: int = 0
    head: int = 0
    """Messages at the beginning that an earlier compaction put there."""
    instructions: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    marks: Marks
    """Of the model that the history is for."""
    tokens: int
    """Of the next request as it stands."""
    reported: bool = False
    scale: float = 1.0
    """By how much the provider counts more than is estimated."""
    reason: CompactionReason = CompactionReason.MANUAL
    harder: int = 0
    """How often it was tried before for the same refusal: each time half as much is kept."""
    facts: PinnedFacts = field(default_factory=PinnedFacts)
    """What is known besides the messages: outputs, plan, rules."""
    form: Form | None = None
    originals_before: Callable[[int], int] = int
    """How many originals so many of the messages stand for."""

    @property
    def window(self) -> Window:
        """Of the model that the history is for."""
        return self.marks.window

    @property
    def pressing(self) -> bool:
        """The run cannot go on without it."""
        return self.reason in PRESSING


@dataclass(slots=True, frozen=True, kw_only=True)
class Proposal:
    """A compaction that would do. `edits` are of `Situation.version`, and do not touch each other."""

    edits: tuple[HistoryEdit, ...]
    result: CompactionResult
    media_removed: bool = False


@dataclass(slots=True, frozen=True, kw_only=True)
class _Rung:
    """One way to try."""

    summarizer: Summarizer | None
    """`None`: nothing is summarised."""
    summary_tokens: int
    cut: Cut
    note: str = ""


async def propose(
    preset: Preset,
    situation: Situation,
    *,
    model: Model | None,
    ask: AskTurn,
    progress: Callable[[Progress], None],
    checkpoint: Checkpoint | None = None,
) -> Proposal:
    """What `preset` makes of `situation`. `model`: of the run, where the preset has none; `None`: no model is to be asked.

    Raises `CompactionError`, and what a cancellation raises.
    """
    return await _Pipeline(preset, situation, model=model, ask=ask, progress=progress, checkpoint=checkpoint).propose()


def continue_message(preset: Preset, proposal: Proposal, reason: CompactionReason) -> UserMessage | None:
    """What tells the model to go on after an automatic compaction; `None`: nothing needs to."""
    result = proposal.result
    if reason is CompactionReason.MANUAL or preset.continues == "never" or result.record is None or result.replayed is not None:
        return None
    if preset.continues == "when_needed" and result.kept_messages:
        return None
    overflow = reason is CompactionReason.OVERFLOW and proposal.media_removed
    return UserMessage((Text(CONTINUE_WITHOUT_MEDIA if overflow else CONTINUE),), synthetic=True)


class _Pipeline:
    """The state of one compaction."""

    def __init__(
        self,
        preset: Preset,
        situation: Situation,
        *,
        model: Model | None,
        ask: AskTurn,
        progress: Callable[[Progress], None],
        checkpoint: Checkpoint | None,
    ) -> None:
        self._preset = preset
        self._now = situation
        self._model = None if model is None else preset.model or model
        self._ask = ask
        self._progress = progress
        self._checkpoint = checkpoint
        self._sizes: dict[int, tuple[Message, int]] = {}
        self._warnings: list[str] = []
        self._wishes = Wishes()
        self._fixed = math.ceil((size_of_text(situation.instructions or "") + size_of_tools(situation.tools)).tokens * situation.scale)
        self._before = self._measure(situation.messages)
        self._target = situation.marks.target(situation.reason, self._before)

    # --- measuring

    def _tokens(self, message: Message) -> int:
        """Of one message, as the provider would count it. Each object is measured once."""
        known = self._sizes.get(id(message))
        if known is None:
            known = self._sizes[id(message)] = (message, math.ceil(message_tokens(message) * self._now.scale))
        return known[1]

    def _measure(self, messages: Sequence[Message]) -> int:
        """The whole next request."""
        return self._fixed + sum(map(self._tokens, messages))

    # --- the steps

    async def propose(self) -> Proposal:
        now, preset = self._now, self._preset
        earlier = self._earlier()
        if len(now.messages) <= now.head:
            raise _nothing("there is nothing behind the last compaction" if now.head else "the history is empty")
        smaller = reduced(now.messages, ClipResults.oversized(now.window.tokens), *preset.steps, head=now.head)
        if smaller is not now.messages and self._measure(smaller) < self._target:
            return self._reduction(smaller)
        if len(smaller) != len(now.messages):
            smaller = now.messages  # whole turns are gone, and it is not enough: they are summarised with the others
        cut = self._cut(smaller)
        asked = CompactionAsked(
            reason=now.reason, messages=smaller[now.head : cut.index], previous=earlier[0] if earlier else None, tokens=now.tokens
        )
        self._wishes = await ask_before(preset.hooks, asked)
        self._warnings += self._wishes.warnings
        failed: CompactionError | None = None
        for rung in self._rungs(smaller, cut):
            if failed is not None and not _is_worth_a_try(rung, failed):
                continue
            try:
                return await self._on(rung, smaller, earlier)
            except CompactionError as error:
                failed = error
            except TimeoutError as error:
                failed = CompactionError(CompactionFailure.TIMEOUT, str(error))
            self._warnings.append(f"{rung.note or (rung.summarizer.name if rung.summarizer else CUT)}: {failed}")
        if failed is None:
            raise _nothing("no way of summarising was given")
        raise failed

    def _earlier(self) -> tuple[str, PinnedFacts] | None:
        """The earlier compaction's summary, and what it pinned."""
        head = self._now.messages[: self._now.head]
        texts = [part.text for message in head[:1] for part in message.content if isinstance(part, Text)]
        return (read_back(texts[0]) or (texts[0], PinnedFacts())) if texts else None

    def _reduction(self, smaller: Messages) -> Proposal:
        """Old results, arguments and media go; nothing is summarised."""
        edit = _reducing(self._now, smaller)
        names = "+".join(dict.fromkeys(step.name for step in (ClipResults(), *self._preset.steps)))
        result = CompactionResult(
            messages=smaller,
            record=None,
            tokens_before=self._now.tokens,
            tokens_after=self._measure(smaller),
            reported=self._now.reported,
            summarised_by=names,
            kept_messages=len(smaller) - self._now.head,
            kept_tokens=sum(map(self._tokens, smaller[self._now.head :])),
            reread_tokens=sum(map(self._tokens, smaller[edit.start :])),
            warnings=tuple(self._warnings),
        )
        return Proposal(edits=(edit,), result=result)

    def _cut(self, messages: Messages) -> Cut:
        """Where what stays begins: by the preset's rule, and so that the rest has room."""
        now = self._now
        room = self._target - self._fixed - self._summary_tokens() - self._pinned_tokens()
        room >>= now.harder
        cut = self._preset.keep.cut(messages, head=now.head, usable_tokens=now.marks.high or self._before, tokens=self._tokens)
        if now.reason is CompactionReason.HIGH_WATER and cut is None:
            raise _nothing("everything is to be kept")
        if cut is None or cut.kept_tokens > room:
            cut = cut_by_turns(messages, max(0, room), tail_turns=None, head=now.head, tokens=self._tokens)
        if cut is None:
            raise _nothing("everything is to be kept")
        last = len(messages) - 1
        if cut.index > last and isinstance(messages[last], UserMessage):  # it has not been answered yet: what came before it is summarised
            if last <= now.head:
                raise _nothing("there is nothing before the request itself")
            cut = Cut(last, None, self._tokens(messages[last]))
        return cut

    def _summary_tokens(self) -> int:
        return max(LEAST_TOKENS, min(self._preset.summary_tokens, int(self._target * SUMMARY_SHARE)))

    def _pinned_tokens(self) -> int:
        return max(LEAST_TOKENS, int(self._target * PINNED_SHARE))

    def _rungs(self, messages: Messages, cut: Cut) -> Iterator[_Rung]:
        """From what is wanted to what can always be done."""
        preset, now = self._preset, self._now
        tokens = self._summary_tokens()
        if preset.summarizer is not None:
            yield _Rung(summarizer=preset.summarizer, summary_tokens=tokens, cut=cut)
        elif self._model is not None:
            model = self._model
            window = window_of(model.name, config=preset.window) if preset.model is not None or preset.window is not None else now.window
            summarizer = ModelSummarizer(model, window=window, settings=preset.settings, prefix=self._live_prefix(cut))
            yield _Rung(summarizer=summarizer, summary_tokens=tokens, cut=cut)
            plain = ModelSummarizer(model, window=window, settings=preset.settings)
            yield _Rung(summarizer=plain, summary_tokens=max(LEAST_TOKENS, tokens // 2), cut=cut, note=f"{model.name}, half as long")
            if (less := self._less(messages, cut)) is not None:
                yield _Rung(summarizer=plain, summary_tokens=tokens, cut=less, note=f"{model.name}, of the older half")
        if now.pressing:
            yield _Rung(summarizer=Extractive(), summary_tokens=tokens, cut=cut)
            room = cut.kept_tokens
            for _ in range(4):
                kept = cut_by_turns(messages, room, tail_turns=None, head=now.head, tokens=self._tokens)
                yield _Rung(summarizer=None, summary_tokens=0, cut=kept or cut)
                room //= 2

    def _live_prefix(self, cut: Cut) -> LivePrefix | None:
        if not self._preset.on_live_prefix or self._preset.model is not None:
            return None
        return LivePrefix(self._now.messages[: cut.index], self._now.instructions, self._now.tools)

    def _less(self, messages: Messages, cut: Cut) -> Cut | None:
        """Only the older half of what was to be summarised."""
        half = sum(map(self._tokens, messages[self._now.head : cut.index])) // 2 + cut.kept_tokens
        less = cut_by_tokens(messages, half, head=self._now.head, tokens=self._tokens)
        return less if less is not None and less.index < cut.index else None

    async def _on(self, rung: _Rung, messages: Messages, earlier: tuple[str, PinnedFacts] | None) -> Proposal:
        """The proposal of one rung. Raises `CompactionError` where it is none."""
        now, cut = self._now, rung.cut
        covered = messages[now.head : cut.index]
        facts = self._facts(covered, earlier[1] if earlier else None)
        pinned_tokens = self._pinned_tokens()
        summary = await self._summary(rung, covered, facts, earlier)
        if summary.missing_identifiers:
            facts = replace(facts, identifiers=tuple(dict.fromkeys((*facts.identifiers, *summary.missing_identifiers))))
        text = compose(summary.text, facts, max_tokens=pinned_tokens)
        begins = UserMessage((Text(text),), synthetic=True)
        tail = messages[cut.index :]
        replayed: int | None = None
        media_removed = summary.media_removed
        if now.reason is CompactionReason.OVERFLOW and tail and isinstance(tail[-1], UserMessage):
            tail = (*tail[:-1], without_media(tail[-1]))
            media_removed = media_removed or tail[-1] is not messages[-1]
        answer = () if tail and not isinstance(tail[0], UserMessage) else (acknowledgement(),)
        shown: Messages = (begins, *answer)
        after = (*shown, *tail)
        if now.reason is CompactionReason.OVERFLOW and tail and isinstance(tail[-1], UserMessage):
            replayed = len(after) - 1
        tokens_after = self._measure(after)
        self._check(rung, after, tokens_after)
        edits = [HistoryEdit(now.version, 0, cut.index, shown, COMPACTION, f"summarised by {summary.by}")]
        if any(new is not old for new, old in zip(tail, now.messages[cut.index :], strict=True)):
            edits.append(_reducing(now, (*now.messages[: cut.index], *tail)))
        result = CompactionResult(
            messages=after,
            record=CompactionRecord(
                summary=summary.text,
                shown=shown,
                first_kept=now.originals_before(cut.index),
                tokens_before=now.tokens,
                tokens_after=tokens_after,
                preset=self._preset.name,
                reason=now.reason,
                summarised_by=summary.by,
                details=facts.details,
            ),
            tokens_before=now.tokens,
            tokens_after=tokens_after,
            reported=now.reported,
            summarised_by=summary.by,
            replayed=replayed,
            kept_messages=len(tail),
            kept_tokens=sum(map(self._tokens, tail)),
            reread_tokens=tokens_after - self._fixed,
            warnings=tuple(self._warnings),
        )
        return Proposal(edits=tuple(edits), result=result, media_removed=media_removed)

    async def _summary(self, rung: _Rung, covered: Messages, facts: PinnedFacts, earlier: tuple[str, PinnedFacts] | None) -> Summary:
        if rung.summarizer is None:
            said = f"{earlier[0]}\n\n{LEFT_OUT}" if earlier and LEFT_OUT not in earlier[0] else earlier[0] if earlier else LEFT_OUT
            return Summary(text=said, by=CUT)
        task = SummaryTask(
            messages=self._wishes.messages if self._wishes.messages is not None else covered,
            previous=earlier[0] if earlier else None,
            template=self._preset.template,
            pinned=compose("", facts, max_tokens=self._pinned_tokens()),
            identifiers=newest_identifiers(covered),
            details=facts.details,
            max_tokens=rung.summary_tokens,
            split_turn=rung.cut.turn_start is not None,
            hints=self._wishes.hints,
            prompt=self._wishes.prompt,
        )
        return await rung.summarizer.summarize(task, self._ask, progress=self._progress, checkpoint=self._checkpoint)

    def _facts(self, covered: Messages, earlier: PinnedFacts | None) -> PinnedFacts:
        facts, known = gathered(covered, earlier), self._now.facts
        return replace(
            facts,
            emitted=known.emitted or facts.emitted,
            outstanding=known.outstanding,
            plan=known.plan or facts.plan,
            rules=known.rules or self._preset.rules or facts.rules,
            notes=(*known.notes, *self._wishes.notes) or facts.notes,
        )

    def _check(self, rung: _Rung, after: Messages, tokens_after: int) -> None:
        now = self._now
        if repair(after, form=now.form)[1] and not repair(now.messages, form=now.form)[1]:
            raise CompactionError(CompactionFailure.INVALID, "what it would put in place is nothing that the provider takes")
        window = now.window.tokens
        least = int(self._before * (1 - LEAST_GAIN))
        fits = window is not None and tokens_after < window
        if tokens_after < min(self._target, self._before):
            return
        if rung.summarizer is None and fits and tokens_after < least:
            return  # better than what there was, and nothing is left to try
        message = (
            f"the next request would have {tokens_after:,} tokens, now about {self._before:,}; it must have less than {self._target:,}"
        )
        if self._fixed > self._target:
            message += f". Instructions and tools alone have {self._fixed:,}"
        raise CompactionIneffective(message, tokens_before=self._before, tokens_after=tokens_after, target_tokens=self._target)


def _is_worth_a_try(rung: _Rung, failed: CompactionError) -> bool:
    """Whether this rung may get past what the one before it failed for."""
    asks = rung.summarizer is not None and rung.summarizer.name != Extractive.name
    match failed.failure:
        case CompactionFailure.TIMEOUT | CompactionFailure.PROVIDER | CompactionFailure.INVALID:
            return not asks
        case CompactionFailure.INEFFECTIVE:
            return "older half" not in rung.note
    return True


def _reducing(now: Situation, smaller: Messages) -> HistoryEdit:
    start, stop = difference(now.messages, smaller)
    replacement = smaller[start : len(smaller) - (len(now.messages) - stop)]
    return HistoryEdit(now.version, start, stop, replacement, "reduction", "old results, arguments and media are shown in short")


def _nothing(why: str) -> CompactionError:
    return CompactionError(CompactionFailure.NOTHING_TO_COMPACT, why)
