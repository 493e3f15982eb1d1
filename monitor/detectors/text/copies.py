"""A rule of long texts that come again and again: units that are longer than the tail rule can
hold.

It answers a model that writes one answer, one file or one report over and over within its output:
each copy has thousands of characters, and is exactly as long as the one before.

Rule: a unit of 1,024 to 32,768 characters stands in a row without any change. Four copies are a
suspicion, five a loop. Nobody writes that on purpose, so it hardly matters what the unit is. In a
channel of data, where files are written, it takes 12 and 24 copies. Numbers are never a loop: maps
and measurements have many equal rows.

How: an anchor of 64 characters is taken from the text and searched in what comes. What stands from
one place to the next is hashed in pieces, so no text has to be kept. Two equal hashes in a row are
two copies. An anchor that is not found within its reach, that stands too close to itself, or
between different texts, is replaced by a newer one. There are two anchors at a time: with the near
one, units of up to 4,096 characters are seen soon, with the far one all others. A loop is found up
to one reach and one unit after its last necessary copy, at the same character for any cut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from monitor._util.hashing import chained
from monitor._util.state import StateOfAttributes
from monitor.detectors.text.hit import Hit
from monitor.detectors.text.structure import is_code, is_numbers, kind_of, words_percent
from monitor.verdicts import Level

ANCHOR_CHARS = 64
PIECE_CHARS = 1_024
"""How much is searched and hashed at once."""
NEAR_CHARS = 4_096
"""The most characters between two places of the near anchor."""
MOST_MISSES = 3
"""Different texts between the places of an anchor, before it is replaced."""
OFFSETS_SHOWN = 12
ROOM_CHARS = PIECE_CHARS + ANCHOR_CHARS
"""How far back of the text's end the scanner may look."""


class Anchor(StateOfAttributes):
    """One anchor, and what has come since it was found last. Positions are offsets in the
    channel.
    """

    __slots__ = ("_at", "_digest", "_hash", "_misses", "_places", "_reach", "_same", "_text", "due")
    STATE = __slots__

    def __init__(self, reach: int) -> None:
        self._reach = reach

    def take(self, text: str, base: int, at: int) -> None:
        """Take the text that ends at `at` for the anchor."""
        place = at - ANCHOR_CHARS
        self._text = text[place - base : at - base]
        self._digest = self._same = self._misses = 0
        self._places = [place]
        self._begin(place)

    def _begin(self, place: int) -> None:
        self._hash = 0
        self._at = place + 1
        self.due = self._at + PIECE_CHARS + ANCHOR_CHARS - 1

    def scan(self, text: str, base: int) -> bool:
        """Take in the text up to `due`. True: another copy has come."""
        at, start = self.due, self._at - base
        found = text.find(self._text, start, at - base)
        if found >= 0:
            return self._found(text, base, found, at)
        self._at = at - ANCHOR_CHARS + 1
        self._hash = chained(self._hash, text[start : self._at - base])
        self.due = at + PIECE_CHARS
        if at - self._places[-1] > self._reach + ANCHOR_CHARS:
            self.take(text, base, at)
        return False

    def _found(self, text: str, base: int, found: int, at: int) -> bool:
        places, place = self._places, found + base
        digest = chained(self._hash, text[self._at - base : found])
        again = len(places) > 1 and digest == self._digest and place - places[-1] == places[-1] - places[-2]
        self._misses = 0 if again else self._misses + 1
        if place - places[-1] < PIECE_CHARS or self._misses > MOST_MISSES:
            self.take(text, base, at)
            return False
        self._same = self._same + 1 if again else 1
        self._places = [*(places[1 - OFFSETS_SHOWN :] if again else places[-1:]), place]
        self._digest = digest
        self._begin(place)
        return again

    def hit(self, copies: int, level: Level, end: int) -> Hit | None:
        """The finding at `end`, if there are `copies` of the text and not more."""
        if self._same != copies or is_numbers(self._text):
            return None
        length = self._places[-1] - self._places[-2]
        return Hit(
            kind="copies",
            level=level,
            unit=self._text,
            length=length,
            count=copies,
            threshold=copies,
            start=self._places[-1] - copies * length,
            end=end,
            offsets=tuple(self._places[:-1]),  # behind the last copy stands only the anchor
            message=f"{copies} times the same {length} characters",
        )


