"""A run of any length as a row of a fixed number of cells, filled while the run is read.

A row that is full is halved: two cells become one. So memory stays bounded, and where an event
stands is known to the width of one cell.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

CELLS: Final = 480
"""The number of cells that a row on a screen can show."""
WEIGHTS: Final = {"n": 0, "u": 1, "t": 2, "c": 3, "e": 4, "k": 5, "L": 6}
"""The kinds of events, the least telling first: a note of the program, a person, a turn, a call, an
error, a compaction, a loop. Of two events in one cell the more telling is shown.
"""


@dataclass(slots=True)
class Strip:
    """The kinds of all events, in order, in cells of equal width."""

    cells: list[str] = field(default_factory=list[str])
    events: int = 0
    """The number of events so far."""
    width: int = 1
    """The number of events in a cell."""

    def add(self, kind: str) -> None:
        """The next event. `kind`: one of `WEIGHTS`."""
        at = self.events // self.width
        if at < len(self.cells):
            self.cells[at] = max(self.cells[at], kind, key=WEIGHTS.__getitem__)
        else:
            self.cells.append(kind)
        self.events += 1
        if len(self.cells) >= 2 * CELLS:
            self.cells = [max(self.cells[i : i + 2], key=WEIGHTS.__getitem__) for i in range(0, len(self.cells), 2)]
            self.width *= 2

    def cell_of(self, event: int) -> int:
        """The cell in which the event stands, counted from 0."""
        return event // self.width


@dataclass(slots=True)
class Sums:
    """Numbers, in order; a cell has the sum of its numbers."""

    cells: list[int] = field(default_factory=list[int])
    count: int = 0
    width: int = 1
    """The number of added numbers in a cell."""
    most: int = 160

    def add(self, number: int) -> None:
        """Add the next number to the cells."""
        at = self.count // self.width
        if at < len(self.cells):
            self.cells[at] += number
        else:
            self.cells.append(number)
        self.count += 1
        if len(self.cells) >= 2 * self.most:
            self.cells = [sum(self.cells[i : i + 2]) for i in range(0, len(self.cells), 2)]
            self.width *= 2
