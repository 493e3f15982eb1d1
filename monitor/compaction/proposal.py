"""One compaction, from the history as it stands to an edit that would make it smaller. Nothing is
changed here.

1. What can go without a summary goes; if that is enough, that is all. 2. The history is cut, and
   the hooks are asked. Results that the
model has not read stay behind the cut: they share the room before anything older is kept. 3. What
stands before the cut is summarised: where that fails, in fewer words, or only the older half of it;
and where the run cannot go on as it is, without a model, or not at all.
4. What is known without a model stands beside the summary word for word. 5. The whole next request
   is measured. Only one that is small
enough becomes a `Proposal`; else a `CompactionError` says what became of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import anyio.lowlevel

from monitor.compaction.base import Checkpoint, Progress, Summarizer, Summary, SummaryTask
from monitor.compaction.extractive import Extractive
from monitor.compaction.hooks import CompactionAsked, Wishes, ask_before
from monitor.compaction.identifiers import Named, merged, named_in
from monitor.compaction.pinned import (
    CONTINUE,
    CONTINUE_WITHOUT_MEDIA,
    LADDER,
    PinnedFacts,
    acknowledgement,
    compose,
    gathered,
    head_of_messages,
    read_back,
    shortened,
)
from monitor.compaction.preset import Preset
from monitor.compaction.records import (
    AskTurn,
    CompactionError,
    CompactionIneffective,
    CompactionRecord,
    CompactionResult,
)
from monitor.compaction.summarize import MOST_LENGTH, LivePrefix, ModelSummarizer
from monitor.compaction.watermarks import Marks
from monitor.context.cut import Cut, cut_at, cut_by_turns
from monitor.context.forms import Form
from monitor.context.history import HistoryEdit
from monitor.context.media import has_media, without_media
from monitor.context.reduction import Messages, Reducer, difference
from monitor.context.repair import repair
from monitor.context.tokens import message_tokens, size_of_text, size_of_tools
from monitor.context.truncate import ClipResults
from monitor.context.turns import COMPACTION, unread_from
from monitor.context.unread import NAME as SHARE
from monitor.context.unread import Sparing, shared
from monitor.context.window import Window, window_of
from monitor.errors import describe
from monitor.messages import AssistantMessage, Message, Text, UserMessage
from monitor.models import Model, ToolSpec
from monitor.reasons import PRESSING, CompactionFailure, CompactionReason

PINNED_SHARE: Final = 1 / 2
"""Of the room beside instructions and tools, for what stands beside the summary word for word, if
it needs as much.
"""
SUMMARY_SHARE: Final = 1 / 6
"""Of the same, for the summary, which may be half as long again (`MOST_LENGTH`). What is kept has
the rest: a quarter at least.
"""
LEAST_TOKENS: Final = 400
"""For a summary, and for what is pinned: below this they say nothing."""
FRAME_TOKENS: Final = 50
"""The marks around the new messages, and what the model is said to have answered."""
LEAST_GAIN: Final = 0.05
"""A compaction that saves less is none. Ours."""
MOST_REQUIRED: Final = 12
"""So many names a summary is asked to say, where they do not stand beside it. OpenClaw's number."""
NAMED_AT_ONCE: Final = 50
"""So many messages are looked through for names at once: 10 ms, if their results are long."""
AT_ONCE: Final = 1_000
"""So many messages are measured at once: some 30 ms."""
CUT: Final = "cut"
"""Stands where a summary says by whom it is: nobody made one."""
LEFT_OUT: Final = (
    "(What was said and done before this point did not fit and could not be summarised. What follows was recorded as it"
    " happened.)"
)
UNREAD_LEFT_OUT: Final = (
    "(The results of the newest calls were left out, because there was no room for them: {}. Ask for smaller parts.)"
)
UNREAD_SHARE: Final = 1 / 2
"""Of the window beside instructions and tools, for results that nobody has read, where nothing
older is kept and nobody summarises.
"""
MOST_NAMED_CALLS: Final = 10


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
    """Of the next request as it stands. What a message has is estimated, and scaled so that the
    whole comes to so many.
    """
    reported: bool = False
    """The provider has counted them."""
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
    read: int = 0
    """So many messages at the beginning has the model answered to, as far as that is known. By
    default the messages tell.
    """
    original: Message | None = None
    """The newest turn as it was said, where its results have been clipped since."""

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
    """A compaction that would do. `edits` are of `Situation.version`, and do not touch each
    other.
    """

    edits: tuple[HistoryEdit, ...]
    result: CompactionResult
    media_removed: bool = False


