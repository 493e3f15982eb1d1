"""The attempts at one compaction: how large the next request is, where the history is cut, and who
summarises what stands before the cut.

A message is estimated once. The provider may count more than the estimate, so every size is scaled:
the whole request then has the size that is known of it. The room below the target is shared by the
summary, what is pinned beside it, and the messages that are kept.

The first attempt is what the preset asks for. Each one after it asks for less: a shorter summary,
or a summary of the older half. Where the run cannot go on otherwise, the summary is made without a
model, or left out. Results that the model has not read stay behind the cut in every attempt but the
last.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, TypeAlias

from monitor.context.compaction.extractive import Extractive
from monitor.context.compaction.hooks import CompactionError
from monitor.context.compaction.pinned import PinnedFacts
from monitor.context.compaction.preset import Preset
from monitor.context.compaction.summarizer import MOST_LENGTH, ModelSummarizer, Summarizer
from monitor.context.compaction.triggers import Marks
from monitor.context.cut import CutPoint, cut_at, cut_by_turns
from monitor.context.reduce import Messages, once, shared
from monitor.context.tokens import message_tokens, size_of_text, size_of_tools
from monitor.context.window import Window, window_of
from monitor.errors import PRESSING, CompactionFailure, CompactionReason
from monitor.messages import AssistantMessage, Message, UserMessage
from monitor.models import Model, ModelRequest, ToolSpec
from monitor.wires.fields import Form

Pause: TypeAlias = Callable[[], Awaitable[object]]
"""Lets other tasks run for a moment, and raises where the work is cancelled. The caller's event
loop does both: this room has no clock.
"""

PINNED_SHARE: Final = 1 / 2
"""The most that the pinned facts get of the room beside instructions and tools."""
SUMMARY_SHARE: Final = 1 / 6
"""The summary's share of the same room. The summary may be half as long again (`MOST_LENGTH`), so a
quarter of the room at least is left for the messages that are kept.
"""
LEAST_TOKENS: Final = 400
"""The least tokens for a summary, and for the pinned facts: a shorter text says nothing."""
FRAME_TOKENS: Final = 50
"""Tokens for the marks around the new messages, and for the acknowledgement."""
LEAST_GAIN: Final = 0.05
"""The least share of the request that a compaction must save. Ours."""
AT_ONCE: Final = 1_000
"""Messages that are measured before other tasks may run: about 30 ms."""
_ROUNDING: Final = 1e-6
"""Tolerance for floats: a sum that was divided and multiplied by the scale stays the same count."""


@dataclass(slots=True, frozen=True, kw_only=True)
class CompactionInput:
    """The history that is to be made smaller, and what is known about the next request."""

    messages: Messages
    version: int = 0
    head: int = 0
    """The number of messages at the beginning that an earlier compaction put there."""
    instructions: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    marks: Marks
    """The watermarks of the model that reads the history."""
    tokens: int
    """The tokens of the next request as it stands. Estimates of messages are scaled to this sum."""
    reported: bool = False
    """Whether the provider has counted `tokens`."""
    scale: float = 1.0
    """The provider's count, divided by the estimate."""
    reason: CompactionReason = CompactionReason.MANUAL
    harder: int = 0
    """The number of compactions that the same refusal has had before: each one keeps half as much.
    """
    facts: PinnedFacts = field(default_factory=PinnedFacts)
    """Facts that are known besides the messages: outputs, plan, rules."""
    form: Form | None = None
    originals_before: Callable[[int], int] = int
    """Maps a number of messages at the beginning to the number of originals behind them."""
    unread: int | None = None
    """The index of the turn whose results the model has not read, if any."""
    original: Message | None = None
    """The turn with the unread results, before these were clipped; `None`: they were not clipped.
    """

    @property
    def window(self) -> Window:
        """The window of the model that reads the history."""
        return self.marks.window


