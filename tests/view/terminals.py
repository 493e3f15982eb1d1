"""A terminal of a test: what it shows, after everything that was written to it."""

from __future__ import annotations

import io
import re

from rich.console import Console

_PARTS = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n]+)")


class Terminal:
    """Understands what `rich` writes: line ends, cursor up, erased lines."""

    def __init__(self, *, width: int = 80, height: int = 40, tty: bool = True) -> None:
        self.file = io.StringIO()
        self.width = width
        self.console = Console(
            file=self.file,
            width=width,
            height=height,
            force_terminal=tty,
            color_system=None,
            markup=False,
            highlight=False,
            emoji=False,
            legacy_windows=False,
        )

    @property
    def cursor_is_shown(self) -> bool:
        """Whether the cursor was shown again after it was hidden."""
        return self.file.getvalue().rfind("\x1b[?25h") >= self.file.getvalue().rfind("\x1b[?25l")

    @property
    def lines(self) -> list[str]:
        """The lines that a person sees, without empty ones at the end."""
        screen, row, column = [""], 0, 0
        for number, letter, home, end, text in _PARTS.findall(self.file.getvalue()):
            if home:
                column = 0
            elif end:
                row, column = row + 1, 0
                screen += [""] * (row + 1 - len(screen))
            elif text:
                line = screen[row].ljust(column)
                screen[row] = line[:column] + text + line[column + len(text) :]
                column += len(text)
            elif letter == "A":
                row = max(0, row - int(number or 1))
            elif letter == "K" and number == "2":
                screen[row] = ""
        lines = [line.rstrip() for line in screen]
        while lines and not lines[-1]:
            lines.pop()
        return lines
