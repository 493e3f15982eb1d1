"""Describes each step of a run, a call with its result, in numbers that a model can weigh.

Failure answered: hand-set rules for kinds of steps (a clock, a receipt, the next page) never end,
and each new one misreads some other run. Here a step has some forty numbers that know nothing of
any tool, and of no language but numerals. They say how the call differs from earlier calls, and
what is new in the result. They also say how steps return, and what the request allows.
`evidence.json` says what they are worth together.

Rules:

- A result is read given its call: what the call said is not counted as shown.
- Words, numbers and ids (`v7`, `8f3a`) are kept apart. Each is known by 32 bits (`mark`).
- Of a long text the beginning and the end are read, and the middle is one id (`abridged`).
- `recent.X` and `lasting.X` are running means of the number `X` over about 4 and 12 steps. Calls
  that were made together count as one step.
- Amounts without a bound are logarithms, so that a mean is not the largest of them.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import log1p
from typing import Any

from monitor.detectors.calls.allowance import LEAST, NUMBERS, Allowance
from monitor.detectors.calls.seen_marks import MarkTable, SeenMarks, WordMarks, mark, packed, unpacked

HEAD_CHARS, TAIL_CHARS = 1_500, 500
"""How much of a result is read word by word, from its beginning and from its end."""
ARGUMENTS_CHARS = 1_500
"""How much of the arguments of one call is read."""
PLACES = 24
"""The most arguments of a call that are read, and the deepest nesting of them."""
CALLS_KEPT = 512
"""The different calls, and the different states of results, that are known again."""
TOOLS_KEPT = 16
"""The tools whose latest call is compared with the next one, the newest."""
WORDS_KEPT = 64
"""The words of a tool's latest call that are compared."""
REQUEST_WORDS = 512
"""The words of the requests that are kept, the newest."""
MOST_TIMES = 500
"""A larger number in a request is no number of times."""
FALLING_KEPT, COLUMNS = 16, 8
"""The states of results, and the first numbers in each, that are followed."""
ORDER_KEPT = 36
"""The newest steps whose order is compared: three rounds of the longest ring."""
LONGEST_RING = 12
NEWEST = 8
"""The newest steps among which the different ones are counted."""
MEANS: Mapping[str, float] = {"recent": 0.75, "lasting": 0.92}
"""How much of a running mean stays with each step."""
MOST_IDLE = 3.0
"""How many times the allowance steps without news are counted."""
NEWS = 0.25
"""A result is news with two new words, or if its new words are this share of all."""
_TOKEN = re.compile(r"\d+(?:[.,:]\d+){0,3}(?![^\W_])|[^\W_]+")
_FIRST_UNSPACED = "\u2e80"
"""The first sign of the scripts without spaces: two of their signs are read as a word."""
_MARKS = WordMarks()


# --------------------------------------------------------------------------------------------------
# Texts as marks.


@dataclass(slots=True, frozen=True)
class Reading:
    """A text as marks, in the order of the text."""

    words: list[int]
    numbers: list[int]
    ids: list[int]
    values: list[str]
    """The numbers as they are written."""

    @classmethod
    def of(cls, text: str) -> Reading:
        """Read a text, which is not long."""
        tokens = _TOKEN.findall(text.casefold())
        words = [token for token in tokens if token.isalpha()]
        if not text.isascii():
            words = [piece for word in words for piece in _pieces(word)]
        mixed = [token for token in tokens if not token.isalpha()]
        values = [token for token in mixed if not any(map(str.isalpha, token))]
        ids = [token for token in mixed if any(map(str.isalpha, token))] if len(values) < len(mixed) else []
        return cls(_MARKS.of(words), _MARKS.of(values), _MARKS.of(ids), values)

    @property
    def marks(self) -> list[int]:
        """All marks."""
        return [*self.words, *self.numbers, *self.ids]


def _pieces(word: str) -> Iterable[str]:
    if max(word) < _FIRST_UNSPACED:
        return (word,)
    return (word[at : at + 2] for at in range(max(1, len(word) - 1)))


def abridged(text: str) -> str:
    """The beginning and the end of a long text, with the mark of its middle between them."""
    if len(text) <= HEAD_CHARS + TAIL_CHARS:
        return text
    return f"{text[:HEAD_CHARS]}\n{mark(text[HEAD_CHARS:-TAIL_CHARS]):x}\n{text[-TAIL_CHARS:]}"


