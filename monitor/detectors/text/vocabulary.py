"""Few words: a handful of short phrases in any order.

It answers a model that urges itself on for its whole budget ("I'll do it. Now. I'll start. OK. I'll
do it."). Nothing recurs at a distance, because every order is another one, but nothing is said
either.

Rule: 4096 characters have at least 256 words, at most 32 of them different, and seven in ten
characters are letters or blanks. Prose of that length has more than 200 different words. Tables,
boards and scores of music have few words, but not of letters; nor has code (see `markdown` and
`text_kind`). Lists
of answers (`True`, `False`) fulfil the rule, so this is a suspicion; two in a row are a loop.

How: words are counted at each multiple of 4096 characters, and only if six short samples stand
there sixteen times each. Elsewhere this costs one count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from monitor.detectors.text.hit import Hit
from monitor.detectors.text.markdown import is_code, words_percent
from monitor.detectors.text.text_kind import kind_of

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


class Vocabulary:
    """Counts the words of one channel. Pull based: call `scan` when the text has reached `due`."""

    __slots__ = ("_common", "_rounds", "due")

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

    def snapshot(self) -> dict[str, Any]:
        """Positions only; the text is its owner's."""
        return {"rounds": self._rounds, "due": self.due}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `snapshot`."""
        self._rounds, self.due = int(state["rounds"]), int(state["due"])


def _are_common(text: str, stop: int) -> bool:
    """Whether each of some short samples stands often in the text that ends at `stop`."""
    start = stop - WORDS_STEP
    if text[start : start + SAMPLE_CHARS] not in text[start + 1 : start + SOON_CHARS]:
        return False
    samples = (text[at : at + SAMPLE_CHARS] for at in range(start, stop, WORDS_STEP // SAMPLES))
    return all(text.count(sample, start, stop) >= LEAST_COPIES for sample in samples)
