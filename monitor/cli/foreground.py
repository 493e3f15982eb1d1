"""Drives a run in the foreground: with Ctrl-C, with readers that leave, with tools that hang."""

from __future__ import annotations

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
from typing import Any, NoReturn, TypeAlias

import anyio
import typer

import monitor
from monitor.cli.exit_code import UNREAD, exit_code
from monitor.cli.inputs.keyboard import typed_to
from monitor.cli.options.named_models import Closing
from monitor.cli.render import output
from monitor.cli.render.screen import EventFeed
from monitor.sessions import PostgresSession, SessionStore, SQLiteSession

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
        with monitor.JsonlSink(file) as sink:
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
