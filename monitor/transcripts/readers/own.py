"""The project's own formats: recorded runs (one a line) and logs of events."""

from __future__ import annotations

from collections.abc import Iterator

from monitor.errors import AdapterError
from monitor.transcripts.base import Began, ReadReport, RecordedRun, TranscriptEntry
from monitor.transcripts.corpus import run_of
from monitor.transcripts.event_logs import EventLog, is_event
from monitor.transcripts.readers.base import RunIds, TranscriptReader, whole_run
from monitor.transcripts.readers.values import rows, table
from monitor.transcripts.source import Source


class RecordedRunsReader(TranscriptReader):
    """Reads recorded runs, one on each line."""

    format = "runs"
    agent = "recorded runs"

    def fits(self, source: Source) -> bool:
        """A run has an id, and messages with nothing but the fields of this format."""
        return any(
            isinstance(record.get("id"), str)
            and isinstance(record.get("messages"), list)
            and not any(
                "content" in table(message) or "parts" in table(message) for message in rows(record["messages"])
            )
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
                run = log.add(record)
            except AdapterError as error:
                report.cannot_read(report.lines, str(error))
                continue
            if run is not None:
                yield from _entries(run.run, run.run.id, run.parent)
        for run in log.end():
            yield from _entries(run.run, run.run.id, run.parent)


def _entries(run: RecordedRun, id: str, parent: str | None = None) -> Iterator[TranscriptEntry]:
    began = Began(run=id, parent=parent, source=run.source, label=run.label, loop=run.loop, model=run.model)
    yield from whole_run(began, run.messages)
