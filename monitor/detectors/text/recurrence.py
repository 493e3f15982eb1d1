"""Inexact recurrence: almost nothing is new for two thousand characters.

It answers loops that no exact rule sees, because a counter grows in them or a word changes.
Examples are the same plan after "let me try one more time", and step 147 of a puzzle that needs
eleven. Their period is 150 to 1300 characters.

Rule: the last 36 samples are examined. Each has 20 characters, and there is one in 64 characters:
together they stand for 2300. At least 28 of them stood three times in the 5000 characters before
them. If the text between such places differs in nothing but digits, 22 are enough. Recorded loops
reach 32 to 36, and recorded texts that must stay quiet reach 8. Texts made to be difficult reach
more: JSON 29, YAML 25, a questionnaire with five fixed answers 24. To tell loops from these:

- a sample whose last place is more than 1666 characters away counts as new: four places at even
  distances are nearer;
- a sample that does not speak (see `markdown`) counts as new: padding, rules;
- a sample that stood one line before, at most 160 characters away, counts as new: rows of a list, a
  log or a table resemble one another. In a line that starts with a letter it is not new if only
  digits have changed. In any other line it is not new if only the number at its beginning has;
- three in four characters must be letters or blanks (runs of blanks are one), or not ASCII. Loops
  have 80 to 100 %, HTML, JSON and logs 50 to 75 %;
- half of the text must stand in lines of 32 bytes or more, which are eleven characters of Chinese.
  Of loops 68 to 100 % do. Of YAML and printed JSON at most 12 % do, of build files 28 %, of the
  questionnaire 44 %;
- of code (see `markdown`) all 36 samples must have stood there: accessors and settings differ in
  names alone, but they differ;
- frames of a stack trace, records, and data with hardly a blank are no prose.

Some findings are only a suspicion: code, counted lines (a log counts as well), and fewer than 28
samples (a few remarks in any order: where they meet is new). Three suspicions are a loop, if none
is further than three such lengths from the last: seven thousand characters at least. It takes six
if each round has a word that stands nowhere before it: one letter written out for fifteen people
names somebody else each time.

How: two samples are searched in the text before, at each multiple of 128 characters, where the tail
rule searches as well. While all 36 are new, only one is searched, at each multiple of 1024. In most
text it is not found, and the others count as new without a search. If it is found, the samples of
the last 1536 characters are searched too. The second of a step is left out as long as all before it
are new. Samples stand at uneven distances, because rows of a fitting width would show the same
place again and again. Text that is no prose clears the evidence, so that its words are not counted
repeatedly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from monitor._util.state import StateOfAttributes
from monitor.detectors.text.chant import is_one_line
from monitor.detectors.text.hit import Hit
from monitor.detectors.text.structure import (
    has_long_lines,
    is_code,
    is_dense,
    is_rows,
    only_counts,
    speaks,
    words_percent,
)
from monitor.errors import ConfigError

BLOCK_CHARS = 64
"""One sample is taken of each block."""
SPREAD = 43
"""Where in its block: the square of the block's number modulo this prime, which repeats after 2752
characters at the earliest.
"""
STEP_CHARS = 2 * BLOCK_CHARS
NAP_STEPS = 8
"""Steps of which only the last is looked at, while nothing is stale."""
BACK_CHARS = 12 * STEP_CHARS
"""If that sample is stale, these last characters are examined again. With a third of them, six of
77 recorded loops are seen up to 512 characters later.
"""
LEAST_COPIES = 3
"""Two distances between them, to be compared."""
LEAST_SAMPLES = 2
"""A rule has at least this many samples: those of one step."""
LATEST = 0b11
"""The samples of the latest step: one of them must be stale as well, so that what is shown is at
hand.
"""
DOUBTFUL_ROUNDS = 3
"""Suspicions in a row that make a loop, each the length of all samples after the last."""
NAMED_ROUNDS = 6
"""Rounds for a finding, where each round names somebody else."""
LINES_COMPARED = 4
_WORD = re.compile(r"[^\W\d_]+")
_NUMBER = "0123456789.)*-# "
"""The characters with which a numbered line starts."""


@dataclass(slots=True, frozen=True, kw_only=True)
class RecurrenceRule:
    """Numbers of the recurrence rule; distances in code points."""

    samples: int = 36
    stale_samples: int = 28
    """How many of them must have stood there before."""
    doubtful_samples: int = 22
    """Stale samples that make a suspicion."""
    counting_samples: int = 22
    """How many, where nothing but digits changes. Some samples hold the counter: a period of 76
    leaves 25.
    """
    copies: int = 4
    """At least 3. How often a stale sample stands there, with itself."""
    sample_chars: int = 20
    """Short, so that counters seldom fall into one; long enough that prose does not repeat it
    (corpus: 16 to 24 do alike).
    """
    reach_chars: int = 5_000
    """How far back is looked; four copies of a plan of 1250 characters."""
    row_chars: int = 160
    """Lines up to this may resemble the line before."""
    words_percent: int = 75
    """Letters and blanks among the characters."""
    near_chars: int = field(init=False, repr=False, compare=False)
    """How far away the last place of a stale sample may be; of copies at even distances all are
    nearer.
    """
    span: int = field(init=False, repr=False, compare=False)
    """The text that all samples stand for."""
    history: int = field(init=False, repr=False, compare=False)
    """How far back of the text's end the scanner may look."""
    nap: int = field(init=False, repr=False, compare=False)
    """The number of characters that pass unlooked while nothing is stale: fewer than any finding
    takes.
    """
    least_chars: int = field(init=False, repr=False, compare=False)
    """Shorter texts have no finding of this rule."""

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing, and work out those that follow from them."""
        if (
            not 1 <= self.counting_samples <= self.doubtful_samples <= self.stale_samples <= self.samples
            or self.samples < LEAST_SAMPLES
            or self.copies < LEAST_COPIES
        ):
            raise ConfigError(
                f"{self}: counting_samples <= doubtful_samples <= stale_samples <= samples, samples at least 2, copies"
                " at least 3"
            )
        if not 1 <= self.sample_chars <= BLOCK_CHARS - SPREAD + 1 or self.reach_chars < self.sample_chars:
            raise ConfigError(
                f"{self}: sample_chars must be 1 to {BLOCK_CHARS - SPREAD + 1}, reach_chars not below them"
            )
        object.__setattr__(self, "near_chars", self.reach_chars // (self.copies - 1))
        object.__setattr__(self, "span", self.samples * BLOCK_CHARS)
        object.__setattr__(self, "history", max(self.reach_chars + BACK_CHARS, self.span + STEP_CHARS))
        object.__setattr__(self, "least_chars", max(1, (self.counting_samples - 1) * BLOCK_CHARS - SPREAD))
        sleeps = self.counting_samples >= 2 * NAP_STEPS
        object.__setattr__(self, "nap", NAP_STEPS * STEP_CHARS if sleeps else STEP_CHARS)


class RecurrenceScanner(StateOfAttributes):
    """Looks for stale text in one channel. Pull based: call `scan` when the text has reached
    `due`.
    """

    __slots__ = ("_floor", "_last", "_mask", "_nap", "_rounds", "_rule", "_seen", "_taken", "due")
    STATE = ("_floor", "_seen", "_taken", "_last", "_rounds", "due")

    def __init__(self, rule: RecurrenceRule) -> None:
        self._rule = rule
        self._mask = (1 << rule.samples) - 1
        self._nap = rule.nap
        self.restart(0)

    def restart(self, offset: int) -> None:
        """Text before `offset` is no evidence any more."""
        self._floor = offset
        self._seen = self._last = self._rounds = 0
        self._taken = offset // STEP_CHARS * STEP_CHARS
        self.due = self._end_of_nap()

    def _end_of_nap(self) -> int:
        return (self._taken // self._nap + 1) * self._nap

    def seek(self, text: str, base: int, end: int) -> None:
        """Sleep on while what is looked up is new. Where it is stale, what was slept through is
        taken in, up to the last step.
        """
        while not self._seen and self.due <= end:
            if self._is_stale(text, base, self.due // BLOCK_CHARS - 2):
                for at in range(max(self._taken, self.due - BACK_CHARS) + STEP_CHARS, self.due, STEP_CHARS):
                    self._take_in(text, base, at)
                return
            self.due += self._nap

    def scan(self, text: str, base: int) -> Hit | None:
        """Take in the text up to `due`, which has arrived. `text` starts at `base`; `seek` has been
        there.
        """
        at = self.due
        self._take_in(text, base, at)
        enough = self._seen & LATEST and self._seen.bit_count() >= self._rule.counting_samples
        hit = self._judge(text, base, at) if enough else None
        self.due = at + STEP_CHARS if self._seen else self._end_of_nap()
        return hit

    def _take_in(self, text: str, base: int, at: int) -> None:
        """The two samples of the step that ends at `at`."""
        block = at // BLOCK_CHARS - 2
        self._taken = at
        self._seen = seen = (self._seen << 2 | self._is_stale(text, base, block) << 1) & self._mask
        if seen:
            self._seen = seen | self._is_stale(text, base, block + 1)

    def _is_stale(self, text: str, base: int, block: int) -> bool:
        rule = self._rule
        start = block * BLOCK_CHARS + block * block % SPREAD - base
        low = max(start - rule.reach_chars, self._floor - base, 0)
        near = max(start - rule.near_chars, low)
        # `in` finds that a sample does not occur sooner than find or rfind do.
        if start <= low or text[start : start + rule.sample_chars] not in text[near : start + rule.sample_chars - 1]:
            return False
        places = self._places(text, start, low)
        if len(places) < rule.copies or not speaks(text[start : start + rule.sample_chars]):
            return False
        return start - places[1] > rule.row_chars or not is_row(text, *places[:3])

    def _places(self, text: str, start: int, low: int) -> list[int]:
        """Where the sample at `start` stands, the latest first; no more than count."""
        length = self._rule.sample_chars
        sample, places = text[start : start + length], [start]
        while len(places) < self._rule.copies:
            place = text.rfind(sample, low, places[-1] + length - 1)
            if place < 0:
                break
            places.append(place)
        return places

    def _judge(self, text: str, base: int, at: int) -> Hit | None:
        """Enough is stale: is it a loop?"""
        rule, seen, stop = self._rule, self._seen, at - base
        block = at // BLOCK_CHARS - (1 if seen & 1 else 2)
        start = block * BLOCK_CHARS + block * block % SPREAD - base
        low = max(start - rule.reach_chars, self._floor - base, 0)
        places = self._places(text, start, low)
        before = text[places[1] : start]
        stale = seen.bit_count()
        sure = stale >= rule.stale_samples or only_counts(before, text[places[2] : places[1]])
        if not sure and stale < rule.doubtful_samples:
            return None
        region = text[max(stop - rule.span, self._floor - base, 0) : stop]
        code = is_code(region)
        if code and seen != self._mask:
            return None
        named = _names_others(text, places, low)
        doubtful = code or not sure or named or _are_counted_lines(region, rule.row_chars)
        if doubtful and self._rounds and at < self._last + rule.span:
            return None
        prose = words_percent(region) >= rule.words_percent and has_long_lines(region)
        if not prose or is_rows(region) or is_dense(region):
            self._seen = 0
            return None
        enough = NAMED_ROUNDS if named else DOUBTFUL_ROUNDS
        rounds = self._goes_on(at) if doubtful else enough
        return Hit(
            kind="recurrence",
            level="loop" if rounds >= enough else "suspect",
            again=rounds > 1,
            unit=text[start : start + rule.sample_chars],
            count=len(places),
            threshold=rule.copies,
            start=places[-1] + base,
            end=at,
            offsets=tuple(place + base for place in reversed(places)),
        )

    def _goes_on(self, at: int) -> int:
        """Suspicions in a row, with the one at `at`."""
        self._rounds = self._rounds + 1 if self._rounds and at <= self._last + 3 * self._rule.span else 1
        self._last = at
        return self._rounds


def _names_others(text: str, places: list[int], low: int) -> bool:
    """Whether in each two rounds there is a word that stands nowhere before them. (Two, because a
    sample may stand twice in one.)
    """
    rounds = zip(places[2:], places, strict=False)
    return all(
        any(text.find(word, low, start) < 0 for word in set(_WORD.findall(text[start:end]))) for start, end in rounds
    )


def is_row(text: str, start: int, before: int, further: int) -> bool:
    """Whether the sample at `start` stands a line below the one at `before`, in a row that says
    something else.
    """
    one, other = text[before:start], text[further:before]
    if not is_one_line(one):
        return False
    if text[before + one.rindex("\n") + 1].isalpha():
        return not only_counts(one, other)
    return _without_number(one) != _without_number(other)


def _without_number(between: str) -> str:
    """From one numbered line to the next, without the number; empty: there is not one line
    break.
    """
    end, _, begin = between.rpartition("\n")
    return f"{end}\n{begin.lstrip(_NUMBER)}"


def _are_counted_lines(text: str, most: int) -> bool:
    """Whether the last lines, each of at most `most` characters, differ in their digits only."""
    lines = [line for line in text[-LINES_COMPARED * most :].split("\n")[:-1] if line][-LINES_COMPARED:]
    return (
        len(lines) == LINES_COMPARED
        and max(map(len, lines)) <= most
        and all(only_counts(lines[0], line) for line in lines[1:])
    )