def leaves_of(arguments: object) -> tuple[tuple[str, str], ...]:
    """The values of the arguments as text, each with its place. A text that is too long ends in the
    mark of the whole.
    """
    leaves: list[tuple[str, str]] = []
    room = ARGUMENTS_CHARS
    for place, value in islice(_leaves(arguments, "", 0), PLACES):
        leaves.append((place, value if len(value) <= room else f"{value[:room]} {mark(value):x}"))
        room -= min(room, len(value))
    return tuple(leaves)


def _leaves(value: object, place: str, depth: int) -> Iterator[tuple[str, str]]:
    inner: Iterable[tuple[object, object]]
    if isinstance(value, str):
        yield place, value
        return
    if isinstance(value, Mapping) and depth < PLACES:
        inner = [(key, value[key]) for key in sorted(value, key=str)[:PLACES]]
    elif isinstance(value, list | tuple) and depth < PLACES:
        inner = enumerate(value[:PLACES])
    else:
        yield place, _as_text(value)
        return
    for key, one in inner:
        yield from _leaves(one, f"{place}.{str(key)[:WORDS_KEPT]}", depth + 1)


def _as_text(value: object) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return type(value).__name__


def _as_number(text: str) -> float:
    """A number as it is written; of a clock, its digits."""
    try:
        return float(text.replace(",", "").replace(":", ""))
    except ValueError:  # an address, or a version
        return 0.0


def _overlap(one: set[int], other: set[int]) -> float:
    """The share of all that two sets have that both have."""
    return len(one & other) / len(one | other) if one or other else 1.0


def _share(part: int, whole: int) -> float:
    return part / max(1, whole)


def trim(kept: dict[Any, Any], most: int) -> None:
    """Drop the oldest of `kept` beyond `most`."""
    while len(kept) > most:
        del kept[next(iter(kept))]


# --------------------------------------------------------------------------------------------------
# The steps of a run.


@dataclass(slots=True, frozen=True)
class DescribedStep:
    """A call with its result."""

    name: str
    leaves: Sequence[tuple[str, str]]
    """The arguments, by their place."""
    text: str
    """The result, `abridged`."""
    is_error: bool = False
    siblings: int = 1
    """The number of calls that were made together with it, itself included."""


@dataclass(slots=True, frozen=True)
class Described:
    """A step in numbers and in words."""

    features: Mapping[str, float]
    """The numbers, by their name."""
    is_news: bool
    """The result shows words that the run has not seen."""
    is_equal: bool
    """Call and result are, to the letter, those of the step before."""
    words: str
    """How the call differs, and what the result shows: two facts, for people."""


@dataclass(slots=True)
class _Mean:
    """A running mean of several numbers, right from the first step on."""

    weight: float = 0.0
    values: dict[str, float] = field(default_factory=dict[str, float])

    def add(self, numbers: Mapping[str, float], keep: float) -> Iterator[tuple[str, float]]:
        """Take in a step. Returns the means."""
        self.weight = self.weight * keep + 1 - keep
        self.values = {name: self.values.get(name, 0.0) * keep + (1 - keep) * x for name, x in numbers.items()}
        return ((name, x / self.weight) for name, x in self.values.items())


