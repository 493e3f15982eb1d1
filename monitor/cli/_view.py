"""What the commands look like: panels, tables, a model's words as they come.

Rules: a terminal gets colour and boxes (no colour with NO_COLOR), anything else gets plain text
without either; nothing that a model wrote reaches the terminal as a control sequence.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from monitor.cli import INTERRUPTED
from monitor.errors import MonitorError

MOST_COLUMNS = 100
"""Longer lines are hard to read."""
PLAIN_COLUMNS = 160
"""Where no terminal says how wide it is, rows are cut late: somebody may want to search them."""
LONGEST_WORD = 30
"""A word is held back until it is complete, so that lines break between words; a longer one is no
word (or a language without spaces).
"""

_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_PIECES = re.compile(r"\n|[^\S\n]+|\S+")


def stdout() -> Console:
    """Where results go."""
    return _console(stderr=False)


def stderr() -> Console:
    """Where complaints and progress go."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")  # a terminal that cannot show a model's words shows question marks instead
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PLAIN_COLUMNS
    return console


@contextmanager
def tidy_exit() -> Iterator[None]:
    """Ctrl-C ends a command quietly, and an error of ours is one line, not a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        if sys.stdout.isatty():
            print()  # so that the prompt does not go on in the middle of a line
        raise typer.Exit(INTERRUPTED) from None
    except MonitorError as error:
        stderr().print(f"agent-monitor: {error}", style="red", soft_wrap=True)
        raise typer.Exit(2) from None


def printable(text: str) -> str:
    """`text` with everything escaped that a terminal would obey rather than show. Line ends
    stay.
    """
    return _CONTROL.sub(_escaped, text)


def on_one_line(text: str) -> str:
    """`text` as a line of a table."""
    return printable(text.replace("\n", "\\n"))


def shortened(text: str, width: int) -> str:
    """At most `width` columns of `text`, its middle left away: ids differ at their ends."""
    if cell_len(text) <= width:
        return text
    head = (width - 1) // 3
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def columns(console: Console) -> int:
    """How wide the output is."""
    return min(console.width, MOST_COLUMNS) if console.is_terminal else console.width


def heading(console: Console, title: str) -> None:
    """The start of a part."""
    console.print()
    if console.is_terminal:
        console.print(Rule(Text(title, style="bold"), align="left", style="cyan"), width=columns(console))
    else:
        console.print(f"== {title}")


def said_by_user(console: Console, text: str) -> None:
    """What the model was asked."""
    grid = Table.grid(padding=(0, 1))
    grid.add_row(Text("  user", style="bold"), printable(text.strip()))
    console.print(grid, width=columns(console))


def card(console: Console, title: str, rows: Sequence[tuple[str, str | Text]], *, style: str) -> None:
    """Named facts under a title."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(name, value)
    if console.is_terminal:
        panel = Panel(
            grid, title=Text(title, style=f"bold {style}"), title_align="left", border_style=style, padding=(0, 1)
        )
        console.print(panel, width=columns(console))
    else:
        console.print(f"-- {title}")
        console.print(grid)


def table(console: Console, *names: str) -> Table:
    """An empty table with these columns, for `console`."""
    empty = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, header_style="bold", pad_edge=False)
    for name in names:
        empty.add_column(name, overflow="ellipsis", no_wrap=True)
    return empty


class LiveText:
    """A model's words on the console as they come, wrapped between words, behind a bar."""

    def __init__(self, console: Console, *, bar: str = "  │ ", style: str = "dim") -> None:
        self._console = console
        self._bar = bar
        self._style = style
        self._room = max(columns(console) - cell_len(bar) - 1, 1)
        self._column = 0
        self._fresh = True
        self._begun = False
        self._held = ""

    def write(self, text: str) -> None:
        """The next piece."""
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
            self._console.print()
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
        self._console.print()
        self._begun, self._column = False, 0

    def _print(self, text: str) -> None:
        if not self._begun:
            self._console.print(self._bar, end="", style="cyan", soft_wrap=True)
            self._begun = True
        if text:
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


def _escaped(found: re.Match[str]) -> str:
    char = found.group()
    return "    " if char == "\t" else ascii(char)[1:-1]
