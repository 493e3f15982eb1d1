"""Transcripts that are being written: which loops have begun since they were read last.

A file that has grown is read again from its start: formats differ in how they say that a message
is complete, and only a reader knows. After it was read, a file rests `REST` times as long as the
reading took. So a large file does not take all the time. Memory does not grow with the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from monitor.transcripts.analysis.scan import Finding
from monitor.transcripts.analysis.survey import SurveyedFile, SurveyedRun

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