class StepFeatures:
    """Describes the steps of one run, one after the other. `saved`: what `save` returned."""

    __slots__ = (
        "_calls",
        "_errors",
        "_falling",
        "_idle",
        "_latest",
        "_made",
        "_means",
        "_order",
        "_requested",
        "_seen",
        "_states",
        "_step",
        "_times",
    )

    def __init__(self, saved: Mapping[str, Any] | None = None) -> None:
        self._step, self._errors, self._idle = 0, 0, 0.0
        self._times: list[int] = []
        """The numbers of times that the requests may name, the smallest first."""
        self._requested: dict[int, None] = {}
        """The words of the requests."""
        self._seen = SeenMarks()
        self._calls = MarkTable(CALLS_KEPT, 4)
        """By call: its newest step, and the marks of its result and of the state of that."""
        self._states = MarkTable(CALLS_KEPT, 3)
        """By state: how often it was seen, and its newest step."""
        self._latest: dict[str, tuple[list[int], dict[int, int]]] = {}
        """By tool: the words of its latest call, and the marks of its arguments by their place."""
        self._falling: dict[int, tuple[list[float], list[int]]] = {}
        """By state: its newest numbers, and how often each has fallen; -1: it has risen."""
        self._made: dict[str, int] = {}
        """By tool: the number of its calls."""
        self._order: deque[tuple[int, int, int, int]] = deque(maxlen=ORDER_KEPT)
        """The newest steps: call, state, call with result, answer."""
        self._means = {name: _Mean() for name in MEANS}
        if saved is not None:
            self._restore(saved)

    @property
    def knows_request(self) -> bool:
        """Whether a request is known."""
        return bool(self._requested)

    def request(self, text: str) -> None:
        """Take in what the user asks for."""
        text = abridged(text)
        reading = Reading.of(text)
        self._requested |= dict.fromkeys(reading.marks)
        trim(self._requested, REQUEST_WORDS)
        said = {int(one) for one in reading.values if one.isdecimal() and len(one) <= len(str(MOST_TIMES))}
        said |= {NUMBERS[one] for one in _TOKEN.findall(text.casefold()) if one in NUMBERS}
        self._times = sorted({*self._times, *(one for one in said if LEAST <= one <= MOST_TIMES)})

    def take(self, step: DescribedStep, allowed: Allowance) -> Described:
        """Describe the next step, and learn from it. `allowed`: what the request allows."""
        self._step += 1
        call, result = Reading.of("\n".join(value for _, value in step.leaves)), Reading.of(step.text)
        called = set(call.marks)
        key, told = mark(f"{step.name}{step.leaves!r}"), mark(step.text)
        words = [one for one in result.words if one not in called]
        numbers = [one for one in result.numbers if one not in called]
        ids = [one for one in result.ids if one not in called]
        bag = sum(words) & 0xFFFFFFFF
        state = mark(f"{step.name} {bag} {len(words)} {len(numbers) > 0}")
        answer = mark(f"{step.name} {bag} {numbers} {ids}")
        tried = [one ^ _CALLED for one in called]
        new = [
            one
            for one in dict.fromkeys(words)
            if one not in self._requested and one not in self._seen and one ^ _CALLED not in self._seen
        ]
        is_news = len(new) > 1 or (len(new) > 0 and _share(len(new), len(set(words))) >= NEWS)
        self._idle = 0.0 if is_news else self._idle + 1 / step.siblings
        self._errors = self._errors + 1 if step.is_error else 0
        is_equal = bool(self._order) and self._order[-1][2] == mark(f"{key} {told}")
        self._order.append((key, state, mark(f"{key} {told}"), answer))
        before, known = self._calls.get(key), self._states.get(state)
        averaged = {
            **self._of_call(step, call, called, tried),
            "call_gap": log1p(self._step - before[0]) if before else 0.0,
            "same_result": float(bool(before) and before[1] == told),
            "same_state": float(bool(before) and before[2] == state),
            "result_words": log1p(len(words)),
            "result_numbers": log1p(len(numbers) + len(ids)),
            "new_numbers": _share(self._seen.unseen(set(numbers)), len(set(numbers))),
            "state_times": log1p(known[0]) if known else 0.0,
            "state_gap": log1p(self._step - known[1]) if known else 0.0,
            "falling": self._falls(state, result.values),
            "within_times": float(bool(self._times) and self._made.get(step.name, 0) < self._times[-1]),
        }
        features = {
            **averaged,
            **self._of_order(),
            **_of_idle(self._idle, allowed),
            "errors": log1p(self._errors),
        }
        for name, keep in MEANS.items():
            means = self._means[name].add(averaged, keep ** (1 / step.siblings))
            features |= {f"{name}.{of}": x for of, x in means}
        described = Described(features, is_news, is_equal, _words_of(averaged, step, is_news=is_news))
        self._seen.add([*dict.fromkeys(words), *numbers, *ids, *tried])
        self._calls.put(key, self._step, told, state)
        self._states.put(state, (known[0] if known else 0) + 1, self._step)
        self._made[step.name] = self._made.pop(step.name, 0) + 1
        for by_tool in (self._latest, self._made):
            trim(by_tool, TOOLS_KEPT)
        return described

    def _of_call(self, step: DescribedStep, call: Reading, called: set[int], tried: Sequence[int]) -> dict[str, float]:
        """How the call differs from those before it."""
        latest = self._latest.pop(step.name, None)
        places = {mark(place): mark(value) for place, value in step.leaves}
        changed = 0
        if latest and [*latest[1]] == [*places]:
            changed = sum(one != other for one, other in zip(places.values(), latest[1].values(), strict=True))
        fresh = [one for one, said in zip(called, tried, strict=True) if said not in self._seen]
        self._latest[step.name] = sorted(called)[:WORDS_KEPT], places
        return {
            "first_call": float(latest is None),
            "like_latest": _overlap(called, set(latest[0])) if latest else 0.0,
            "requested": _share(sum(one in self._requested for one in fresh), len(fresh)),
            "seen_before": float(any(one in self._seen for one in fresh)),
            "call_words": log1p(len(call.words)),
            "wordiness": _share(len(call.words), len(call.words) + len(call.numbers) + len(call.ids)),
            "places_changed": min(float(changed), 4.0),
        }

    def _falls(self, state: int, written: Sequence[str]) -> float:
        """Whether a number of this state only falls: what is left, an error, an age."""
        numbers = [_as_number(one) for one in written[:COLUMNS]]
        before, fallen = self._falling.pop(state, ([], []))
        if len(before) == len(numbers):
            columns = zip(before, numbers, fallen, strict=True)
            fallen = [-1 if was < 0 or now > last else was + (now < last) for last, now, was in columns]
        else:
            fallen = [0] * len(numbers)
        self._falling[state] = numbers, fallen
        trim(self._falling, FALLING_KEPT)
        most = max(fallen, default=0)
        return min(1.0, most / 4) if most > 1 else 0.0

    def _of_order(self) -> dict[str, float]:
        """How the newest steps return."""
        calls, states, pairs, answers = zip(*self._order, strict=True)
        few = len(calls) <= 2  # noqa: PLR2004 - two steps repeat nothing
        newest = min(NEWEST, len(calls))
        return {
            "state_ring": _ring(states),
            "pair_ring": _ring(pairs),
            "different_calls": len(set(calls[-NEWEST:])) / NEWEST,
            "different_pairs": 1.0 if few else len(set(pairs[-NEWEST:])) / newest,
            "different_answers": 1.0 if few else len(set(answers[-NEWEST:])) / newest,
        }

    def save(self) -> dict[str, Any]:
        """The state as JSON data."""
        return {
            "numbers": [self._step, self._errors, self._idle],
            "times": self._times[:],
            "requested": packed(self._requested),
            "seen": self._seen.save(),
            "calls": self._calls.save(),
            "states": self._states.save(),
            "latest": [
                [tool, packed(words), packed(places), packed(places.values())]
                for tool, (words, places) in self._latest.items()
            ],
            "falling": [[state, *rows] for state, rows in self._falling.items()],
            "made": [*self._made.items()],
            "order": [packed(column) for column in zip(*self._order, strict=True)],
            "means": {name: [mean.weight, dict(mean.values)] for name, mean in self._means.items()},
        }

    def _restore(self, saved: Mapping[str, Any]) -> None:
        self._step, self._errors, self._idle = saved["numbers"]
        self._times = [*saved["times"]]
        self._requested = dict.fromkeys(unpacked(saved["requested"]))
        self._seen = SeenMarks(saved["seen"])
        self._calls.load(saved["calls"])
        self._states.load(saved["states"])
        self._latest = {
            tool: (unpacked(words), dict(zip(unpacked(places), unpacked(values), strict=True)))
            for tool, words, places, values in saved["latest"]
        }
        self._falling = {state: (numbers[:], fallen[:]) for state, numbers, fallen in saved["falling"]}
        self._made = dict(saved["made"])
        order = [unpacked(column) for column in saved["order"]]
        self._order.extend(zip(*order, strict=True))
        self._means = {name: _Mean(weight, dict(values)) for name, (weight, values) in saved["means"].items()}


