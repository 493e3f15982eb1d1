"""The interface of a reader, and parts that most readers need: blocks, times, shortened results.

A new format is one file here, one folder of samples, one line in `READERS`. The contract suite
finds it there.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

from monitor._util.hashing import identity
from monitor.transcripts.base import RecordedCall, RecordedMessage, RecordedResult
from monitor.transcripts.entries import Began, Ended, EndState, ReadReport, Said, TranscriptEntry
from monitor.transcripts.source import Source

KEPT_CHARS: Final = 65_536
"""Only the beginning of a longer result is kept, with the length and the hash of the whole."""
REMEMBERED: Final = 32_768
"""Ids of records that are remembered at least, to see a record that stands twice. At most it is
twice the number.
"""


class Reader(Protocol):
    """Reads the transcripts of one format."""

    format: ClassVar[str]
    """The name of the format, e.g. `claude-code`."""
    agent: ClassVar[str]
    """The program that has this format, for people."""
    places: ClassVar[tuple[str, ...]]
    """The places of its files, as patterns below the home folder: `.claude/projects/**/*.jsonl`."""

    def fits(self, source: Source) -> bool:
        """Whether `source` has this format, by its content and never by its name.

        It must be false for a source that another reader recognises as its own format.
        """
        ...

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        """The entries of `source`. The content of a file never raises an error: unreadable parts
        are counted in `report`.
        """
        ...


class Steps(Protocol):
    """A reading of JSON lines, one record after the other. It can be stored (`pickle`) between two
    records, so that a file that grows is read on from there.
    """

    stale: bool
    """A record came that changes what stands before it. The reading from the start would give
    something else.
    """

    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
        """The entries that the next record completes."""
        ...

    def end(self, report: ReadReport) -> Iterator[TranscriptEntry]:
        """The entries of what is held, and the ends of the runs."""
        ...

    def began_like(self, source: Source) -> bool:
        """Whether a reading of `source` from its start would begin like this one: its head may have
        grown.
        """
        ...


@runtime_checkable
class Stepwise(Reader, Protocol):
    """A reader that reads files of JSON lines step by step."""

    def steps(self, source: Source) -> Steps | None:
        """A new reading; `None`: this file is read whole."""
        ...


def all_steps(steps: Steps, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
    """The entries of the whole file."""
    for record in source.records(report):
        yield from steps.take(record, report)
    yield from steps.end(report)


class Recent:
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


class Names:
    """The ids of the runs of one file: an id that comes again gets a number behind it."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count: dict[str, int] = {}

    def of(self, id: str) -> str:
        """`id`, or `id~2` if it has come before."""
        count = self._count[id] = self._count.get(id, 0) + 1
        return id if count == 1 else self.of(f"{id}~{count}")


class RunState:
    """The state of a run while it is read. The last entries say whether the run has ended."""

    __slots__ = ("_open_calls", "ended", "last_role", "run")

    def __init__(self, run: str) -> None:
        self.run = run
        self.ended: tuple[EndState, str] | None = None
        """The end of the run, if the recording names one."""
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
        return Said(run=self.run, message=message)

    def end(self) -> Ended:
        """The entry of its end. A run has not finished if a call is open, or if the last message is
        not the model's.
        """
        if self.ended is not None:
            return Ended(run=self.run, state=self.ended[0], detail=self.ended[1])
        if self._open_calls:
            return Ended(run=self.run, state="unfinished", detail="a call has no result")
        if self.last_role in {"user", "tool"}:
            return Ended(run=self.run, state="unfinished", detail=f"the last message is of the {self.last_role}")
        if self.last_role == "assistant":
            return Ended(run=self.run, state="finished", detail="the last message is the model's")
        return Ended(run=self.run, state="unknown")


class WholeRun:
    """A run of a format that has one run a file, or one run a record."""

    def __init__(self, began: Began) -> None:
        self._began = began
        self._state = RunState(began.run)

    def entries(
        self, messages: Iterable[RecordedMessage], *, ended: tuple[EndState, str] | None = None
    ) -> Iterator[TranscriptEntry]:
        """All entries of the run. `ended`: the end, if the recording names one."""
        yield self._began
        for message in messages:
            yield self._state.said(message)
        self._state.ended = ended
        yield self._state.end()


OWN_SIGN: Final = "agent-monitor: "
"""The beginning of the reasons that the hooks of agent-monitor give."""


