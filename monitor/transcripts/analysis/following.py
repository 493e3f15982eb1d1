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
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from monitor._util.hashing import fingerprint
from monitor.detectors.detector import Detector
from monitor.errors import MissingExtra
from monitor.judges.judge import Judge
from monitor.policy import Policy
from monitor.transcripts.analysis.recorded_steps import dumped
from monitor.transcripts.analysis.scan import AskJudge, Finding
from monitor.transcripts.analysis.survey import (
    Survey,
    SurveyedFile,
    SurveyedRun,
    WatchSettings,
    survey_file,
    why_unread,
)
from monitor.transcripts.base import ReadReport
from monitor.transcripts.places import sources_of
from monitor.transcripts.readers.base import LineReader
from monitor.transcripts.readers.registry import reader_of
from monitor.transcripts.source import HEAD_BYTES, Source

# --------------------------------------------------------------------------------------------------
# The states of readings, kept in memory: a file that has grown is read on.

MOST_IN_MEMORY: Final = 64
"""Files whose states are kept. The others are read from their start again."""


class States:
    """The latest state of a reading for each file, as a copy that no reading changes."""

    def __init__(self) -> None:
        self._states: OrderedDict[Path, bytes] = OrderedDict()

    def get(self, path: Path) -> Any:
        """The state of the file; `None`: there is none."""
        data = self._states.get(path)
        return None if data is None else pickle.loads(data)  # noqa: S301 - of this process

    def put(self, path: Path, state: Any) -> None:
        """Keep a state. One that cannot be stored is left out."""
        self.forget(path)
        if (data := dumped(state)) is not None:
            self._states[path] = data
            if len(self._states) > MOST_IN_MEMORY:
                self._states.popitem(last=False)

    def forget(self, path: Path) -> None:
        """Drop the state of the file."""
        self._states.pop(path, None)


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
    reading: LineReader
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
    run; `None`: the guard's default ones. `states`: where the states are kept. `ask_judge`: who
    asks `judge`, where there is one; then a file is read from its start each time.
    """

    def __init__(
        self,
        states: States,
        *,
        detectors: Callable[[], Sequence[Detector]] | None = None,
        policy: Callable[[], Policy | None] | None = None,
        judge: Judge | None = None,
        ask_judge: AskJudge | None = None,
    ) -> None:
        self._states = states
        self._watched = WatchSettings(detectors, policy, judge=judge, ask_judge=ask_judge)

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


# --------------------------------------------------------------------------------------------------
# Transcripts that are being written: which loops have begun since they were read last.
#
# A file that has grown is read again from its start: formats differ in how they say that a
# message is complete, and only a reader knows. After it was read, a file rests `REST` times as
# long as the reading took. So a large file does not take all the time. Memory does not grow with
# the file.

REST: Final = 9
"""The pause after reading, by the time that reading took: reading takes a tenth of the time at
most.
"""


@dataclass(slots=True, frozen=True)
class Begun:
    """A loop that was not there before."""

    run: SurveyedRun
    finding: Finding
    before: bool
    """The run stood in the file at the first reading, so the time when it began is unknown."""


@dataclass(slots=True)
class _Followed:
    state: tuple[int, ...]
    """Numbers that change when the file does."""
    read: bool = False
    new: bool = False
    """The file was not there in the beginning, so all of it is new."""
    next_at: float = 0.0
    known: set[tuple[str, str, str, str]] = field(default_factory=set[tuple[str, str, str, str]])


class Live:
    """Follows files. `survey` reads one, `now` is a clock in seconds, `listed` says which files
    there are. `start`: files that are read at once; the others are read when they grow.
    """

    def __init__(
        self,
        listed: Callable[[], Iterable[Path]],
        survey: Callable[[Path], Iterable[SurveyedFile]],
        now: Callable[[], float],
        *,
        start: Iterable[Path] = (),
    ) -> None:
        self._listed, self._survey, self._now = listed, survey, now
        self._files = {path: _Followed(state_of(path)) for path in listed()}
        self._list_at = 0.0
        for path in start:
            self._files[path] = _Followed(())

    @property
    def files(self) -> int:
        """The number of files that are followed."""
        return len(self._files)

    def poll(self) -> Iterator[Begun | SurveyedFile]:
        """The loops that have begun, and each file that was read."""
        self._look_around()
        for path, file in self._files.items():
            state = state_of(path)
            began = self._now()
            if state == file.state or not state or began < file.next_at:
                continue
            file.state = state
            for found in self._survey(path):
                yield found
                yield from _news(file, found)
            file.read = True
            ended = self._now()
            file.next_at = ended + REST * (ended - began)

    def _look_around(self) -> None:
        """Find files that are new, as rarely as that is slow."""
        began = self._now()
        if began < self._list_at:
            return
        for path in self._listed():
            if path not in self._files:
                self._files[path] = _Followed((), new=True)
        ended = self._now()
        self._list_at = ended + REST * (ended - began)


def _news(file: _Followed, found: SurveyedFile) -> Iterator[Begun]:
    for run in found.runs:
        for finding in run.findings:
            seen = finding.detection
            key = (run.id, seen.detector, seen.kind, seen.evidence.xxhash)
            if seen.level == "loop" and key not in file.known:
                file.known.add(key)
                yield Begun(run, finding, before=not file.read and not file.new)


def state_of(path: Path) -> tuple[int, ...]:
    """Numbers that change when a file, or the journal of a database, is written. Empty: no file."""
    found: list[int] = []
    for name in (path, path.with_name(f"{path.name}-wal")):
        try:
            status = name.stat()
        except OSError:
            continue
        found += (status.st_size, status.st_mtime_ns)
    return tuple(found)
