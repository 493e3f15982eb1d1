"""How the numbers of a result move, when a state is seen again.

Failure answered: a job at 42 % that stands at 43 % a minute later gets on, and a clock that shows a
minute more does not. No list of field names tells them apart. A number that goes one way toward an
end that it would reach is progress. One that goes one way without an end is a clock or a counter,
and one that goes to and fro is noise.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from monitor.detectors.calls.novelty.step_reading import CLOCK, DURATION, ID, SAID, number_of

HORIZON = 64
"""The looks within which a number must reach its end at its pace, to count as progress."""
HORIZON_OF_A_STAY = 32
"""The same, if its end is a number that stays, and that may be something else."""
BAND = 0.2
"""Numbers that go to and fro within this share of their level are noise."""
VALUE = 0.5
"""The slots that moved, for each word and number that stayed: from here on they are the answer."""
JUMP = 0.5
"""A number that moves by more than this share of its level is another value and no noise."""
ROW = 6
"""The number of the newest values of a slot that are compared."""


class Movement(Enum):
    """What moved between two looks at one state."""

    TO_AN_END = "a number came nearer to its end"
    CLOCK = "only a clock moved"
    ONE_WAY = "only a counter moved"
    BY_ITSELF = "only values moved that move by themselves"
    ANSWER = "the value that is the whole answer became another one"
    OTHER_VALUE = "a value became another one"


@dataclass(slots=True)
class _Slot:
    """The moves of one number."""

    ups: int = 0
    downs: int = 0
    way: float = 0.0
    """The sum of all moves."""
    least: float | None = None
    most: float | None = None

    def move(self, old: float, new: float) -> None:
        self.ups += new > old
        self.downs += new < old
        self.way += abs(new - old)
        self.least = min(old, new) if self.least is None else min(self.least, old, new)
        self.most = max(old, new) if self.most is None else max(self.most, old, new)

    @property
    def pace(self) -> float:
        """How far the number moves from one look to the next."""
        return self.way / (self.ups + self.downs)

    @property
    def is_narrow(self) -> bool:
        """Whether the number stayed near its level."""
        if self.least is None or self.most is None:
            return False
        return self.most - self.least <= BAND * max(abs(self.least), abs(self.most))


class SlotMovement:
    """The numbers of one call's result, each time that it shows one state."""

    __slots__ = ("numbers", "slots")

    def __init__(self, numbers: Sequence[str], slots: Sequence[_Slot] = ()) -> None:
        self.numbers = list(numbers)
        self.slots = list(slots)

    def moved(self, numbers: list[str], ends: Mapping[str, float], *, words: int) -> Movement:
        """The movement to `numbers`, which differ. `ends`: what stands beside a number as its end.
        `words`: the words of the result.
        """
        before, self.numbers = self.numbers, numbers
        if len(self.slots) != len(numbers):
            self.slots = [_Slot() for _ in numbers]
        moves = [(old, new, slot) for old, new, slot in zip(before, numbers, self.slots, strict=False) if old != new]
        one_way = jumps = 0
        for old, new, slot in moves:
            was, now = number_of(old), number_of(new)
            if was is None or now is None or was == now:
                continue
            slot.move(was, now)
            if slot.ups == 0 or slot.downs == 0:
                one_way += new[0] != ID
                if new[0] != CLOCK and _comes_to_an_end(slot, now, new, ends.get(new), rises=now > was):
                    return Movement.TO_AN_END
                if now > was and new not in ends and new[0].isdecimal():
                    still = _next_that_stays(now, before, numbers)
                    if still is not None and (still - now) / slot.pace <= HORIZON_OF_A_STAY:
                        return Movement.TO_AN_END
            elif slot.most is not None and slot.least is not None and new[0] not in {CLOCK, DURATION}:
                jumps += slot.most - slot.least > JUMP * max(abs(slot.most), abs(slot.least))
        values = [new for _, new, _ in moves if new[0] not in {CLOCK, DURATION}]
        stayed = words + len(numbers) - len(moves)
        if words <= 1 and values and not _is_counted(moves):
            return Movement.ANSWER
        plain = [new for new in values if new[0] != ID]
        noisy = all(slot.ups and slot.downs and slot.is_narrow for _, new, slot in moves if new in plain)
        if (plain or words <= 1) and len(moves) >= VALUE * stayed and not _is_wide(values) and not (plain and noisy):
            return Movement.OTHER_VALUE
        if not plain:
            return Movement.CLOCK if any(new[0] == CLOCK for _, new, _ in moves) else Movement.BY_ITSELF
        if jumps >= 2 and 2 * jumps >= len(moves):  # noqa: PLR2004 - one may be a measured time
            return Movement.OTHER_VALUE
        return Movement.ONE_WAY if one_way and 2 * one_way >= len(moves) else Movement.BY_ITSELF

    def save(self) -> list[Any]:
        """The state as JSON data."""
        return [self.numbers[:], [[slot.ups, slot.downs, slot.way, slot.least, slot.most] for slot in self.slots]]

    @classmethod
    def of(cls, saved: Sequence[Any]) -> SlotMovement:
        """What `save` returned."""
        return cls(saved[0], [_Slot(*slot) for slot in saved[1]])


