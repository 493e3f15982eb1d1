"""The entries that a reader gives while it reads a transcript, each of one run.

A file may hold several runs that are interleaved, such as an agent and its subagents. A run may be
larger than the memory. So a reader gives its entries one by one, and keeps no run. `collected`
makes whole runs of them, where a whole run is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from monitor.transcripts.base import LoopLabel, RecordedMessage, RecordedRun
from monitor.usage import NO_USAGE, Usage

EndState: TypeAlias = Literal["finished", "unfinished", "failed", "aborted", "limit", "loop", "unknown"]
"""How a recorded run ended.

- `finished`: the model ended its answer, or the program says so.
- `unfinished`: a call has no result, or the last message is not the model's; it may still be open.
- `failed`: a model call failed for good.
- `aborted`: a person ended it.
- `limit`: a limit of the program or of the provider ended it.
- `loop`: the program's own loop detection ended it.
- `unknown`: the recording does not say.
"""


class Began(NamedTuple):
    """The entry with which a run begins."""

    run: str
    """The id of the run, unique in its file."""
    parent: str | None = None
    """The run that called this one, as a subagent."""
    project: str = ""
    """The working directory, or the name of the task set."""
    title: str = ""
    model: str = ""
    source: str = ""
    label: str | None = None
    """The label that people gave to the run, in a labelled corpus."""
    loop: LoopLabel | None = None


class Said(NamedTuple):
    """The entry of the next message of a run."""

    run: str
    message: RecordedMessage


class CompactionSeen(NamedTuple):
    """The history of a run was replaced by a summary. The same calls after it are a new start."""

    run: str
    at: float | None = None


class RunTotals(NamedTuple):
    """The sums of a whole run that its recording names. They count in place of the messages."""

    usage: tuple[tuple[str, Usage], ...] = ()
    """The tokens of each model. A model without a name is the model of the run."""
    cost_usd: float | None = None
    """The cost in US dollars. `None`: the recording does not say."""

    @property
    def tokens(self) -> Usage | None:
        """The tokens of all models. `None`: the recording does not say."""
        return sum((usage for _, usage in self.usage), NO_USAGE) if self.usage else None


class Ended(NamedTuple):
    """The file has no more entries of a run."""

    run: str
    state: EndState = "unknown"
    detail: str = ""
    """The recording's own word for it."""
    totals: RunTotals | None = None
    """`None`: the recording has no sum of the run."""


TranscriptEntry: TypeAlias = Began | Said | CompactionSeen | Ended
"""An entry. A reader gives one after the other."""


@dataclass(slots=True, kw_only=True)
class ReadReport:
    """Everything that a reader noted about one file beside its entries. It is complete when the
    file has been read.
    """

    lines: int = 0
    """Lines that were read, empty ones too."""
    bad: int = 0
    """Lines, records or members that could not be read."""
    lost: int = 0
    """Parts that are no single torn lines: the rest of a damaged file, another session."""
    first_bad: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """The first of them: the number of the line, and what is wrong with it."""
    unknown: dict[str, int] = field(default_factory=dict[str, int])
    """Records of types that the reader does not know, by type. They were left out."""
    cut: bool = False
    """The last line is not complete: the file was cut, or is being written."""
    repeated: int = 0
    """Records that stood twice in the file. They count once."""
    copied: int = 0
    """Records of other sessions, which a resumed session copies. They were left out."""

    @property
    def left_out(self) -> int:
        """The number of records of unknown types."""
        return sum(self.unknown.values())

    def cannot_read(self, line: int, why: str, *, lost: bool = False) -> None:
        """Note a line that could not be read. `lost`: it may have held a large part of the file."""
        self.bad += 1
        self.lost += lost
        if len(self.first_bad) < MOST_NAMED:
            self.first_bad.append((line, why))

    def is_of_another_session(self) -> None:
        """Note a record of a session that the file should not have. The session is not read."""
        self.does_not_know("record of another session")
        self.lost += 1

    def does_not_know(self, kind: object) -> None:
        """Note a record of an unknown type."""
        name = kind[:MOST_CHARS] if isinstance(kind, str) else type(kind).__name__
        if name in self.unknown or len(self.unknown) < MOST_NAMED:
            self.unknown[name] = self.unknown.get(name, 0) + 1


MOST_NAMED = 100
"""The most unreadable lines, and the most unknown types, that a report names one by one."""
MOST_CHARS = 80


def collected(entries: Iterable[TranscriptEntry]) -> Iterator[tuple[RecordedRun, Ended]]:
    """Whole runs, each when it is over."""
    open_runs: dict[str, tuple[Began, list[RecordedMessage]]] = {}
    for entry in entries:
        match entry:
            case Began(run=run):
                open_runs[run] = (entry, [])
            case Said(run=run, message=message):
                open_runs[run][1].append(message)
            case Ended(run=run):
                began, messages = open_runs.pop(run)
                yield (
                    RecordedRun(
                        run, tuple(messages), began.source or began.project, began.label, began.loop, began.model
                    ),
                    entry,
                )
            case CompactionSeen():
                pass
