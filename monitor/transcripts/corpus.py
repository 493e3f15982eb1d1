"""Recorded runs as JSON lines, plain or gzipped: one object a run, the format of the labelled
corpus; or a log of events.

    {"id", "source", "label", "loop",
     "messages": [{"role", "text", "tool_calls": [{"name", "args"}],
                   "tool_results": [{"name", "text", "is_error", "len", "sha1"}]}]}

Only `id` and `messages` are required. Unknown fields beside them are ignored. Unknown fields in a
message are refused: such a field, e.g. another form's `content`, may hold the model's text, which
would be missed. An unreadable line is noted with its file and number, and the other lines are still
read.

The first readable line decides what the file holds: recorded runs, or events.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monitor.errors import AdapterError, ConfigError
from monitor.transcripts.base import MOST_NAMED, ReadReport, RecordedRun
from monitor.transcripts.readers.own import EventLog, LoggedRun, is_event, run_of
from monitor.transcripts.source import MAX_LINE_BYTES, Source

MAX_BAD_LINES = MOST_NAMED
"""The most unreadable lines of a file that are reported one by one; further lines are counted."""


@dataclass(slots=True, frozen=True)
class BadLine:
    """A line of a file that cannot be read."""

    file: str
    line: int
    """The number of the line, counted from 1."""
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


class Corpus:
    """The runs of one file, read one at a time; each iteration starts anew.

    `bad_lines` has the first `MAX_BAD_LINES` unreadable lines, and `bad` counts all; both are
    complete after the iteration. Raises `OSError` for a file that cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], *, max_line_bytes: int | None = MAX_LINE_BYTES) -> None:
        if max_line_bytes is not None and max_line_bytes < 1:
            raise ConfigError(f"max_line_bytes={max_line_bytes!r} must be at least 1, or None for no limit")
        self.path: Path = Path(path)
        self.max_line_bytes = max_line_bytes
        self.lines: int = 0
        """The number of lines that are not empty."""
        self._report = ReadReport()

    @property
    def bad(self) -> int:
        """The number of all unreadable lines."""
        return self._report.bad

    @property
    def bad_lines(self) -> list[BadLine]:
        """The first of the unreadable lines."""
        return [BadLine(str(self.path), line, message) for line, message in self._report.first_bad]

    def __iter__(self) -> Iterator[RecordedRun]:
        self.path.open("rb").close()  # a file that cannot be opened is no damaged one
        self.lines, self._report = 0, (report := ReadReport())
        source = Source.of_path(self.path)
        source.max_line_bytes = self.max_line_bytes or sys.maxsize - 1
        log: EventLog | None = None
        has_runs = False
        for number, line in source.lines(report):
            self.lines += 1
            try:
                record = _parsed(line)
                event = is_event(record)
                if event and not has_runs:
                    log = log or EventLog()
                if event is not (log is not None):
                    raise AdapterError("an event among recorded runs" if event else "not an event, in a log of events")
                run = run_of(record) if log is None else log.add(record)
                has_runs = log is None
            except AdapterError as error:
                report.cannot_read(number, str(error))
            else:
                if run is not None:
                    yield run.run if isinstance(run, LoggedRun) else run
        if log is not None:
            yield from (logged.run for logged in log.end())


def parse_run(line: bytes | str) -> RecordedRun:
    """One line as a run. Raises `AdapterError` that names the fault."""
    return run_of(_parsed(line))


def _parsed(line: bytes | str) -> Mapping[str, Any]:
    try:
        data: object = json.loads(line.decode("utf-8") if isinstance(line, bytes) else line)
    except UnicodeDecodeError as error:
        raise AdapterError(f"not UTF-8: byte {error.object[error.start]:#04x} at byte {error.start + 1}") from None
    except json.JSONDecodeError as error:
        raise AdapterError(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except (ValueError, RecursionError) as error:  # a number with thousands of digits; thousands of brackets
        raise AdapterError(f"not JSON that can be read: {error}") from None
    if not isinstance(data, dict):
        raise AdapterError(f"expected a JSON object, not {type(data).__name__}")
    return data
