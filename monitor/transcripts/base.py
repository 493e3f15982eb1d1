"""A recorded run of an agent, from a file of any format, and its conversion to chunks.

Recordings shorten tool results, and so do readers. The chunks of two results are equal only if the
full results were: where the text is not the whole result, its length and hash are appended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from monitor._util.checked_words import checked
from monitor.chunks import NO_USAGE, Chunk, ReasoningDelta, TextDelta, ToolCall, ToolResult, TurnFinished, Usage
from monitor.errors import FinishReason

MOST_OPEN = 1_000
"""The most calls with an id that wait for their results at once. The newest ones stay."""

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


@dataclass(slots=True, frozen=True)
class RecordedCall:
    """A tool call that the model made."""

    name: str
    arguments: Any
    id: str | None = None
    """The id that the call shares with its result. `None`: the recording does not say."""


@dataclass(slots=True, frozen=True)
class RecordedResult:
    """A tool's answer, perhaps shortened."""

    name: str
    text: str
    is_error: bool = False
    length: int | None = None
    """Code points of the full result."""
    sha1: str | None = None
    """The first hexadecimal digits of the full result's SHA-1."""
    call_id: str | None = None
    """The id of its call. `None`: the recording does not say."""
    vetoed: bool = False
    """A hook of agent-monitor refused the call, so no tool has answered."""

    @property
    def whole(self) -> bool:
        """Whether `text` is the full result, as far as the recording says."""
        if self.sha1 is not None:
            return sha1_of(self.text).startswith(self.sha1.lower())
        return self.length is None or self.length == len(self.text)

    @property
    def distinct_text(self) -> str:
        """The text. If it is shortened, the length and the hash of the full result are appended."""
        if self.whole:
            return self.text
        known = [f"{self.length} characters"] if self.length is not None else []
        known += [f"sha1 {self.sha1}"] if self.sha1 is not None else []
        return f"{self.text}\n[not the whole result: {', '.join(known)}]"


@dataclass(slots=True, frozen=True)
@checked
class RecordedMessage:
    """One message. The results stand in it, or in a `tool` message that follows."""

    role: Role
    text: str = ""
    tool_calls: tuple[RecordedCall, ...] = ()
    tool_results: tuple[RecordedResult, ...] = ()
    reasoning: str = ""
    """The model's thinking, if the recording has it as text."""
    synthetic: bool = False
    """No person and no model wrote it, but the agent's program: a reminder, a summary, an error."""
    at: float | None = None
    """The time, in seconds since 1970-01-01 UTC. `None`: the recording does not say."""
    usage: Usage | None = None
    """Tokens of the model call. `None`: the recording does not say."""
    cost_usd: float | None = None
    """The cost of the model call, as the recording says."""
    model: str = ""


@dataclass(slots=True, frozen=True)
class LoopLabel:
    """The place of a loop, labelled by people. Every `turn` is an index in the run's messages."""

    kind: str
    turn: int | None = None
    """The index of the first repeated element."""
    turn_3: int | None = None
    """The end of the third repetition."""
    turn_5: int | None = None
    """The end of the fifth repetition."""
    period: int | None = None
    """The length of one round, in calls; for text, in characters."""
    repeats: float | None = None
    same_results: bool | None = None
    char: int | None = None
    """For text: where in the message the exact repetition starts."""
    chars: int | None = None
    """For text: how long the whole message is."""


@dataclass(slots=True, frozen=True)
class RecordedRun:
    """One recorded run, with its messages and label."""

    id: str
    messages: tuple[RecordedMessage, ...]
    source: str = ""
    label: str | None = None
    loop: LoopLabel | None = None
    model: str = ""

    @property
    def task(self) -> str | None:
        """The first request of the user. `None`: the recording does not have it."""
        return next((message.text for message in self.messages if message.role == "user" and message.text), None)

    def chunks(self) -> Iterator[tuple[int, Chunk]]:
        """The run as a stream, each chunk with the index of its message."""
        chunker = Chunker()
        for index, message in enumerate(self.messages):
            for chunk in chunker.chunks(message):
                yield index, chunk


class Chunker:
    """Turns the messages of one run into chunks, one message at a time.

    Calls get the ids `call_0`, `call_1`, ... A result answers the call with its `call_id`. A result
    without one answers the oldest open call of its name in the last message that made any. If there
    is none, it answers the oldest open call. A result without any call gets an id of its own.
    """

    def __init__(self) -> None:
        self._calls = self._results_without_call = 0
        self._open: list[tuple[str | None, ToolCall]] = []

    def chunks(self, message: RecordedMessage) -> Iterator[Chunk]:
        """The chunks of the next message."""
        if message.role == "assistant":
            if message.reasoning:
                yield ReasoningDelta(message.reasoning)
            if message.text:
                yield TextDelta(message.text)
            if message.tool_calls:
                yield from self._called(message.tool_calls)
            yield TurnFinished(FinishReason.DONE)
        for result in message.tool_results:
            answered = _take(self._open, result)
            if answered is None:
                id = f"result_{self._results_without_call}"
                self._results_without_call += 1
            else:
                id = answered.id
            name = result.name or (answered.name if answered else "")
            yield ToolResult(id, name, result.distinct_text, result.is_error, vetoed=result.vetoed)

    def _called(self, calls: tuple[RecordedCall, ...]) -> Iterator[ToolCall]:
        made = [
            (call.id, ToolCall(f"call_{self._calls + i}", call.name, call.arguments)) for i, call in enumerate(calls)
        ]
        self._calls += len(made)
        self._open = [*(one for one in self._open if one[0] is not None), *made][-MOST_OPEN:]
        for _, call in made:
            yield call


def sha1_of(text: str) -> str:
    """The SHA-1 of a whole result, in hexadecimal digits."""
    import hashlib  # noqa: PLC0415 - a hook is waited for, and few results are shortened

    return hashlib.sha1(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


def _take(calls: list[tuple[str | None, ToolCall]], result: RecordedResult) -> ToolCall | None:
    """The call that `result` answers, taken out of `calls`."""
    if result.call_id is not None:
        for index, (id, _) in enumerate(calls):
            if id == result.call_id:
                return calls.pop(index)[1]
        if not all(id is None for id, _ in calls):
            return None
    for index, (_, call) in enumerate(calls):
        if call.name == result.name:
            return calls.pop(index)[1]
    return calls.pop(0)[1] if calls else None


# --------------------------------------------------------------------------------------------------
# The entries that a reader gives while it reads a transcript, each of one run.
#
# A file may hold several runs that are interleaved, such as an agent and its subagents. A run may
# be larger than the memory. So a reader gives its entries one by one, and keeps no run.
# `collected` makes whole runs of them, where a whole run is needed.

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
