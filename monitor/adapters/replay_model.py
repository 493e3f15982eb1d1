"""Recorded chunks: a file of them, and a stream that plays them again in other pieces and at
another pace.

The file is JSONL, one chunk a line with the second at which it came:
`{"at": 0.25, "chunk": {"type": "text_delta", "text": "hi"}}`. In a file written by hand the time
may be left out, `{"type": "text_delta", "text": "hi"}`: such a chunk came together with the one
before. A line `{"type": "turn"}` begins a turn of the model; its other fields are a note. Without
such lines a turn ends with its `turn_finished`.

A log of the events of one run, as `JsonlSink` writes it, is such a file too: each `turn_ended` in
it is a turn. Plain or gzipped.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self, TypeAlias

import anyio

from monitor.adapters.adapter import AdapterFactory
from monitor.adapters.parts import ChunkAdapter
from monitor.chunks import (
    Chunk,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolResult,
    TurnFinished,
    UsageReport,
    chunk_codec,
)
from monitor.errors import AdapterError, ConfigError, FinishReason
from monitor.events import TurnEnded, event_codec, identity_in
from monitor.models import ErrorKind, ModelError, ModelRequest

ReplayCut: TypeAlias = int | Sequence[int] | Callable[[], int]
"""Sizes in code points: one size, sizes that are used in turn, or a function that is called for
each piece.
"""


@dataclass(slots=True, frozen=True)
class RecordedChunk:
    """A chunk and when it came."""

    at_s: float
    """Seconds since the stream was opened, or since any other fixed moment."""
    chunk: Chunk


def read_chunks(path: str | PathLike[str]) -> list[RecordedChunk]:
    """The chunks of a recorded file. Blank lines are skipped.

    Raises `AdapterError`, with file and line, for a line that is not a recorded chunk, and
    `OSError` for an unreadable file.
    """
    return [record for record in _read(path) if record is not None]


def read_turns(path: str | PathLike[str]) -> list[list[RecordedChunk]]:
    """The chunks of a recorded file, turn by turn. The last turn may be unfinished, and with `turn`
    lines any other too.

    Raises as `read_chunks` does.
    """
    records = _read(path)
    marked = None in records
    turns: list[list[RecordedChunk]] = []
    begins = True
    for record in records:
        if record is None or begins:
            turns.append([])
        if record is not None:
            turns[-1].append(record)
        begins = not marked and record is not None and isinstance(record.chunk, TurnFinished)
    return turns


def _read(path: str | PathLike[str]) -> list[RecordedChunk | None]:
    """The chunk of every line; `None` at the beginning of a turn."""
    records: list[RecordedChunk | None] = []
    before_s, runs = 0.0, 0
    for number, line in enumerate(_unpacked(path).removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        data = _object(line, where)
        if _is_event(data):
            if _is_nested(data, where):
                continue
            runs += data["type"] == "run_started"
            if runs > 1:
                raise AdapterError(f"{where}: a second run begins here; one of them can be played")
            records += _of_event(data, where)
            continue
        record = _parsed(data, where, before_s)
        records.append(record)
        before_s = before_s if record is None else record.at_s
    return records


def _unpacked(path: str | PathLike[str]) -> bytes:
    data = Path(path).read_bytes()
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as error:
        raise AdapterError(f"{path} is damaged: {error}") from None


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        data = json.loads(line.decode())
    except UnicodeDecodeError:
        raise AdapterError(f"{where}: it is not text in UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise AdapterError(f"{where}: {error}") from None
    if not isinstance(data, dict):
        raise AdapterError(f"{where}: expected a JSON object, not {type(data).__name__}")
    return data


def _is_event(data: Mapping[str, Any]) -> bool:
    return data.get("type") in event_codec.tags and "at_s" in data


def _is_nested(data: Mapping[str, Any], where: str) -> bool:
    """A run that another one called has its answers in its result already."""
    try:
        told = identity_in(data)
    except ValueError as error:
        raise AdapterError(f"{where}: {error}") from None
    return told is not None and told[0].parent is not None


def _of_event(data: Mapping[str, Any], where: str) -> list[RecordedChunk | None]:
    """The chunks of a turn, if the event is the end of one."""
    if data["type"] != "turn_ended":
        return []
    try:
        event = event_codec.from_dict(data)
    except ValueError as error:
        raise AdapterError(f"{where}: {error}") from None
    if not isinstance(event, TurnEnded):
        raise AssertionError("the tag of an event says its class")
    turn = event.turn
    if turn.text_chars > len(turn.text):
        raise AdapterError(f"{where}: the answer is cut here: {len(turn.text):,} of {turn.text_chars:,} characters")
    usage = UsageReport(
        turn.usage.input_tokens,
        turn.usage.output_tokens,
        turn.usage.reasoning_tokens,
        turn.usage.cached_tokens,
        turn.usage.total_tokens,
    )
    chunks: list[Chunk] = [TextDelta(turn.text)] if turn.text else []
    chunks += turn.tool_calls
    if not turn.usage_estimated:
        chunks.append(usage)
    if turn.finish_reason is not None:
        chunks.append(TurnFinished(FinishReason(turn.finish_reason), turn.raw_finish_reason))
    return [None, *(RecordedChunk(event.at_s, chunk) for chunk in chunks)]


def write_chunks(path: str | PathLike[str], records: Iterable[RecordedChunk]) -> None:
    """Write `records` as `read_chunks` reads them; the same records give the same bytes. Raises
    `OSError`.
    """
    with Path(path).open("w", encoding="ascii", newline="\n") as file:
        for record in records:
            line = {"at": record.at_s, "chunk": chunk_codec.to_dict(record.chunk)}
            file.write(json.dumps(line, sort_keys=True, separators=(",", ":")) + "\n")


def _parsed(data: Mapping[str, Any], where: str, before_s: float) -> RecordedChunk | None:
    try:
        if data.get("type") == "turn":
            return None
        if "type" in data:
            data = {"at": before_s, "chunk": data}
        at_s, chunk = data["at"], chunk_codec.from_dict(data["chunk"])
    except KeyError as error:
        form = 'a line is {"at": SECONDS, "chunk": {"type": "text_delta", ...}}, or the chunk alone'
        raise AdapterError(f"{where}: {error} is missing; {form}") from None
    except (ValueError, TypeError) as error:
        raise AdapterError(f"{where}: {error}") from None
    if type(at_s) not in {int, float} or not math.isfinite(at_s) or at_s < 0:
        raise AdapterError(f"{where}: `at` is {at_s!r}, not seconds")
    return RecordedChunk(float(at_s), chunk)


class ReplayStream:
    """Recorded chunks as an async stream.

    `cut`: `None` keeps the recorded pieces of text, reasoning and arguments; otherwise neighbouring
    pieces of one channel are joined and cut anew. A new piece comes at the time of its last code
    point. `pace`: `None` never waits (and never suspends); otherwise a factor of the recorded
    times: 1 as recorded, 0.5 twice as fast. Bare chunks count as recorded at second 0.
    """

    def __init__(
        self, records: Iterable[RecordedChunk | Chunk], *, cut: ReplayCut | None = None, pace: float | None = None
    ) -> None:
        if pace is not None and not (math.isfinite(pace) and pace >= 0):
            raise ConfigError(f"pace must be None or a factor of at least 0, not {pace!r}")
        timed = (record if isinstance(record, RecordedChunk) else RecordedChunk(0.0, record) for record in records)
        self._records = timed if cut is None else _recut(timed, _sizes(cut))
        self._pace = pace
        self._at_s: float | None = None
        self.closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        record = None if self.closed else next(self._records, None)
        if record is not None:
            await self._wait(record.at_s)
        if record is None or self.closed:
            raise StopAsyncIteration
        return record.chunk

    async def aclose(self) -> None:
        """End the stream. A chunk whose time has not come is not delivered."""
        self.closed = True

    async def _wait(self, at_s: float) -> None:
        """Wait for the time between the last chunk and this one. The first chunk comes at once."""
        gap_s = 0.0 if self._at_s is None else max(0.0, at_s - self._at_s)
        self._at_s = at_s
        if self._pace is not None:
            await anyio.sleep(gap_s * self._pace)


def _sizes(cut: ReplayCut) -> Iterator[int]:
    if callable(cut):
        return _asked(cut)
    sizes = [cut] if isinstance(cut, int) else list(cut)
    if not sizes:
        raise ConfigError("cut holds no sizes")
    return cycle([_checked(size) for size in sizes])


def _asked(size: Callable[[], int]) -> Iterator[int]:
    while True:
        yield _checked(size())


def _checked(size: int) -> int:
    if type(size) is not int or size < 1:
        raise ConfigError(f"a cut must be at least 1 code point, not {size!r}")
    return size


def _recut(records: Iterable[RecordedChunk], sizes: Iterator[int]) -> Iterator[RecordedChunk]:
    run: list[RecordedChunk] = []
    for record in records:
        if run and _channel(run[-1].chunk) != _channel(record.chunk):
            yield from _in_pieces(run, sizes)
            run = []
        if _channel(record.chunk) is None:
            yield record
        else:
            run.append(record)
        if isinstance(record.chunk, ReasoningDelta) and record.chunk.signature is not None:
            yield from _in_pieces(run, sizes)
            run = []
    if run:
        yield from _in_pieces(run, sizes)


def _channel(chunk: Chunk) -> tuple[Any, ...] | None:
    """A key: neighbouring chunks with the same one may be joined (deltas of one kind, or of one
    call).
    """
    match chunk:
        case TextDelta() | ReasoningDelta():
            return (type(chunk),)
        case ToolCallDelta(id=id_):
            return (ToolCallDelta, id_)
    return None


def _in_pieces(run: Sequence[RecordedChunk], sizes: Iterator[int]) -> Iterator[RecordedChunk]:
    """One run of deltas as pieces of the given sizes. A run without text stays one empty delta."""
    text = "".join(_text(record.chunk) for record in run)
    arrivals = _Arrivals(run)
    start = 0
    while start < len(text) or start == 0:
        end = min(len(text), start + next(sizes))
        yield RecordedChunk(arrivals.of(end), _piece(run, text[start:end], first=start == 0, last=end == len(text)))
        start = max(end, 1)


class _Arrivals:
    """The times at which the code points of a run came. It is called with growing positions, so it
    reads the run once.
    """

    def __init__(self, run: Sequence[RecordedChunk]) -> None:
        self._rest = iter(run)
        self._seen = 0
        self._at_s = run[-1].at_s

    def of(self, end: int) -> float:
        while self._seen < end:
            record = next(self._rest)
            self._seen += len(_text(record.chunk))
            self._at_s = record.at_s
        return self._at_s


def _text(chunk: Chunk) -> str:
    match chunk:
        case TextDelta(text=text) | ReasoningDelta(text=text) | ToolCallDelta(arguments_text=text):
            return text
    return ""


def _piece(run: Sequence[RecordedChunk], text: str, *, first: bool, last: bool) -> Chunk:
    """A delta of the same kind as in `run`. The first piece of a call has the name, the last piece
    of a thought the signature.
    """
    match run[-1].chunk:
        case ReasoningDelta(signature=signature):
            return ReasoningDelta(text, signature if last else None)
        case ToolCallDelta(id=id_):
            names = (record.chunk.name for record in run if isinstance(record.chunk, ToolCallDelta))
            return ToolCallDelta(id_, next(filter(None, names), None) if first else None, text)
    return TextDelta(text)


# --------------------------------------------------------------------------------------------------
# A recorded run as a `Model`: one recorded turn for each call.


class ReplayAdapter(ChunkAdapter):
    """Yields chunks unchanged. After the end of the recording, a retry does not help."""

    def classify(self, error: BaseException) -> ModelError:
        """Classifies like any stream of chunks. But the end of the recording is `REQUEST`, which is
        not retried.
        """
        return ModelError(ErrorKind.REQUEST, str(error)) if isinstance(error, EOFError) else super().classify(error)


class ReplayModel:
    """Plays a recorded run: each call of `stream` is answered by the next recorded turn, whatever
    the request says.

    Recorded tool results are left out, because the new run makes its own. `cut` and `pace` are the
    options of `ReplayStream`. `turns`: the recorded turns, where `path` was read by somebody else.

    A call after the last recorded turn fails with an `EOFError`. Raises `AdapterError`, with file
    and line, for an unreadable line, and `OSError` for a missing file.
    """

    adapter: ClassVar[AdapterFactory] = ReplayAdapter
    can_judge: ClassVar[bool] = False
    """It is not asked about its own run: the next recorded turn is no answer to a judge."""

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        turns: Iterable[Iterable[RecordedChunk]] | None = None,
        cut: ReplayCut | None = None,
        pace: float | None = None,
    ) -> None:
        self.name: str = f"replay:{path}"
        read = read_turns(path) if turns is None else turns
        self.turns = [[record for record in turn if not isinstance(record.chunk, ToolResult)] for turn in read]
        """The recorded turns."""
        self.calls = 0
        """The number of times that the model was called."""
        if not self.turns:
            raise AdapterError(f"{path} holds no turn")
        self._cut = cut
        self._pace = pace

    def stream(self, request: ModelRequest) -> ReplayStream | _OverStream:
        """The next recorded turn."""
        self.calls += 1
        if self.calls > len(self.turns):
            return _OverStream(f"{self.name} has {len(self.turns)} recorded turns, and this is model call {self.calls}")
        return ReplayStream(self.turns[self.calls - 1], cut=self._cut, pace=self._pace)


class _OverStream:
    """The stream of a call for which nothing was recorded."""

    def __init__(self, message: str) -> None:
        self._message = message

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> NoReturn:
        raise EOFError(self._message)

    async def aclose(self) -> None:
        """Does nothing: there is nothing to close."""