_CALLED = mark("call ")
"""What changes the mark of a word into that of the word in a call."""


def _of_idle(idle: float, allowed: Allowance) -> dict[str, float]:
    """The steps without news, and their share of what the request allows; -1: it allows none."""
    kinds = {"times": allowed.times, "items": allowed.items, "looks": allowed.looks, "each": allowed.each}
    kinds["most"] = max(kinds.values())
    shares = {f"idle_{kind}": min(MOST_IDLE, idle / most) if most else -1.0 for kind, most in kinds.items()}
    return {"idle": log1p(idle), **shares}


def _ring(steps: Sequence[int]) -> float:
    """How well the newest steps repeat those one round before, for the ring that fits best."""
    best = 0.0
    for round_ in range(1, min(LONGEST_RING, len(steps) // 2) + 1):
        length = min(len(steps) - round_, max(2 * round_, 6))
        equal = sum(steps[-at] == steps[-at - round_] for at in range(1, length + 1))
        best = max(best, equal / max(length, 6))
    return best


def _words_of(numbers: Mapping[str, float], step: DescribedStep, *, is_news: bool) -> str:
    if numbers["call_gap"]:
        call = "a call made before"
    elif numbers["like_latest"] >= 0.5:  # noqa: PLR2004 - half of its words
        call = "a call like the one before it"
    else:
        call = "a new call"
    if numbers["same_result"]:
        return f"{call}, with the result seen before"
    if step.is_error:
        return f"{call}, with an error"
    if numbers["state_times"]:
        return f"{call}, with an answer seen before"
    return f"{call}, with new words" if is_news else f"{call}, with no new words"
