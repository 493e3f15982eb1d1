"""A call and its result, read as words, numbers and places: what `StateNovelty` compares.

Failure answered: two errors that repeat the guessed path are one error, and two lists in another
order are one list. The words that the call itself said are taken out of its result. The rest,
as a bag of words, is the state that the result shows; its numbers, clocks and ids are slots, which
may move while the state stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from typing import Any

from monitor._util.hashing import identity
from monitor.chunks import ToolResult
from monitor.detectors.calls.answers import found_nothing, is_error
from monitor.detectors.calls.novelty.marks import WordMarks, mark
from monitor.detectors.calls.novelty.words import (
    DECIMAL,
    HEAD_CHARS,
    IS_CLOCK,
    IS_DURATION,
    IS_NUMBER,
    LETTERS,
    first_words,
    items_of,
    tokens,
    unspaced_in,
)

ARGUMENT_CHARS = 2_000
"""How much of an argument is kept; the part behind counts as one word."""
CALL_CHARS = 8_000
"""How much of all arguments of a call is kept."""
CALL_WORDS = 160
"""How many words of one argument are compared with those of earlier calls."""
RICH = 10
"""An answer with so much content is content; a shorter one may be a receipt."""
BARE = 3
"""The most words that a receipt has and the call did not say. It has no number either."""
LEAST_LINES = 4
"""A result with fewer different lines is not compared line by line."""
CHARS_OF_A_LINE = 8
"""A shorter line may stand anywhere."""
LINE = mark("line ")
"""Stands before the lines of results."""
SLOTS = 32
"""How many numbers of a result are followed."""
DEPTH = 40
"""Arguments that are nested deeper are one word."""
ITEMS = 64
"""Further items of a list are one word."""
DIGITS_OF_A_COUNT = 3
"""A longer number is the number of no items that an agent walks through."""
SAID = "§"
"""A number that the call itself said."""
CLOCK, DURATION, ID = ":", "~", "@"
"""What stands before a clock, a duration and an id among the numbers."""
FORMS = (CLOCK, DURATION, ID)

_IS_EPOCH = re.compile(r"1[5-9]\d{8}(?:\d{3}|\.\d{1,9})")
"""Milliseconds since 1970, or seconds with a fraction. Whole seconds may be a number of bytes."""
EPOCH_DIGITS = 10
"""A whole number with fewer digits is no time."""
_EMPTY = re.compile(
    r"[\s\W]{0,600}"
    r"|\s{0,9}[\[{]?\s{0,9}(?:[\"'\w -]{1,40}[:=]\s{0,3})?[\[{(]\s{0,9}[\])}][\s\S]{0,600}"
)
"""No word at all, or an empty list at the beginning: `{"orders": []`."""
_HOLLOW = re.compile(r"\[\s{0,9}\]|\{\s{0,9}\}|\bnull\b")
"""What an empty record has: `{"ok": true}` is none."""
_PAIR = re.compile(
    r"(\d{1,15}(?:\.\d{1,9})?)[ \t]{0,3}(?:/|of|out of|von|de|sur|из)[ \t]{0,3}(\d{1,15}(?:\.\d{1,9})?)"
    r"|(\d{1,15}(?:\.\d{1,9})?)[ \t]{0,3}%"
)
"""`3/9`, `3 of 9`, `42 %`."""
_COUNTED = re.compile(r"[^\W\d_]{1,40}(\d{1,9})")
_SIGNS = re.compile(r"[^\w\s]|(?<=\W)[^\W\d](?=\W)")
"""A sign, or a letter among signs."""
_NO_SIGNS = bytes(at for at in range(128) if chr(at).isalnum() or chr(at).isspace() or at == ord("_"))
LEAST_SIGNS = 8
"""A text with fewer signs is no drawing."""
_DIGIT = re.compile(r"\d")
_CODE = re.compile(r"[\n/\\_={}<>|$;]|(?<!\w)-\w|\w\.\w")
_PROSE = re.compile(r"[^\W\d_]|[ .,!?']")


_MARKS = WordMarks()


def _lines(text: str) -> list[int]:
    read = map(str.strip, text[:HEAD_CHARS].splitlines())
    lines = dict.fromkeys(line for line in read if len(line) >= CHARS_OF_A_LINE)
    return [mark(line, LINE) for line in lines] if len(lines) >= LEAST_LINES else []


def _drawing(text: str, words: Sequence[str]) -> str:
    """A word for the signs of a text that has more signs than letters: a map, a board, a bar.
    `words`: the words of the text.
    """
    read = text[:HEAD_CHARS]
    visible = len("".join(read.split()))
    if read.isascii():  # quicker than the pattern, which finds at most as many
        alone = read.count("_") + sum(len(word) == 1 for word in words)
        if 2 * (alone + len(read.encode().translate(None, _NO_SIGNS))) < visible:
            return ""
    signs = _SIGNS.findall(read)
    if len(signs) < LEAST_SIGNS or 2 * len(signs) < visible:
        return ""
    return identity("".join(signs)).translate(LETTERS)


def number_of(slot: str) -> float | None:
    """A slot as a number; a clock as one number; the number behind the letters of an id (`v7`).
    `None`: it is no number.
    """
    form, said = (slot[0], slot[1:]) if slot[0] in FORMS else ("", slot)
    if form == ID:
        counted = _COUNTED.fullmatch(said)
        return float(counted[1]) if counted else None
    if form == CLOCK:
        return float("".join(_DIGIT.findall(said))[:17])
    if not said[:1].isdecimal():
        return None
    return float(said.replace(",", "")) if said.count(".") <= 1 else None


def _slot(token: str, said: Collection[str]) -> str:
    if token in said:
        return SAID
    if token.isdecimal() and len(token) < EPOCH_DIGITS:
        return token
    if _IS_EPOCH.fullmatch(token):
        return f"{CLOCK}{token}"
    if IS_NUMBER.fullmatch(token):
        return f"{ID}{token}" if token.count(".") > 1 else token  # an address, or a version
    if IS_CLOCK.fullmatch(token):
        return f"{CLOCK}{token}"
    duration = IS_DURATION.fullmatch(token)
    if duration is None:
        return f"{ID}{token}"
    return SAID if duration[1] in said else f"{DURATION}{duration[1]}"


def is_sentence(text: str) -> bool:
    """Whether these are words of a language, and nothing that a program would read."""
    if unspaced_in(text[:400]) >= 6:  # noqa: PLR2004 - a phrase of a script without spaces
        return True
    if len(text) > 400 or len(text.split()) < 2 or _CODE.search(text) is not None:  # noqa: PLR2004
        return False
    return len(_PROSE.findall(text)) >= 0.8 * len(text)


def leaves_of(arguments: Any) -> list[tuple[str, str]]:
    """The values of the arguments, each with its place. Long texts are cut, and end in a hash."""
    kept: list[tuple[str, str]] = []
    room = CALL_CHARS
    for place, value in _leaves(arguments, "", 0):
        shown = value
        if len(value) > min(ARGUMENT_CHARS, room):
            cut = min(ARGUMENT_CHARS, max(room, 0))
            shown = f"{value[:cut]} {identity(value[cut:])}"
        room -= len(shown)
        kept.append((place, shown))
        if len(kept) >= 2 * ITEMS:
            break
    return kept


def _leaves(value: Any, place: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield place, value
    elif depth < DEPTH and isinstance(value, dict):
        for key in sorted(value, key=str)[:ITEMS]:
            yield from _leaves(value[key], f"{place}.{str(key)[:64]}", depth + 1)
    elif depth < DEPTH and isinstance(value, list):
        for at, item in enumerate(value[:ITEMS]):
            yield from _leaves(item, f"{place}.{at}", depth + 1)
    else:
        yield place, _as_text(value)


def _as_text(value: Any) -> str:
    try:
        return json.dumps(value, default=str)
    except (TypeError, ValueError, RecursionError):
        return type(value).__name__


class StepCall:
    """A call as words."""

    def __init__(self, name: str, leaves: Sequence[tuple[str, str]]) -> None:
        self.name = name
        self.leaves = list(leaves)
        self.words: list[tuple[str, list[str]]] = [
            (place, first_words(value, CALL_WORDS)) for place, value in self.leaves
        ]
        """The words of each argument, with its place."""

    @cached_property
    def sentences(self) -> frozenset[str]:
        """The places of the arguments that are sentences."""
        return frozenset(place for place, value in self.leaves if is_sentence(value))

    @cached_property
    def word_of(self) -> dict[str, list[str]]:
        """The words by the place of their argument."""
        return dict(self.words)

    @cached_property
    def said(self) -> set[str]:
        """All that the call said, also the size of what it sent."""
        said = {word for _, words in self.words for word in words}
        said.update(first_words(self.name))
        for place, value in self.leaves:
            said.update(first_words(place))
            if not value.isascii() or len(self.word_of[place]) >= CALL_WORDS or _DIGIT.search(value) is not None:
                said.update(*tokens(value))  # else its words are all that it says
            if len(value) > 8:  # noqa: PLR2004 - a receipt counts the characters, bytes and lines of a text
                lines = value.count("\n")
                size = len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
                said.update(map(str, (len(value), size, lines, lines + 1)))
        return said

    @cached_property
    def items(self) -> list[str]:
        """The names of several words that the call said, each once."""
        return [*dict.fromkeys(item for _, value in self.leaves for item in items_of(value))]

    @cached_property
    def whole_key(self) -> int:
        """The identity of the call, with all its arguments."""
        return self.key(())

    def key(self, cosmetic: Collection[str]) -> int:
        """The identity of the call, without the arguments in the places `cosmetic`."""
        kept = [leaf for leaf in self.leaves if leaf[0] not in cosmetic]
        return int(identity(f"{self.name}({kept!r})"), 16)

    @property
    def numbers(self) -> list[float]:
        """The numbers of all arguments, in their order."""
        return [float(found) for _, value in self.leaves for found in DECIMAL.findall(value)]

    @property
    def all_words(self) -> list[str]:
        """The words of all arguments, in their order."""
        return [word for _, words in self.words for word in words]


@dataclass(slots=True)
class StepResult:
    """A result, given its call."""

    marks: list[int]
    """The words that the call did not say, in their order."""
    size: int
    """The number of words that these are. Two characters of a script without spaces are a word."""
    numbers: list[str]
    """Numbers; a clock with `:` before it, a duration with `~`, an id with `@`."""
    pairs: dict[str, float] | str
    """The end that stands beside a number, by number; or the text in which the ends are looked for
    when they are needed.
    """
    order: int
    """The identity of the words in their order."""
    told: int
    """The identity of all words in their order."""
    state: int
    """The identity of the state: the tool, and the bag of words that the call did not say."""
    state_as_told: int
    """The identity of the state with the words of the call: another call may say fewer of them."""
    answer: int
    """The identity of the numbers that may be an answer."""
    shown: int
    """The identity of all numbers."""
    items: list[int]
    """The names of several words that the result shows."""
    lines: list[int]
    """The lines of a result that has several."""
    failed: bool
    is_empty: bool
    is_refusal: bool
    """Whether the result says no, or nothing."""

    @classmethod
    def of(cls, call: StepCall, result: ToolResult, text: str) -> StepResult:
        """Read `result`. `text`: the result without what a policy calls volatile."""
        said = call.said
        told, slots = tokens(text)
        drawn = _drawing(text, told) if 2 * (sum(map(len, told)) + sum(map(len, slots))) <= len(text) else ""
        if drawn:
            told.append(drawn)
        numbers = [_slot(token, said) for token in slots[:SLOTS]]
        words = [token for token in told if token not in said]
        marks = _MARKS.of(words)
        total = sum(marks)
        as_told = sum(_MARKS.of(told)) if len(words) < len(told) else total
        own = sum(number != SAID for number in numbers)
        is_error_text = is_error(result)
        failed = result.is_error
        is_empty = (len(text) < 600 and _EMPTY.fullmatch(text) is not None) or (failed and not is_error_text)  # noqa: PLR2004
        return cls(
            marks=marks,
            size=len(words)
            if text.isascii()
            else sum(1 if word.isascii() else max(1, unspaced_in(word) // 2) for word in words),
            numbers=numbers,
            pairs=text[:HEAD_CHARS],
            order=mark(" ".join(words)),
            told=mark(" ".join(told)),
            state=_state(call.name, total, len(words), own),
            state_as_told=_state(f"={call.name}", as_told, len(told), len(numbers)),
            answer=mark(repr(sorted(values_of(numbers)))),
            shown=mark(repr(sorted(numbers))),
            items=[mark(item) for item in items_of(text[:HEAD_CHARS])],
            lines=_lines(text),
            failed=failed,
            is_empty=is_empty,
            is_refusal=failed or is_empty or is_error_text or _says_nothing(call, text),
        )

    @property
    def ids(self) -> set[str]:
        """The ids among the numbers."""
        return {number.lstrip("@:~") for number in self.numbers if number != SAID}

    @property
    def ends(self) -> dict[str, float]:
        """The end that stands beside a number, by number."""
        return ends_of(self.pairs, self.numbers) if isinstance(self.pairs, str) else self.pairs

    @property
    def values(self) -> list[str]:
        """The numbers that may be an answer."""
        return values_of(self.numbers)

    @property
    def plain(self) -> int:
        """The identity of the numbers that are neither clock, duration nor id."""
        return mark(repr(sorted(number for number in self.numbers if number[0] not in FORMS and number != SAID)))

    @property
    def content(self) -> int:
        """How much it says that the call did not: words, and numbers twice."""
        return self.size + 2 * sum(number != SAID for number in self.numbers)

    @property
    def is_content(self) -> bool:
        """Whether it says enough to be no receipt."""
        return self.content >= RICH and not self.is_refusal

    @property
    def count(self) -> int:
        """The number that is the whole result: of the items that there are. 0: it is none."""
        bare = not self.size and len(self.numbers) == 1 and self.numbers[0].isdecimal()
        return int(self.numbers[0]) if bare and len(self.numbers[0]) <= DIGITS_OF_A_COUNT else 0

    @property
    def is_bare(self) -> bool:
        """Whether it says next to nothing that the call did not."""
        return len(self.marks) <= BARE and not self.is_refusal and not any(one != SAID for one in self.numbers)

    def save(self) -> list[Any]:
        """The state as JSON data."""
        return list(astuple(replace(self, pairs=self.ends)))


def values_of(numbers: Sequence[str]) -> list[str]:
    """The numbers that may be an answer: a duration says how long it took."""
    return [number for number in numbers if number[0] != DURATION]


def ends_of(text: str, numbers: Collection[str]) -> dict[str, float]:
    """Return for each of `numbers` the end that stands beside it in `text`, as in `3/9`."""
    ends: dict[str, float] = {}
    for done, end, share in _PAIR.findall(text[:HEAD_CHARS]) if numbers else ():
        if (done or share) in numbers:
            ends[done or share] = float(end or 100)
    return ends


def _says_nothing(call: StepCall, text: str) -> bool:
    asked = frozenset(value for _, value in call.leaves)
    if text[:1] not in ("{", "["):
        return found_nothing(text, asked)
    return _HOLLOW.search(text) is not None and found_nothing(text, asked)


def _state(tool: str, total: int, words: int, numbers: int) -> int:
    return (total & 0xFFFFFFFFFFFF) << 16 ^ mark(f"{tool}.{min(words, 400)}.{numbers}")
