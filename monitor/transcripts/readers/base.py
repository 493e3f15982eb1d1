"""The interface of a reader, and the run that a reader has open.

A new format is one class here, one folder of samples, one line in `READERS`. The contract suite
finds it there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final

from monitor.chunks import Usage
from monitor.transcripts.base import (
    Began,
    Ended,
    EndState,
    ReadReport,
    RecordedCall,
    RecordedMessage,
    RecordedResult,
    RunTotals,
    Said,
    TranscriptEntry,
)
from monitor.transcripts.readers.values import text
from monitor.transcripts.source import Source

REMEMBERED: Final = 32_768
"""`RecentIds` remembers at least this many ids of records, and at most twice as many."""


class TranscriptReader(ABC):
    """Reads the transcripts of one format."""

    format: ClassVar[str]
    """The name of the format, e.g. `claude-code`."""
    agent: ClassVar[str]
    """The program that has this format, for people."""
    places: ClassVar[tuple[str, ...]] = ()
    """The places of its files, as patterns below the home folder: `.claude/projects/**/*.jsonl`."""

    @abstractmethod
    def fits(self, source: Source) -> bool:
        """Whether `source` has this format, by its content and never by its name.

        It must be false for a source that another reader recognises as its own format.
        """

    @property
    def signs(self) -> str:
        """The signs of the format, in words for people: the description of the reader's `fits`."""
        return " ".join((type(self).fits.__doc__ or "").split()).rstrip(".")

    @abstractmethod
    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        """The entries of `source`. The content of a file never raises an error: unreadable parts
        are counted in `report`.
        """


class RecentIds:
    """The latest ids that came, to see one that comes again. Its memory does not grow: it has two
    sets, and when the newer one is full, the older one is dropped.
    """

    __slots__ = ("_newer", "_older")

    def __init__(self) -> None:
        self._newer: set[str] = set()
        self._older: set[str] = set()

    def would_be_new(self, id: object) -> bool:
        """Whether `id` has not come before. It is not noted."""
        return not isinstance(id, str) or (id not in self._newer and id not in self._older)

    def is_new(self, id: object) -> bool:
        """Whether `id` has not come before. A value that is not an id is always new."""
        if not isinstance(id, str) or not id or " " in id:  # words that hide an id are none
            return True
        if not self.would_be_new(id):
            return False
        self._newer.add(id)
        if len(self._newer) >= REMEMBERED:
            self._newer, self._older = set(), self._newer
        return True


def chain_of(parents: Mapping[str, str], last: str) -> list[str]:
    """The ids from `last` back to the root, in a tree of records. A circle ends it."""
    found: dict[str, None] = {}
    while last and last not in found:
        found[last] = None
        last = parents.get(last, "")
    return list(found)


class RunIds:
    """The ids of the runs of one file: an id that comes again gets a number behind it."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count: dict[str, int] = {}

    def of(self, id: str) -> str:
        """`id`, or `id~2` if it has come before."""
        count = self._count[id] = self._count.get(id, 0) + 1
        return id if count == 1 else self.of(f"{id}~{count}")


@dataclass(slots=True)
class HeldResponse:
    """A response of the model whose pieces come one by one, and the results that came meanwhile."""

    at: float | None = None
    model: str = ""
    usage: Usage | None = None
    cost_usd: float | None = None
    id: str | None = None
    """The id of the response, if the recording has one. With an id it counts without any piece."""
    text: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    calls: list[RecordedCall] = field(default_factory=list[RecordedCall])
    results: list[RecordedMessage] = field(default_factory=list[RecordedMessage])
    answers: list[RecordedResult] = field(default_factory=list[RecordedResult])
    """Results that are one message together."""

    def __bool__(self) -> bool:
        return self.id is not None or bool(self.text or self.reasoning or self.calls)

    @property
    def is_answered(self) -> bool:
        """Whether a result has come. A further piece of the model is of the next response."""
        return bool(self.results or self.answers)

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

    def answered(self) -> Iterator[RecordedMessage]:
        """The messages of the results."""
        yield from self.results
        if self.answers:
            yield RecordedMessage("tool", tool_results=tuple(self.answers))

    def messages(self, between: str = "\n") -> Iterator[RecordedMessage]:
        """The response, if any piece of it came, and its results."""
        if self:
            yield self.message(between)
        yield from self.answered()


class OpenRun:
    """A run while it is read. Its last messages say whether it has ended."""

    __slots__ = ("_open_calls", "ended", "held", "id", "last_role", "model", "totals")

    def __init__(self, id: str) -> None:
        self.id = id
        self.model = ""
        """The model of the responses that name none."""
        self.held = HeldResponse()
        self.ended: tuple[EndState, str] | None = None
        """The end of the run, if the recording names one."""
        self.totals: RunTotals | None = None
        """The tokens and the cost of the run, if the recording sums them up."""
        self.last_role = ""
        self._open_calls: set[str] = set()

    def said(self, message: RecordedMessage) -> Said:
        """The entry of the run's next message."""
        if message.role == "assistant":
            self._open_calls = {call.id for call in message.tool_calls if call.id}
        for result in message.tool_results:
            self._open_calls.discard(result.call_id or "")
        if not message.synthetic:
            self.last_role = message.role
        return Said(run=self.id, message=message)

    def asked(self, said: str, at: float | None = None, *, synthetic: bool = False) -> Said:
        """The entry of what a person says: the run goes on. `synthetic`: the program says it."""
        if not synthetic:
            self.ended = None
        return self.said(RecordedMessage("user", said, synthetic=synthetic, at=at))

    def flush(self, between: str = "\n") -> Iterator[Said]:
        """The response that is held, and its results. `between` stands between its pieces."""
        held, self.held = self.held, HeldResponse()
        held.model = held.model or self.model
        yield from map(self.said, held.messages(between))

    def end(self) -> Ended:
        """The entry of its end. A run has not finished if a call is open, or if the last message is
        not the model's.
        """
        state, detail = self.ended or self._seeming_end()
        return Ended(run=self.id, state=state, detail=detail, totals=self.totals)

    def _seeming_end(self) -> tuple[EndState, str]:
        if self._open_calls:
            return "unfinished", "a call has no result"
        if self.last_role in {"user", "tool"}:
            return "unfinished", f"the last message is of the {self.last_role}"
        if self.last_role == "assistant":
            return "finished", "the last message is the model's"
        return "unknown", ""


