"""The project's own formats: recorded runs (one a line), and logs of events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from monitor.errors import AdapterError
from monitor.events import RunStarted, RunTerminated, ToolFinished, TurnEnded, event_codec, identity_in
from monitor.transcripts.base import (
    Began,
    ReadReport,
    RecordedCall,
    RecordedMessage,
    RecordedResult,
    RecordedRun,
    TranscriptEntry,
)
from monitor.transcripts.readers.base import RunIds, TranscriptReader, whole_run
from monitor.transcripts.readers.values import tables
from monitor.transcripts.source import Source

# --------------------------------------------------------------------------------------------------
# Recorded runs.


def run_of(record: Mapping[str, Any]) -> RecordedRun:
    """One record as a run. Raises `AdapterError` with what is wrong with it."""
    from monitor.transcripts.record import run_of_record  # noqa: PLC0415 - pydantic takes long to import

    return run_of_record(record)


class RecordedRunsReader(TranscriptReader):
    """Reads recorded runs, one on each line."""

    format = "runs"
    agent = "recorded runs"

    def fits(self, source: Source) -> bool:
        """A run has an id, and messages with nothing but the fields of this format."""
        return any(
            isinstance(record.get("id"), str)
            and isinstance(record.get("messages"), list)
            and not any("content" in message or "parts" in message for message in tables(record["messages"]))
            for record in source.first_records
        )

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        names = RunIds()
        for record in source.records(report, grows=False):
            try:
                run = run_of(record)
            except AdapterError as error:
                report.cannot_read(report.lines, str(error))
                continue
            yield from _entries(run, names.of(run.id))


def _entries(run: RecordedRun, id: str, parent: str | None = None) -> Iterator[TranscriptEntry]:
    began = Began(run=id, parent=parent, source=run.source, label=run.label, loop=run.loop, model=run.model)
    yield from whole_run(began, run.messages)


# --------------------------------------------------------------------------------------------------
# A log of events, as `JsonlSink` and `agent-monitor run --log` write it. Runs that were appended
# follow each other.
#
# The log has the model's answers, calls and results. It has neither the task nor the thinking, and
# its runs are called `run-1`, `run-2` and so on, in the order in which they begin. Each line says
# whose it is, so the events of nested runs may stand among those of their callers. The lines of
# older logs do not say that; their runs follow each other.

_READ = ("run_started", "turn_ended", "tool_finished", "run_terminated")
"""Events with the model's actions. Other lines only have to be events."""


def is_event(record: Mapping[str, Any]) -> bool:
    """`record` is a line of such a log."""
    tag = record.get("type")
    return isinstance(tag, str) and tag in event_codec.tags and isinstance(record.get("at_s"), int | float)


@dataclass(slots=True)
class LoggedRun:
    """A run that is read from a log of events."""

    name: str
    parent: str | None
    """The name of the run that called it."""
    model: str
    messages: list[RecordedMessage] = field(default_factory=list)

    @property
    def run(self) -> RecordedRun:
        """The run as far as it has been read."""
        return RecordedRun(self.name, tuple(self.messages), model=self.model)


class EventLog:
    """Collects events, and returns each run when it is over."""

    def __init__(self) -> None:
        self._runs = 0
        self._open: dict[str | None, LoggedRun] = {}
        """The open runs, by their ids. `None`: the run of a log that has no ids."""
        self._names: dict[str, str] = {}

    def add(self, record: Mapping[str, Any]) -> LoggedRun | None:
        """Add the next event. Returns the run that ends with it, or the run before it that had no
        ending.

        Raises `AdapterError` for anything but an event of this version, and for an incomplete
        answer.
        """
        if record["type"] not in _READ:
            return None
        try:
            event, told = event_codec.from_dict(record), identity_in(record)
        except ValueError as error:
            raise AdapterError(f"not a readable event: {error}") from None
        id = told[0].run if told is not None else None
        if isinstance(event, RunStarted):
            unfinished = self._open.pop(id, None)
            self._runs += 1
            name = f"run-{self._runs}"
            parent, model = (told[0].parent, told[0].model) if told is not None else (None, None)
            self._open[id] = LoggedRun(name, self._names.get(parent or ""), model or "")
            if id is not None:
                self._names[id] = name
            return unfinished
        run = self._open.get(id)
        if run is None:
            raise AdapterError(f"{record['type']}, and no run has started before it")
        if isinstance(event, RunTerminated):
            return self._open.pop(id)
        if isinstance(event, ToolFinished):
            result = RecordedResult(event.result.name, event.result.text, event.result.is_error)
            run.messages.append(RecordedMessage("tool", tool_results=(result,)))
        elif isinstance(event, TurnEnded):
            turn = event.turn
            calls = tuple(RecordedCall(call.name, call.arguments) for call in turn.tool_calls)
            run.messages.append(RecordedMessage("assistant", turn.text, calls))
            if turn.text_chars > len(turn.text):
                raise AdapterError(
                    f"the answer of turn {turn.number} is cut here: {len(turn.text):,} of {turn.text_chars:,}"
                    " characters"
                )
        return None

    def end(self) -> Iterator[LoggedRun]:
        """End the log. Gives the runs that are still open."""
        left, self._open = self._open, {}
        yield from left.values()


class EventLogsReader(TranscriptReader):
    """Reads the logs of `JsonlSink` and `agent-monitor run --log`."""

    format = "events"
    agent = "agent-monitor"

    def fits(self, source: Source) -> bool:
        """The records are events with their times."""
        return any(map(is_event, source.first_records))

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        """A run from `run_started` to `run_terminated`."""
        log = EventLog()
        for record in source.records(report):
            try:
                if not is_event(record):
                    raise AdapterError("no event, in a log of events")
                logged = log.add(record)
            except AdapterError as error:
                report.cannot_read(report.lines, str(error))
                continue
            if logged is not None:
                yield from _entries(logged.run, logged.name, logged.parent)
        for logged in log.end():
            yield from _entries(logged.run, logged.name, logged.parent)
