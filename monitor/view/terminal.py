"""Output on a terminal, or on anything else: panels, a model's words as they come, names on one
line.

A terminal gets colour and boxes (no colour with NO_COLOR), anything else gets plain text without
either. No control character of a model's or a tool's reaches a terminal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.panel import Panel
from rich.rule import Rule
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from monitor._util.printable import on_one_line as on_one_line  # noqa: PLC0414 - used beside the others
from monitor._util.printable import printable as printable  # noqa: PLC0414 - the same

MOST_COLUMNS = 100
"""Lines on a terminal are at most this wide, because longer ones are hard to read."""
PLAIN_COLUMNS = 160
"""The width without a terminal. Rows are cut late there, so that they can be searched."""
LONGEST_WORD = 30
"""A word is held back until it is complete, so that lines break between words. A longer text
without spaces is not a word (or has no spaces in its language).
"""

_PIECES = re.compile(r"\n|[^\S\n]+|\S+")


class SafeConsole(Console):
    """Makes everything printable when it is rendered, also text that was not escaped before."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of `renderable`; rich's own control codes stay."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


def shortened(text: str, width: int) -> str:
    """At most `width` columns of `text`, cut in its middle, because ids differ at their ends."""
    if cell_len(text) <= width:
        return text
    head = _begin(text, (width - 1) // 3)
    return f"{head}…{_begin(text[::-1], width - 1 - cell_len(head))[::-1]}"


def _begin(text: str, width: int) -> str:
    """The beginning of `text` that fits into `width` columns."""
    used = 0
    for at, char in enumerate(text):
        used += cell_len(char)
        if used > width:
            return text[:at]
    return text


def columns(console: Console) -> int:
    """The number of columns that the output may use."""
    return min(console.width, MOST_COLUMNS) if console.is_terminal else console.width


def is_unbounded(console: Console) -> bool:
    """Whether the output is not a terminal and no width was set."""
    return not console.is_terminal and "COLUMNS" not in os.environ


def heading(console: Console, title: str) -> None:
    """Print the title of a part of the output."""
    console.print()
    if console.is_terminal:
        console.print(Rule(Text(title, style="bold"), align="left", style="cyan"), width=columns(console))
    else:
        console.print(f"== {title}")


def said_by_user(console: Console, text: str) -> None:
    """Print `text` as the message of the user."""
    grid = Table.grid(padding=(0, 1))
    grid.add_row(Text("  user", style="bold"), printable(text.strip()))
    console.print(grid, width=columns(console))


def facts(rows: Iterable[tuple[str, RenderableType]] = ()) -> Table:
    """Named facts: the names whole and bold, the values folded where there is no room."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(name, value)
    return grid


def card(console: Console, title: str, rows: Sequence[tuple[str, str | Text]], *, style: str) -> None:
    """Print named facts under a title. In a pipe each line of a fact is whole."""
    if is_unbounded(console):
        console.print(Text(f"-- {on_one_line(title)}"), soft_wrap=True)
        room = max((len(name) for name, _ in rows), default=0)
        for name, value in rows:
            for number, line in enumerate((value if isinstance(value, Text) else Text(value)).split("\n")):
                console.print(
                    Text("" if number else name).append(" " * (room + 2 - (0 if number else len(name)))) + line,
                    soft_wrap=True,
                )
        return
    grid = facts(rows)
    if console.is_terminal:
        panel = Panel(
            grid, title=Text(title, style=f"bold {style}"), title_align="left", border_style=style, padding=(0, 1)
        )
        console.print(panel, width=columns(console))
    else:
        console.print(f"-- {title}")
        console.print(grid)


class LiveText:
    """A model's words on the console as they come, wrapped between words, behind a bar.

    With `hold` only whole lines are printed, and `begun` is the line that is not whole.
    """

    def __init__(self, console: Console, *, bar: str = "  │ ", style: str = "dim", hold: bool = False) -> None:
        self.hold = hold
        self._line = ""
        self._console = console
        self._bar = bar
        self._style = style
        self._room = max(columns(console) - cell_len(bar) - 1, 1)
        self._column = 0
        self._fresh = True
        self._begun = False
        self._held = ""

    @property
    def begun(self) -> Text | None:
        """The line that has begun, if lines are held until they are whole."""
        if not self.hold or not self._begun:
            return None
        return Text.assemble((self._bar, "cyan"), (self._line + self._held, self._style))

    def write(self, text: str) -> None:
        """Print the next piece of the text."""
        if self._fresh:
            text = text.lstrip()
            self._fresh = not text
        pieces = _PIECES.findall(self._held + printable(text))
        self._held = pieces.pop() if pieces and not pieces[-1].isspace() and len(pieces[-1]) < LONGEST_WORD else ""
        for piece in pieces:
            self._put(piece)

    def line(self, text: str | Text) -> None:
        """A line of its own, e.g. for a tool call."""
        self.end()
        self._console.print(Text.assemble("  ", text), no_wrap=True, overflow="ellipsis", width=columns(self._console))

    def end(self) -> None:
        """The text is over; what comes next begins a new line."""
        self._put(self._held)
        self._held = ""
        if self._begun:
            self._print_end()
        self._fresh, self._begun, self._column = True, False, 0

    def _put(self, piece: str) -> None:
        if piece == "\n":
            self._break()
            return
        if self._column and self._column + cell_len(piece) > self._room:
            self._break()
            piece = piece.lstrip()
        for part in _parts(piece, self._room):
            if self._column and self._column + cell_len(part) > self._room:
                self._break()
            self._print(part)
            self._column += cell_len(part)

    def _break(self) -> None:
        self._print("")
        self._print_end()
        self._begun, self._column = False, 0

    def _print_end(self) -> None:
        if not self.hold:
            self._console.print()
            return
        line, self._line = self._line, ""
        self._console.print(Text.assemble((self._bar, "cyan"), (line, self._style)), soft_wrap=True)

    def _print(self, text: str) -> None:
        if not self._begun:
            if not self.hold:
                self._console.print(self._bar, end="", style="cyan", soft_wrap=True)
            self._begun = True
        if self.hold:
            self._line += text
        elif text:
            self._console.print(text, end="", style=self._style, soft_wrap=True)


def _parts(word: str, room: int) -> Iterator[str]:
    """`word` in parts that fit into a line."""
    part, used = "", 0
    for char in word:
        if part and used + cell_len(char) > room:
            yield part
            part, used = "", 0
        part += char
        used += cell_len(char)
    if part:
        yield part
