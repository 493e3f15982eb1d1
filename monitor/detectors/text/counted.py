"""The counter: rounds in which nothing but a running number is new.

It answers a model that writes "Step 41: let me look at the file again" for its whole budget, in
lines, rows or lists. No unit comes twice, so no exact rule sees it. The inexact rule takes rows
that differ for news.

Rule: a short text stands in round after round. With the numbers taken out, the text between two
such places is always the same. Each number that changes does so by the same amount from round to
round. If it stands twice in a round, it is the same there (`{"id": 7, "name": "User 7"}`) and
grows, or it runs on there as well: lists go on counting. Songs count down. Columns that count apart
(`{"id": 7, "age": 27}`) may be a table that somebody wants. Numbers are digits of any script,
Chinese numerals, Roman ones in capitals, and small letters before a dot or a bracket (`bf.`). So
are hexadecimal ones behind `0x`, and figures in a circle or in brackets. Parts of a time or a
version are measured: logs do not count.

Forty rounds are a loop, half of them a suspicion. Programs print one line for each item of a batch,
33 in the recorded texts. The number is another one for:

- rounds of several lines or of more than 200 characters: fourteen. Plans for the weeks of a quarter
  have thirteen;
- rounds with fewer than four words: 64. With fewer than two, and of code and data (see `markdown`):
  128. Enumerations and test data are written so;
- rounds of several numbers that count apart: 128;
- rounds without a letter: they are never a loop, because counting can be the task.

How: at each multiple of 384 characters a probe of eight characters is searched in the 512 before.
If it stands there again and again at even distances, the rounds between its places are compared.
From then on each round is compared once, when it has ended, until one differs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from monitor._util.state import StateOfAttributes
from monitor.detectors.text.hit import Hit
from monitor.detectors.text.structure import (
    CODE_SIGNS,
    RUNS,
    Fences,
    has_fence,
    is_call,
    is_record,
    lines_of,
    words_percent,
)
from monitor.errors import ConfigError

STEP_CHARS = 384
FOLLOW_CHARS = 128
"""How often a run is looked at that is followed."""
PROBE_CHARS = 8
ANCHOR_CHARS = 24
"""The probe with what stands before it, if that is there again as well: a longer text is rarer
within its round.
"""
SPREAD = 43
"""The probe ends before the step's end, by the square of the step's number modulo this prime. So
rounds of a fitting length do not show their number each time.
"""
LEAST_ROUNDS = 4
"""Rounds that must repeat before a counter is followed."""
LEAST_CHARS = 12
"""Rounds shorter than this many characters are ignored."""
SWING_CHARS = 8
"""Numbers get longer: so much may the lengths of two rounds differ."""
OFFSETS_SHOWN = 12
DATA_PERCENT = 75
WIDE_LETTERS = 2
"""Letters that make a word, in scripts without blanks."""
LONG_CHARS = 200
LONG_LINES = 3
SHORT_WORDS = 4
LEAST_WORDS = 2
NUMBER = re.compile(
    r"(0[xX][0-9a-fA-F]+|(?:\d\ufe0f?\u20e3?)+"
    r"|[\u2460-\u249b\u24ea-\u24ff\u2776-\u2793\u3251-\u325f\u32b1-\u32bf]"
    r"|[\u3007零一二三四五六七八九十百千两]+|(?<![A-Za-z])[IVXLC]+(?![A-Za-z])|(?<![^\s(*])[a-z]{1,3}(?=[.)]))"
)
"""In a group, so that `split` gives the numbers as well."""
SEPARATORS = frozenset(".,:/-")
"""Between two numbers: they are one measurement."""
OF = "/"
"""Behind a counter: of how many (`Step 41/100`)."""
DIGITS = 15
"""The last ones of a number, so that it stays one that every format can hold."""
_CHINESE = {**{sign: value for value, sign in enumerate("零一二三四五六七八九")}, "\u3007": 0, "两": 2}
_CHINESE_TENS = {"十": 10, "百": 100, "千": 1000}
_ROMAN = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
_WORD = re.compile(r"[^\W\d_]+")
_WIDE = re.compile(r"[\u0e00-\u0e7f\u3040-\u9fff\uac00-\ud7a3]")
LINE_ENDS = frozenset(",;{}")
"""A line that ends so is code or data."""
_MARKS = "#>*- [0123456789]"
"""Characters at the beginning of a line that are no sign of code."""
_SIGNS = tuple(sign for sign in CODE_SIGNS if sign not in "|/")
Round: TypeAlias = tuple[list[str], list[int]]
"""The texts around the numbers of a round, and the numbers."""


@dataclass(slots=True, frozen=True, kw_only=True)
class CountedRule:
    """Numbers of the counter rule; distances in code points."""

    rounds: int = 40
    long_rounds: int = 14
    """Rounds for a finding, where a round has several lines or more than 200 characters."""
    short_rounds: int = 64
    """Rounds for a finding, where a round has fewer than four words."""
    data_rounds: int = 128
    """Rounds for a finding in code and data, and where a round has fewer than two words."""
    min_chars: int = 512
    reach_chars: int = 512
    """The longest round. A longer one is prose, which the recurrence rule sees."""
    back_chars: int = field(init=False, repr=False, compare=False)
    """How far back the rounds before a probe are counted."""
    history: int = field(init=False, repr=False, compare=False)
    """How far back of the text's end the scanner may look."""
    least_chars: int = field(init=False, repr=False, compare=False)
    """Shorter texts have no finding of this rule."""

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing, and work out those that follow from them."""
        if not LEAST_ROUNDS <= self.long_rounds <= self.rounds <= self.short_rounds <= self.data_rounds:
            raise ConfigError(f"{self}: {LEAST_ROUNDS} <= long_rounds <= rounds <= short_rounds <= data_rounds")
        if self.reach_chars <= ANCHOR_CHARS:
            raise ConfigError(f"{self}: reach_chars must be more than {ANCHOR_CHARS}")
        back_chars = (LEAST_ROUNDS + 1) * (self.reach_chars + SWING_CHARS)
        object.__setattr__(self, "back_chars", back_chars)
        object.__setattr__(self, "least_chars", self.long_rounds // 2 * LEAST_CHARS)
        object.__setattr__(self, "history", back_chars + STEP_CHARS + SPREAD + ANCHOR_CHARS)


class CountedScanner(StateOfAttributes):
    """Looks for counters in one channel. Pull based: call `scan` when the text has reached
    `due`.
    """

    __slots__ = (
        "_anchor",
        "_around",
        "_enough",
        "_fences",
        "_floor",
        "_numbers",
        "_places",
        "_rounds",
        "_rule",
        "_steps",
        "_told",
        "due",
    )
    STATE = ("_floor", "_anchor", "_around", "_numbers", "_steps", "_places", "_rounds", "_enough", "_told", "due")

    _anchor: str
    """The text that stands in each round; empty while nothing is followed."""
    _around: Sequence[str]
    _numbers: Sequence[int]
    """The numbers of the last round."""
    _steps: Sequence[int]
    """The growth of each number from round to round."""
    _places: Sequence[int]
    """The last places of the anchor."""

    def __init__(self, rule: CountedRule, fences: Fences) -> None:
        self._rule = rule
        self._fences = fences
        self.restart(0)

    def restart(self, offset: int) -> None:
        """Text before `offset` is no evidence any more."""
        self._floor = offset
        self._forget()
        self.due = _next_step(offset)

    def _forget(self) -> None:
        self._anchor = ""
        self._around = self._numbers = self._steps = self._places = ()
        self._rounds = self._enough = 0
        self._told = False

    def seek(self, text: str, base: int, end: int) -> None:
        """Run on over probes that are new. Afterwards `due` is where something may end, or beyond
        `end`.
        """
        if self._anchor:
            return
        before, floor, due = self._rule.reach_chars + PROBE_CHARS, max(self._floor - base, 0), self.due
        while due <= end:
            step = due // STEP_CHARS
            stop = due - step * step % SPREAD - base  # `_probe_end`, without the call
            low = stop - before
            if text[stop - PROBE_CHARS : stop] in text[low if low > floor else floor : stop - 1]:  # sooner than by find
                break
            due += STEP_CHARS
        self.due = due

    def scan(self, text: str, base: int) -> Hit | None:
        """Take in the text up to `due`, which has arrived. `text` starts at `base`; `seek` has been
        there.
        """
        at = self.due
        if self._anchor:
            self._follow(text, base, at)
        elif at % STEP_CHARS == 0:
            self._begin(text, base, at)
        self.due = at + FOLLOW_CHARS if self._anchor else _next_step(at)
        if not self._anchor or self._rounds < (self._enough if self._told else self._first()):
            return None
        self._told = True
        loop = self._rounds >= self._enough
        return Hit(
            kind="counted",
            level="loop" if loop else "suspect",
            unit=self._anchor,
            count=self._rounds,
            threshold=self._enough if loop else self._first(),
            start=self._places[0],
            end=at,
            offsets=tuple(self._places),
            message=f"{self._rounds} rounds in which nothing but a counter changed, the last {len(self._places) - 1}",
        )

    def _first(self) -> int:
        """Rounds that make a suspicion."""
        return self._enough // 2 if self._enough <= self._rule.rounds else self._enough

    def _begin(self, text: str, base: int, at: int) -> None:
        """Count the rounds before the probe; follow them if they are enough."""
        stop, floor = _probe_end(at) - base, max(self._floor - base, 0)
        for start in (max(stop - ANCHOR_CHARS, floor), stop - PROBE_CHARS):
            places, steps = self._rounds_before(text, start, stop, floor)
            if len(places) <= LEAST_ROUNDS:
                continue
            unit = text[places[1] : start]
            self._enough = self._rounds_enough(unit, fenced=self._fences.inside(text, base, at))
            if self._enough:
                self._anchor, self._steps, self._rounds = text[start:stop], steps, len(places) - 1
                self._around, self._numbers = read(unit)
                if not is_one_counter(self._numbers, steps):
                    self._enough = max(self._enough, self._rule.data_rounds)
                self._places = [place + base for place in reversed(places[:OFFSETS_SHOWN])]
            return

    def _rounds_before(self, text: str, start: int, stop: int, floor: int) -> tuple[list[int], list[int]]:
        """Where `text[start:stop]` stands in rounds that count, the latest first, and the steps of
        their numbers.
        """
        rule, anchor, last = self._rule, text[start:stop], stop - start - 1
        places, steps, after = [start], list[int](), None
        one = text.rfind(anchor, max(start - rule.reach_chars, floor), start + last)
        if one < 0 or start - one < LEAST_CHARS:
            return places, steps
        other = text.rfind(anchor, max(one - rule.reach_chars, floor), one + last)
        if other < 0 or abs(start - one - one + other) > SWING_CHARS:
            return places, steps
        low = max(start - rule.back_chars, floor)
        while (place := text.rfind(anchor, low, places[-1] + last)) >= 0:
            length = places[-1] - place
            if len(places) > 1 and abs(length - places[-2] + places[-1]) > SWING_CHARS:
                break
            if not LEAST_CHARS <= length <= rule.reach_chars:
                break
            around, numbers = read(text[place : places[-1]])
            if after is not None:
                now = run(after[1], numbers) if around == after[0] else []
                if (steps and now != steps) or not counts(around, now):
                    break
                steps = now
            after = (around, numbers)
            places.append(place)
        return places if steps else [start], steps

    def _follow(self, text: str, base: int, at: int) -> None:
        """Count the rounds that have ended since, until one is another."""
        anchor, stop = self._anchor, at - base
        last = self._places[-1] - base
        while (place := text.find(anchor, last + 1, stop)) >= 0:
            around, numbers = read(text[last:place])
            if around != self._around or run(numbers, self._numbers) != self._steps:
                self._forget()
                return
            self._numbers = numbers
            self._rounds += 1
            self._places = [*self._places[1 - OFFSETS_SHOWN :], place + base]
            last = place
        if stop - last > self._rule.reach_chars + SWING_CHARS:
            self._forget()

    def _rounds_enough(self, unit: str, *, fenced: bool) -> int:
        """Rounds that make it a loop: it depends on what the round is; 0 if they never do."""
        rule, lines = self._rule, lines_of(unit)
        said = "\n".join(line.lstrip(_MARKS) for line in lines)
        words = max(len(_WORD.findall(unit)), len(_WIDE.findall(unit)) // WIDE_LETTERS)
        if not words:
            return 0
        block = len(lines) > 1 and (has_fence(unit) or is_call(unit))
        data = (
            fenced
            or RUNS.search(unit) is not None
            or any(line.rstrip()[-1] in LINE_ENDS for line in lines)
            or all(map(is_record, lines))
            or 100 * sum(map(said.count, _SIGNS)) > len(said)
            or words_percent(unit) < DATA_PERCENT
        )
        if words < LEAST_WORDS or (data and not block):
            enough = rule.data_rounds
        elif block or len(lines) >= LONG_LINES or len(unit) > LONG_CHARS:
            enough = rule.long_rounds
        else:
            enough = rule.rounds if words >= SHORT_WORDS else rule.short_rounds
        return max(enough, -(-rule.min_chars // len(unit)))


def _next_step(offset: int) -> int:
    return (offset // STEP_CHARS + 1) * STEP_CHARS


def _probe_end(due: int) -> int:
    step = due // STEP_CHARS
    return due - step * step % SPREAD


def read(unit: str) -> Round:
    """The texts around the numbers of a round, and the numbers."""
    parts = NUMBER.split(unit)
    return parts[::2], [value(number) for number in parts[1::2]]


def run(later: Sequence[int], earlier: Sequence[int]) -> list[int]:
    """The growth of each number from one round to the next."""
    return [one - other for one, other in zip(later, earlier, strict=True)]


def is_one_counter(numbers: Sequence[int], steps: Sequence[int]) -> bool:
    """Whether the numbers that change are one that runs on, within the round as from round to
    round.
    """
    running = [at for at, step in enumerate(steps) if step]
    if len({steps[at] for at in running}) > 1:
        return False
    same = steps[running[0]] > 0 and all(numbers[at] == numbers[running[0]] for at in running)
    return same or all((numbers[after] - numbers[at]) * len(running) == steps[at] for at, after in pairwise(running))


def counts(around: list[str], steps: list[int]) -> bool:
    """Whether some numbers change, and none of them is a part of a measurement."""
    running = [at for at, step in enumerate(steps) if step]
    if not running:
        return False
    before = (around[at] in SEPARATORS for at in running if at > 0)
    after = (around[at + 1] in SEPARATORS and around[at + 1] != OF for at in running if at + 1 < len(steps))
    return not any(before) and not any(after)


def value(number: str) -> int:
    """The value of a number, in any of the ways that `NUMBER` finds."""
    if number[:2] in {"0x", "0X"}:
        return int(number[2:][-DIGITS:], 16)
    if number[0].isdecimal():
        return int("".join(filter(str.isdecimal, number))[-DIGITS:])
    if unicodedata.category(number[0]) == "No":
        return int(unicodedata.numeric(number))
    if number[0] in _ROMAN:
        values = [_ROMAN[sign] for sign in number]
        return sum(-one if one < after else one for one, after in zip(values, [*values[1:], 0], strict=True))
    if "a" <= number[0] <= "z":
        return sum((ord(letter) - 96) * 26**place for place, letter in enumerate(reversed(number)))
    return _chinese(number)


def _chinese(number: str) -> int:
    if not any(sign in _CHINESE_TENS for sign in number):
        return int("".join(str(_CHINESE[sign]) for sign in number[-DIGITS:]))
    total = last = 0
    for sign in number:
        if sign in _CHINESE_TENS:
            total += max(last, 1) * _CHINESE_TENS[sign]
            last = 0
        else:
            last = _CHINESE[sign]
    return total + last
