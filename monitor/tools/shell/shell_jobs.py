"""A command of the shell tools: its input, its output, its end, and what is said about them."""

from __future__ import annotations

import codecs
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.lowlevel

from monitor.errors import ToolError
from monitor.reasons import ToolErrorKind
from monitor.tools.processes.command import Command
from monitor.tools.processes.process_table import ProcessInfo, command_of
from monitor.tools.processes.screen_text import screen_pieces
from monitor.tools.results.tool_answer import ToolAnswer
from monitor.tools.shell.failing_tests import failing_tests

SHOWN: Final = 5
"""The most background processes that are named."""


@dataclass(slots=True, eq=False)
class ShellJob:
    """A command, and the state of its output."""

    command: Command
    before: Mapping[Path, object] = field(default_factory=dict)
    """What stood at its start where programs outside of the sandbox run it."""
    decoder: Any = field(default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"))
    busy: anyio.Lock = field(default_factory=anyio.Lock)
    """Held by the call that waits for the process: two such calls take turns."""

    def take(self, *, last: bool = False) -> str:
        """The text since the last call of `take`."""
        text: str = self.decoder.decode(self.command.take(), last)
        return text


def answer_of(
    job: ShellJob, text: str, status: str, others: Sequence[ProcessInfo] = (), kind: ToolErrorKind | None = None
) -> ToolAnswer:
    """The answer about a command that has ended. `kind`: of the error, if it is one."""
    code = job.command.returncode
    data = {
        "pid": job.command.pid,
        "exit_code": code if code is not None and code >= 0 else None,
        "signal": _signal_name(-code) if code is not None and code < 0 else None,
        "duration_s": job.command.elapsed_s,
        "background": [entry.pid for entry in others],
        "progress": failing_tests(text),
    }
    return ToolAnswer(text, is_error=kind is not None, error_kind=kind, status=status, data=data)


def ending_of(command: Command) -> str:
    """How the command has ended, and how long it took."""
    code = command.returncode
    took = f"{command.elapsed_s:.2f} s"
    if code is None:
        return f"still running after KILL, pid {command.pid}, {took}"
    if code < 0:
        return f"ended by {_signal_name(-code)}, {took}"
    # 128 + n is how a shell says that its command was ended by signal n
    by = f" ({_signal_name(code - 128)})" if code > 128 and _signal_name(code - 128) else ""  # noqa: PLR2004
    return f"exit code {code}{by}, {took}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


def roots(entries: Sequence[ProcessInfo]) -> list[ProcessInfo]:
    """The entries whose parent is not one of `entries`."""
    pids = {entry.pid for entry in entries}
    return [entry for entry in entries if entry.parent not in pids]


def background_processes(others: Sequence[ProcessInfo], *, kept: bool) -> str:
    """Names the processes that a command has left, for its status line. `kept`: they run on."""
    if not others:
        return ""
    named = ", ".join(f"pid {entry.pid} ({command_of(entry.pid)})" for entry in others[:SHOWN])
    what = f"{len(others)} background process{'es' if len(others) > 1 else ''}"
    return f"; {what}: {named}" if kept else f"; {what} ended with it"


async def screened(text: str) -> str:
    """`text` as a person would see it on a screen. Other tasks may run meanwhile."""
    pieces: list[str] = []
    for piece in screen_pieces(text):
        pieces.append(piece)
        if len(pieces) > 1:
            await anyio.lowlevel.checkpoint()
    return "".join(pieces)


def with_dropped(job: ShellJob, text: str) -> str:
    """`text`, with a note about output that was dropped before it."""
    dropped = job.command.dropped_bytes
    return f"[the first {dropped:,} bytes were dropped: nobody read them]\n{text}" if dropped else text


async def written_to(command: Command, text: str, deadline: float) -> str:
    """Write `text` to the command. Returns a note if it did not take all of it."""
    if not text:
        return ""
    if not command.takes_input:
        raise ToolError("its input is not open: start it with background", kind=ToolErrorKind.INVALID_ARGUMENTS)
    data = text.encode("utf-8", "replace")
    try:
        taken = await command.write(data, max(0.0, deadline - time.monotonic()))
    except OSError:
        command.close_input()
        return "; it has closed its input, and has not read the text"
    return "" if taken == len(data) else f"; it has taken {taken:,} of {len(data):,} bytes and reads no more"