@dataclass(slots=True, frozen=True, kw_only=True)
class _Rung:
    """One way to try."""

    cut: Cut
    summarizer: Summarizer | None = None
    """`None`: nothing is summarised."""
    summary_tokens: int = 0
    asks: bool = False
    """A model is asked, or what the caller has instead of one."""
    more: bool = False
    """More is kept than was wanted."""
    last: bool = False
    """Nothing is left to try: whatever fits will do."""
    unread: float = 1.0
    """Share of what results that nobody has read would have."""
    note: str = ""


@dataclass(slots=True, frozen=True)
class _Beside:
    """What is known without a model of the messages before a cut."""

    facts: PinnedFacts
    identifiers: tuple[str, ...]
    pinned: str
    """As text, without a summary."""


async def propose(
    preset: Preset,
    situation: Situation,
    *,
    model: Model | None,
    ask: AskTurn,
    progress: Callable[[Progress], None],
    checkpoint: Checkpoint | None = None,
) -> Proposal:
    """What `preset` makes of `situation`. `model`: of the run, where the preset has none; `None`:
    no model is to be asked.

    Raises `CompactionError`, and what a cancellation raises.
    """
    return await _Pipeline(preset, situation, model=model, ask=ask, progress=progress, checkpoint=checkpoint).propose()


