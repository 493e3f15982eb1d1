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

import gzip
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from monitor.errors import AdapterError, ConfigError
from monitor.transcripts.base import RecordedRun
from monitor.transcripts.event_logs import EventLog, LoggedRun, is_event

GZIP_MAGIC = b"\x1f\x8b"
BOM = b"\xef\xbb\xbf"
MAX_LINE_BYTES = 256 * 1024 * 1024
"""The longest line that is read. Some runs are huge lines, but a file without line ends must not
fill the memory."""
MAX_BAD_LINES = 100
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
        self.bad_lines: list[BadLine] = []
        self.bad: int = 0
        """The number of all unreadable lines."""
        self.lines: int = 0
        """The number of lines that are not empty."""

    def __iter__(self) -> Iterator[RecordedRun]:
        self.bad_lines, self.bad, self.lines = [], 0, 0
        with self.path.open("rb") as file:
            zipped = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC  # the bytes, because a name may be wrong
            file.seek(0)
            if zipped:
                with gzip.GzipFile(fileobj=file) as unzipped:
                    yield from self._runs(unzipped)
            else:
                yield from self._runs(file)

    def _runs(self, file: IO[bytes] | gzip.GzipFile) -> Iterator[RecordedRun]:
        reader: _RunLines | EventLog | None = None
        for number, line in self._lines(file):
            self.lines += 1
            try:
                record = _parsed(line)
                if is_event(record):
                    reader = reader or EventLog()
                if isinstance(reader, EventLog) is not is_event(record):
                    raise AdapterError(
                        "an event among recorded runs" if is_event(record) else "not an event, in a log of events"
                    )
                made = (reader or _RunLines()).add(record)
                reader = reader or _RunLines()
                run = made.run if isinstance(made, LoggedRun) else made
            except AdapterError as error:
                self._bad(number, str(error))
            else:
                if run is not None:
                    yield run
        if isinstance(reader, EventLog):
            yield from (logged.run for logged in reader.end())

    def _lines(self, file: IO[bytes] | gzip.GzipFile) -> Iterator[tuple[int, bytes]]:
        """The lines that are not empty, until the end or until the file turns out to be damaged."""
        limit = -1 if self.max_line_bytes is None else self.max_line_bytes + 1
        number = 0
        try:
            while line := file.readline(limit):
                number += 1
                if 0 < limit <= len(line) and not line.endswith(b"\n"):
                    self._bad(number, f"longer than {self.max_line_bytes} bytes")
                    while (rest := file.readline(limit)) and not rest.endswith(b"\n"):
                        pass
                    continue
                if number == 1:
                    line = line.removeprefix(BOM)
                if line.strip():
                    yield number, line
        except (EOFError, OSError, zlib.error) as error:
            self._bad(number + 1, f"the file is damaged or cut from here on: {error}")

    def _bad(self, line: int, message: str) -> None:
        self.bad += 1
        if len(self.bad_lines) < MAX_BAD_LINES:
            self.bad_lines.append(BadLine(str(self.path), line, message))


def parse_run(line: bytes | str) -> RecordedRun:
    """One line as a run. Raises `AdapterError` that names the fault."""
    return _RunLines().add(_parsed(line))


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


class _RunLines:
    """Reads one recorded run from each line."""

    def add(self, record: Mapping[str, Any]) -> RecordedRun:
        """The run that one line records."""
        return run_of(record)


def run_of(record: Mapping[str, Any]) -> RecordedRun:
    """One record as a run. Raises `AdapterError` with what is wrong with it."""
    from monitor.transcripts.record import run_of_record  # noqa: PLC0415 - pydantic takes long to import

    return run_of_record(record)