def began_of(
    record: Mapping[str, Any],
    stem: str,
    *,
    run: str = "id",
    parent: str = "",
    project: str = "",
    title: str = "",
    model: str = "",
) -> Began:
    """The beginning of a run, as `record` has it. Each fact stands in one of the fields that are
    named, with blanks between their names. The first of them that has a text counts.
    """

    def fact(names: str) -> str:
        return next((said for name in names.split() if (said := text(record.get(name)))), "")

    return Began(fact(run) or stem, fact(parent) or None, fact(project), fact(title), fact(model))


def whole_run(
    began: Began,
    messages: Iterable[RecordedMessage],
    *,
    ended: tuple[EndState, str] | None = None,
    totals: RunTotals | None = None,
) -> Iterator[TranscriptEntry]:
    """All entries of a run. `ended`: the end of the run, if the recording names one. `totals`: its
    tokens and its cost, if the recording sums them up.
    """
    run = OpenRun(began.run)
    yield began
    yield from map(run.said, messages)
    run.ended, run.totals = ended, totals
    yield run.end()


# --------------------------------------------------------------------------------------------------
# Readers of JSON lines. Such a file may grow, so a reading can be stored between two records, and
# go on where the file ended.

NOTHING: Final = Source.of_bytes("", b"")
NO_FACTS: Final[Mapping[str, Any]] = MappingProxyType({})


class LineReader(TranscriptReader):
    """A reader of files of JSON lines, one record after the other. An instance reads one file, and
    can be stored (`pickle`) between two records. Those that recognise a format read `NOTHING`.
    """

    head: ClassVar[Mapping[str, str]] = {}
    """The fields of the record with which a run begins, as `began_of` takes them."""
    between: ClassVar[str] = "\n"
    """What stands between the pieces of a text of the model."""

    def __init__(self, source: Source = NOTHING) -> None:
        self.run = OpenRun(source.stem)
        self.known = False
        """Whether the run has begun."""
        self._foreign = False
        """Whether the records are of another session, which stands behind the own one."""
        self.stale = False
        """A record came that changes what stands before it. The reading from the start would give
        something else.
        """

    def reading_of(self, source: Source) -> LineReader | None:
        """A new reading of `source`. `None`: this file must be read whole."""
        return type(self)(source)

    def began_like(self, source: Source) -> bool:
        """Whether a reading of `source` from its start would begin like this one: its head may have
        grown.
        """
        return True

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        reading = self.reading_of(source)
        if reading is None:
            yield from self.read_document(source, report)
        else:
            yield from reading.take_all(source.records(report), report)

    def read_document(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        """The entries of a file that must be read whole."""
        yield from ()

    def take_all(self, records: Iterable[Mapping[str, Any]], report: ReadReport) -> Iterator[TranscriptEntry]:
        """The entries of all records, and the ends of the runs."""
        for record in records:
            yield from self.take(record, report)
        yield from self.end(report)

    @abstractmethod
    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterable[TranscriptEntry]:
        """The entries that the next record completes."""

    def end(self, report: ReadReport) -> Iterator[TranscriptEntry]:
        """The entries of what is held, and the ends of the runs."""
        if self.known:
            yield from self.flush()
            yield self.run.end()

    def begin(self, record: Mapping[str, Any] = NO_FACTS) -> Iterator[Began]:
        """The entry with which the run begins, if it has not begun."""
        if not self.known:
            self.known = True
            began = began_of(record, self.run.id, **self.head)
            self.run.id = began.run
            yield began

    def piece(self, at: float | None = None) -> Iterator[TranscriptEntry]:
        """A piece of a response follows: the response before it is over if results have come."""
        if self.run.held.is_answered:
            yield from self.flush()
        self.run.held.at = self.run.held.at or at

    def flush(self) -> Iterator[TranscriptEntry]:
        """The response that is held, and its results."""
        yield from self.begin()
        yield from self.run.flush(self.between)

    def is_foreign(self, session: object, report: ReadReport) -> bool:
        """Whether a record is of another session than the first of its file. `session`: the id of
        the session that the record begins; none if it begins none.
        """
        self._foreign = self._foreign or (self.known and text(session) not in {"", self.run.id})
        if self._foreign:
            report.is_of_another_session()
        return self._foreign
