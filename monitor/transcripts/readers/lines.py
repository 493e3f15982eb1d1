"""Readers of JSON lines. Such a file may grow, so a reading can be stored between two records, and
go on where the file ended.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from monitor.transcripts.base import RecordedCall, RecordedMessage
from monitor.transcripts.entries import ReadReport, TranscriptEntry
from monitor.transcripts.readers.base import TranscriptReader
from monitor.transcripts.source import Source
from monitor.usage import Usage


class LineReading(ABC):
    """A reading of JSON lines, one record after the other. It can be stored (`pickle`) between two
    records.
    """

    stale = False
    """A record came that changes what stands before it. The reading from the start would give
    something else.
    """

    @abstractmethod
    def __init__(self, source: Source) -> None: ...

    @abstractmethod
    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterable[TranscriptEntry]:
        """The entries that the next record completes."""

    @abstractmethod
    def end(self, report: ReadReport) -> Iterator[TranscriptEntry]:
        """The entries of what is held, and the ends of the runs."""

    def began_like(self, source: Source) -> bool:
        """Whether a reading of `source` from its start would begin like this one: its head may have
        grown.
        """
        return True

    def read_all(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        """Read the whole file, and end its runs."""
        for record in source.records(report):
            yield from self.take(record, report)
        yield from self.end(report)


class LineReader(TranscriptReader):
    """A reader that reads files of JSON lines record by record."""

    reading: ClassVar[type[LineReading]]

    def reading_of(self, source: Source) -> LineReading | None:
        """A new reading of `source`. `None`: this file must be read whole."""
        return self.reading(source)

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        return self.reading(source).read_all(source, report)


@dataclass(slots=True)
class HeldResponse:
    """A response of the model whose pieces come one by one, and the results that came meanwhile."""

    at: float | None = None
    model: str = ""
    usage: Usage | None = None
    cost_usd: float | None = None
    text: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    calls: list[RecordedCall] = field(default_factory=list[RecordedCall])
    results: list[RecordedMessage] = field(default_factory=list[RecordedMessage])

    def __bool__(self) -> bool:
        return bool(self.text or self.reasoning or self.calls)

    def message(self, between: str = "\n") -> RecordedMessage:
        """The whole response. `between` stands between the pieces of its texts."""
        return RecordedMessage(
            "assistant",
            between.join(self.text),
            tuple(self.calls),
            reasoning=between.join(filter(None, self.reasoning)),
            at=self.at,
            usage=self.usage,
            cost_usd=self.cost_usd,
            model=self.model,
        )

    def messages(self, between: str = "\n") -> Iterator[RecordedMessage]:
        """The response, if any piece of it came, and its results."""
        if self:
            yield self.message(between)
        yield from self.results