class Sizes:
    """The sizes of one compaction. `weigh` must be called before anything but `raw` is asked, and
    `pin` before `room`.
    """

    def __init__(self, preset: Preset, situation: CompactionInput) -> None:
        self._preset = preset
        self._now = situation
        self.raw = once(message_tokens)
        """The estimated tokens of a message."""
        self._raw_fixed = (size_of_text(situation.instructions or "") + size_of_tools(situation.tools)).tokens
        self._scale: float
        self.fixed: int
        """Tokens of the instructions and the tools."""
        self.before: int
        """Tokens of the next request as it stands."""
        self.target: int
        """The compacted request must have fewer tokens than this."""
        self.pinned_tokens: int
        """The most that the pinned facts may have, estimated."""

    async def weigh(self, pause: Pause) -> None:
        """Measure every message, with pauses in between: there may be thousands of messages."""
        now = self._now
        for number, message in enumerate(now.messages, 1):
            self.raw(message)
            if number % AT_ONCE == 0:
                await pause()
        self._scale = self._scale_of(self._raw_fixed + sum(map(self.raw, now.messages)))
        self.fixed = self.request(())
        self.before = self.request(now.messages)
        self.target = min(now.marks.target(now.reason, self.before), int(self.before * (1 - LEAST_GAIN)) + 1)

    def _scale_of(self, raw: int) -> float:
        """The request's real size, divided by its estimate `raw`. A refused request is larger than
        the window, whatever is counted.
        """
        now, raw = self._now, max(1, raw)
        if now.reason in {CompactionReason.OVERFLOW, CompactionReason.SILENT_OVERFLOW}:
            return max(now.scale, now.tokens / raw, (now.window.tokens or 0) / raw)
        counted = now.reported and now.tokens
        return now.tokens / raw if counted else max(now.scale, now.tokens / raw)

    # --- in one unit or the other

    def tokens(self, message: Message) -> int:
        """The tokens of `message`, as the provider would count them."""
        return self._scaled(self.raw(message))

    def request(self, messages: Sequence[Message]) -> int:
        """The tokens of a whole request with `messages`, as the provider would count them."""
        return self._scaled(self._raw_fixed + sum(map(self.raw, messages)))

    def estimated(self, tokens: float) -> int:
        """The provider's `tokens` as an estimate, which is how texts are measured while they are
        written.
        """
        return max(0, int(tokens / self._scale))

    def _scaled(self, raw: int) -> int:
        return math.ceil(raw * self._scale - _ROUNDING)

    # --- the room, and who gets how much of it

    @property
    def free(self) -> int:
        """The room below the target, beside instructions and tools."""
        return max(0, self.target - self.fixed)

    @property
    def most_pinned(self) -> int:
        """The most that the pinned facts can get, estimated."""
        return max(LEAST_TOKENS, self.estimated(self.free * PINNED_SHARE))

    def pin(self, needs: int) -> None:
        """Reserve room for the pinned facts, which need `needs`. What they do not need is for the
        messages that are kept.
        """
        notes = LEAST_TOKENS if self._preset.hooks else 0  # what the hooks will add is not known yet
        self.pinned_tokens = max(LEAST_TOKENS, min(needs + notes, self.most_pinned))

    @property
    def summary_tokens(self) -> int:
        """The most that the summary may have, estimated."""
        return max(LEAST_TOKENS, self.estimated(min(self._preset.summary_tokens, self.free * SUMMARY_SHARE)))

    @property
    def room(self) -> int:
        """The room for the messages that are kept, halved by each compaction for the same
        refusal.
        """
        taken = math.ceil(self.summary_tokens * MOST_LENGTH) + self.pinned_tokens + FRAME_TOKENS
        return max(0, self.free - self._scaled(taken)) >> self._now.harder


