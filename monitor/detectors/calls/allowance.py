"""What the user's request allows: "20 times", "these 14 functions", "each file", "until it is up".

Failure answered: a run that does twenty times what it was asked to do twenty times was stopped as a
loop. The request is evidence and never a veto: each step without news spends a part of what it
allows, and when that is spent, the steps count again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

REQUEST_CHARS = 8_000
"""How much of a request is read: half of it from the beginning, half from the end."""
EACH_STEPS = 40
"""Items of a set that the request names without a number: "each file"."""
SET_STEPS = 16
"""Items of a set that the request only names: "the scripts"."""
UNTIL_STEPS = 12
"""Looks at something for which the request says to wait, without a number."""
PAIRS_KEPT = 64
"""How many different repetitions are counted."""
LEAST = 3
"""A smaller number allows nothing that is not allowed anyway."""
LEAST_DEEDS, MOST_DEEDS = 8, 40
"""This many things may each be done by the same calls: "ten drills"."""
LEAST_ROW = 5
"""A shorter row of numbers allows nothing: "temp1 to folder3" are two names."""
NUMBERS = {
    word: number
    for number, word in enumerate(
        (
            *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
            *("twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
        )
    )
} | {"thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "hundred": 100}
_COUNTED = re.compile(
    rf"(?<![\w.:/-])(\d{{1,3}}|{'|'.join(NUMBERS)})[ \n]"
    r"(?!%|percent|seconds?\b|minutes?\b|hours?\b|days?\b|weeks?\b|months?\b|years?\b)([^\W\d_]{3,40})",
    re.IGNORECASE,
)
_RANGE = re.compile(
    r"(?<!\d)(\d{1,4})[^\s\d]{0,20} (?:to|through|until|till|bis|al?|à) [^\s\d]{0,40}(\d{1,4})(?!\d)",
    re.IGNORECASE,
)
"""The first and the last of a row: "src/f1.py to src/f60.py"."""
_EACH = re.compile(
    r"\b(?:each|every|all|any|which|these|those|one by one|one after|per|jede[mnrs]?|alle[nrs]?|todos|todas"
    r"|cada|chaque|tous|toutes)\b|每|所有|全部|すべて",
    re.IGNORECASE,
)
_SET = re.compile(
    r"\b(?:who|whom|whose)\b|\b(?:the|my|our|its|their|his|her)(?: [^\W\d_]{1,20}){0,2} [^\W\d_]{2,20}[^\W\d_s]s\b",
    re.IGNORECASE,
)
"""A definite plural: "the scripts"."""
_UNTIL = re.compile(
    r"\b(?:wait|until|till|watch|monitor|poll|keep|while|once it|when (?:it|the|there)|as soon as|warte|bis|espera"
    r"|hasta|attend[a-z]{0,3}|jusqu.)\b|等|直到|まで",
    re.IGNORECASE,
)
_TIMES = re.compile(r"(?:times?|runs?|rounds?|ticks?|turns?|steps?|again|mal|veces|fois)", re.IGNORECASE)
_TWO_DIGITS = re.compile(r"(?<![\w.])\d{1,2}(?![\w.])")


@dataclass(slots=True)
class Allowance:
    """The rest of the repetitions that the request allows."""

    times: int = 0
    """Repetitions of one call after the same call before it: "20 times"."""
    items: int = 0
    """Items of a set whose number is named: "these 14 functions"."""
    looks: int = 0
    """Looks while waiting: "until it answers"."""
    each: int = 0
    """Items of a set without a number: "every file"."""
    repeated: dict[int, int] = field(default_factory=dict[int, int])
    """How often each repetition was made, as far as the request allows it."""

    def add(self, request: str) -> None:
        """Read a request. A new request renews what is allowed, and takes nothing away."""
        half = REQUEST_CHARS // 2
        read = request if len(request) <= REQUEST_CHARS else f"{request[:half]}\n{request[-half:]}"
        times, items, looks, each = _allowed_by(read)
        if times:
            self.repeated.clear()
        self.times, self.items = max(self.times, times), max(self.items, items)
        self.looks, self.each = max(self.looks, looks), max(self.each, each)

    def repeat(self, pair: int) -> bool:
        """Whether the request allows one more repetition. `pair`: the call with the one before it:
        "ten runs each" of two programs are ten times each pair.
        """
        made = self.repeated.pop(pair, 0)
        self.repeated[pair] = made + (made < self.times)
        if len(self.repeated) > PAIRS_KEPT:
            del self.repeated[next(iter(self.repeated))]
        return made < self.times

    def repetitions(self, *, without_arguments: bool) -> int:
        """The number of times that one call may be repeated. `without_arguments`: such a call may
        be an item.
        """
        return max(self.times, self.looks, self.items if without_arguments else 0)

    def save(self) -> list[Any]:
        """The state as JSON data."""
        return [self.times, self.items, self.looks, self.each, list(self.repeated.items())]

    def load(self, saved: Sequence[Any]) -> None:
        """Take over what `save` returned."""
        self.times, self.items, self.looks, self.each = map(int, saved[:4])
        self.repeated = {int(pair): int(made) for pair, made in saved[4]}


@lru_cache(maxsize=4)
def _allowed_by(read: str) -> tuple[int, int, int, int]:
    """The repetitions, items, looks, and items without a number that a request names. Each detector
    of calls asks for the same request in turn, so the latest ones are kept.
    """
    times = items = looks = each = 0
    for found in _COUNTED.finditer(read):
        said = found[1]
        number = int(said) if said.isdecimal() else NUMBERS[said.lower()]
        if number < LEAST:
            continue
        items = max(items, number)
        before = read[max(0, found.start() - 7) : found.start()].split()
        if (
            LEAST_DEEDS <= number <= MOST_DEEDS
            or _TIMES.fullmatch(found[2])
            or (before and _TIMES.fullmatch(before[-1]))
        ):
            times = max(times, number)
    for first, last in _RANGE.findall(read):
        row = int(last) - int(first) + 1
        items = max(items, row if row >= LEAST_ROW else 0)
    if _EACH.search(read):
        each = EACH_STEPS
    elif _SET.search(read):
        each = SET_STEPS
    if _UNTIL.search(read):
        looks = max(UNTIL_STEPS, *map(int, _TWO_DIGITS.findall(read)), 0)
    return times, items, looks, each


# --------------------------------------------------------------------------------------------------
# A form is a pattern that is matched only where it can be found.
#
# Failure answered: a scan of a disk reads every result of every tool. A pattern takes 10 to 80 ns
# a character, and mostly finds nothing. Two letters in a row are found in less than 1 ns a
# character.
#
# Rules:
#
# - The outline of a text has one character for each: ASCII in lower case, each digit as `0`, and
#   any character beyond Latin-1 as `?`. So `0:00` stands for each time of the day.
# - Wherever the pattern matches a text, its signs stand in the outline. The other way round need
#   not hold.

_LOWER_AND_0 = bytes.maketrans(b"123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"0" * 9 + b"abcdefghijklmnopqrstuvwxyz")
_latest: tuple[str, str] = "", ""
"""The latest text, and its outline: several forms are looked for in the same text."""


def outline(text: str) -> str:
    """`text` in lower case, with each digit as `0`."""
    global _latest  # noqa: PLW0603 - one tuple, put in its place whole
    known, found = _latest
    if known is text:
        return found
    found = text.encode("latin-1", "replace").translate(_LOWER_AND_0).decode("latin-1")
    _latest = text, found
    return found


@dataclass(slots=True, frozen=True)
class FilteredPattern:
    """A pattern, and what the outline of each text has that it matches: one of `signs`, and a place
    where `around` is true.
    """

    pattern: re.Pattern[str]
    signs: tuple[str, ...] = ()
    around: Callable[[str], object] | None = None

    def may_be_in(self, outline: str) -> bool:
        """False: the pattern matches nowhere in the text with this outline."""
        for sign in self.signs:
            if sign in outline:
                break
        else:
            if self.signs:
                return False
        return self.around is None or bool(self.around(outline))

    def is_in(self, text: str) -> bool:
        """Whether the pattern matches somewhere."""
        return self.may_be_in(outline(text)) and self.pattern.search(text) is not None

    def replaced(self, text: str, put: str | Callable[[re.Match[str]], str] = "") -> str:
        """`text` with something, or nothing, in place of each match."""
        return self.pattern.sub(put, text) if self.may_be_in(outline(text)) else text

    def counted(self, text: str) -> tuple[str, int]:
        """`text` without the matches, and how many there were."""
        return self.pattern.subn("", text) if self.may_be_in(outline(text)) else (text, 0)
