"""Tables that mark every cut. If a column that must be whole does not fit, the rows become lists.

In a pipe every value is whole, so that it can be searched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from monitor.cli.render import output

T = TypeVar("T")
Cell: TypeAlias = str | Text
Narrow: TypeAlias = Literal["whole", "middle", "end", "fold"]

LEAST: Final = 12
"""The least width of a value that is cut or folded. If there is less room, each row becomes a list
of its values.
"""
GAP: Final = 2


@dataclass(slots=True, frozen=True)
class Column:
    """A column. `narrow`: what happens to its values if there is not enough room."""

    name: str
    narrow: Narrow = "whole"
    right: bool = False


@dataclass(slots=True, frozen=True)
class Fact(Generic[T]):
    """A fact about each row: a field of its JSON, a column of a table, or both."""

    field: str | None
    """The name in JSON. `None`: only the table has the fact."""
    column: Column | str | None
    """The column of the table. `None`: only JSON has the fact."""
    value: Callable[[T], Any]
    text: Callable[[Any], Cell] = str
    """Makes the cell of the table from the value."""
    csv: str | None = None
    """The column in a CSV file. `None`: a file has not the fact."""
    csv_value: Callable[[T], Any] | None = None
    """The value there, if it is another than in JSON."""


class RowKind(Generic[T]):
    """What is said of each row, once for all forms: a table for people, and JSON for programs."""

    def __init__(self, *facts: Fact[T]) -> None:
        self._facts = facts
        self.columns = [fact.column for fact in facts if fact.column is not None]

    def as_json(self, row: T) -> dict[str, Any]:
        """The facts about `row` as JSON data."""
        return {fact.field: fact.value(row) for fact in self._facts if fact.field is not None}

    def cells(self, row: T) -> list[Cell]:
        """The facts about `row` as cells of a table."""
        return [fact.text(fact.value(row)) for fact in self._facts if fact.column is not None]

    @property
    def csv_columns(self) -> list[str]:
        """The head of a CSV file."""
        return [fact.csv for fact in self._facts if fact.csv is not None]

    def as_csv(self, row: T) -> list[Any]:
        """The facts about `row` as values of a CSV file."""
        return [(fact.csv_value or fact.value)(row) for fact in self._facts if fact.csv is not None]

    def show(self, console: Console, rows: Iterable[T]) -> None:
        """Print a table with a line for each of `rows`."""
        show(console, self.columns, [self.cells(row) for row in rows])

    def print(self, rows: Iterable[T], *, as_json: bool) -> None:
        """Print the rows to stdout: a table, or a line of JSON for each of them."""
        if as_json:
            for row in rows:
                output.write_json(self.as_json(row))
        else:
            self.show(output.stdout(), rows)


def show(console: Console, columns: Sequence[Column | str], rows: Sequence[Sequence[Cell]]) -> None:
    """Print `rows` under the names of their columns."""
    wanted = [Column(one) if isinstance(one, str) else one for one in columns]
    cells = [[_text(cell) for cell in row] for row in rows]
    widths = _widths(wanted, cells, _room(console))
    if console.is_terminal:
        console.print()
    if widths is None:
        _show_lists(console, wanted, cells)
    else:
        _line(console, wanted, [Text(column.name, style="bold") for column in wanted], widths)
        if console.is_terminal:
            console.print(Text("─" * (sum(widths) + GAP * (len(widths) - 1))), soft_wrap=True)
        for row in cells:
            _line(console, wanted, row, widths)
    if console.is_terminal:
        console.print()


def _text(cell: Cell) -> Text:
    if isinstance(cell, str):
        return Text(output.on_one_line(cell))
    return Text.assemble(
        *(
            (output.on_one_line(span.plain), span.style)
            for span in cell.divide(sorted({0, *_edges(cell)}))
            if span.plain
        )
    )


def _edges(cell: Text) -> set[int]:
    return {edge for span in cell.spans for edge in (span.start, span.end)}


def _room(console: Console) -> int | None:
    """The greatest width of a table. `None`: any width."""
    return None if output.is_unbounded(console) else console.width


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[Text]], room: int | None) -> list[int] | None:
    """The width of each column. `None`: they do not fit beside each other."""
    widths = [max(map(cell_len, (column.name, *(row[at].plain for row in rows)))) for at, column in enumerate(columns)]
    if room is None:
        return widths
    least = [
        width if column.narrow == "whole" else min(width, max(LEAST, cell_len(column.name)))
        for column, width in zip(columns, widths, strict=True)
    ]
    too_much = sum(widths) + GAP * (len(widths) - 1) - room
    while too_much > 0:
        at = max(range(len(widths)), key=lambda at: widths[at] - least[at])
        if widths[at] == least[at]:
            return None
        widths[at] -= 1
        too_much -= 1
    return widths


def _line(console: Console, columns: Sequence[Column], row: Sequence[Text], widths: Sequence[int]) -> None:
    """Print one row. A folded value takes several lines."""
    cells = [_fitted(console, cell, column, width) for cell, column, width in zip(row, columns, widths, strict=True)]
    for number in range(max(map(len, cells))):
        line = Text()
        for cell, column, width in zip(cells, columns, widths, strict=True):
            text = cell[number] if number < len(cell) else Text()
            pad = " " * (width - cell_len(text.plain))
            line.append_text(Text(pad) + text if column.right else text + Text(pad))
            line.append(" " * GAP)
        line.rstrip()
        console.print(line, soft_wrap=True)


def _fitted(console: Console, cell: Text, column: Column, width: int) -> list[Text]:
    if cell_len(cell.plain) <= width:
        return [cell]
    if column.narrow == "fold":
        return list(cell.wrap(console, width))
    if column.narrow == "middle":
        return [Text(output.shortened(cell.plain, width), style=cell.style)]
    cut = cell.copy()
    cut.truncate(width, overflow="ellipsis")
    return [cut]


def _show_lists(console: Console, columns: Sequence[Column], rows: Sequence[Sequence[Text]]) -> None:
    """Print each row as a list under its first value."""
    for first, *others in rows:
        console.print(first, overflow="fold")
        grid = Grid.grid(padding=(0, GAP, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for column, cell in zip(columns[1:], others, strict=True):
            if cell.plain:
                grid.add_row(Text(f"  {column.name}", style="bold"), cell)
        console.print(grid)
