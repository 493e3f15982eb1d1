"""The exact tail: the text ends in copies of one unit.

It answers loops whose unit is longer than the distances of a chant: modern models repeat paragraphs
of 140 to 300 characters. It also answers units so short that windows overlap (`1111...`,
`felt felt felt`).

Rule: the last characters are periodic with a period of 1 to 1024; `copies` sees longer ones. Four
copies and at least 192 characters are a suspicion, as llama.cpp proposes; five are a loop. Units of
up to 16 characters are a loop at 160 characters, which is a word ten times; 0.142857... to 150
digits and bars of 120 characters stay below. In the recorded texts that must stay quiet, no unit
that speaks repeats for more than 90 characters. More is asked of what people repeat on purpose:

- blocks, that is whole lists, tables, fenced blocks and tool calls (see `structure`): 7 copies. A
  dialogue of two speakers and an indented line of prose count as words. Frames of a stack trace
  count as data;
- verse, that is short lines or a quoted one: a loop at 12 copies and 768 characters. The longest
  refrain known to us is 19 times 37;
- fill: 12 copies and 512 characters. It is one leader character (blanks, dots, rules: the longest
  in 440 texts has 338), units of layout lines only (see `markdown`; people write ten equal rows),
  and short units that continue a blob (base64 of regular bytes);
- drawn units, several characters none of which speaks: 12 copies and 384 characters. The longest in
  the same texts has 95;
- a line of layout that says something (a comment, an item, a declaration, a stage direction): a
  suspicion at 6 copies, a loop at 8;
- frames of a stack trace and drawn lines (the rows of a form): 40 copies and 512 characters.
  Programs print one for each item of a batch, 33 in the same texts;
- data: 64 copies and 2048 characters. That is a line of data again and again, and values within
  brackets or quotation marks that were opened before. So are an element of markup, numbers behind
  numbers, and one letter within a quoted word. Data without blanks (source maps) and numbers
  without commas take eight times as much. Layout without a letter takes 16 times as much, as in
  files of measurements;
- channels of data: a suspicion at 12 copies and 512 characters, a loop at 24 and 2048, except rows
  of numbers.

How: at every 128 characters the last few are searched in the text before. Long periods are searched
less often (every 1024 for the longest), since their runs are longer too. Each place found suggests
a period; one comparison of slices refutes or confirms it. A confirmed run is followed, with one
comparison a step, until it breaks or is long enough. Only one run is followed at a time. So a unit
that contains a long repetition may be found some steps late, but always at the same character,
whatever the cut.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from monitor._util.state import StateOfAttributes
from monitor.detectors.text.copies import PIECE_CHARS, ROOM_CHARS
from monitor.detectors.text.hit import Hit
from monitor.detectors.text.structure import (
    LEADERS,
    Fences,
    has_fence,
    has_short_lines,
    has_words,
    is_block,
    is_block_of_values,
    is_data,
    is_data_line,
    is_dialogue,
    is_frame,
    is_indented_prose,
    is_numbers,
    is_statement,
    is_unbroken,
    only_layout,
    speaks,
)
from monitor.errors import ConfigError
from monitor.verdicts import Level

OFFSETS_SHOWN = 12
"""Places listed in the evidence; a one-character unit has hundreds."""
QUOTE_CHARS = 64
"""A quoted refrain begins so soon behind its `>`."""
OPENED_CHARS = 128
BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))
BLOB_PERIOD = 8
"""Base64 writes one to three equal bytes as four characters or one, patterns of two and six bytes
as eight.
"""
DENSE_CHARS = 64
"""Characters without a blank that make data of what follows them; longer than URLs mostly are."""
ROW_CHARS = 1_024
"""The longest row of a map, in quotes, in which one cell is followed by others."""
BLOB_CHARS = 24
"""Letters and digits without a blank that make a blob of what follows them; longer than words."""


@dataclass(slots=True, frozen=True, kw_only=True)
class TailRule:
    """Numbers of the tail rule, in code points."""

    max_period_chars: int = 1024
    copies: int = 4
    """Copies that make a suspicion."""
    loop_copies: int = 5
    min_chars: int = 192
    short_chars: int = 16
    """Periods up to this need `short_min_chars` only."""
    short_min_chars: int = 160
    block_copies: int = 7
    """For a whole list, table, fenced block or tool call (see `structure`)."""
    weak_copies: int = 12
    weak_min_chars: int = 512
    """`weak`: fill, or layout only; a suspicion of data."""
    verse_min_chars: int = 768
    """Short lines, or a quoted one; `weak_copies` as well."""
    line_copies: int = 8
    """For a line of layout that says something."""
    printed_copies: int = 40
    """For frames of a stack trace, and for drawn lines."""
    value_copies: int = 64
    """For a line of data: a record, a value in brackets or tags."""
    value_min_chars: int = 2048
    dense_factor: int = 8
    """Times as much for data without a blank, as in source maps, and for cells of a map."""
    number_factor: int = 16
    """Times as much for layout without a letter."""
    data_copies: int = 24
    data_min_chars: int = 2048
    """In a channel of data."""
    drawn_min_chars: int = 384
    """Drawn units of several characters; 12 copies as well."""
    step_chars: int = 128
    """A power of two; so far below `min_chars` that a sample falls into the run before it is long
    enough.
    """
    sample_chars: int = 16
    tries: int = 32
    """Periods tried a sample; bounds the cost on fills, where the sample occurs everywhere."""
    longest_copy_chars: int | None = 32_768
    """Units that are longer than `max_period_chars` are compared by a hash, up to this length (see
    `copies`); `None`: they are not.
    """
    history: int = field(init=False, repr=False, compare=False)
    """How far back of the text's end the scanner may look."""
    backs: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """How far back a sample is looked up, with its own length, at each step of a turn; the longest
    way at the first.
    """

    @property
    def least_chars(self) -> int:
        """Shorter texts have no finding of this rule."""
        return self.short_min_chars

    def __post_init__(self) -> None:
        """Refuse numbers with which a run could be missed, and work out those that follow from
        them.
        """
        if (
            self.copies <= 1
            or self.weak_copies < self.copies
            or self.weak_min_chars < self.min_chars
            or self.max_period_chars < 1
        ):
            raise ConfigError(
                f"{self}: at least 2 copies, a period of at least 1, and the weak numbers not below the others"
            )
        if (
            not self.short_min_chars <= self.min_chars
            or not self.min_chars <= self.drawn_min_chars <= self.weak_min_chars
        ):
            raise ConfigError(f"{self}: short_min_chars, min_chars, drawn_min_chars, weak_min_chars must not fall")
        long_room = self.min_chars - self.step_chars >= self.min_chars // self.copies + self.sample_chars
        short_room = self.short_min_chars - self.step_chars >= self.short_chars + self.sample_chars
        if self.step_chars.bit_count() != 1 or not long_room or not short_room:
            raise ConfigError(
                f"{self}: step_chars must be a power of two and leave room in the least runs for one copy and a sample"
            )
        if self.longest_copy_chars is not None and self.longest_copy_chars < PIECE_CHARS:
            raise ConfigError(f"{self}: longest_copy_chars must be at least {PIECE_CHARS}")
        step, longest = self.step_chars, self.max_period_chars
        object.__setattr__(self, "history", max(self.strong_chars(longest) + 2 * step, ROOM_CHARS))
        ways = (longest, *(at & -at for at in range(step, max(self.pace(longest), step), step)))
        object.__setattr__(self, "backs", tuple(min(way, longest) + self.sample_chars for way in ways))

    def pace(self, period: int) -> int:
        """The distance, in characters, at which a period of this length is searched."""
        return max(self.step_chars, 1 << (period - 1).bit_length())

    def strong_chars(self, period: int) -> int:
        """Characters that make a run of words a suspicion."""
        return max(self.copies * period, self.short_min_chars if period <= self.short_chars else self.min_chars)

    def loop_chars(self, period: int) -> int:
        """Characters that make a run of words a loop."""
        return max(self.loop_copies * period, self.strong_chars(period))

    def block_chars(self, period: int) -> int:
        """Characters that make a run of whole blocks a loop."""
        return max(self.block_copies * period, self.loop_chars(period))

    def verse_chars(self, period: int) -> int:
        """Characters that make a run of verse a loop."""
        return max(self.weak_copies * period, self.verse_min_chars, self.loop_chars(period))

    def data_chars(self, period: int) -> int:
        """Characters that make a run in a channel of data a loop."""
        return max(self.data_copies * period, self.data_min_chars, self.weak_chars(period))

    def value_chars(self, unit: str, *, dense: bool = False) -> int:
        """Characters that make a run of data in the midst of a text a loop."""
        enough = max(self.value_copies * len(unit), self.value_min_chars)
        if dense:
            return self.dense_factor * enough
        return enough if any(map(str.isalpha, unit)) or "\n" not in unit else self.number_factor * enough

    def weak_chars(self, period: int) -> int:
        """Characters that make a run of fill or layout a loop, and one of data a suspicion."""
        return max(self.weak_copies * period, self.weak_min_chars)

    def drawn_chars(self, period: int) -> int:
        """Characters that make a run of drawing a loop."""
        return max(self.weak_copies * period, self.drawn_min_chars)


