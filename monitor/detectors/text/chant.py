"""The chant: one window of text comes again and again.

It answers a model that says the same sentence, exactly or with small changes around it, until its
budget is used up.

Rule: the same 50 characters stand 10 times. The mean distance from one to the next is at most 75,
whatever stands between. With at most 5 different texts between, it may be 250. Both are numbers of
Gemini CLI, the earlier ones and the present ones. The window must contain a letter or digit. It
must not be a shorter unit over and over (`0.9999`, base64): the tail rule measures those. No layout
line may start within the counted region, or the evidence starts anew at that line (see `markdown`).

Ten windows are a loop if at most 5 different texts stand between. If something else is said every
time, it may be an enumeration. If lines are counted (`Heartbeat at 12:07:31`) or as short as verse,
it may be a log or a song. Then ten are a suspicion, and forty in a row a loop (`doubtful_rounds`):
programs print 33 such lines in the recorded texts. Rows of which each says something else are no
chant, and neither is data (see `markdown`) with something else in every item: they are news,
however regular their form is. Nor is data without blanks (paths, minified JSON), nor numbers
without a letter. With `any_text`, all of these count.

A window that stands too far apart, or between too many texts, takes with it those that begin
within it: they stand where it does.

How it is found without hashing every window:

- every `step` characters a short sample is taken. A window of 50 contains exactly one, so a window
  that comes again brings its sample again;
- nine distances are at most 2250 together. At most four of them exceed 500 (twice the mean), so at
  least five do not. Therefore one bounded search a sample is enough, and most text needs no more.
  Equal windows stand at least `unit_chars` apart, so this shows some windows before the last one.
  Text may wait for three windows before it is examined, and no verdict comes late;
- a sample that came again that often arms the scanner for 2250 characters. From then on, a sample
  that has ten places within that distance has its windows compared. That goes from the group of all
  down to the single one, as their last characters come;
- what windows share counts only where it stands as far apart as windows do. Lines that were plain
  for one window are plain for the next;
- all comparisons are of the text itself. Layout is examined last, where everything else says chant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from monitor._util.state import StateOfAttributes
from monitor.detectors.text.hit import Hit
from monitor.detectors.text.structure import (
    Fences,
    has_short_lines,
    is_code,
    is_dense,
    is_numbers,
    last_layout,
    next_word,
    only_counts,
)
from monitor.errors import ConfigError

CHANT_KIND = "chant"
GATE_MEANS = 2
"""Width of the first search, in mean distances. Measured 1 to 4: wider costs more a search and arms
less often.
"""
BULK_CHARS = 128
"""The number of characters in one piece from which a narrower gate is used. Fewer windows show
before the last one then, so that nothing may wait until all that was searched so is out of reach.
"""
NAP_WINDOWS = 3
"""How many windows before the last one a chant must have shown. Measured 0 to 6: more sleep, but
weaker signs that wake it.
"""


@dataclass(slots=True, frozen=True, kw_only=True)
class WindowRule:
    """Numbers of the chant rule, in code points."""

    window_chars: int = 50
    repeats: int = 10
    near_chars: int = 75
    """Mean distance up to which anything may stand between the windows."""
    far_chars: int | None = 250
    """Mean distance up to which at most `far_texts` different texts may stand between them; `None`:
    off.
    """
    far_texts: int = 5
    unit_chars: int = 16
    """A window that repeats within itself at a shorter distance is no chant of its own (words have
    up to 15 characters, corpus).
    """
    sample_chars: int = 16
    """Measured: shorter is faster on prose and slower on code."""
    doubtful_rounds: int = 4
    """Findings in a row that make a loop, where each alone is a suspicion; 1: every finding is a
    loop.
    """
    any_text: bool = False
    """Layout, code, data, numbers and windows without a word count as well."""
    mean: int = field(init=False, repr=False, compare=False)
    """The larger of the two mean distances."""
    reach: int = field(init=False, repr=False, compare=False)
    """The largest distance from the first counted window to the last."""
    history: int = field(init=False, repr=False, compare=False)
    """How far back of the text's end the scanner may look."""
    least_chars: int = field(init=False, repr=False, compare=False)
    """Shorter texts have no finding of this rule."""

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing, and work out those that follow from them."""
        if self.repeats <= 1 or self.near_chars < 1 or (self.far_chars is not None and self.far_chars < 1):
            raise ConfigError(f"{self}: repeats must be at least 2, distances at least 1")
        if self.doubtful_rounds < 1:
            raise ConfigError(f"{self}: doubtful_rounds must be at least 1")
        if not 1 <= self.sample_chars <= self.window_chars or not 1 <= self.unit_chars <= self.window_chars:
            raise ConfigError(f"{self}: sample_chars and unit_chars must be 1 to window_chars")
        object.__setattr__(self, "mean", max(self.near_chars, self.far_chars or 0))
        object.__setattr__(self, "reach", self.mean * (self.repeats - 1))
        object.__setattr__(self, "history", self.reach + 3 * self.window_chars + NAP_WINDOWS * self.unit_chars)
        object.__setattr__(self, "least_chars", self.window_chars + (self.repeats - 1) * self.unit_chars)


class WindowScanner(StateOfAttributes):
    """Looks for chants in one channel. Pull based: call `scan` when the text has reached `due`."""

    __slots__ = (
        "_armed",
        "_awake",
        "_enough",
        "_fences",
        "_floor",
        "_gate",
        "_group",
        "_last",
        "_nap",
        "_narrow",
        "_plain",
        "_reach",
        "_rounds",
        "_rule",
        "_sample",
        "_skipped",
        "_step",
        "_window",
        "due",
    )
    STATE = ("_floor", "_sample", "_armed", "_awake", "_window", "_group", "_skipped", "_last", "_rounds", "due")

    def __init__(self, rule: WindowRule, fences: Fences) -> None:
        self._rule = rule
        self._fences = fences
        self._step = rule.window_chars - rule.sample_chars + 1
        self._reach = rule.reach
        self._gate = GATE_MEANS * rule.mean
        within_gate = rule.repeats - 1 - (rule.repeats - 2) // GATE_MEANS
        windows_left = min(NAP_WINDOWS, within_gate - 1)
        self._enough = within_gate - windows_left + 1
        self._nap = windows_left * rule.unit_chars
        self._narrow = min(-(-rule.reach // (rule.repeats - self._enough + 1)), self._gate)
        self.restart(0)

    def restart(self, offset: int) -> None:
        """Text before `offset` is no evidence any more."""
        self._last = self._rounds = 0
        self._begin(offset)

    def _begin(self, offset: int) -> None:
        self._floor = offset
        self._sample = offset
        self._armed = self._awake = -1
        self._window = -1
        self._group = 1
        self._skipped = offset
        self._plain = (0, 0)
        self.due = offset + self._rule.window_chars

    def seek(self, text: str, base: int, end: int) -> None:
        """Run on over the samples that stand for nothing, to the end of the text. Afterwards `due`
        is where something may end.
        """
        if self._window < 0 and not self._find_sample(text, base, end):
            ready = self._sample + self._rule.sample_chars
            self.due = ready + self._nap if self._sample > self._armed and self._sample > self._awake else ready

    def scan(self, text: str, base: int, upto: int) -> Hit | None:
        """The first chant that ends from `due` to `upto`. `text` starts at `base`; calls go on
        where the last one stopped.
        """
        hit = self._test_windows(text, base, upto)
        if hit is None and self._window < 0:
            self._sample += self._step
            self.due = self._sample + self._rule.sample_chars
        return hit

    def _find_sample(self, text: str, base: int, end: int) -> bool:
        """Go on to the next sample that has enough places; False when the text ends first."""
        length, repeats = self._rule.sample_chars, self._rule.repeats
        step, gate, reach = self._step, self._gate, self._reach
        unit = self._rule.unit_chars
        further = length - unit
        at, last = self._sample - base, end - base - length
        floor, armed, skipped = self._floor - base, self._armed - base, self._skipped - base
        if floor < 0:
            floor = 0
        if last - at > BULK_CHARS:
            gate = self._narrow
            self._awake = end + reach + self._rule.window_chars
        while at <= last:
            if at > armed and at - gate > floor:  # the usual case
                first = at
                for at in range(first, last + 1, step):
                    if text[at : at + length] in text[at - gate : at + further]:  # sooner than by find or rfind
                        break
                else:
                    at += step
                    break
            low = at - reach if at - reach > floor else floor
            count = len(_places_back(text, at, at + length, repeats, low, apart=unit))
            if count >= self._enough:
                armed = at + reach + step
            if count == repeats and at >= skipped:
                break
            at += step
        self._sample, self._armed = at + base, armed + base
        if at > last:
            return False
        self._window = max(self._sample - step + 1, self._floor, self._skipped)
        self._group = (self._sample - self._window) // 2 + 1  # all of them share the sample, which has the places
        self.due = self._window + self._rule.window_chars
        return True

    def _test_windows(self, text: str, base: int, end: int) -> Hit | None:
        """Compare the windows of the current sample, each as its last character comes; `_window` is
        -1 when all are done.
        """
        rule = self._rule
        width, repeats, reach, sample, last = (
            rule.window_chars,
            rule.repeats,
            self._reach,
            self._sample - base,
            end - base,
        )
        first, group, half = self._window - base, self._group, 2
        while True:
            floor = self._floor - base
            if floor > first:
                first = floor
            if first > sample:
                break
            stop = first + width
            if stop > last:
                self._window, self._group, self.due = first + base, group, stop + base
                return None
            # All windows of a group share their core; if that is too rare, so are they all.
            if group > sample - first + 1:
                group = sample - first + 1
            core = first + group - 1
            low = max(core - reach, floor, 0)
            if group == 1 and not rule.any_text:
                limit = last if last < sample + width else sample + width
                if idle := _idle_windows(text, first, stop, limit, rule.unit_chars):
                    first += idle
                    continue
            places = _places_back(text, core, stop, repeats, low, apart=rule.unit_chars)
            if len(places) < repeats:
                first, group = first + group, 2 * group if group > 1 else half
                half = 2
            elif group > 1:
                half, group = group // 2, 1
            elif (hit := self._judge(text, base, places)) is not None:
                return hit
            else:
                first = self._skipped - base
        self._window, self._group = -1, group
        return None

    def _judge(self, text: str, base: int, latest: Sequence[int]) -> Hit | None:
        """The window has enough places, the latest first: is it a chant?"""
        rule, places = self._rule, latest[::-1]
        at = places[-1]
        stop = at + rule.window_chars
        self._skipped = at + base + 1
        window = text[at:stop]
        lines = not rule.any_text and text.find("\n", places[0], stop) >= 0
        if lines:  # first, because it is cheap, and what it clears no other window may count either
            layout = self._last_layout(text, base, places[0], stop)
            if layout >= 0:
                self._floor = layout + base
                return None
        span, gaps = at - places[0], rule.repeats - 1
        between = [text[one:other] for one, other in pairwise(places)]
        few = len(set(between)) <= rule.far_texts
        if span > rule.near_chars * gaps and not (few and span <= (rule.far_chars or 0) * gaps):
            self._skipped = stop + base
            return None
        rows = lines and all(map(is_one_line, between))
        counted = rows and all(only_counts(between[0], other) for other in between)
        region = text[places[0] : stop]
        news = not few and not counted and (rows or is_code(region))
        if not rule.any_text and (news or is_dense(region) or is_numbers(region)):
            self._floor = at + base
            return None
        sure = few and not rows and not (lines and has_short_lines(region))
        rounds = self._goes_on(stop + base)
        hit = Hit(
            kind=CHANT_KIND,
            level="loop" if sure or rounds >= rule.doubtful_rounds else "suspect",
            again=rounds > 1,
            unit=window,
            count=rule.repeats,
            threshold=rule.repeats,
            start=places[0] + base,
            end=stop + base,
            offsets=tuple(place + base for place in places),
        )
        self._begin(stop + base)
        return hit

    def _last_layout(self, text: str, base: int, start: int, stop: int) -> int:
        """The `last_layout` of the text; what the last window has shown to be plain is not looked
        at again.
        """
        fenced = self._fences.inside(text, base, stop + base)
        plain, until = self._plain[0] - base, self._plain[1] - base
        known = not fenced and plain <= start < until <= stop
        layout = last_layout(text, until - 1 if known else start, stop, fenced=fenced)
        if layout < 0 and not fenced:
            self._plain = (plain + base if known else start + base, stop + base)
        return layout

    def _goes_on(self, end: int) -> int:
        """Findings in a row, with the one that ends at `end`: each within the reach of the one
        before.
        """
        self._rounds = (
            self._rounds + 1 if self._rounds and end - self._last <= self._reach + self._rule.window_chars else 1
        )
        self._last = end
        return self._rounds


def _places_back(text: str, start: int, stop: int, most: int, low: int, *, apart: int) -> list[int]:
    """Where `text[start:stop]` stands from `low` up to and with itself, the last first; up to
    `most` places, each so far `apart`.

    Windows that count stand `unit_chars` apart at least, and what they hold stands there with them;
    so at least as many of its places do.
    """
    needle, further, places, rfind = text[start:stop], stop - start - apart, [start], text.rfind
    before = start + further
    for _ in range(1, most):
        place = rfind(needle, low, before) if before > low else -1
        if place < 0:
            break
        places.append(place)
        before = place + further
    return places


def is_one_line(between: str) -> bool:
    """Whether what stands from one place to the next leads to the next line, blank ones aside."""
    return between.count("\n") - between.count("\n\n") == 1


def _idle_windows(text: str, first: int, stop: int, limit: int, unit_chars: int) -> int:
    """How many windows from `text[first:stop]` on, none beyond `limit`, have no word or are a
    shorter unit over and over.
    """
    word = next_word(text, first, limit)
    if word >= stop:
        return word - stop + 1
    period = _short_period(text[first:stop], unit_chars)
    if not period:
        return 0
    end = stop
    while end < limit and text[end] == text[end - period]:
        end += 1
    return end - stop + 1


def _short_period(window: str, unit_chars: int) -> int:
    """The period of the window if it is below `unit_chars`, else 0."""
    head = window[: len(window) - unit_chars + 1]
    shift = window.find(head, 1)
    while shift >= 0:
        if window[shift:] == window[:-shift]:
            return shift
        # the head's shortest period: a longer one of the window would be a multiple of it
        if shift + unit_chars <= len(head):
            return 0
        shift = window.find(head, shift + 1)
    return 0
