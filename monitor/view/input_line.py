"""A line at the bottom of a live view, in which a person writes to the run."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from rich.cells import cell_len
from rich.text import Text

from monitor.messages import SteerKind

Send: TypeAlias = Callable[[str, SteerKind, bool], object]
"""Takes a text, when it enters the run, and whether the present stream is ended for it."""

WAYS: Final[tuple[tuple[str, SteerKind, bool], ...]] = (
    ("say", "steer", False),
    ("now", "steer", True),
    ("later", "follow_up", False),
)
"""The ways to say something, which Tab goes through: the word that is shown, and what it means."""
_SEQUENCE: Final = re.compile("\x1b(?:[\\[O][0-9;]*[A-Za-z~]?|.)?")
"""A key without a character, such as an arrow. It does nothing."""


class InputLine:
    """What a person has typed so far. Enter sends it, Tab changes when the run gets it, Ctrl-U
    clears it, Ctrl-W removes a word.
    """

    def __init__(self) -> None:
        self.send: Send = lambda *_: None
        self.opens: Callable[[], object] = lambda: None
        """Is called when the line is shown: keys belong to it from now on."""
        self.closes: Callable[[], object] = lambda: None
        """Is called when the line is hidden: somebody else may read the keys."""
        self.text = ""
        self._way = 0

    def feed(self, keys: str) -> None:
        """Take in what was typed."""
        for key in _SEQUENCE.sub("", keys):
            match key:
                case "\r" | "\n":
                    text, self.text = self.text.strip(), ""
                    if text:
                        _, kind, now = WAYS[self._way]
                        self._way = 0
                        self.send(text, kind, now)
                case "\t":
                    self._way = (self._way + 1) % len(WAYS)
                case "\x7f" | "\b":
                    self.text = self.text[:-1]
                case "\x15":
                    self.text = ""
                case "\x17":
                    self.text = self.text[: len(self.text.rstrip()) - len(_last_word(self.text))]
                case _ if key.isprintable():
                    self.text += key
                case _:
                    pass

    def shown(self, width: int) -> Text:
        """The line in at most `width` columns: of a long text its end."""
        way = f"{WAYS[self._way][0]} > "
        room, text = max(1, width - cell_len(way) - 1), self.text
        while cell_len(text) > room:
            text = text[1:]
        return Text.assemble((way, "bold cyan"), text, ("_", "dim"), no_wrap=True)


def _last_word(text: str) -> str:
    words = text.split()
    return words[-1] if words else ""
