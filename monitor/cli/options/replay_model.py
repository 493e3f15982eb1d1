"""`replay:FILE`: a recorded run in the place of a model. The file is a recording of chunks, a log
of events, or a transcript of any format that `scan` reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from monitor.adapters.replay.model import ReplayModel
from monitor.adapters.replay.stream import RecordedChunk
from monitor.chunks import ToolResult, TurnFinished, UsageReport
from monitor.errors import ConfigError
from monitor.transcripts.base import RecordedRun
from monitor.transcripts.entries import ReadReport
from monitor.transcripts.readers.registry import reader_of
from monitor.transcripts.reading import runs
from monitor.transcripts.source import Source

REPLAY: Final = "replay:"
NAMED: Final = 5


def replay_of(name: str) -> ReplayModel:
    """The model for `replay:FILE`. Of a transcript with several runs, `replay:FILE#RUN` names one.

    Raises `OSError` for a file that cannot be opened, and `MonitorError` for one without turns.
    """
    file, run = _named(name.removeprefix(REPLAY))
    source = Source.of_path(file)
    reader = reader_of(source)
    if reader is None or reader.format == "events":  # these recordings have times and pieces of their own
        return ReplayModel(file)
    found = [*runs(source, ReadReport())]
    chosen = found if run is None else [one for one in found if one.id == run]
    if len(chosen) != 1:
        names = ", ".join(one.id for one in found[:NAMED]) + (", ..." if len(found) > NAMED else "")
        raise ConfigError(f"{file}: it holds {len(found)} runs; name one of them, {REPLAY}FILE#RUN: {names}")
    return ReplayModel(file, turns=_turns(chosen[0]))


def _named(given: str) -> tuple[str, str | None]:
    """The file, and the run that is named behind `#`. Either may have `#` in its name."""
    parts = given.split("#")
    for number in range(len(parts), 0, -1):
        file = "#".join(parts[:number])
        if Path(file).exists():
            return file, "#".join(parts[number:]) if number < len(parts) else None
    return given, None


def _turns(run: RecordedRun) -> Iterator[list[RecordedChunk]]:
    """The answers of the model, response by response."""
    turn: list[RecordedChunk] = []
    for index, chunk in run.chunks():
        usage = run.messages[index].usage
        if isinstance(chunk, TurnFinished) and usage is not None:
            reported = UsageReport(
                usage.input_tokens,
                usage.output_tokens,
                usage.reasoning_tokens,
                usage.cached_tokens,
                usage.total_tokens,
            )
            turn.append(RecordedChunk(0.0, reported))
        if not isinstance(chunk, ToolResult):
            turn.append(RecordedChunk(0.0, chunk))
        if isinstance(chunk, TurnFinished):
            yield turn
            turn = []