class TailScanner(StateOfAttributes):
    """Looks for exact tails in one channel. Pull based: call `scan` when the text has reached
    `due`.
    """

    __slots__ = (
        "_backs",
        "_checked",
        "_data",
        "_fences",
        "_floor",
        "_length",
        "_longest",
        "_needed",
        "_period",
        "_rule",
        "_sample",
        "_start",
        "_step",
        "_sure",
        "due",
    )
    STATE = ("_floor", "_sample", "_period", "_start", "_checked", "_needed", "_sure", "due")

    def __init__(self, rule: TailRule, fences: Fences, *, data: bool = False) -> None:
        self._rule = rule
        self._fences = fences
        self._data = data
        self._length, self._step, self._longest = rule.sample_chars, rule.step_chars, rule.max_period_chars
        self._backs = rule.backs
        self.restart(0)

    def restart(self, offset: int) -> None:
        """Text before `offset` is no evidence any more."""
        self._floor = offset
        self._forget()
        self.due = self._sample = (offset // self._rule.step_chars + 1) * self._rule.step_chars

    @property
    def since(self) -> int:
        """Where the run that is followed starts; beyond all text if none is."""
        return self._start if self._period else sys.maxsize

    def _forget(self) -> None:
        self._period = self._start = self._checked = self._needed = self._sure = 0

    def seek(self, text: str, base: int, end: int) -> None:
        """Run on over what ends in nothing that stood before. Afterwards `due` is where something
        may end, or beyond `end`.
        """
        if self._period:
            return
        length, step, backs, turn = self._length, self._step, self._backs, len(self._backs)
        floor, due = max(self._floor - base, 0), self.due
        while due <= end:
            stop = due - base
            low = stop - backs[due // step % turn]
            if text[stop - length : stop] in text[low if low > floor else floor : stop - 1]:  # sooner than by find
                break
            due += step
        self.due = self._sample = due

    def scan(self, text: str, base: int) -> Hit | None:
        """Take in the text up to `due`, which has arrived. `text` starts at `base`; `seek` has been
        there.
        """
        at = self.due
        if self._period and not self._goes_on(text, base, at):
            self._forget()
        if at == self._sample:
            self._sample = at + self._step
            if not self._period:
                self._measure(text, base, at)
        hit = None
        if self._period and at - self._start >= self._needed:
            hit = self._hit(text[at - base - self._period : at - base], at)
            self._needed = self._sure
        self.due = min(self._sample, self._start + self._needed) if self._period else self._sample
        return hit

    def _goes_on(self, text: str, base: int, at: int) -> bool:
        start, stop, period = self._checked - base, at - base, self._period
        self._checked = at
        return text[start:stop] == text[start - period : stop - period]

    def _measure(self, text: str, base: int, at: int) -> None:
        """Follow the shortest period by which the tail has nearly been long enough."""
        rule, floor, stop = self._rule, self._floor - base, at - base
        place = sample = stop - self._length
        low = max(sample - min(at & -at, self._longest), floor, 0)
        needle = text[sample:stop]
        for _ in range(rule.tries):
            place = text.rfind(needle, low, place + self._length - 1)
            if place < 0:
                return
            period = sample - place
            enough = rule.strong_chars(period)
            start = stop - enough + rule.pace(period)
            if start < floor:
                return
            if text[start + period : stop] == text[start : stop - period]:
                limit = max(stop - enough, floor)
                while start > limit and text[start - 1] == text[start - 1 + period]:
                    start -= 1
                self._period, self._start, self._checked = period, start + base, at
                self._needed, self._sure = self._enough(text, base, at)
                return

    def _enough(self, text: str, base: int, at: int) -> tuple[int, int]:
        """Characters that make the followed run a suspicion, and a loop: it depends on what the
        unit is.
        """
        rule, period, start, stop = self._rule, self._period, self._start - base, at - base
        unit, weak = text[stop - period : stop], rule.weak_chars(period)
        if self._data:
            rows = "\n" in unit and period > rule.short_chars and is_numbers(unit)
            return weak, rule.value_chars(unit) if rows else rule.data_chars(period)
        if period == 1 and unit in LEADERS:
            return weak, weak
        if not speaks(unit):
            enough = rule.drawn_chars(period) if period > 1 else rule.strong_chars(period)
            if period > rule.short_chars and "\n" in unit:
                enough = max(enough, rule.printed_copies * period)
            return enough, enough
        if period <= BLOB_PERIOD and _is_blob(self._before(text, base, BLOB_CHARS)):
            return weak, weak
        if "\n" in unit and (lined := self._enough_lines(text, base, at)):
            return lined
        if "\n" not in unit and self._is_value(text, base, unit):
            dense = self._is_dense_value(text, base, unit) or (is_numbers(unit) and "," not in unit)
            enough = rule.value_chars(unit, dense=dense)
            return enough, enough
        line = text.rfind("\n", max(start - QUOTE_CHARS, self._floor - base, 0), start) + 1
        if ("\n" in unit and has_short_lines(unit + unit)) or (line > 0 and text[line] == ">"):
            return rule.strong_chars(period), rule.verse_chars(period)
        return rule.strong_chars(period), rule.loop_chars(period)

    def _enough_lines(self, text: str, base: int, at: int) -> tuple[int, int] | None:
        """Characters that make a unit of lines a suspicion, and a loop; `None` where they are lines
        of words or verse.
        """
        rule, period, stop = self._rule, self._period, at - base
        unit, weak = text[stop - period : stop], rule.weak_chars(period)
        if is_frame(unit):
            enough = max(weak, rule.printed_copies * period)
            return enough, enough
        if is_dialogue(unit):
            return rule.strong_chars(period), rule.loop_chars(period)
        fenced = self._fences.inside(text, base, at)
        block = (not fenced or has_fence(unit)) and is_block(unit)
        if not only_layout(text, stop - period - 1, stop, fenced=fenced):
            if is_data(unit):
                return rule.value_chars(unit), rule.value_chars(unit)
            return (
                (rule.strong_chars(period), rule.block_chars(period))
                if block and has_short_lines(unit + unit)
                else None
            )
        if not fenced and is_indented_prose(unit):
            return None
        quoted = "\n>" in unit + unit[0] and has_short_lines(unit + unit)
        if block and not quoted:
            return rule.block_chars(period), rule.block_chars(period)
        statement = is_statement(unit, fenced=fenced)
        if is_data(unit) or (not statement and self._is_value(text, base, unit)):
            return rule.value_chars(unit), rule.value_chars(unit)
        if statement:
            sure = max(rule.line_copies * period, rule.strong_chars(period))
            return max(sure - 2 * period, rule.strong_chars(period)), rule.verse_chars(period) if quoted else sure
        if not fenced and is_block_of_values(unit):
            return rule.value_chars(unit), rule.value_chars(unit)
        return weak, max(weak, rule.verse_chars(period) if quoted else 0)

    def _is_value(self, text: str, base: int, unit: str) -> bool:
        """Whether the unit is a value, or part of one: a record, a list of numbers, or short of
        words and within brackets or quotation marks that were opened shortly before the run. A
        round of several records is none.
        """
        before = self._before(text, base, OPENED_CHARS)
        line = before.rpartition("\n")[2]
        if is_numbers(unit) and ("," in unit or (any(map(str.isspace, unit)) and not any(map(str.isalpha, line)))):
            return True
        if (unit.count("\n") <= 1 and is_data_line(unit)) or self._is_dense_value(text, base, unit):
            return True
        if unit.isalnum():  # a cell of a map, in quotes
            row = self._before(text, base, ROW_CHARS).rpartition("\n")[2]
            return len(unit) == 1 and row.rpartition(" ")[2].count('"') % 2 == 1
        quoted = before.count('"') % 2 == 1
        opened = quoted or any(before.count(one) > before.count(other) for one, other in BRACKETS)
        return opened and not has_words(unit)

    def _before(self, text: str, base: int, chars: int) -> str:
        """The `chars` characters before the run, or as many as there are."""
        start = self._start - base
        return text[max(start - chars, self._floor - base, 0) : start]

    def _is_dense_value(self, text: str, base: int, unit: str) -> bool:
        """Whether it is a part of data without blanks, whose values a comma or semicolon parts."""
        whole = self._before(text, base, DENSE_CHARS) + unit
        return len(whole) == DENSE_CHARS + len(unit) and ("," in unit or ";" in unit) and is_unbroken(whole)

    def _hit(self, unit: str, end: int) -> Hit:
        period, start = self._period, self._start
        count = (end - start) // period
        shown = tuple(range(end - min(count, OFFSETS_SHOWN) * period, end, period))
        level: Level = "loop" if self._needed >= self._sure else "suspect"
        threshold = self._needed // period
        return Hit(
            kind="exact_tail",
            level=level,
            unit=unit,
            count=count,
            threshold=threshold,
            start=start,
            end=end,
            offsets=shown,
        )


def _is_blob(before: str) -> bool:
    return len(before) == BLOB_CHARS and before.isascii() and before.replace("+", "").replace("/", "").isalnum()
