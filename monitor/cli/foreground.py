"""Drives a run in the foreground: with Ctrl-C, with readers that leave, with tools that hang."""

from __future__ import annotations

import codecs
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn, TypeAlias

import anyio
import typer

import monitor
from monitor.cli import INTERRUPTED
from monitor.cli.options.supervisor_arguments import Closing
from monitor.cli.render import output
from monitor.cli.render.screen import EventFeed
from monitor.errors import MonitorError, TerminateReason
from monitor.messages import SteerKind
from monitor.outcome import Outcome
from monitor.sessions import PostgresSession, SessionStore, SQLiteSession
from monitor.tools.base import Background
from monitor.view.status import FAILURES, InputLine

STRAGGLER_S = 0.2
"""How long the command waits for the thread of an abandoned tool, in seconds."""

Opening: TypeAlias = SQLiteSession | PostgresSession | None
"""The session of the run, to be opened."""
Begin: TypeAlias = Callable[[SessionStore | None], Awaitable[monitor.Run]]
"""Makes the run, once its session is open."""


def log_of(file: Path | None) -> AbstractContextManager[list[Any]]:
    """The sinks that `--log` adds to a run."""
    if file is None:
        return nullcontext([])

    @contextmanager
    def opened() -> Iterator[list[Any]]:
        with monitor.sinks.JsonlSink(file) as sink:
            yield [sink]

    return opened()


@dataclass(slots=True)
class _RunEnd:
    outcome: monitor.Outcome
    code: int | None = None
    """The exit code, if something outside the run ended it."""


def drive(begin: Begin, session: Opening, feed: EventFeed, close: Closing) -> NoReturn:
    """Drive the run to its end, show it, and exit. `close`: closes the model's client."""
    before = set(threading.enumerate())
    ended = anyio.run(partial(_driven, begin, session, feed, close))
    code = exit_code(ended.outcome) if ended.code is None else ended.code
    _leave_stragglers(before, code)
    raise typer.Exit(code)


async def _driven(begin: Begin, session: Opening, feed: EventFeed, close: Closing) -> _RunEnd:
    try:
        async with session or nullcontext() as store, await begin(store) as run:
            feed.abort = run.abort
            with _aborting(run.abort) as received, typed_to(run, feed.line):
                async for envelope in run.envelopes():
                    feed.handed_out(envelope)
    finally:
        feed.flush()
        feed.close()
        await close()
    if feed.failure is not None:
        raise feed.failure
    if run.outcome.reason is not monitor.TerminateReason.ABORTED:
        return _RunEnd(run.outcome)
    return _RunEnd(run.outcome, 128 + received[0] if received else UNREAD if output.nobody_reads() else None)


@contextmanager
def _aborting(abort: Callable[[str], None]) -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM abort the run; the second one ends the process without waiting for
    anything. Yields the signals that came.
    """
    received: list[int] = []

    def on_signal(number: int, _: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            os.write(2, b"\nagent-monitor: interrupted twice, leaving at once\n")
            os._exit(128 + number)
        abort("interrupted by Ctrl-C" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}")

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave_stragglers(before: set[threading.Thread], code: int) -> None:
    """Exit without waiting for a tool that is stuck in a thread. Nothing can end such a thread, and
    Python would wait for it.
    """
    others = [thread for thread in threading.enumerate() if thread not in before and not thread.daemon]
    for thread in others:
        thread.join(STRAGGLER_S)
    if any(thread.is_alive() for thread in others):
        output.stderr().print("agent-monitor: a tool is still at work; leaving it", style="yellow", soft_wrap=True)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


# --------------------------------------------------------------------------------------------------
# How a run ended, as an exit code. `monitor.view.status` says it in words.

UNREAD = 141
"""The exit code of a program that ended because the reader of its output had gone."""
GAVE_UP, WRONG_USE, LIMIT, LOOP, MISSING, PROVIDER, CRASHED, WAITS = 1, 2, 3, 4, 5, 6, 7, 8
"""Exit codes of `run`. 0: the goal was reached. 130: Ctrl-C."""

_CODES: Final = {
    TerminateReason.TERMINATED: GAVE_UP,
    **dict.fromkeys(
        (
            *(TerminateReason.MAX_TURNS, TerminateReason.MODEL_CALL_LIMIT, TerminateReason.TOOL_CALL_LIMIT),
            *(TerminateReason.TOKEN_LIMIT, TerminateReason.COST_LIMIT, TerminateReason.TIMEOUT),
            *(TerminateReason.IDLE_TIMEOUT, TerminateReason.CONDITION_MET, TerminateReason.CONSECUTIVE_ERRORS),
            TerminateReason.WINDOW_TOO_SMALL,
        ),
        LIMIT,
    ),
    TerminateReason.LOOP_DETECTED: LOOP,
    TerminateReason.MISSING_OUTPUTS: MISSING,
    **dict.fromkeys(FAILURES - {TerminateReason.ERROR}, PROVIDER),
    TerminateReason.BUDGET_UNREACHABLE: PROVIDER,
    TerminateReason.BUDGET_BUSY: PROVIDER,
    TerminateReason.PAUSED: WAITS,
    TerminateReason.WORKER_STOPPING: WAITS,
    TerminateReason.ABORTED: INTERRUPTED,
    TerminateReason.CANCELLED: INTERRUPTED,
    TerminateReason.CLOSED_BY_CALLER: INTERRUPTED,
}


def exit_code(outcome: Outcome) -> int:
    """0: ok; else one number for each family of reasons."""
    if outcome.ok:
        return 0
    if outcome.reason is TerminateReason.ERROR:
        return PROVIDER if outcome.source == "provider" else CRASHED
    return _CODES.get(outcome.reason, CRASHED)


# --------------------------------------------------------------------------------------------------
# Keys for the line at the bottom of a live view, read while a run goes on.

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
            self._reading = Background(self._read, "agent-monitor proxy keys")

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
