"""The output of a Python file that runs in a process of its own."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from monitor.errors import ToolError
from monitor.tools.processes.command import Command
from monitor.tools.processes.environment import environment


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
