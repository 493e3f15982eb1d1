"""Reads a transcript that grows, each time from where it stopped.

After each reading, the state of the reader and of the detectors is kept as it was after the last
whole line. Everything behind that line is read again the next time. A last line without an end, and
the end of the runs, are worked out on a copy of the state. So the runs are those of a reading from
the start, wherever the file happens to end.

A file is read from its start if it was cut, rewritten or replaced: if its inode, its first or its
last known bytes are others. It is read from its start also if a record changes what stands before
it, such as a branch that was left. Formats that are no JSON lines, and packed files, are always
read whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from monitor._util.hashing import fingerprint
from monitor.detectors.detector import Detector
from monitor.errors import MissingExtra
from monitor.policy import Policy
from monitor.transcripts.analysis.states import States
from monitor.transcripts.analysis.survey import Survey, SurveyedFile, WatchSettings, survey_file, why_unread
from monitor.transcripts.entries import ReadReport
from monitor.transcripts.places import sources_of
from monitor.transcripts.readers.lines import LineReader, LineReading
from monitor.transcripts.readers.registry import reader_of
from monitor.transcripts.source import HEAD_BYTES, Source

COMPARED_BYTES: Final = 65_536
"""The number of bytes that must be unchanged at the start of a file, and before the place where its
reading stopped.
"""
STEP_BACK: Final = 65_536


@dataclass(slots=True, kw_only=True)
class FileReading:
    """A reading up to the end of a whole line."""

    format: str
    inode: tuple[int, int]
    reading: LineReading
    survey: Survey
    report: ReadReport = field(default_factory=ReadReport)
    offset: int = 0
    """The number of bytes that were read."""
    first: str = ""
    last: str = ""
    """Hashes of the first and of the last of these bytes."""

    def is_of(self, path: Path, status: os.stat_result) -> bool:
        """Whether the file still begins with what was read."""
        if self.inode != _inode(status) or status.st_size < self.offset:
            return False
        return (self.first, self.last) == _hashes(path, self.offset)


class Follower:
    """Reads files again and again. `detectors`, `policy`: functions that make new ones for each
    run; `None`: the guard's default ones. `states`: where the states are kept.
    """

    def __init__(
        self,
        states: States,
        *,
        detectors: Callable[[], Sequence[Detector]] | None = None,
        policy: Callable[[], Policy | None] | None = None,
    ) -> None:
        self._states = states
        self._watched = WatchSettings(detectors, policy)

    def survey(self, path: Path) -> list[SurveyedFile]:
        """The transcripts of the file, as `survey_file` has them."""
        try:
            status = path.stat()
            kept = self._states.get(path)
            if kept is not None and (found := self._read_on(path, status, kept)) is not None:
                return [found]
            if (found := self._read_anew(path, status)) is not None:
                return [found]
        except (OSError, MissingExtra) as error:
            return [SurveyedFile(file=str(path), format=None, error=why_unread(error))]
        self._states.forget(path)
        return [survey_file(source, watched=self._watched) for source in sources_of(path)]

    def _read_on(self, path: Path, status: os.stat_result, progress: object) -> SurveyedFile | None:
        """The runs, from where the last reading stopped; `None`: the file must be read from its
        start.
        """
        if not isinstance(progress, FileReading) or not progress.is_of(path, status):
            return None
        source = Source.of_path(path)
        if progress.offset < HEAD_BYTES:  # the head may show more than it did
            reader = reader_of(source)
            if reader is None or reader.format != progress.format or not progress.reading.began_like(source):
                return None
        progress.survey.watched = self._watched
        return self._continued(path, progress, status.st_size)

    def _read_anew(self, path: Path, status: os.stat_result) -> SurveyedFile | None:
        """The runs, from the start; `None`: the file cannot be read step by step."""
        source = Source.of_path(path)
        reader = reader_of(source)
        reading = reader.reading_of(source) if isinstance(reader, LineReader) and not source.is_packed else None
        if reader is None or reading is None:
            return None
        survey = Survey(source.name, reader.format, self._watched)
        progress = FileReading(format=reader.format, inode=_inode(status), reading=reading, survey=survey)
        return self._continued(path, progress, status.st_size)

    def _continued(self, path: Path, progress: FileReading, size: int) -> SurveyedFile | None:
        """Read what is new, keep the state after it, and end the runs for now."""
        source = Source.of_path(path)
        end = _end_of_lines(path, progress.offset, size)
        if end > progress.offset:
            _take(progress, source.part(progress.offset, end))
            if progress.reading.stale:
                return None
            progress.offset = end
            progress.first, progress.last = _hashes(path, end)
            self._states.put(path, progress)
        _take(progress, source.part(end, size))
        if progress.reading.stale:
            return None
        runs = progress.survey.take_all(progress.reading.end(progress.report))
        return SurveyedFile(file=source.name, format=progress.format, runs=tuple(runs), report=progress.report)


def _take(progress: FileReading, part: Source) -> None:
    for record in part.records(progress.report):
        progress.survey.take_all(progress.reading.take(record, progress.report))
        if progress.reading.stale:
            break


def _inode(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _hashes(path: Path, offset: int) -> tuple[str, str]:
    """Hashes of the first bytes of a file, and of the last ones before `offset`."""
    length = min(offset, COMPARED_BYTES)
    with path.open("rb") as file:
        first = file.read(length)
        file.seek(offset - length)
        last = file.read(length)
    return fingerprint(first), fingerprint(last)


def _end_of_lines(path: Path, start: int, size: int) -> int:
    """The place after the last line end between `start` and `size`; `start`: there is none."""
    with path.open("rb") as file:
        end = size
        while end > start:
            begin = max(start, end - STEP_BACK)
            file.seek(begin)
            found = file.read(end - begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            end = begin
    return start
