"""Keys for the line at the bottom of a live view, read while a run goes on."""

from __future__ import annotations

import codecs
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import anyio

import monitor
from monitor.errors import MonitorError
from monitor.messages import SteerKind
from monitor.tools.base import Background
from monitor.view.status import InputLine

_PERSON: Final = "the person at the terminal"


def can_type() -> bool:
    """Whether somebody can type while a run is shown. On Windows nobody can."""
    return sys.platform != "win32" and sys.stdin.isatty()


@contextlib.contextmanager
def typed_to(run: monitor.Run[Any], line: InputLine | None) -> Iterator[None]:
    """In this block, lines that are typed into `line` are said to `run`."""
    if line is None:
        yield
        return
    keyboard = _Keyboard(run, line)
    line.opens, line.closes, line.send = keyboard.open, keyboard.close, keyboard.say
    try:
        yield
    finally:
        keyboard.close()
        line.opens = line.closes = lambda: None


class _Keyboard:
    def __init__(self, run: monitor.Run[Any], line: InputLine) -> None:
        self._run = run
        self._line = line
        self._file = sys.stdin.fileno()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._restore: Callable[[], object] | None = None
        """Sets the terminal as it was. `None`: its keys are not read."""
        self._reading: Background | None = None
        self._saying: set[Background] = set()

    def open(self) -> None:
        """Read keys one by one. Ctrl-C is still a signal."""
        import termios  # noqa: PLC0415 - POSIX has it, see `can_type`
        import tty  # noqa: PLC0415 - the same

        if self._restore is None:
            before = termios.tcgetattr(self._file)
            self._restore = partial(termios.tcsetattr, self._file, termios.TCSADRAIN, before)
            tty.setcbreak(self._file, termios.TCSANOW)
            self._reading = Background(self._read, "agent-monitor keys")

    def close(self) -> None:
        """Read whole lines again, as the program before."""
        restore, self._restore = self._restore, None
        reading, self._reading = self._reading, None
        if restore is not None:
            restore()
        if reading is not None:
            reading.cancel()

    async def _read(self) -> None:
        mine = self._restore
        while True:
            await anyio.wait_readable(self._file)
            if self._restore is not mine:
                return  # the keys belong to somebody else now
            keys = os.read(self._file, 1_024)
            if not keys:
                return  # the terminal is gone
            self._line.feed(self._decoder.decode(keys))

    def say(self, text: str, kind: SteerKind, now: bool) -> None:
        """Say `text` to the run, in a task of its own."""
        saying = Background(partial(self._said, text, kind, now=now), "agent-monitor message")
        self._saying = {one for one in self._saying if not one.ended} | {saying}

    async def _said(self, text: str, kind: SteerKind, *, now: bool) -> None:
        with contextlib.suppress(MonitorError):  # the run itself says that its session fails
            if kind == "steer":
                await self._run.steer(text, now=now, by=_PERSON)
            else:
                await self._run.follow_up(text, by=_PERSON)
