"""Few words: a handful of short phrases in any order. Failure answered: a model that urges itself on for its whole budget ("I'll do it.
Now. I'll start. OK. I'll do it."); nothing recurs at a distance, for every order is another one, but nothing is said either.

Rule: 4096 characters with at least 256 words, at most 32 of them different, seven in ten characters letters or blanks. Prose of that
length has more than 200 different words; tables, boards and scores of music have few, but are not of letters; neither is code (see
`markdown`). Lists of answers (`True`, `False`) are, so this is a suspicion; two in a row are a loop.

How: at each multiple of 4096 characters, and only where six short samples stand there sixteen times each. Elsewhere this costs one count.
"""

from __future__ import annotations

import re

from monitor.detectors.text.hit import Hit
from monitor.detectors.text.markdown import is_code, words_percent

WORDS_STEP = 4_096
LEAST_WORDS = 256
MOST_DIFFERENT = 32
POOR_ROUNDS = 2
"""Looks in a row that make a loop."""
WORDS_PERCENT = 70
"""Letters and blanks: lower than for recurrence, as there is a full stop behind every second or third word."""
SAMPLES = 6
SAMPLE_CHARS = 4
LEAST_COPIES = 16
SHOWN_CHARS = 80
_WORD = re.compile(r"[^\W\d_]+")


class Vocabulary:
    """Looks at one channel, when told to."""

    __slots__ = ("rounds",)

    rounds: int
    """Looks in a row that found few words."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """What was found is no evidence any more."""
        self.rounds = 0

    def look(self, text: str, base: int, at: int) -> Hit | None:
        """At the `WORDS_STEP` characters before `at`. `text` starts at `base`."""
        stop = at - base
        start = stop - WORDS_STEP
        for sample in range(start, stop, WORDS_STEP // SAMPLES):
            if text.count(text[sample : sample + SAMPLE_CHARS], start, stop) < LEAST_COPIES:
                self.rounds = 0
                return None
        region = text[start:stop]
        words = _WORD.findall(region)
        different = len(set(words))
        if len(words) < LEAST_WORDS or different > MOST_DIFFERENT or is_code(region) or words_percent(region) < WORDS_PERCENT:
            self.rounds = 0
            return None
        self.rounds += 1
        return Hit(
            kind="few_words",
            level="loop" if self.rounds >= POOR_ROUNDS else "suspect",
            again=self.rounds > 1,
            unit=text[stop - SHOWN_CHARS : stop],
            count=len(words),
            threshold=LEAST_WORDS,
            start=start + base,
            end=at,
            offsets=(at - SHOWN_CHARS,),
            message=f"{len(words)} words, only {different} of them different,",
        )
