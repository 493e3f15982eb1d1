"""The output of a Python file that runs in a process of its own."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from monitor.errors import ToolError
from monitor.tools.processes.command import Command, environment


async def printed(argv: Sequence[str], *, directory: Path, bound: int, seconds: float) -> tuple[str, bool]:
    """Run a Python file with its arguments in a process of its own. Returns its output, and whether
    it was ended because its time was over or it printed more than `bound` bytes.

    Raises `ToolError` if it cannot be started.
    """
    command_line = [sys.executable, "-I", "-S", *argv]
    try:
        command = Command(command_line, directory=directory, environment=environment(), bound=bound)
    except (OSError, ValueError) as error:
        raise ToolError(f"a process cannot be started: {error}") from None
    deadline = time.monotonic() + seconds
    pieces: list[bytes] = []
    try:
        while not (command.first_ended or command.overflowed):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            await command.changed(left)
            pieces.append(command.take())
        over = not command.first_ended
        if not over:
            await command.last_output()
        pieces.append(command.take())
        return b"".join(pieces).decode("utf-8", "replace"), over
    finally:
        try:
            await command.end(0)
        finally:
            command.close()


# --------------------------------------------------------------------------------------------------
# The output of a program as a person would see it on a screen, for a model to read.

_ESCAPES: Final = re.compile(
    r"\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # CSI: colours, movements of the cursor
    r"|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # OSC, DCS, SOS, PM, APC: titles, links
    r"|[ -/]*[0-~])?"  # the short ones; an escape by itself
)
_CONTROLS: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f\x80-\x9f]+")
PIECE_CHARS: Final = 200_000
"""A piece of this length takes less than 0.1 s, whatever it holds."""


def screen_text(text: str) -> str:
    """`text` without escape sequences and controls. If a program wrote a line over and over, as
    progress bars do, only the last version of the line stays.
    """
    return "".join(screen_pieces(text))


def screen_pieces(text: str) -> Iterator[str]:
    """`screen_text` in pieces: between two pieces of a long text, other tasks of an event loop may
    run.
    """
    start = 0
    while start < len(text):
        end = start + PIECE_CHARS
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        yield _screened(text[start:end])
        start = end


def _screened(text: str) -> str:
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    text = _CONTROLS.sub("", text).replace("\r\n", "\n")
    if "\r" not in text:
        return text
    return "\n".join(_last_version(line) if "\r" in line else line for line in text.split("\n"))


def _last_version(line: str) -> str:
    return next((version for version in reversed(line.split("\r")) if version), "")