def continue_message(preset: Preset, proposal: Proposal, reason: CompactionReason) -> UserMessage | None:
    """What tells the model to go on after an automatic compaction; `None`: nothing needs to."""
    result = proposal.result
    if (
        reason is CompactionReason.MANUAL
        or preset.continues == "never"
        or result.record is None
        or result.replayed is not None
    ):
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
        self._head = max(situation.head, head_of_messages(situation.messages))
        unread = unread_from(situation.messages, head=self._head)
        self._unread = unread if unread is not None and unread >= situation.read else None
        """Where the turn stands whose results the model has not read."""
        self._sizes: dict[int, tuple[Message, int]] = {}
        self._names: dict[int, tuple[Message, Named]] = {}
        self._besides: dict[int, _Beside] = {}
        self._warnings: list[str] = []
        self._wishes = Wishes()
        self._earlier = self._read_earlier()
        self._raw_fixed = (size_of_text(situation.instructions or "") + size_of_tools(situation.tools)).tokens
        self._scale: float
        self._fixed: int
        self._before: int
        self._target: int
        self._pinned_tokens: int
        """What is pinned may have so many, estimated."""

    # --- measuring

    async def _weigh(self) -> None:
        """Measure what there is. Everything else in the program has its turn now and then: there
        may be thousands of messages.
        """
        now = self._now
        for number, message in enumerate(now.messages, 1):
            self._raw(message)
            if number % AT_ONCE == 0:
                await anyio.lowlevel.checkpoint()
        self._scale = self._scale_of(self._raw_fixed + sum(map(self._raw, now.messages)))
        self._fixed = self._measure(())
        self._before = self._measure(now.messages)
        self._target = min(now.marks.target(now.reason, self._before), int(self._before * (1 - LEAST_GAIN)) + 1)

    def _scale_of(self, raw: int) -> float:
        """By how much the request is larger than is estimated. One that was refused has more than
        the window, whatever is counted.
        """
        now = self._now
        if now.reason in {CompactionReason.OVERFLOW, CompactionReason.SILENT_OVERFLOW}:
            return max(now.scale, now.tokens / max(1, raw), (now.window.tokens or 0) / max(1, raw))
        if now.reported and now.tokens:
            return now.tokens / max(1, raw)
        return max(now.scale, now.tokens / max(1, raw))

    def _raw(self, message: Message) -> int:
        """Of one message, estimated. Each object is measured once."""
        known = self._sizes.get(id(message))
        if known is None:
            known = self._sizes[id(message)] = (message, message_tokens(message))
        return known[1]

    def _scaled(self, raw: int) -> int:
        return math.ceil(raw * self._scale - _ROUNDING)

    def _tokens(self, message: Message) -> int:
        """Of one message, as the provider would count it."""
        return self._scaled(self._raw(message))

    def _measure(self, messages: Sequence[Message]) -> int:
        """The whole next request."""
        return self._scaled(self._raw_fixed + sum(map(self._raw, messages)))

    def _estimated(self, tokens: float) -> int:
        """So many of the provider's tokens, as texts are measured when they are written."""
        return max(0, int(tokens / self._scale))

    async def _reserve(self) -> None:
        """Find out how much of the room what is pinned needs, wherever it will be cut. What it does
        not need is for what is kept.
        """
        covered = self._now.messages[self._head :]
        for number, message in enumerate(covered, 1):
            self._named(message)
            if number % NAMED_AT_ONCE == 0:
                await anyio.lowlevel.checkpoint()
        most = max(LEAST_TOKENS, self._estimated(self._free * PINNED_SHARE))
        needs = size_of_text(compose("", self._facts(covered), max_tokens=most)).tokens
        notes = LEAST_TOKENS if self._preset.hooks else 0  # what they will add is not known yet
        self._pinned_tokens = max(LEAST_TOKENS, min(needs + notes, most))

    def _named(self, message: Message) -> Named:
        """The names in one message. Each object is looked through once."""
        known = self._names.get(id(message))
        if known is None:
            known = self._names[id(message)] = (message, named_in(message))
        return known[1]

    @property
    def _free(self) -> int:
        """Of the target, beside instructions and tools."""
        return max(0, self._target - self._fixed)

    @property
    def _summary_tokens(self) -> int:
        """A summary may have so many, estimated."""
        return max(LEAST_TOKENS, self._estimated(min(self._preset.summary_tokens, self._free * SUMMARY_SHARE)))

    @property
    def _room(self) -> int:
        """For what is kept: half as much with each try for the same refusal."""
        taken = math.ceil(self._summary_tokens * MOST_LENGTH) + self._pinned_tokens + FRAME_TOKENS
        return max(0, self._free - self._scaled(taken)) >> self._now.harder

    # --- the steps

    async def propose(self) -> Proposal:
        now, preset = self._now, self._preset
        if len(now.messages) <= self._head:
            raise _nothing("there is nothing behind the last compaction" if self._head else "the history is empty")
        await self._weigh()
        smaller, names = self._reduced(preset.steps)
        await anyio.lowlevel.checkpoint()
        if names and self._measure(smaller) < self._enough:
            return self._reduction(smaller, names)
        # whole turns are gone, and it is not enough: they are summarised with the others
        if len(smaller) != len(now.messages):
            smaller, names = self._reduced(())
        if now.reason is CompactionReason.OVERFLOW:
            smaller = (*smaller[:-1], without_media(smaller[-1]))
        await self._reserve()
        if (sharing := self._sharing(smaller, names)) is not None:
            return sharing
        cut = self._cut(smaller)
        covered = now.messages[self._head : cut.index]
        previous = self._earlier[0] if self._earlier else None
        asked = CompactionAsked(reason=now.reason, messages=covered, previous=previous, tokens=now.tokens)
        self._wishes = await ask_before(preset.hooks, asked)
        self._warnings += self._wishes.warnings
        failed: CompactionError | None = None
        for rung in self._rungs(smaller, cut):
            if failed is not None and not _is_worth_a_try(rung, failed):
                continue
            try:
                return await self._on(rung, smaller)
            except CompactionError as error:
                failed = error
            name = f"{rung.summarizer.name} " if rung.summarizer is not None else ""
            self._warnings.append(f"{rung.note}: {str(failed).removeprefix(name)}")
        raise failed or _nothing("no way of summarising was given")

    def _read_earlier(self) -> tuple[str, PinnedFacts] | None:
        """The earlier compaction's summary, and what it pinned."""
        head = self._now.messages[: self._head]
        texts = [part.text for message in head[:1] for part in message.content if isinstance(part, Text)]
        return (read_back(texts[0]) or (texts[0], PinnedFacts())) if texts else None

    def _reduced(self, steps: Sequence[Reducer]) -> tuple[Messages, list[str]]:
        """The messages without what may go, and the names of the steps that took it."""
        messages, names = self._now.messages, []
        spared: list[Reducer] = [Sparing(step, self._unread) for step in steps]
        for step in (ClipResults.oversized(self._now.window.tokens), *spared):
            try:
                less = step.reduce(messages, head=self._head)
            except Exception as error:  # noqa: BLE001 - the caller's code: a compaction does not fail for it
                self._warnings.append(f"{step.name} raised {describe(error)}")
                continue
            if less is not messages:
                messages = less
                names.append(step.name)
        return messages, names

    @property
    def _enough(self) -> int:
        """What steps must get below for no summary to be needed. By hand, one is wanted, unless the
        context was rather full.
        """
        if self._now.reason is not CompactionReason.MANUAL:
            return self._target
        low = self._now.marks.low
        return 0 if low is None or self._before < low else min(low, self._target)

    def _reduction(self, smaller: Messages, names: Sequence[str]) -> Proposal:
        """Old results, arguments and media go; nothing is summarised."""
        edit = _reducing(self._now, smaller)
        result = CompactionResult(
            messages=smaller,
            record=None,
            tokens_before=self._before,
            tokens_after=self._measure(smaller),
            reported=self._now.reported,
            summarised_by="+".join(dict.fromkeys(names)),
            kept_messages=len(smaller) - self._head,
            kept_tokens=sum(map(self._tokens, smaller[self._head :])),
            reread_tokens=sum(map(self._tokens, smaller[edit.start :])),
            warnings=tuple(self._warnings),
        )
        return Proposal(edits=(edit,), result=result)

    # --- where it is cut

    def _cut(self, messages: Messages) -> Cut:
        """Where what stays begins: by the preset's rule, and so that the rest has room."""
        now = self._now
        usable = now.marks.high or self._before
        wanted = self._preset.keep.cut(messages, head=self._head, usable_tokens=usable, tokens=self._tokens)
        if wanted is None:
            if now.reason is CompactionReason.HIGH_WATER:
                raise _nothing("everything is to be kept")
            most = sum(map(self._tokens, messages[self._head :])) // 2
        else:
            most = wanted.kept_tokens
        most = min(most >> now.harder, self._room)
        cut = self._with_newest(
            messages, wanted if wanted and wanted.kept_tokens <= most else self._keeping(messages, most)
        )
        if now.reason is CompactionReason.HIGH_WATER and self._unread is not None and cut.kept_tokens > self._room > 0:
            raise CompactionError(
                CompactionFailure.NOTHING_TO_COMPACT,
                "the newest results leave no room for a summary before they are read",
                passing=True,
            )
        return cut

    def _keeping(self, messages: Messages, tokens: int) -> Cut:
        """The newest messages, as many as have `tokens`."""
        cut = cut_by_turns(messages, tokens, tail_turns=None, head=self._head, tokens=self._tokens)
        return cut or Cut(len(messages), None, 0)

    def _with_newest(self, messages: Messages, cut: Cut) -> Cut:
        """What nobody has read yet stays, whatever its size: a request of the user, the results of
        the newest calls.
        """
        newest = self._newest(messages)
        if cut.index <= newest:
            return cut
        if newest <= self._head and not (self._unread is not None and self._now.pressing):
            raise _nothing("there is nothing before the newest request itself")
        return cut_at(messages, newest, head=self._head, tokens=self._tokens)

    def _newest(self, messages: Messages) -> int:
        """Where that begins; the number of messages: everything has been read."""
        if self._unread is not None:
            return self._unread
        return len(messages) - isinstance(messages[-1], UserMessage)

    # --- what was not read yet

    def _sharing(self, messages: Messages, names: Sequence[str]) -> Proposal | None:
        """Only what nobody has read is clipped. `None`: that would not do, or something else will.

        For histories in which little stands before it: no more than what a summary and its pins
        would take.
        """
        now, unread = self._now, self._unread
        if unread is None or now.reason is CompactionReason.HIGH_WATER:
            return None
        before, wants = (sum(map(self._tokens, part)) for part in (messages[:unread], messages[unread:]))
        room = self._free - before - 1
        if wants <= self._room or room < self._room:
            return None
        less = (*messages[:unread], *self._clipped(messages[unread:], room >> now.harder))
        return self._reduction(less, (*names, SHARE)) if self._measure(less) < self._target else None

    def _clipped(self, unread: Messages, tokens: int) -> Messages:
        """The newest turn, its results clipped, and what was said behind it: in so many of the
        provider's tokens.
        """
        turn, *behind = unread
        if not isinstance(turn, AssistantMessage) or sum(map(self._tokens, unread)) <= tokens:
            return unread
        room = self._estimated(tokens) - sum(map(self._raw, behind))
        return shared(turn, room, original=self._now.original), *behind

    def _tail(self, messages: Messages, rung: _Rung) -> Messages:
        """What stays on this rung."""
        tail = messages[rung.cut.index :]
        if self._unread is None or rung.cut.index > self._unread or self._now.reason is CompactionReason.HIGH_WATER:
            return tail
        room = self._room
        if rung.last:
            room = max(room, (self._now.window.tokens or self._target) - self._fixed)
        older = self._unread - rung.cut.index
        return *tail[:older], *self._clipped(
            tail[older:], int(room * rung.unread) - sum(map(self._tokens, tail[:older]))
        )

    def _names_of_unread(self) -> str:
        """The calls whose results nobody has read."""
        turn = self._now.messages[self._unread] if self._unread is not None else None
        names = [result.name for result in turn.results] if isinstance(turn, AssistantMessage) else []
        more = f" and {len(names) - MOST_NAMED_CALLS} more" if len(names) > MOST_NAMED_CALLS else ""
        return ", ".join(names[:MOST_NAMED_CALLS]) + more

    # --- the ways to try

    def _rungs(self, messages: Messages, cut: Cut) -> Iterator[_Rung]:
        """From what is wanted to what can always be done."""
        preset, now, tokens = self._preset, self._now, self._summary_tokens
        if cut.index <= self._head:
            pass  # there is nothing to be summarised
        elif preset.summarizer is not None:
            yield _Rung(
                cut=cut, summarizer=preset.summarizer, summary_tokens=tokens, asks=True, note=preset.summarizer.name
            )
        elif self._model is not None:
            model = self._model
            window = (
                window_of(model.name, config=preset.window)
                if preset.model is not None or preset.window is not None
                else now.window
            )
            first = ModelSummarizer(model, window=window, settings=preset.settings, prefix=self._live_prefix(cut))
            yield _Rung(cut=cut, summarizer=first, summary_tokens=tokens, asks=True, note=model.name)
            plain = ModelSummarizer(model, window=window, settings=preset.settings)
            half = max(LEAST_TOKENS, tokens // 2)
            yield _Rung(cut=cut, summarizer=plain, summary_tokens=half, asks=True, note=f"{model.name}, half as long")
            if (less := self._less(messages, cut)) is not None:
                note = f"{model.name}, of the older half"
                yield _Rung(cut=less, summarizer=plain, summary_tokens=tokens, asks=True, more=True, note=note)
        if now.pressing:
            if cut.index > self._head:
                yield _Rung(cut=cut, summarizer=Extractive(), summary_tokens=tokens, note=Extractive.name)
            least = self._with_newest(messages, Cut(len(messages), None, 0))
            if least.index > self._head and (least.index > cut.index or self._unread is not None):
                note = f"{Extractive.name}, with nothing kept"
                yield _Rung(cut=least, summarizer=Extractive(), summary_tokens=tokens, unread=0.5, note=note)
            if least.index > 0:
                yield _Rung(cut=least, last=True, unread=UNREAD_SHARE, note=CUT)
            if self._unread is not None:
                last = len(messages) - isinstance(messages[-1], UserMessage)
                rest = Cut(last, None, sum(map(self._tokens, messages[last:])))
                yield _Rung(cut=rest, last=True, note=f"{CUT}, with the newest results")

    def _live_prefix(self, cut: Cut) -> LivePrefix | None:
        if not self._preset.on_live_prefix or self._preset.model is not None:
            return None
        return LivePrefix(self._now.messages[: cut.index], self._now.instructions, self._now.tools)

    def _less(self, messages: Messages, cut: Cut) -> Cut | None:
        """Only the older half of what was to be summarised, or what of it has to be for the rest to
        have room.
        """
        half = sum(map(self._tokens, messages[self._head : cut.index])) // 2 + cut.kept_tokens
        less = self._keeping(messages, min(half, self._room))
        return less if less.index < cut.index else None

    # --- one of them

    async def _on(self, rung: _Rung, messages: Messages) -> Proposal:
        """The proposal of one rung. Raises `CompactionError` where it is none."""
        now, cut = self._now, rung.cut
        covered, tail = now.messages[self._head : cut.index], self._tail(messages, rung)
        beside = self._beside(cut.index)
        await anyio.lowlevel.checkpoint()
        if rung.last:
            summary, text = self._cut_short(
                beside.facts, tail, unread=self._unread is not None and cut.index > self._unread
            )
        else:
            # no summary is so short that it could help
            self._check(self._measure(self._shown(beside.pinned, tail) + tail))
            summary = await self._summary(rung, covered, beside)
            text = compose(summary.text, beside.facts, max_tokens=self._pinned_tokens)
        shown = self._shown(text, tail)
        after = (*shown, *tail)
        tokens_after = self._measure(after)
        self._check(tokens_after, last=rung.last, newest=tail)
        if repair(after, form=now.form)[1] and not repair(now.messages, form=now.form)[1]:
            raise CompactionError(
                CompactionFailure.INVALID, "what it would put in place is nothing that the provider takes"
            )
        edits = [HistoryEdit(now.version, 0, cut.index, shown, COMPACTION, f"summarised by {summary.by}")]
        if any(new is not old for new, old in zip(tail, now.messages[cut.index :], strict=True)):
            edits.append(_reducing(now, (*now.messages[: cut.index], *tail)))
        media_removed = any(map(has_media, covered))
        replays = now.reason is CompactionReason.OVERFLOW and bool(tail) and isinstance(tail[-1], UserMessage)
        result = CompactionResult(
            messages=after,
            record=CompactionRecord(
                summary=summary.text,
                shown=shown,
                first_kept=now.originals_before(cut.index),
                tokens_before=self._before,
                tokens_after=tokens_after,
                preset=self._preset.name,
                reason=now.reason,
                summarised_by=summary.by,
                details=beside.facts.details,
            ),
            tokens_before=self._before,
            tokens_after=tokens_after,
            reported=now.reported,
            summarised_by=summary.by,
            replayed=len(after) - 1 if replays else None,
            kept_messages=len(tail),
            kept_tokens=sum(map(self._tokens, tail)),
            reread_tokens=tokens_after - self._fixed,
            warnings=tuple(self._warnings),
        )
        return Proposal(edits=tuple(edits), result=result, media_removed=media_removed)

    def _shown(self, text: str, tail: Messages) -> Messages:
        """What stands before `tail`. The user speaks next: roles alternate. Or the model does:
        nobody answers for it.
        """
        begins = UserMessage((Text(text),), synthetic=True)
        next_one = tail[0] if tail else None
        last = self._now.messages[-1]
        if isinstance(next_one, AssistantMessage) or (
            next_one is None and isinstance(last, AssistantMessage) and last.results
        ):
            return (begins,)
        return begins, acknowledgement()

    async def _summary(self, rung: _Rung, covered: Messages, beside: _Beside) -> Summary:
        assert rung.summarizer is not None  # noqa: S101 - only the last rung has none
        task = SummaryTask(
            messages=self._wishes.messages if self._wishes.messages is not None else covered,
            previous=self._earlier[0] if self._earlier else None,
            template=self._preset.template,
            pinned=beside.pinned,
            identifiers=beside.identifiers,
            details=beside.facts.details,
            max_tokens=rung.summary_tokens,
            split_turn=rung.cut.turn_start is not None,
            hints=self._wishes.hints,
            prompt=self._wishes.prompt,
        )
        try:
            summary: object = await rung.summarizer.summarize(
                task, self._ask, progress=self._progress, checkpoint=self._checkpoint
            )
        except CompactionError:
            raise
        except TimeoutError as error:
            raise CompactionError(CompactionFailure.TIMEOUT, str(error) or "it took too long") from error
        except Exception as error:
            raise CompactionError(
                CompactionFailure.CRASHED, f"{rung.summarizer.name} raised {describe(error)}"
            ) from error
        if not isinstance(summary, Summary) or not isinstance(summary.text, str):
            raise CompactionError(
                CompactionFailure.INVALID, f"{rung.summarizer.name} gave {summary!r:.200}, which is no Summary"
            )
        if not summary.text.strip():
            raise CompactionError(CompactionFailure.EMPTY, f"{rung.summarizer.name} wrote nothing")
        return summary

    def _cut_short(self, facts: PinnedFacts, tail: Messages, *, unread: bool) -> tuple[Summary, str]:
        """Nobody summarises: the earlier summary stays, as far as it and what is pinned have room,
        with a word on what is missing.

        `unread`: results that nobody has read are among that.
        """
        said = LEFT_OUT
        end = (
            min(self._target, self._before)
            if self._measure(tail) < self._target
            else self._now.window.tokens or self._before
        )
        free = self._estimated(end - 1 - self._measure(tail)) - FRAME_TOKENS - size_of_text(said).tokens
        room = min(self._summary_tokens, free // 3)
        if self._earlier and LEFT_OUT not in self._earlier[0]:
            texts = (f"{shortened(self._earlier[0], chars)}\n\n{LEFT_OUT}" for chars in LADDER)
            said = next((text for text in texts if size_of_text(text).tokens <= room), said)
        elif self._earlier:
            texts = (shortened(self._earlier[0], chars) for chars in LADDER)
            said = next((text for text in texts if LEFT_OUT in text and size_of_text(text).tokens <= room), said)
        if unread:
            said = f"{said}\n{UNREAD_LEFT_OUT.format(self._names_of_unread())}"
        pinned = min(self._pinned_tokens, free - size_of_text(said).tokens + size_of_text(LEFT_OUT).tokens)
        return Summary(text=said, by=CUT), compose(said, facts, max_tokens=max(0, pinned))

    def _beside(self, index: int) -> _Beside:
        """Of what stands before message `index`."""
        known = self._besides.get(index)
        if known is None:
            covered = self._now.messages[self._head : index]
            facts = self._facts(covered)
            pinned = compose("", facts, max_tokens=self._pinned_tokens)
            known = self._besides[index] = _Beside(facts, facts.identifiers[:MOST_REQUIRED], pinned)
        return known

    def _facts(self, covered: Messages) -> PinnedFacts:
        """What the messages and the earlier compaction say, and what is known besides."""
        earlier, known = self._earlier[1] if self._earlier else PinnedFacts(), self._now.facts
        facts = gathered(covered, earlier, named=self._named)
        # also what a run before this one had handed over
        asked_for = {entry.partition(": ")[0] for entry in known.outstanding}
        now_given = {**({} if known.emitted or known.outstanding else facts.emitted), **known.emitted}
        before = {**facts.earlier_outputs, **facts.emitted}
        emitted = {name: value for name, value in now_given.items() if name not in asked_for}
        outstanding = known.outstanding or tuple(
            entry for entry in facts.outstanding if entry.partition(": ")[0] not in emitted
        )
        return replace(
            facts,
            user_messages=(*known.user_messages, *facts.user_messages) if not self._earlier else facts.user_messages,
            emitted=emitted,
            earlier_outputs={
                name: value for name, value in before.items() if name not in emitted and name not in asked_for
            },
            outstanding=outstanding,
            plan=known.plan or facts.plan,
            rules=known.rules or self._preset.rules or facts.rules,
            identifiers=tuple(dict.fromkeys((*known.identifiers, *facts.identifiers))),
            listed=tuple(dict.fromkeys((*known.listed, *facts.listed))),
            details=merged(facts.details, known.details),
            notes=(*known.notes, *self._wishes.notes),
        )

    def _check(self, tokens_after: int, *, last: bool = False, newest: Messages = ()) -> None:
        """Raise `CompactionIneffective` unless a request of so many is small enough."""
        if tokens_after < self._target:
            return
        window = self._now.window.tokens
        if last and tokens_after < self._before and (window is None or tokens_after < window):
            return  # better than what there was, and nothing is left to try
        message = (
            f"the next request would have {tokens_after:,} tokens, now {self._before:,}; it must have less than"
            f" {self._target:,}"
        )
        if last and newest:
            message += f". Instructions, tools and the newest request alone have {self._measure(newest):,}"
        elif self._fixed >= self._target:
            message += f". Instructions and tools alone have {self._fixed:,}"
        raise CompactionIneffective(
            message, tokens_before=self._before, tokens_after=tokens_after, target_tokens=self._target
        )


_ROUNDING: Final = 1e-6
"""A count that was taken apart and put together again is the same count."""


def _is_worth_a_try(rung: _Rung, failed: CompactionError) -> bool:
    """Whether this rung may get past what the one before it failed for."""
    match failed.failure:
        case (
            CompactionFailure.TIMEOUT
            | CompactionFailure.PROVIDER
            | CompactionFailure.CRASHED
            | CompactionFailure.INVALID
        ):
            return not rung.asks
        case CompactionFailure.INEFFECTIVE:
            return not rung.more
    return True


def _reducing(now: Situation, smaller: Messages) -> HistoryEdit:
    start, stop = difference(now.messages, smaller)
    replacement = smaller[start : len(smaller) - (len(now.messages) - stop)]
    return HistoryEdit(
        now.version, start, stop, replacement, "reduction", "old results, arguments and media are shown in short"
    )


def _nothing(why: str) -> CompactionError:
    return CompactionError(CompactionFailure.NOTHING_TO_COMPACT, why)
