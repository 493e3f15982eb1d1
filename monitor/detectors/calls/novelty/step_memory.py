"""What a run has seen of its calls and results, within a fixed size.

Failure answered: a memory of all calls grows with the run. The newest 256 calls are known by their
hashes, the newest 512 states too. Only of the newest calls the numbers are kept.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from monitor.detectors.calls.novelty.marks import SeenMarks, WordMarks, mark
from monitor.detectors.calls.novelty.slot_movement import Drift, SlotMovement
from monitor.detectors.calls.novelty.step_reading import StepCall, StepResult

CALLS_KEPT = 256
"""Four rounds of 64 different calls."""
STATES_KEPT = 512
MOVING_KEPT = 32
"""The number of calls, and of states, whose numbers are kept."""
NEAR_KEPT = 24
"""The number of the newest calls that are kept word by word."""
COMPARED = 6
"""The number of the newest calls of its tool with which a call is compared."""
TOOLS_KEPT = 32
ROW_KEPT = 6
ROW_NUMBERS = 8
ROWS_COMPARED = 4
"""The calls that show whether their numbers go to and fro."""
TURNS = 2
"""A row turns back less often than that: at the end of a line of a grid."""
DEPTH_OF_A_PATH = 8
"""The number of names of a path that are read."""
PARTS_KEPT = 512
"""The paths whose parts are kept, by all runs together: most paths come again."""
BAND = 0.1
"""Numbers of calls within this share of their level are one place."""

CALLED = mark("called ")
"""Stands before the words of calls."""
_CALLED_MARKS = WordMarks(CALLED)


@dataclass(slots=True)
class SeenCall:
    """The last time that a call was made."""

    state: int
    shown: int
    step: int
    failed: bool
    refused: bool
    checked: bool
    """Whether the call was made again before, after something was done."""


class Ring:
    """The newest numbers, a fixed count of them: each is known by its place."""

    __slots__ = ("_next", "_size", "numbers")

    def __init__(self, size: int, saved: Sequence[Any] | None = None) -> None:
        self._size = size
        self._next = int(saved[0]) if saved else 0
        self.numbers = array("Q", map(int, saved[1]) if saved else ())

    def find(self, number: int) -> int | None:
        """The place of `number`."""
        try:
            return self.numbers.index(number)
        except ValueError:
            return None

    def add(self, number: int) -> int:
        """Put `number` in the place of the oldest one. Returns the place."""
        place, self._next = self._next, (self._next + 1) % self._size
        if place == len(self.numbers):
            self.numbers.append(number)
        else:
            self.numbers[place] = number
        return place

    def save(self) -> list[Any]:
        """The state as JSON data."""
        return [self._next, self.numbers.tolist()]


class StepMemory:
    """The calls and states of a run, as far as they are remembered."""

    __slots__ = (
        "_answers",
        "_calls",
        "_failed",
        "_moving",
        "_near",
        "_of_call",
        "_states",
        "_steps",
        "cosmetic",
        "drift",
        "rows",
        "seen",
    )

    def __init__(self, saved: Mapping[str, Any] | None = None) -> None:
        """`saved`: what `save` returned; `None`: nothing was seen."""
        given: Mapping[str, Any] = saved or {}
        self.seen = SeenMarks(given.get("seen"))
        """Words, and with a prefix: words of calls, answers of a state, numbers of a state."""
        self._calls = Ring(CALLS_KEPT, given.get("calls"))
        self._of_call = _array(given.get("of_call"))
        self._answers = _array(given.get("answers"))
        self._steps = _array(given.get("steps"))
        self._states = Ring(STATES_KEPT, given.get("states"))
        self._moving: dict[int, SlotMovement] = {
            int(key): SlotMovement.of(one) for key, one in given.get("moving", {}).items()
        }
        self._near: list[tuple[str, list[tuple[str, list[str]]]]] = [
            (name, [(place, list(words)) for place, words in call]) for name, call in given.get("near", ())
        ]
        self.drift: dict[int, Drift] = {int(key): Drift(rows) for key, rows in given.get("drift", {}).items()}
        self.cosmetic: dict[str, dict[str, int]] = {
            name: {place: int(times) for place, times in places.items()}
            for name, places in given.get("cosmetic", {}).items()
        }
        """The number of times that an argument was only worded anew, by tool and place."""
        self.rows: dict[str, list[list[float]]] = {
            name: [list(map(float, row)) for row in rows] for name, rows in given.get("rows", {}).items()
        }
        """The numbers of the newest calls by tool."""

    def __reduce__(self) -> tuple[type[StepMemory], tuple[dict[str, Any]]]:
        """For `pickle`: the state as JSON data."""
        return type(self), (self.save(),)

    def call(self, key: int) -> SeenCall | None:
        """The last time that the call `key` was made; `None`: it was not, or not lately."""
        place = self._calls.find(key)
        if place is None:
            return None
        step, bits = divmod(self._steps[place], 8)
        return SeenCall(
            self._of_call[place], self._answers[place], step, bool(bits & 1), bool(bits & 2), bool(bits & 4)
        )

    def movement(self, key: int, state: int) -> SlotMovement | None:
        """The numbers of the call `key` whenever it showed `state`, if they are kept."""
        return self._moving.get(key ^ state)

    def keep_call(self, key: int, result: StepResult, step: int, state: int, *, checked: bool) -> None:
        """The call `key` was made at `step` and showed `state`. `checked`: see `SeenCall`."""
        place = self._calls.find(key)
        if place is None:
            place = self._calls.add(key)
        self._of_call[place] = state
        self._answers[place] = result.shown
        self._steps[place] = 8 * step + result.failed + 2 * result.is_refusal + 4 * checked
        moving = self._moving.pop(key ^ state, None) or SlotMovement(result.numbers)
        moving.numbers = result.numbers
        self._moving[key ^ state] = moving
        trim(self._moving, MOVING_KEPT)

    def knows(self, state: int) -> bool:
        """Whether `state` was seen."""
        return self._states.find(state) is not None

    def keep_states(self, states: Iterable[int], result: StepResult) -> None:
        """Each of `states` was seen, with the numbers of `result`."""
        marks: list[int] = []
        for state in states:
            if not self.knows(state):
                self._states.add(state)
            marks += (self._of_state(state, result.answer), self._in_order(state, result.order))
            marks += self._values(state, result.values)
        self.seen.add(marks)

    def knows_answer(self, state: int, answer: int) -> bool:
        """Whether `state` was seen with these numbers."""
        return self._of_state(state, answer) in self.seen

    def knows_order(self, state: int, order: int) -> bool:
        """Whether `state` was seen with its words in this order."""
        return self._in_order(state, order) in self.seen

    def has_new(self, state: int, numbers: Sequence[str]) -> bool:
        """Whether one of `numbers` was not seen with `state`."""
        return any(one not in self.seen for one in self._values(state, numbers))

    def followed(self, before: int, key: int) -> bool:
        """Whether the call `key` was made right after the call `before`; from now on it was."""
        pair = pair_of(before, key)
        known = pair in self.seen
        self.seen.add((pair,))
        return known

    def near(self, tool: str) -> list[list[tuple[str, list[str]]]]:
        """The words of the newest calls of `tool`, the oldest first."""
        return [call for name, call in self._near if name == tool][-COMPARED:]

    def keep_near(self, call: StepCall) -> None:
        """Keep the words of `call`."""
        self._near.append((call.name, [(place, words[:]) for place, words in call.words]))
        del self._near[:-NEAR_KEPT]

    def keep_row(self, call: StepCall) -> None:
        """Keep the numbers of `call`."""
        rows = self.rows.setdefault(call.name, [])
        rows.append(call.numbers[:ROW_NUMBERS])
        del rows[:-ROW_KEPT]
        trim(self.rows, TOOLS_KEPT)

    def is_in_place(self, tool: str) -> bool:
        """Whether the numbers of the newest calls of a tool go to and fro around one place."""
        columns = self._columns(tool)
        return bool(columns) and all(_stays(column) for column in columns)

    def wanders(self, tool: str) -> bool:
        """Whether the numbers of the newest calls of a tool go to and fro, and follow no row."""
        moved = [_moves(column) for column in self._columns(tool)]
        return any(moved) and all(_turns(moves) >= TURNS for moves in moved if moves)

    def _columns(self, tool: str) -> list[tuple[float, ...]]:
        """The numbers of the newest calls by their place; none if the calls have not as many."""
        rows = self.rows.get(tool, ())
        if len(rows) < ROWS_COMPARED or len({len(row) for row in rows}) > 1:
            return []
        return list(zip(*rows, strict=True))

    def was_tried(self, word: str) -> bool:
        """Whether an earlier call said `word`."""
        return mark(word, CALLED) in self.seen

    def is_named(self, items: Collection[str]) -> bool:
        """Whether an earlier result names one of `items` that no call has said, or a part of its
        path: `/app/src/a.ts` and `src/a.ts`.
        """
        return any(not self.was_tried(part) and mark(part) in self.seen for item in items for part in _parts(item))

    def learn(self, call: StepCall, result: StepResult) -> None:
        """Mark the words of both."""
        self.seen.add(
            [
                *result.marks,
                *(mark(number.lstrip("@:~")) for number in result.numbers),
                *result.items,
                *result.lines,
                *_CALLED_MARKS.of(call.all_words),
                *(mark(part, CALLED) for item in call.items for part in _parts(item)),
            ]
        )

    def save(self) -> dict[str, Any]:
        """The state as JSON data."""
        return {
            "seen": self.seen.save(),
            "calls": self._calls.save(),
            "of_call": self._of_call.tolist(),
            "answers": self._answers.tolist(),
            "steps": self._steps.tolist(),
            "states": self._states.save(),
            "moving": {str(key): one.save() for key, one in self._moving.items()},
            "near": [[name, [[place, words[:]] for place, words in call]] for name, call in self._near],
            "drift": {str(key): one.save() for key, one in self.drift.items()},
            "cosmetic": {name: dict(places) for name, places in self.cosmetic.items()},
            "rows": {name: [row[:] for row in rows] for name, rows in self.rows.items()},
        }

    @staticmethod
    def _of_state(state: int, answer: int) -> int:
        return mark(f"{state} {answer}")

    @staticmethod
    def _in_order(state: int, order: int) -> int:
        return mark(f"{state} order {order}")

    @staticmethod
    def _values(state: int, numbers: Sequence[str]) -> list[int]:
        if not numbers:
            return []
        before = mark(f"{state}:")
        return [mark(number, before) for number in numbers]


def pair_of(before: int, key: int) -> int:
    """The identity of the call `key` after the call `before`."""
    return mark(f"{before} then {key}")


@lru_cache(maxsize=PARTS_KEPT)
def _parts(item: str) -> tuple[str, ...]:
    """A path, and each part of it that is a name of several words."""
    names = item.split("/")[:DEPTH_OF_A_PATH]
    parts = ("/".join(names[first:last]) for first in range(len(names)) for last in range(first + 1, len(names) + 1))
    return tuple(part for part in dict.fromkeys((item, *parts)) if not part.isalnum() and not part[:1].isdecimal())


def _moves(column: Sequence[float]) -> list[float]:
    return [after - before for before, after in pairwise(column) if after != before]


def _turns(moves: Sequence[float]) -> int:
    return sum((before > 0) != (after > 0) for before, after in pairwise(moves))


def _stays(column: Sequence[float]) -> bool:
    moves = _moves(column)
    return not moves or (_turns(moves) > 0 and max(column) - min(column) <= BAND * max(column))


def trim(kept: dict[Any, Any], limit: int) -> None:
    """Drop the oldest entries beyond `limit`."""
    while len(kept) > limit:
        del kept[next(iter(kept))]


def _array(saved: Sequence[Any] | None) -> array[int]:
    return array("Q", map(int, saved)) if saved else array("Q", [0] * CALLS_KEPT)