def _next_that_stays(now: float, before: Sequence[str], numbers: Sequence[str]) -> float | None:
    """The next number above `now` that stays where it is, as in `{"layer": 57, "of": 189}`."""
    stay = (number_of(new) for old, new in zip(before, numbers, strict=False) if old == new and new[0].isdecimal())
    return min((value for value in stay if value is not None and value >= now), default=None)


def _comes_to_an_end(slot: _Slot, now: float, shown: str, end: float | None, *, rises: bool) -> bool:
    """Whether it would reach its end at its pace. `end`: what stands beside it; down, it is 0."""
    if rises:
        return end is not None and end >= now and (end - now) / slot.pace <= HORIZON
    return slot.downs > 1 and now / slot.pace <= HORIZON and "." not in shown


def _is_counted(moves: Sequence[tuple[str, str, _Slot]]) -> bool:
    """Whether all that moved is one number, which went on by one."""
    if len(moves) != 1:
        return False
    was, now = number_of(moves[0][0]), number_of(moves[0][1])
    return was is not None and now is not None and now - was == 1


def _is_wide(values: Sequence[str]) -> bool:
    """Whether a number has leading zeros: a receipt's number."""
    return any(value[0] == "0" and len(value) > 4 and value.isdecimal() for value in values)  # noqa: PLR2004


class Drift:
    """The numbers of one state over different calls: do they move whatever is asked?"""

    __slots__ = ("rows",)

    def __init__(self, rows: Sequence[Sequence[float | str]] = ()) -> None:
        self.rows: list[list[float | str]] = [list(row) for row in rows]

    def add(self, numbers: Sequence[str]) -> bool:
        """Take in the numbers of a result. Whether all of them only go on by one step, or stay
        within a narrow band.
        """
        if not self.rows:
            self.rows = [[] for _ in numbers]
        news = False
        for row, number in zip(self.rows, numbers, strict=False):
            value = number_of(number)
            if value is None:
                news |= bool(row) and number != SAID and number.startswith(ID) and number not in row
                row.append(number)
            else:
                values = [one for one in row if not isinstance(one, str)]
                news |= bool(values) and value != values[-1] and not _drifts([*values[-3:], value])
                row.append(value)
            del row[:-ROW]
        return not news

    def save(self) -> list[list[float | str]]:
        """The state as JSON data."""
        return [row[:] for row in self.rows]


def _drifts(row: Sequence[float]) -> bool:
    if len(row) < 3:  # noqa: PLR2004 - two steps are needed to compare them
        return False
    steps = [after - before for before, after in itertools.pairwise(row)]
    if len({round(step, 6) for step in steps}) == 1:
        return True
    narrow = max(row) - min(row) <= BAND * max(map(abs, row))
    return narrow and len({step > 0 for step in steps}) > 1
