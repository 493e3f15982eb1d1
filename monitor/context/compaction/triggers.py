"""From which size on a context is compacted, and how small it must get. Failure answered:
compactions leave the context nearly full, so the next turn compacts again (Codex #35032), without
an end (Claude Code #24179: 211 times).

    marks = Marks(window, preset.headroom, low_water=0.6)
    state = Hysteresis(marks)
    reason = state.due(tokens)                              # before each call
    after < marks.target(reason, before)                    # accepted: state.accepted()
    state.failed(failure, reason, tokens)                   # not accepted
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from monitor.context.history import History
from monitor.context.tokens import ContextMeter, Size, TokenCount, size_of_message, size_of_result, sizes_by_source
from monitor.context.window import Headroom, Window, WindowSource
from monitor.errors import PRESSING, SKIPPED, CompactionFailure, CompactionReason
from monitor.messages import AssistantMessage, UserMessage
from monitor.models import ModelRequest

LOW_WATER: Final = 0.6
"""Share of the high-water mark. Our own number: a run then adds two fifths of the mark before the
next compaction.
"""
WARNING: Final = 0.9
"""Share of the high-water mark at which `ContextNearlyFull` is emitted."""
BY_HAND: Final = 0.95
"""The most that may be left of a context that is not full, when somebody asks for a compaction."""
UNKNOWN_WINDOW: Final = 0.45
"""The most that may be left of a refused request, if the provider's limit is not known. Four
results of half a window are two windows: with less than half of them left, one refusal is enough.
"""
GROWTH: Final = 0.05
"""Share of the window by which the context grows before a compaction that failed is tried again."""
GROWTH_AFTER_NOTHING: Final = 0.25
"""Share of the window by which the context grows before another try, after a compaction that found
nothing to compact, if nothing else has changed.
"""
FAILED: Final = 2
"""Points for a compaction that failed, or that was made without the summary that was wanted."""
INEFFECTIVE: Final = 3
"""Points for a compaction that did not make the request small enough."""
MOST_IN_VAIN: Final = 6
"""The points in a row from which on no compaction is tried at the mark: three that failed, as in
Claude Code, or two that did not make the request small enough.
"""
ASKED_AGAIN: Final = 5
"""From then on, the model is asked only for one in this many compactions that cannot wait."""


@dataclass(slots=True, frozen=True)
class Marks:
    """The marks of one window, in tokens of the whole request; `None` if the window is not known:
    then only a refusal says that a request is too long.

    `low_water`: the share of the high-water mark that a compaction must get below.
    """

    window: Window
    headroom: Headroom
    low_water: float = LOW_WATER
    high: int | None = field(init=False, compare=False, repr=False)
    """From this number of tokens on, the context is compacted beside the run."""
    low: int | None = field(init=False, compare=False, repr=False)
    """A compaction at the high-water mark must get below this."""
    warn: int | None = field(init=False, compare=False, repr=False)
    """From this number of tokens on, `ContextNearlyFull` is emitted."""
    ceiling: int | None = field(init=False, compare=False, repr=False)
    """From this number of tokens on, the run waits for its compaction: halfway between the
    high-water mark and the end of the window.
    """

    def __post_init__(self) -> None:
        high, end = self.headroom.usable(self.window), self.window.tokens
        marks = {
            "high": high,
            "low": _share(high, self.low_water),
            "warn": _share(high, WARNING),
            "ceiling": None if high is None or end is None else high + (end - high) // 2,
        }
        for name, tokens in marks.items():  # once: they are asked for several times a turn
            object.__setattr__(self, name, tokens)

    def target(self, reason: CompactionReason, tokens_before: int) -> int:
        """The size that the next request must be below for a compaction to be accepted, counted as
        `tokens_before` is.

        At the high-water mark it is the low-water mark. By hand, a little smaller is enough. Where
        the run cannot go on otherwise, and by hand above the high-water mark, any smaller request
        up to that mark is enough: a stricter target has kept agents from recovering (atomic #1575).
        """
        high, low = self.high, self.low
        if reason in PRESSING or (reason is CompactionReason.MANUAL and high is not None and tokens_before > high):
            return min(tokens_before, high + 1) if high is not None else math.ceil(tokens_before * UNKNOWN_WINDOW)
        if reason is CompactionReason.HIGH_WATER and low is not None:
            return low
        return math.floor(tokens_before * BY_HAND) + 1


def _share(tokens: int | None, share: float) -> int | None:
    return None if tokens is None else max(1, math.floor(tokens * share + 1e-6))


class Hysteresis:
    """When a run compacts by itself, and when it no longer does.

    A failed compaction is due again when the context has grown: else a failing summariser would be
    asked before every call. A failure at the high-water mark does not hold back the ceiling. A
    compaction that found nothing to compact is due again when something has changed, or when the
    context has grown much. Too many failures in a row, or compactions without the wanted summary,
    open a breaker: then only the ceiling compacts. A compaction with the wanted summary closes it.
    """

    __slots__ = ("_held", "_in_vain", "_nothing", "_warned", "marks")

    def __init__(self, marks: Marks) -> None:
        self.marks = marks
        self._in_vain = 0
        self._held: dict[CompactionReason, int] = {}
        """The fewest tokens, by reason, since the last compaction for it failed."""
        self._nothing = False
        """The last compaction at the high-water mark found nothing to compact."""
        self._warned = False

    @property
    def open(self) -> bool:
        """Whether too many compactions in a row failed, or did without the wanted summary."""
        return self._in_vain >= MOST_IN_VAIN

    @property
    def asks_model(self) -> bool:
        """Whether a model is asked for a compaction that cannot wait. With the breaker open, it is
        asked now and then.
        """
        return not self.open or self._in_vain // FAILED % ASKED_AGAIN == 0

    def due(self, tokens: int) -> CompactionReason | None:
        """Why a request of `tokens` must be made smaller; `None`: it need not be."""
        self._held = {reason: min(fewest, tokens) for reason, fewest in self._held.items()}
        if self.marks.high is None or self.marks.ceiling is None or tokens < self.marks.high:
            return None
        if tokens >= self.marks.ceiling and self._grown(CompactionReason.CEILING, tokens):
            return CompactionReason.CEILING
        if not self.open and self._grown(CompactionReason.HIGH_WATER, tokens):
            return CompactionReason.HIGH_WATER
        return None

    def warn(self, tokens: int) -> bool:
        """Whether to warn that a compaction is near: once, until a compaction is accepted."""
        if self._warned or self.marks.warn is None or tokens < self.marks.warn:
            return False
        self._warned = True
        return True

    def accepted(self, *, made_do: bool = False) -> None:
        """A compaction was accepted. `made_do`: it was made without the wanted summary."""
        self._in_vain = self._in_vain + FAILED if made_do else 0
        self._held.clear()
        self._warned = False

    def changed(self) -> None:
        """Now there may be something to compact: the user has said something, or the model has read
        results.
        """
        if self._nothing:
            self._nothing = False
            self._held.pop(CompactionReason.HIGH_WATER, None)

    def failed(self, failure: CompactionFailure, reason: CompactionReason, tokens: int) -> None:
        """A compaction failed at `tokens`.

        A compaction by hand does not count: its context may have had little in it. Neither does one
        whose run has ended. After a `STALE` one, the next is due at once. One that did not begin
        does not open the breaker.
        """
        if reason is CompactionReason.MANUAL or failure in {CompactionFailure.STALE, CompactionFailure.ABORTED}:
            return
        self._held[CompactionReason.HIGH_WATER] = tokens
        self._nothing = failure is CompactionFailure.NOTHING_TO_COMPACT and reason is CompactionReason.HIGH_WATER
        if reason in PRESSING:
            self._held[CompactionReason.CEILING] = tokens
        if failure not in SKIPPED:
            self._in_vain += INEFFECTIVE if failure is CompactionFailure.INEFFECTIVE else FAILED

    def relearned(self, window: Window) -> None:
        """The window is another one than was thought: failures at the old marks do not count."""
        self.marks = replace(self.marks, window=window)
        self._held.clear()

    def _grown(self, reason: CompactionReason, tokens: int) -> bool:
        fewest = self._held.get(reason)
        nothing = self._nothing and reason is CompactionReason.HIGH_WATER
        growth = math.ceil((self.marks.window.tokens or 0) * (GROWTH_AFTER_NOTHING if nothing else GROWTH))
        return fewest is None or tokens >= fewest + growth


class CompactionTrigger(Hysteresis):
    """When the history of one run is compacted: before a request, or while an answer is worked on.

    It measures the history against the watermarks of its model, and remembers what came of the
    compactions before. `background`: at the high-water mark a compaction is made beside the run.
    """

    def __init__(self, marks: Marks, history: History, meter: ContextMeter, *, background: bool) -> None:
        super().__init__(marks)
        self._background = background
        self._history = history
        self._meter = meter
        self.count = TokenCount(0, 0, 0)
        """The newest count of the next request."""
        self.read = 0
        """The number of originals that the model has answered to."""
        self.pressed: CompactionReason | None = None
        """Why the next request must not be sent as it stands, whatever is counted."""
        self.hurried = False
        """The run has its last turn: a compaction at the mark is not worth its time."""
        self._nothing_at = 0
        """The number of originals when there was nothing to compact at the mark."""
        self._waits_for_reading = False
        """There was nothing because of results that the model had not read."""

    def recount(self) -> None:
        """Count the tokens of the next request anew."""
        self.count = self._meter.count()

    def before_request(self) -> CompactionReason | None:
        """Why the next request is to be made smaller before it is sent; `None`: it need not be."""
        if self.marks.high is None:  # only a refusal tells: there is nothing to count for
            return self.pressed
        self._look_for_users()
        self.recount()
        return self.pressed or self.due(self.count.tokens)

    def due(self, tokens: int) -> CompactionReason | None:
        """Why a request of `tokens` is to be made smaller."""
        reason = super().due(tokens)
        return None if reason is CompactionReason.HIGH_WATER and self.hurried else reason

    def during_calls(self, tokens: int) -> bool:
        """Whether a compaction begins while the tools run. `tokens`: what the provider has counted;
        0: it has not.
        """
        high_water = CompactionReason.HIGH_WATER
        if not tokens or not self._background or self.due(tokens) is not high_water:
            return False
        count = self._meter.count()  # what the provider counted may have been made smaller while it answered
        if self.due(count.tokens) is not high_water:
            return False
        self.count = count
        return True

    def waits_for(self, reason: CompactionReason) -> bool:
        """Whether the run waits for a compaction for this reason."""
        return reason is not CompactionReason.HIGH_WATER or not self._background

    def may_ask_model(self, reason: CompactionReason) -> bool:
        """Whether a model is asked for a compaction: not in a run's last turn, and with the breaker
        open now and then only.
        """
        return not self.hurried and (reason not in PRESSING or self.asks_model)

    @property
    def surely_too_long(self) -> str | None:
        """Why the request that was last asked about will be refused, whatever the estimate is off
        by; `None`: it may well be taken.
        """
        window, count = self.marks.window, self.count
        if window.tokens is None or window.source is WindowSource.DEFAULT or count.low <= window.tokens:
            return None
        return (
            f"the next request has about {count.tokens:,} tokens, at least {count.low:,}, and the window has"
            f" {window.tokens:,}"
        )

    def answered(self) -> None:
        """The model has answered to the history as it stands: none of its results is unread."""
        self.read = self._originals()
        if self._waits_for_reading:
            self.changed()

    def failed(
        self, failure: CompactionFailure, reason: CompactionReason, tokens: int, *, before_read: bool = False
    ) -> None:
        """See `Hysteresis`. `before_read`: it may succeed when the model has read the newest
        results.
        """
        super().failed(failure, reason, tokens)
        if failure is CompactionFailure.NOTHING_TO_COMPACT and reason is CompactionReason.HIGH_WATER:
            self._nothing_at, self._waits_for_reading = self._originals(), before_read

    def _originals(self) -> int:
        return self._history.originals_before(len(self._history))

    def _look_for_users(self) -> None:
        """A new message of the user may be where the history can be cut: then it is worth another
        look.
        """
        if self._nothing:
            messages = self._history.messages
            new = self._originals() - self._nothing_at
            if any(isinstance(message, UserMessage) for message in messages[max(0, len(messages) - new) :]):
                self.changed()


# --- Finds the cause when the context is full again soon after a compaction. Failure answered: a
# guard blames the last tool's output, although instructions were added again (Claude Code #85489).

WITHIN_TURNS: Final = 5
"""A context that fills more slowly is in ordinary use. Claude Code speaks of 3 turns."""
MOST: Final = 0.5
"""A source with this share of the context from the beginning has filled it, whatever was added."""

INSTRUCTIONS: Final = "instructions"
TOOLS: Final = "tool definitions"
SUMMARY: Final = "the summary"
OWN_WORDS: Final = "messages of the monitor or of hooks"
TAIL: Final = "the kept tail"
_NAMES: Final[Mapping[str, str]] = {
    "system": INSTRUCTIONS,
    "tools": TOOLS,
    "user": "user messages",
    "assistant": "answers",
    "reasoning": "reasoning",
    "calls": "arguments of calls",
    "media": "media",
}
_ALWAYS_THERE: Final = (INSTRUCTIONS, TOOLS, SUMMARY)


@dataclass(slots=True, frozen=True)
class Snapshot:
    """The estimated tokens of a request by source."""

    turn: int
    sizes: Mapping[str, int]

    @property
    def tokens(self) -> int:
        """The sum over all sources."""
        return sum(self.sizes.values())


def snapshot(request: ModelRequest, turn: int) -> Snapshot:
    """The sources of a request that is made in turn `turn`. Linear in its size.

    A first message that nobody said is the summary; results go by the name of their tool.
    """
    whole = sizes_by_source(request)
    del whole["results"]
    sizes: dict[str, Size] = {_NAMES[source]: size for source, size in whole.items()}
    for index, message in enumerate(request.messages):
        if isinstance(message, UserMessage) and message.synthetic:
            own = size_of_message(message)
            sizes[_NAMES["user"]] -= own
            source = OWN_WORDS if index else SUMMARY
            sizes[source] = sizes.get(source, Size()) + own
        elif isinstance(message, AssistantMessage):
            for result in message.results:
                source = f"results of {result.name}"
                sizes[source] = sizes.get(source, Size()) + size_of_result(result)
    return Snapshot(turn, {source: size.tokens for source, size in sizes.items()})


def attributed(after: Snapshot, now: Snapshot) -> str | None:
    """One line that says what filled the context between the end of a compaction and `now`, when
    the mark is reached again. `None`: that took more than `WITHIN_TURNS` turns, or nothing has
    grown.

    Instructions, tools, a summary or a kept tail that are most of the context have filled it from
    the beginning. Else it is the source that has added most; of two that added the same, the one
    that is first in the request.
    """
    turns = now.turn - after.turn
    if not 0 <= turns <= WITHIN_TURNS or not now.tokens:
        return None
    stood = {source: min(after.sizes.get(source, 0), now.sizes.get(source, 0)) for source in _ALWAYS_THERE}
    stood[TAIL] = sum(
        min(size, now.sizes.get(source, 0)) for source, size in after.sizes.items() if source not in _ALWAYS_THERE
    )
    source = max(stood, key=stood.__getitem__)
    if stood[source] >= MOST * now.tokens:
        return _line(source, stood[source], turns, stood[source] / now.tokens, "the context from the beginning")
    added = {
        source: size - after.sizes.get(source, 0)
        for source, size in now.sizes.items()
        if size > after.sizes.get(source, 0)
    }
    if not added:
        return None
    source = max(added, key=added.__getitem__)
    return _line(source, added[source], turns, added[source] / sum(added.values()), "what was added")


def _line(source: str, tokens: int, turns: int, share: float, of: str) -> str:
    return f"{source}: {tokens:,} tokens in {turns} turn{'s' if turns != 1 else ''}, {share:.0%} of {of}"
