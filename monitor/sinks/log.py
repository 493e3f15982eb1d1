"""Events in words: one line each, for people."""

from __future__ import annotations

import logging
import os
from os import PathLike
from pathlib import Path
from typing import Any, Self

import structlog

from monitor._util.codec import tag_of
from monitor._util.explained_options import explained
from monitor._util.text import printable
from monitor.errors import StoreError
from monitor.events import Envelope, Event, RunTerminated, StopDecided, envelope_codec, event_codec
from monitor.outcome import is_success
from monitor.sinks.descriptions import DESCRIPTIONS

LINE_CHARS = 200
"""A line for people has at most this many characters; the event has the whole text."""


def line_of(event: Event, *, chars: int | None = LINE_CHARS) -> str:
    """`event` as one line of at most `chars` characters (`None`: no limit). It has no times, so
    equal runs have equal lines. Characters that a terminal would obey are escaped.
    """
    line = printable(" ".join(DESCRIPTIONS[type(event)].said(event).split()))
    return line if chars is None or len(line) <= chars else f"{line[: chars - 1]}…"


# --------------------------------------------------------------------------------------------------
# Events as log lines, through structlog where the program has configured it, else through the
# standard library.

_OF_RECORDS = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})
"""The attributes of the standard library's log records. A record refuses extra fields with these
names, such as `name`.
"""


class LogSink:
    """One line an event: problems as warnings, the end of the run as info, all others as debug.
    `run` and `agent` say whose the event is.

    A stop and an end say their `reason` and `detail`. To stop at the goal is no warning.
    """

    def receive(self, envelope: Envelope) -> None:
        """Log the event of `envelope` with its fields, and whose it is."""
        whose = {"run": envelope.run}
        if envelope.agent:
            whose["agent"] = envelope.agent
        _log(envelope.event, whose)

    def emit(self, event: Event) -> None:
        """Log `event` with its fields, without a run."""
        _log(event, {})


def _log(event: Event, whose: dict[str, Any]) -> None:
    _logger().log(_level(event), tag_of(type(event)), **_fields(event), **whose)


def _level(event: Event) -> int:
    if isinstance(event, RunTerminated):
        return logging.INFO
    if isinstance(event, StopDecided) and is_success(event.stop):
        return logging.DEBUG
    return logging.WARNING if DESCRIPTIONS[type(event)].warns else logging.DEBUG


def _fields(event: Event) -> dict[str, Any]:
    if isinstance(event, RunTerminated):
        outcome = event.outcome
        return {
            "reason": outcome.reason.value,
            "detail": outcome.detail,
            "ok": outcome.ok,
            "elapsed_s": outcome.elapsed_s,
        }
    if isinstance(event, StopDecided):
        stop = event.stop
        return {"at_s": event.at_s, "reason": stop.reason.value, "detail": stop.detail, "source": stop.source}
    fields = event_codec.to_dict(event)
    fields.pop("type")
    return {f"{name}_" if name in _OF_RECORDS else name: value for name, value in fields.items()}


def _logger() -> Any:
    """The logger, chosen at every call, because a program may configure structlog after this module
    was imported.

    An unconfigured structlog prints every level to stdout, which would corrupt a program's own
    output.
    """
    if structlog.is_configured():
        return structlog.get_logger("monitor")
    return structlog.wrap_logger(
        logging.getLogger("monitor"),
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.render_to_log_kwargs],
        wrapper_class=structlog.stdlib.BoundLogger,
    )


# --------------------------------------------------------------------------------------------------
# Events as lines of JSON in a file, each with whose it is. They contain texts of models and
# tools, so only the owner can read a new file.


@explained(example="monitor.sinks.JsonlSink('events.jsonl')")
class JsonlSink:
    """Appends one line an event, flushed at once, so that a crash loses nothing. Close it, or use
    it as `with`.

    A line is the JSON of an envelope: the fields of the event, and under `envelope` the run, its
    parent, its root, its agent, its model and the number of the event. `envelope_codec.loads` reads
    it, and `event_codec.loads` reads the event alone. The lines of nested runs stand among those of
    their callers.

    Raises `StoreError` if the file cannot be opened, or if it is a symbolic link to another file.
    Otherwise anybody who may write into the folder could choose that file.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        try:
            self._file = os.fdopen(_opened(Path(path)), "a", encoding="utf-8")
        except OSError as error:
            raise StoreError(f"cannot write events to {path}: {error}") from error

    def receive(self, envelope: Envelope) -> None:
        """Write `envelope` as one line of JSON."""
        self._write(envelope_codec.dumps(envelope))

    def emit(self, event: Event) -> None:
        """Write `event` as one line, without whose it is."""
        self._write(event_codec.dumps(event))

    def _write(self, line: str) -> None:
        self._file.write(line + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file. Later events raise."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _opened(path: Path) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    if not path.is_symlink():
        return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)
    if path.is_file() or not path.exists():
        raise OSError("it is a symbolic link; name the file itself")
    return os.open(path, os.O_WRONLY)  # /dev/stderr, a pipe


# --------------------------------------------------------------------------------------------------
# Events kept in a list.


class MemorySink:
    """Keeps every event. `events` has those of the run, `envelopes` also those of its nested
    runs.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        """The events of each run that no other run here has called, in order."""
        self.envelopes: list[Envelope] = []
        """The events of all runs, with whose they are. What `emit` was given is not among them."""
        self._runs: set[str] = set()

    def receive(self, envelope: Envelope) -> None:
        """Append `envelope`; its event too, if it is of no nested run."""
        self._runs.add(envelope.run)
        self.envelopes.append(envelope)
        if envelope.parent not in self._runs:
            self.events.append(envelope.event)

    def emit(self, event: Event) -> None:
        """Append `event` to the list of events."""
        self.events.append(event)

    def of(self, run: str) -> list[Event]:
        """The events of the run with this id."""
        return [envelope.event for envelope in self.envelopes if envelope.run == run]
