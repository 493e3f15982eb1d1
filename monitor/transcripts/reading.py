"""Reads a transcript. Its content shows the format."""

from __future__ import annotations

from collections.abc import Iterator

from monitor.errors import AdapterError
from monitor.transcripts.base import RecordedRun
from monitor.transcripts.entries import ReadReport, TranscriptEntry, collected
from monitor.transcripts.readers.registry import reader_of
from monitor.transcripts.source import Source


def read_transcript(source: Source, report: ReadReport | None = None) -> Iterator[TranscriptEntry]:
    """The entries of a transcript, as they come: `Began`, `Said`, `CompactionSeen`,
    `Ended`, each of one run. Unreadable parts are noted in `report`.

    Raises `AdapterError` if its format is unknown, and `OSError` if it cannot be opened.
    """
    reader = reader_of(source)
    if reader is None:
        raise AdapterError(f"{source.name}: it is no transcript of a known format")
    yield from reader.read(source, report if report is not None else ReadReport())


def runs(source: Source, report: ReadReport | None = None) -> Iterator[RecordedRun]:
    """The whole runs of a transcript, each when it is over. For long runs, `read_transcript`
    needs less memory.

    Raises what `read_transcript` raises.
    """
    for run, _ in collected(read_transcript(source, report)):
        yield run
