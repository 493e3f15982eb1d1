"""Is a text a loop? A measure of its own, which shares nothing with the detectors.

A text is read as words, numbers and signs. A run of `RUN` of them that stood in the text before is
not new. Where almost nothing is new any more over `SPAN` words, the text goes in circles. The
measure is taken twice, with the digits as they are and with every number read as the same, because
numbered copies are copies and a column of numbers is none. Where the two disagree, and where the
share of what is new is neither low nor high, the measure says `disputed`. Then a person has to read
the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Label: TypeAlias = Literal["loop", "good", "borderline", "disputed"]
"""`borderline` is said by readers alone: a text that repeats itself and then ends by itself."""

RUN: Final = 6
SPAN: Final = 120
LOOP: Final = 0.08
"""At most this share of a span is new: a loop."""
GOOD: Final = 0.35
"""At least this share of every span is new: no loop."""
_WORD: Final = re.compile(r"[0-9]+|[^\W0-9_]{1,24}|[^\w\s]|_")
"""A number, letters, or one sign: so a text without spaces has words too."""
_DIGITS: Final = re.compile(r"[0-9]+")


@dataclass(slots=True, frozen=True)
class Measured:
    """What the measure says of one text."""

    label: Label
    new: float
    """The least share of new words in a span, with the digits as they are."""
    new_but_numbers: float
    """The same, where all numbers are equal."""
    repeats_from: int | None
    """Where the first span begins in which too little is new: the first copy stands before it. In
    characters; `None` if the text is good.
    """


def measured(text: str) -> Measured:
    """Measure `text`."""
    words = [(found.start(), found.group()) for found in _WORD.finditer(text)]
    exact = _spans([word for _, word in words])
    loose = _spans([_DIGITS.sub("0", word) for _, word in words])
    new, new_but_numbers = min(exact), min(loose)
    if new_but_numbers >= GOOD:
        return Measured("good", new, new_but_numbers, None)
    if new <= LOOP:
        return Measured("loop", new, new_but_numbers, words[_first(exact, LOOP)][0])
    return Measured("disputed", new, new_but_numbers, words[_first(loose, GOOD)][0])


def _news(words: Sequence[str]) -> list[bool]:
    """For each word: is the run of words that ends with it new?"""
    seen: set[tuple[str, ...]] = set()
    news = [True] * min(len(words), RUN - 1)
    for end in range(RUN, len(words) + 1):
        run = tuple(words[end - RUN : end])
        news.append(run not in seen)
        seen.add(run)
    return news


def _spans(words: Sequence[str]) -> list[float]:
    """The share of what is new in each span of the text, by the word with which the span begins. A
    text that is shorter than a span has not had the room to loop.
    """
    news = _news(words)
    if len(news) < SPAN:
        return [1.0]
    new = sum(news[:SPAN])
    shares = [new / SPAN]
    for end in range(SPAN, len(news)):
        new += news[end] - news[end - SPAN]
        shares.append(new / SPAN)
    return shares


def _first(shares: Sequence[float], most: float) -> int:
    return next(begin for begin, share in enumerate(shares) if share <= most)