def result_of(
    name: str, text: str, *, is_error: bool = False, call_id: str | None = None, refusal: str | None = None
) -> RecordedResult:
    """A tool's result, shortened if it is long. `refusal`: the words that the agent puts before the
    reason of a hook that refused the call; `None`: it has none. A tool that imitates them hides its
    results, but not its calls: they count by their arguments.
    """
    if refusal is not None and text.startswith(f"{refusal}{OWN_SIGN}"):
        return RecordedResult(name, text[:KEPT_CHARS], is_error=True, call_id=call_id, vetoed=True)
    if len(text) <= KEPT_CHARS:
        return RecordedResult(name, text, is_error, call_id=call_id)
    sha1 = hashlib.sha1(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
    return RecordedResult(name, text[:KEPT_CHARS], is_error, len(text), sha1[:16], call_id)


def call_of(name: object, arguments: object, id: object) -> RecordedCall:
    """A call. `arguments` may be JSON in a string, as OpenAI has it."""
    return RecordedCall(text(name) or "?", without_media(arguments), text(id) or None)


def text(value: object) -> str:
    """`value` if it is a text, else nothing."""
    return value if isinstance(value, str) else ""


def id_of(value: object) -> str:
    """`value` as a piece of an id: a short text, or a whole number of usual size."""
    if isinstance(value, str):
        return value[:MOST_ID_CHARS]
    return str(value) if isinstance(value, int) and abs(value) < MOST_NUMBER else "?"


MOST_ID_CHARS: Final = 200
MOST_NUMBER: Final = 2**63


def table(value: object) -> Mapping[str, Any]:
    """`value` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def rows(value: object) -> list[Any]:
    """`value` if it is a JSON list, else an empty one."""
    return value if isinstance(value, list) else []


def whole(value: object) -> int:
    """`value` if it is a whole number that is not negative, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def words(content: object) -> str:
    """The text of a content that is a text, or a list of texts and blocks with a text.

    A block that is no text stands as its kind, with the size and the hash of its data.
    """
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return _block(content)
    return "\n".join(filter(None, map(words, rows(content))))


def _block(block: Mapping[str, Any]) -> str:
    for name in ("text", "content", "output", "input_text", "output_text"):
        if isinstance(block.get(name), str):
            return str(block[name])
    for name in ("content", "parts"):
        if isinstance(block.get(name), list):
            return words(block[name])
    data = block.get("source", block.get("image_url", block.get("inlineData", block.get("data"))))
    while isinstance(data, dict):
        data = data.get("data", data.get("url", ""))
    return named_media(text(block.get("type")) or "data", text(data)) if data else ""


def named_media(kind: str, data: str) -> str:
    """A text that stands for binary data: its kind, its size and its hash."""
    return f"[{kind}, {len(data)} characters, xxh3 {identity(data)}]"


LONG_DATA_CHARS: Final = 1_024


def without_media(value: Any, depth: int = 0) -> Any:
    """`value` with long `data:` URLs replaced by their size and hash, as they are compared and
    shown.
    """
    if isinstance(value, str):
        return named_media("data", value) if len(value) > LONG_DATA_CHARS and value.startswith("data:") else value
    if depth > MOST_DEPTH:
        return value
    if isinstance(value, dict):
        return {key: without_media(item, depth + 1) for key, item in value.items()}
    return [without_media(item, depth + 1) for item in value] if isinstance(value, list) else value


MOST_DEPTH: Final = 32


def as_float(value: object) -> float:
    """`value` if it is a finite number, else 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    try:
        number = float(value)
    except OverflowError:
        return 0.0
    return number if math.isfinite(number) else 0.0


def dollars(value: object) -> float | None:
    """A cost in US dollars. `None`: the recording does not say."""
    return None if value is None else max(0.0, as_float(value))


def seconds(value: object) -> float | None:
    """A time as seconds since 1970: ISO text, or a number of seconds, milliseconds, microseconds or
    nanoseconds. `None`: it is no time.

    A text without a zone is taken as UTC: recordings do not say whose local time it is.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        number = as_float(value)
        for above, unit in ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3)):
            if number >= above:
                return number / unit
        return number if number > 0 else None
    if isinstance(value, str):
        if value.isdecimal() and len(value) < MOST_DIGITS:
            return seconds(int(value))
        try:
            when = datetime.fromisoformat(value)
            return (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    return None


MOST_DIGITS: Final = 24
