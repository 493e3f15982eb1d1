"""The rate of information: how many bits of news a character brings, given what came before.

It answers loops that say one thing in ever other words: two conclusions in turn, a list that is
counted again, reworded thoughts, a dialogue of thanks. No passage comes back, so no exact rule sees
them, but nothing is new either.

Measure: at a place of the text, the longest piece that starts there and stood three times before
has L characters. The entropy is about log2(n) / (L + 1) bits a character, where n is how much text
was searched (match lengths: Grassberger 1989, Kontoyiannis and others 1998). A rate is the mean of
24 places, one in each 64 characters. It says nothing of truth or use: a copy is no news.

Rule: a rate below the null of its kind of text is a suspicion, for the judge and the policy, and
never a loop: only who knows the task can tell. The kind is learnt from the text itself (see
`text_kind`), and each kind has its own null, since data and code repeat by nature. Of 151 long
recorded answers that must stay quiet, none is below 1.2 bits; made loops of prose have 0.3 to 0.97.

How: one sample of 12 characters is searched at each multiple of 256. It is new in most texts, and
nothing else is done. Where it stood often enough, the kind of the last 512 characters says how long
such a sample would be at the null. Only if this one is half as long, the places since the last look
are measured. All numbers are integers, so a replay on another machine finds the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from monitor.detectors.text.hit import Hit
from monitor.detectors.text.text_kind import TextKind, has_wide_letters, kind_of
from monitor.errors import ConfigError

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


class InformationScanner:
    """Measures the rate of one channel. Pull based: call `scan` when the text has reached `due`."""

    __slots__ = ("_costs", "_floor", "_last", "_measured", "_rule", "due")

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

    def snapshot(self) -> dict[str, Any]:
        """Positions and rates."""
        return {
            "floor": self._floor,
            "due": self.due,
            "measured": self._measured,
            "costs": list(self._costs),
            "last": self._last,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `snapshot`."""
        self._floor, self.due, self._measured = (int(state[name]) for name in ("floor", "due", "measured"))
        self._costs = [int(cost) for cost in state["costs"]]
        self._last = int(state["last"])


def _start(block: int) -> int:
    return block * BLOCK_CHARS + block * block % SPREAD
