"""The output of the commands: where it goes, and what happens when nobody takes it.

Everything that is printed goes through `_Console` or `write`, so no control character reaches a
terminal. `monitor.view.terminal` says how things look.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO

import typer
from rich.console import Console
from rich.text import Text

from monitor._util.printable import on_one_line, printable, printable_json
from monitor.cli import INTERRUPTED
from monitor.errors import MonitorError
from monitor.view.terminal import (
    PLAIN_COLUMNS,
    LiveText,
    SafeConsole,
    card,
    columns,
    facts,
    heading,
    is_unbounded,
    said_by_user,
    shortened,
)

__all__ = [
    "LiveText",
    "card",
    "columns",
    "complain",
    "facts",
    "heading",
    "is_unbounded",
    "line",
    "nobody_reads",
    "on_one_line",
    "printable",
    "said_by_user",
    "shortened",
    "stderr",
    "stdout",
    "tidy_exit",
    "write",
    "write_json",
]


def stdout() -> Console:
    """The console that results are printed on."""
    return _console(stderr=False)


def stderr() -> Console:
    """The console for complaints and progress."""
    return _console(stderr=True)


class _Console(SafeConsole):
    """The console of a command."""

    def on_broken_pipe(self) -> None:
        """The reader of the output has gone. The exit code still reports the result."""
        _discard(sys.stderr if self.stderr else sys.stdout)


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")  # a terminal that cannot show a model's words shows question marks instead
    console = _Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if is_unbounded(console):
        console.width = PLAIN_COLUMNS
    return console


def write(text: str) -> None:
    """Write a line to stdout, at once."""
    _written(sys.stdout, f"{printable(text)}\n")


def write_json(data: Any, *, indent: int | None = None) -> None:
    """JSON on stdout. `data`: also JSON that is written already, on one line."""
    text = data if isinstance(data, str) else json.dumps(data, indent=indent)
    _written(sys.stdout, f"{printable_json(text)}\n")


def line(console: Console, text: str, style: str = "") -> None:
    """Print one line, whatever is in it. Where the terminal is narrow, it is wrapped."""
    console.print(Text(on_one_line(text), style=style), soft_wrap=True)


def complain(console: Console, text: str) -> None:
    """A complaint: one line, whatever is in it."""
    line(console, text, "red")


def nobody_reads() -> bool:
    """Whether the reader of the output has gone, as with `| head`."""
    return _gone


_gone = False


def _written(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        _discard(stream)


def _discard(stream: TextIO) -> None:
    """Discard all further output. A second broken pipe at the end of the process would change its
    exit code.
    """
    global _gone  # noqa: PLW0603 - the process has one stdout
    _gone = _gone or stream is sys.stdout
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


@contextmanager
def tidy_exit() -> Iterator[None]:
    """Ctrl-C ends a command quietly. An error of agent-monitor or of the output is one line, not a
    traceback.
    """
    try:
        try:
            yield
        finally:
            _written(sys.stdout, "")
    except KeyboardInterrupt:
        if sys.stdout.isatty():
            print()  # so that the prompt does not go on in the middle of a line
        raise typer.Exit(INTERRUPTED) from None
    except MonitorError as error:
        complain(stderr(), f"agent-monitor: {error}")
        raise typer.Exit(BAD_USE) from None
    except OSError as error:
        if error.errno not in _NO_PLACE:
            raise
        _discard(sys.stdout)
        complain(stderr(), f"agent-monitor: the output cannot be written: {error.strerror}")
        raise typer.Exit(BAD_USE) from None


BAD_USE = 2
STDIN: Final = "-"
"""A file of this name is the standard input or the standard output."""
_NO_PLACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG})
"""Errors of a file behind stdout that can take no more data."""


def say(as_json: bool, said: str, data: dict[str, Any]) -> None:
    """What a command has done: `data` for programs, or `said` for people."""
    if as_json:
        write_json(data)
    else:
        line(stdout(), said)
