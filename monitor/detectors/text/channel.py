"""One channel of text and the rules that watch it.

Work for every delta would be too much: models send four characters at a time. So a delta is only
kept until some rule is due. The rules examine a few thousand characters, which move along with the
text.

Findings come in the order of the text, whatever one delta contained. Each rule first skips what
cannot end in a finding (`seek`). Then the rule whose next point comes first is asked (`scan`). If
two points are equal, the order is chant, tail, recurrence, vocabulary, counter, copies,
information.

A loop clears the evidence of all rules, and watching goes on behind it. A suspicion clears nothing.
Whatever rule finds its continuation, it is the same suspicion and is not reported again, until it
ends or becomes a loop.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from monitor._util.state import StateOfAttributes
from monitor.detectors.detector import NOTHING
from monitor.detectors.text.chant import CHANT_KIND, WindowRule, WindowScanner
from monitor.detectors.text.copies import WORDS_STEP, CopyScanner, Vocabulary
from monitor.detectors.text.counted import CountedRule, CountedScanner
from monitor.detectors.text.hit import Hit
from monitor.detectors.text.recurrence import RecurrenceRule, RecurrenceScanner
from monitor.detectors.text.structure import Fences, TextKind, has_wide_letters, kind_of
from monitor.detectors.text.tail import TailRule, TailScanner
from monitor.errors import ConfigError
from monitor.verdicts import Channel, Detection

# --------------------------------------------------------------------------------------------------
# The rate of information: how many bits of news a character brings, given what came before.
#
# It answers loops that say one thing in ever other words: two conclusions in turn, a list that is
# counted again, reworded thoughts, a dialogue of thanks. No passage comes back, so no exact rule
# sees them, but nothing is new either.
#
# Measure: at a place of the text, the longest piece that starts there and stood three times
# before has L characters. The entropy is about log2(n) / (L + 1) bits a character, where n is how
# much text was searched (match lengths: Grassberger 1989, Kontoyiannis and others 1998). A rate
# is the mean of 24 places, one in each 64 characters. It says nothing of truth or use: a copy is
# no news.
#
# Rule: a rate below the null of its kind of text is a suspicion, for the judge and the policy,
# and never a loop: only who knows the task can tell. The kind is learnt from the text itself (see
# `text_kind`), and each kind has its own null, since data and code repeat by nature. Of 151 long
# recorded answers that must stay quiet, none is below 1.2 bits; made loops of prose have 0.3 to
# 0.97.
#
# How: one sample of 12 characters is searched at each multiple of 256. It is new in most texts,
# and nothing else is done. Where it stood often enough, the kind of the last 512 characters says
# how long such a sample would be at the null. Only if this one is half as long, the places since
# the last look are measured. All numbers are integers, so a replay on another machine finds the
# same.

BLOCK_CHARS = 64
"""One place is measured in each block."""
SPREAD = 43
"""Where in its block: the square of the block's number modulo this prime. So rows of a fitting
width do not show the same place each time.
"""
STEP_CHARS = 256
GATE_CHARS = 12
"""The sample that is searched first."""
GATE_REACH_CHARS = 1_024
"""How far back it is searched once. Only if it is found, its places are counted."""
NAP_CHARS = 1_024
"""The number of characters that are skipped where the text is of a kind without a null."""
KIND_CHARS = 512
"""The number of characters that decide the kind of a text. A finding asks for the kind of its whole
window.
"""
LENGTHS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""The lengths that a match may have; it is rounded down to one of them."""
CENTIBITS = 100
"""Rates are counted in hundredths of a bit."""