CUT: Final = "cut"
"""The name in `summarised_by` where nobody has summarised."""
UNREAD_SHARE: Final = 1 / 2
"""The share of the room that unread results get on a rung where nothing older is kept."""
_NOT_ASKED_AGAIN: Final = frozenset(
    {CompactionFailure.TIMEOUT, CompactionFailure.PROVIDER, CompactionFailure.CRASHED, CompactionFailure.INVALID}
)
"""After these failures, another question to the same summariser fails as well."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Rung:
    """One attempt at a compaction."""

    cut: CutPoint
    summarizer: Summarizer | None = None
    """`None`: nothing is summarised. No rung is below: any request that fits is taken."""
    summary_tokens: int = 0
    asks: bool = False
    """A model is asked, or the summarizer that the caller has given instead."""
    more: bool = False
    """More messages are kept than the preset asks for."""
    unread: float = 1.0
    """The share of the room that unread results get."""
    how: str = ""
    """How it differs from the first attempt, in words."""

    @property
    def note(self) -> str:
        """The summariser of the attempt, and how it differs."""
        who = CUT if self.summarizer is None else self.summarizer.name
        return f"{who}, {self.how}" if self.how else who

    def may_help(self, failed: CompactionError) -> bool:
        """Whether this rung can succeed where the one before it failed with `failed`."""
        if failed.failure in _NOT_ASKED_AGAIN:
            return not self.asks
        return not (self.more and failed.failure is CompactionFailure.INEFFECTIVE)


@dataclass(slots=True)
class CompactionLadder:
    """The rungs of one compaction."""

    preset: Preset
    now: CompactionInput
    size: Sizes
    _: KW_ONLY
    model: Model | None
    """The model to be asked; `None`: no model is asked."""

    # --- where the history is cut

    def cut(self, messages: Messages) -> CutPoint:
        """The cut that the preset asks for, made later where the kept messages have no room."""
        now, size = self.now, self.size
        usable = now.marks.high or size.before
        wanted = self.preset.keep.cut(messages, head=self.now.head, usable_tokens=usable, tokens=size.tokens)
        if wanted is None:
            if now.reason is CompactionReason.HIGH_WATER:
                raise nothing("everything is to be kept")
            most = sum(map(size.tokens, messages[self.now.head :])) // 2
        else:
            most = wanted.kept_tokens
        most = min(most >> now.harder, size.room)
        cut = self._with_newest(
            messages, wanted if wanted and wanted.kept_tokens <= most else self._keeping(messages, most)
        )
        if (
            now.reason is CompactionReason.HIGH_WATER
            and self.now.unread is not None
            and cut.kept_tokens > size.room > 0
        ):
            raise CompactionError(
                CompactionFailure.NOTHING_TO_COMPACT,
                "the newest results leave no room for a summary before they are read",
                passing=True,
            )
        return cut

    def _keeping(self, messages: Messages, tokens: int) -> CutPoint:
        """The cut that keeps the newest messages, up to `tokens`."""
        cut = cut_by_turns(messages, tokens, tail_turns=None, head=self.now.head, tokens=self.size.tokens)
        return cut or CutPoint(len(messages), None, 0)

    def _with_newest(self, messages: Messages, cut: CutPoint) -> CutPoint:
        """`cut`, moved before what the model has not read: a request of the user, or the results of
        the newest calls. These stay, whatever their size.
        """
        newest = self._newest(messages)
        if cut.index <= newest:
            return cut
        if newest <= self.now.head and not (self.now.unread is not None and self.now.reason in PRESSING):
            raise nothing("there is nothing before the newest request itself")
        return cut_at(messages, newest, head=self.now.head, tokens=self.size.tokens)

    def _newest(self, messages: Messages) -> int:
        """The index of the first message that the model has not read; `len(messages)`: it has read
        everything.
        """
        if self.now.unread is not None:
            return self.now.unread
        return len(messages) - isinstance(messages[-1], UserMessage)

    # --- what stays behind the cut

    def tail(self, messages: Messages, rung: Rung) -> Messages:
        """The messages that `rung` keeps, with unread results clipped to their share."""
        tail, unread = messages[rung.cut.index :], self.now.unread
        if unread is None or rung.cut.index > unread or self.now.reason is CompactionReason.HIGH_WATER:
            return tail
        size = self.size
        room = size.room
        if rung.summarizer is None:
            room = max(room, (self.now.window.tokens or size.target) - size.fixed)
        older = unread - rung.cut.index
        kept = sum(map(size.tokens, tail[:older]))
        return *tail[:older], *self.clipped(tail[older:], int(room * rung.unread) - kept)

    def clipped(self, unread: Messages, tokens: int) -> Messages:
        """`unread` (the newest turn and the messages behind it) in at most `tokens` of the
        provider's. Only the results of the turn are clipped.
        """
        turn, *behind = unread
        if not isinstance(turn, AssistantMessage) or sum(map(self.size.tokens, unread)) <= tokens:
            return unread
        room = self.size.estimated(tokens) - sum(map(self.size.raw, behind))
        return shared(turn, room, original=self.now.original), *behind

    # --- the attempts

    def rungs(self, messages: Messages, cut: CutPoint) -> Iterator[Rung]:
        """Every attempt, from what the preset asks for to what can always be done."""
        if cut.index > self.now.head:
            yield from self._asking(messages, cut)
        if self.now.reason in PRESSING:
            yield from self._without_model(messages, cut)

    def _asking(self, messages: Messages, cut: CutPoint) -> Iterator[Rung]:
        """The attempts that ask the preset's summarizer, or a model."""
        preset, model, tokens = self.preset, self.model, self.size.summary_tokens
        if (given := preset.summarizer) is not None:
            yield Rung(cut=cut, summarizer=given, summary_tokens=tokens, asks=True)
            return
        if model is None:
            return
        own_window = preset.model is not None or preset.window is not None
        window = window_of(model.name, config=preset.window) if own_window else self.now.window
        first = ModelSummarizer(model, window=window, settings=preset.settings, prefix=self._live_prefix(cut))
        yield Rung(cut=cut, summarizer=first, summary_tokens=tokens, asks=True)
        plain = ModelSummarizer(model, window=window, settings=preset.settings)
        half = max(LEAST_TOKENS, tokens // 2)
        yield Rung(cut=cut, summarizer=plain, summary_tokens=half, asks=True, how="half as long")
        if (less := self._older_half(messages, cut)) is not None:
            how = "of the older half"
            yield Rung(cut=less, summarizer=plain, summary_tokens=tokens, asks=True, more=True, how=how)

    def _without_model(self, messages: Messages, cut: CutPoint) -> Iterator[Rung]:
        """The attempts for a run that cannot go on otherwise."""
        tokens = self.size.summary_tokens
        if cut.index > self.now.head:
            yield Rung(cut=cut, summarizer=Extractive(), summary_tokens=tokens)
        least = self._with_newest(messages, CutPoint(len(messages), None, 0))
        if least.index > self.now.head and (least.index > cut.index or self.now.unread is not None):
            how = "with nothing kept"
            yield Rung(cut=least, summarizer=Extractive(), summary_tokens=tokens, unread=UNREAD_SHARE, how=how)
        if least.index > 0:
            yield Rung(cut=least, unread=UNREAD_SHARE)
        if self.now.unread is not None:
            last = len(messages) - isinstance(messages[-1], UserMessage)
            yield Rung(
                cut=cut_at(messages, last, head=self.now.head, tokens=self.size.tokens), how="with the newest results"
            )

    def _live_prefix(self, cut: CutPoint) -> ModelRequest | None:
        """The request that the run's own model has already read, where its cache may be used."""
        if not self.preset.on_live_prefix or self.preset.model is not None:
            return None
        return ModelRequest(self.now.messages[: cut.index], self.now.instructions, self.now.tools)

    def _older_half(self, messages: Messages, cut: CutPoint) -> CutPoint | None:
        """The cut that summarises only the older half of what stands before `cut`, or more where
        the newer half has no room; `None`: that is not less.
        """
        half = sum(map(self.size.tokens, messages[self.now.head : cut.index])) // 2 + cut.kept_tokens
        less = self._keeping(messages, min(half, self.size.room))
        return less if less.index < cut.index else None


def nothing(why: str) -> CompactionError:
    """The error of a compaction that has nothing to do."""
    return CompactionError(CompactionFailure.NOTHING_TO_COMPACT, why)