class CopyScanner:
    """Looks for long copies in one channel. Pull based: call `scan` when the text has reached
    `due`.
    """

    __slots__ = ("_anchors", "_longest", "_loop", "_suspect", "due")

    def __init__(self, longest: int, suspect: int, loop: int) -> None:
        self._longest, self._suspect, self._loop = longest, suspect, loop
        self._anchors: tuple[Anchor, ...] = ()
        self.due = PIECE_CHARS

    def restart(self, offset: int) -> None:
        """Text before `offset` is no evidence any more."""
        self._anchors = ()
        self.due = offset + PIECE_CHARS

    def scan(self, text: str, base: int) -> Hit | None:
        """Take in the text up to `due`, which has arrived. `text` starts at `base`."""
        at, hit = self.due, None
        if not self._anchors:  # most channels never get here
            self._anchors = (Anchor(min(NEAR_CHARS, self._longest)), Anchor(self._longest))
            for anchor in self._anchors:
                anchor.take(text, base, at)
        for anchor in self._anchors:
            if anchor.due == at and anchor.scan(text, base) and hit is None:
                hit = anchor.hit(self._loop, "loop", at) or anchor.hit(self._suspect, "suspect", at)
        self.due = min(anchor.due for anchor in self._anchors)
        return hit

    def snapshot(self) -> dict[str, Any]:
        """The anchors, hashes and positions."""
        return {"due": self.due, "anchors": [anchor.snapshot() for anchor in self._anchors]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `snapshot`."""
        self.due, self._anchors = int(state["due"]), tuple(Anchor(self._longest) for _ in state["anchors"])
        for anchor, kept in zip(self._anchors, state["anchors"], strict=True):
            anchor.restore(kept)


# --------------------------------------------------------------------------------------------------
# Few words: a handful of short phrases in any order.
#
# It answers a model that urges itself on for its whole budget ("I'll do it. Now. I'll start. OK.
# I'll do it."). Nothing recurs at a distance, because every order is another one, but nothing is
# said either.
#
# Rule: 4096 characters have at least 256 words, at most 32 of them different, and seven in ten
# characters are letters or blanks. Prose of that length has more than 200 different words.
# Tables, boards and scores of music have few words, but not of letters; nor has code (see
# `markdown` and `text_kind`). Lists of answers (`True`, `False`) fulfil the rule, so this is a
# suspicion; two in a row are a loop.
#
# How: words are counted at each multiple of 4096 characters, and only if six short samples stand
# there sixteen times each. Elsewhere this costs one count.

WORDS_STEP = 4_096
LEAST_WORDS = 256
MOST_DIFFERENT = 32
POOR_ROUNDS = 2
"""Looks in a row that make a loop."""
WORDS_PERCENT = 70
"""Letters and blanks: lower than for recurrence, as there is a full stop behind every second or
third word.
"""
SAMPLES = 6
SAMPLE_CHARS = 4
LEAST_COPIES = 16
SOON_CHARS = 512
"""The first of them comes again so soon; that is found out sooner than how often it comes."""
SHOWN_CHARS = 80
_WORD = re.compile(r"[^\W\d_]+")


class Vocabulary(StateOfAttributes):
    """Counts the words of one channel. Pull based: call `scan` when the text has reached `due`."""

    __slots__ = ("_common", "_rounds", "due")
    STATE = ("_rounds", "due")

    _rounds: int
    """Looks in a row that found few words."""
    _common: int
    """Where the samples were found to be common. Other rules that are due before that ask again."""

    def __init__(self) -> None:
        self.restart(0)

    def restart(self, offset: int) -> None:
        """Text before `offset` is no evidence any more."""
        self._rounds = self._common = 0
        self.due = -(-offset // WORDS_STEP) * WORDS_STEP + WORDS_STEP

    def seek(self, text: str, base: int, end: int) -> None:
        """Run on over text in which a few samples are rare. Afterwards `due` is where something may
        end, or beyond `end`.
        """
        while self.due <= end and self.due != self._common:
            if _are_common(text, self.due - base):
                self._common = self.due
                break
            self._rounds = 0
            self.due += WORDS_STEP

    def scan(self, text: str, base: int) -> Hit | None:
        """Count the words before `due`, which has arrived. `text` starts at `base`; `seek` has been
        there.
        """
        at = self.due
        self.due = at + WORDS_STEP
        stop = at - base
        region = text[stop - WORDS_STEP : stop]
        words = _WORD.findall(region)
        different = len(set(words))
        if (
            len(words) < LEAST_WORDS
            or different > MOST_DIFFERENT
            or is_code(region)
            or words_percent(region) < WORDS_PERCENT
            or kind_of(region) not in {"prose", "verse", "list"}
        ):
            self._rounds = 0
            return None
        self._rounds += 1
        return Hit(
            kind="few_words",
            level="loop" if self._rounds >= POOR_ROUNDS else "suspect",
            again=self._rounds > 1,
            unit=text[stop - SHOWN_CHARS : stop],
            count=len(words),
            threshold=LEAST_WORDS,
            start=at - WORDS_STEP,
            end=at,
            offsets=(at - SHOWN_CHARS,),
            message=f"{len(words)} words, only {different} of them different,",
        )


def _are_common(text: str, stop: int) -> bool:
    """Whether each of some short samples stands often in the text that ends at `stop`."""
    start = stop - WORDS_STEP
    if text[start : start + SAMPLE_CHARS] not in text[start + 1 : start + SOON_CHARS]:
        return False
    samples = (text[at : at + SAMPLE_CHARS] for at in range(start, stop, WORDS_STEP // SAMPLES))
    return all(text.count(sample, start, stop) >= LEAST_COPIES for sample in samples)