@dataclass(slots=True, frozen=True, kw_only=True)
class InformationRule:
    """Numbers of the rule of information; rates in hundredths of a bit a character, distances in
    code points.
    """

    prose: int = 97
    """The null of prose: a rate below it is a suspicion."""
    wide_prose: int = 150
    """The null of prose in scripts whose letters are words or syllables."""
    lines: int = 30
    """The null of verse, and of lists, logs and other rows."""
    code: int = 0
    """The null of code, markup, tables and data. They repeat by nature, so only what is equal or
    counted says anything of them; the other rules see that.
    """
    copies: int = 3
    """The number of times that a piece must have stood before."""
    places: int = 24
    """The number of places that a rate is the mean of."""
    reach_chars: int = 4_600
    """How far back is searched."""
    window_chars: int = field(init=False, repr=False, compare=False)
    """The text that the places of a rate stand for."""
    history: int = field(init=False, repr=False, compare=False)
    """How far back of the text's end the scanner may look."""
    least_chars: int = field(init=False, repr=False, compare=False)
    """Shorter texts have no finding of this rule."""

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing, and work out those that follow from them."""
        if not 0 <= self.code <= self.lines <= self.prose <= self.wide_prose:
            raise ConfigError(f"{self}: 0 <= code <= lines <= prose <= wide_prose")
        if self.copies < 1 or self.places < 1 or self.reach_chars < LENGTHS[-1]:
            raise ConfigError(f"{self}: copies and places must be at least 1, reach_chars at least {LENGTHS[-1]}")
        window = self.places * BLOCK_CHARS
        object.__setattr__(self, "window_chars", window)
        object.__setattr__(self, "history", self.reach_chars + window + STEP_CHARS + BLOCK_CHARS)
        object.__setattr__(self, "least_chars", window)

    def null(self, kind: TextKind, *, wide: bool) -> int:
        """The rate of which nothing of this kind falls short, unless it goes round in circles."""
        if kind == "prose":
            return self.wide_prose if wide else self.prose
        return self.lines if kind in {"verse", "list"} else self.code


class InformationScanner(StateOfAttributes):
    """Measures the rate of one channel. Pull based: call `scan` when the text has reached `due`."""

    __slots__ = ("_costs", "_floor", "_last", "_measured", "_rule", "due")
    STATE = ("_floor", "_measured", "_costs", "_last", "due")

    _costs: list[int]
    """The rates at the last places, in hundredths of a bit."""
    _measured: int
    """The last block that was measured."""
    _last: int
    """Where the last window ended that was found; 0 if there is none, or if news has come since."""

    def __init__(self, rule: InformationRule) -> None:
        self._rule = rule
        self.restart(0)

    def restart(self, offset: int) -> None:
        """Text before `offset` is no evidence any more."""
        self._floor = offset
        self._costs = []
        self._measured = offset // BLOCK_CHARS
        self._last = 0
        self.due = (offset + self._rule.window_chars) // STEP_CHARS * STEP_CHARS + STEP_CHARS

    def seek(self, text: str, base: int, end: int) -> None:
        """Run on over text that is new. Afterwards `due` is where something may end, or beyond
        `end`.
        """
        rule, floor, due = self._rule, max(self._floor - base, 0), self.due
        while due <= end:
            start = _start(due // BLOCK_CHARS - 2) - base
            near, low = max(start - GATE_REACH_CHARS, floor), max(start - rule.reach_chars, floor)
            sample = text[start : start + GATE_CHARS]
            if sample in text[near:start] and text.count(sample, low, start) >= rule.copies:
                break
            due += STEP_CHARS
        self.due = due

    def scan(self, text: str, base: int) -> Hit | None:
        """Take in the text up to `due`, which has arrived. `text` starts at `base`; `seek` has been
        there.
        """
        rule, at = self._rule, self.due
        self.due = at + STEP_CHARS
        stop, last = at - base, at // BLOCK_CHARS - 2
        null = self._null_of(text[stop - KIND_CHARS : stop])
        if not null:
            self.due = at + NAP_CHARS
            return None
        length = self._match(text, _start(last) - base, base)
        if 2 * (length + 1) * null < CENTIBITS * rule.reach_chars.bit_length():
            return None
        for block in range(max(self._measured, last - rule.places) + 1, last + 1):
            start = _start(block) - base
            searched = min(start + base - self._floor, rule.reach_chars)
            cost = CENTIBITS * searched.bit_length() // (self._match(text, start, base) + 1)
            self._costs = [*self._costs, cost][-rule.places :]
        self._measured = last
        rate = sum(self._costs) // rule.places
        if rate >= null or len(self._costs) < rule.places:
            self._last = 0
            return None
        if self._last and at < self._last + rule.window_chars:
            return None
        return self._judge(text, base, rate, (_start(last) - base, length))

    def _null_of(self, text: str) -> int:
        return self._rule.null(kind_of(text), wide=has_wide_letters(text))

    def _match(self, text: str, start: int, base: int) -> int:
        """The length of the longest piece from `start` on that stood there often enough."""
        low, copies = max(start - self._rule.reach_chars, self._floor - base, 0), self._rule.copies
        enough = bisect_right(
            LENGTHS, -copies, lo=1, key=lambda length: -text.count(text[start : start + length], low, start)
        )
        return LENGTHS[enough - 1]

    def _judge(self, text: str, base: int, rate: int, example: tuple[int, int]) -> Hit | None:
        """The rate is low for the last text: is it, for the kind of the whole window?"""
        rule, at = self._rule, self.due - STEP_CHARS
        window = text[at - rule.window_chars - base : at - base]
        null, again = self._null_of(window), self._last > 0
        if rate >= null:
            self._last = 0
            return None
        self._last = at
        start, length = example
        places, unit = [start], text[start : start + length]
        while len(places) <= rule.copies:
            places.append(text.rfind(unit, 0, places[-1] + length - 1))
        return Hit(
            kind="low_information",
            level="suspect",
            again=again,
            unit=unit,
            count=len(places),
            threshold=rule.copies + 1,
            start=at - rule.window_chars,
            end=at,
            offsets=tuple(place + base for place in reversed(places)),
            message=(
                f"only {rate / CENTIBITS:.2f} bits a character are new, {kind_of(window)} has at least"
                f" {null / CENTIBITS:.2f},"
            ),
        )


def _start(block: int) -> int:
    return block * BLOCK_CHARS + block * block % SPREAD


SLICE_CHARS = 8_192
"""A delta is examined in slices of this size. So a delta of 100 MB needs no second copy, and no
rule works for long at once.
"""
SLACK_CHARS = 128
"""Text that is kept beyond what the rules need, so that it is not cut at every look. More than this
does not wait for a look either: each delta copies what waits.
"""
SAME_CHARS = 256
"""A suspicion that starts within this distance of the last finding continues it: the mean distance
of a chant.
"""


class Off:
    """Stands for a rule that is switched off."""

    __slots__ = ()

    due = since = sys.maxsize

    def seek(self, text: str, base: int, end: int) -> None:
        """Never called, because never due."""

    def scan(self, text: str, base: int, end: int = 0) -> Hit | None:
        """Never called, because never due."""

    def restart(self, offset: int) -> None:
        """A rule that is switched off has nothing to forget."""

    def snapshot(self) -> dict[str, Any]:
        """A rule that is switched off has nothing to keep."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """A rule that is switched off has nothing to take back."""


TextRules: TypeAlias = tuple[
    WindowRule | None, TailRule | None, RecurrenceRule | None, CountedRule | None, InformationRule | None
]
"""Chant, tail, recurrence, counter and information; `None`: not wanted."""
OtherScanner: TypeAlias = (
    "TailScanner | RecurrenceScanner | Vocabulary | CountedScanner | CopyScanner | InformationScanner | Off"
)
"""The scanner of any rule but the chant."""
SCANNERS = ("chant", "tail", "recurrence", "vocabulary", "counted", "copies", "information")
"""The order in which rules are asked that are due at the same place."""


class TextChannel:
    """Feeds the rules; offsets are code points since the run began.

    The scanners are made, and start anew after `restart`, when a text is long enough for a finding:
    most channels of a run stay empty, many answers are short, and most restarts are the end of the
    run.
    """

    __slots__ = (
        "_base",
        "_channel",
        "_chant",
        "_detector",
        "_fences",
        "_history",
        "_least_chars",
        "_others",
        "_pending",
        "_rules",
        "_scanning",
        "_tail",
        "_text",
        "_told",
        "need",
    )

    need: int
    """Code points that have to come before a rule is due, or a new text can have a finding."""
    _scanning: bool
    """The scanners are set to the text from `_base` on."""

    def __init__(self, rules: TextRules, channel: Channel, *, detector: str) -> None:
        """`detector`: its name, for the findings."""
        self._rules = rules
        self._channel: Channel = channel
        self._detector = detector
        self._least_chars = min([rule.least_chars for rule in rules if rule], default=SLACK_CHARS)
        self._fences: Fences | None = None
        self.restart(0)

    def _make_scanners(self) -> Fences:
        chant, tail, recurrence, counted, information = self._rules
        self._fences = fences = Fences()
        self._chant = WindowScanner(chant, fences) if chant else Off()
        data = self._channel == "arguments"  # JSON, code, files, where similar pieces are the rule
        self._tail = TailScanner(tail, fences, data=data) if tail else Off()
        copies: CopyScanner | Off = Off()
        if tail and tail.longest_copy_chars:
            enough = (tail.weak_copies, tail.data_copies) if data else (tail.copies, tail.loop_copies)
            copies = CopyScanner(tail.longest_copy_chars, *enough)
        self._others = (
            self._tail,
            RecurrenceScanner(recurrence) if recurrence else Off(),
            Vocabulary() if recurrence else Off(),
            CountedScanner(counted, fences) if counted else Off(),
            copies,
            InformationScanner(information) if information else Off(),
        )
        self._history = max([WORDS_STEP if recurrence else 0, *[rule.history for rule in self._rules if rule]])
        return fences

    @property
    def offset(self) -> int:
        """Code points taken in so far."""
        return self._base + len(self._text) + len(self._pending)

    def restart(self, offset: int) -> None:
        """A new piece of text begins at `offset`; nothing before it counts."""
        self._text = self._pending = ""
        self._base = offset
        self._told = -SAME_CHARS - 1
        self._scanning = False
        self.need = self._least_chars

    def _scan_anew(self) -> Fences:
        """Make the scanners unless there are any, and set them to the text from `_base` on."""
        are_new = self._fences is None
        fences = self._fences or self._make_scanners()
        if self._base or not are_new:
            fences.restart(self._base)
            self._clear(self._base)
        self._scanning = True
        self._plan()
        return fences

    def _plan(self) -> None:
        self.need = min(self._chant.due, self._nearest().due, self.offset + SLACK_CHARS) - self.offset

    def feed(self, delta: str) -> Sequence[Detection]:
        """Take in the next text."""
        self._pending = pending = self._pending + delta
        self.need -= len(delta)
        if self.need > 0:
            return NOTHING
        if not self._scanning:
            self._scan_anew()
            if self.need > 0:
                return NOTHING
        self._pending = ""
        return self._look(pending) if len(pending) <= SLICE_CHARS else self._look_by_slices(pending)

    def _look_by_slices(self, pending: str) -> Sequence[Detection]:
        slices = range(0, len(pending), SLICE_CHARS)
        return [
            detection for start in slices for detection in self._look(pending[start : start + SLICE_CHARS])
        ] or NOTHING

    def _look(self, piece: str) -> Sequence[Detection]:
        chant, (tail, recurrence, vocabulary, counted, _, information), base = self._chant, self._others, self._base
        text, fences = self._text, self._fences
        assert fences is not None  # noqa: S101 - there is text
        self._text = ""  # so that it grows in place
        text += piece
        end = base + len(text)
        found: Sequence[Detection] = NOTHING
        while True:
            if chant.due <= end:
                chant.seek(text, base, end)
            if tail.due <= end:
                tail.seek(text, base, end)
            if recurrence.due <= end:
                recurrence.seek(text, base, end)
            if vocabulary.due <= end:
                vocabulary.seek(text, base, end)
            if counted.due <= end:
                counted.seek(text, base, end)
            if information.due <= end:
                information.seek(text, base, end)
            other = self._nearest()
            self.need = min(chant.due, other.due, end + SLACK_CHARS) - end
            if self.need > 0:
                break
            hit = chant.scan(text, base, min(other.due, end)) if chant.due <= other.due else other.scan(text, base)
            if hit is not None and not self._is_followed(hit):
                found = (*found, *self._take(hit))
        if len(text) > self._history + SLACK_CHARS:
            fences.inside(text, base, end)
            self._base = end - self._history
            text = text[len(text) - self._history :]
        self._text = text
        return found

    def _nearest(self) -> OtherScanner:
        """The rule that is due first; on a par in their order."""
        nearest: OtherScanner
        nearest, recurrence, vocabulary, counted, copies, information = self._others
        if recurrence.due < nearest.due:
            nearest = recurrence
        if vocabulary.due < nearest.due:
            nearest = vocabulary
        if counted.due < nearest.due:
            nearest = counted
        if copies.due < nearest.due:
            nearest = copies
        return information if information.due < nearest.due else nearest

    def _is_followed(self, hit: Hit) -> bool:
        """A chant that the tail rule follows is exact; that rule knows what it is."""
        return hit.kind == CHANT_KIND and hit.start >= self._tail.since

    def _take(self, hit: Hit) -> Sequence[Detection]:
        news = hit.level == "loop" or (not hit.again and hit.start > self._told + SAME_CHARS)
        if hit.level == "loop":
            self._clear(hit.end)
        self._told = hit.end
        return (hit.found_by(self._detector, self._channel),) if news else NOTHING

    def _clear(self, offset: int) -> None:
        """Every rule forgets its evidence and starts again at `offset`."""
        for _, scanner in self._named():
            scanner.restart(offset)

    def _named(self) -> Iterable[tuple[str, WindowScanner | OtherScanner]]:
        """The scanners by the names that they have in a snapshot."""
        return zip(SCANNERS, (self._chant, *self._others), strict=True)

    def snapshot(self) -> dict[str, Any]:
        """A few thousand characters of text, and positions."""
        fences = self._fences if self._scanning else None
        if fences is None:
            fences = self._scan_anew()
        return {
            "base": self._base,
            "text": self._text,
            "pending": self._pending,
            "told": self._told,
            "fence": [fences.marker, fences.origin, fences.seen],
            **{name: scanner.snapshot() for name, scanner in self._named()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `snapshot`, for a channel with the same rules."""
        fences = self._scan_anew()
        self._base, self._text, self._pending = int(state["base"]), str(state["text"]), str(state["pending"])
        self._told = int(state["told"])
        marker, origin, seen = state["fence"]
        fences.marker, fences.origin, fences.seen = str(marker), int(origin), int(seen)
        for name, scanner in self._named():
            scanner.restore(state[name])
        self._plan()
