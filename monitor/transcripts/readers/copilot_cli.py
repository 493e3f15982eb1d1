"""GitHub Copilot CLI: JSON lines of events. A call stands in the message that made it, and again in
`tool.execution_start`, which is read only where the message has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from monitor.chunks import Usage
from monitor.transcripts.base import Began, CompactionSeen, ReadReport, RecordedCall, RecordedMessage, TranscriptEntry
from monitor.transcripts.readers.base import LineReader, LineReading, OpenRun, RecentIds
from monitor.transcripts.readers.values import call_of, result_of, rows, seconds, table, text, whole, words
from monitor.transcripts.source import Source

_QUIET: Final = ("hook.", "session.", "assistant.", "permission.", "tool.", "subagent.", "skill.", "system.", "user.")


class CopilotCliLines(LineReading):
    """A reading of the events of a session."""

    def __init__(self, source: Source) -> None:
        self._stem = source.stem
        self._run: OpenRun | None = None
        self._foreign = False
        self._model = ""
        self._seen = RecentIds()
        self._called = RecentIds()

    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
        data = table(record.get("data"))
        if self._run is None:
            self._run = OpenRun(text(data.get("sessionId")) or self._stem)
            yield Began(run=self._run.id, project=text(table(data.get("context")).get("cwd")))
        if record.get("type") == "session.start" and text(data.get("sessionId")) not in {"", self._run.id}:
            self._foreign = True
        if self._foreign:
            report.is_of_another_session()
        elif not self._seen.is_new(record.get("id")):
            report.repeated += 1
        else:
            kind = text(record.get("type"))
            yield from self._event(self._run, kind, data, seconds(record.get("timestamp")), report)

    def end(self, report: ReadReport) -> Iterator[TranscriptEntry]:
        if self._run is not None:
            yield self._run.end()

    def _event(
        self, run: OpenRun, kind: str, data: Mapping[str, Any], at: float | None, report: ReadReport
    ) -> Iterator[TranscriptEntry]:
        match kind:
            case "session.model_change":
                self._model = text(data.get("newModel"))
            case "user.message":
                run.ended = None
                yield run.said(RecordedMessage("user", words(data.get("content")), at=at))
            case "assistant.message":
                run.ended = None
                message = _message(data, at, text(data.get("model")) or self._model)
                for call in message.tool_calls:
                    self._called.is_new(call.id)
                yield run.said(message)
            case "tool.execution_start" if self._called.is_new(data.get("toolCallId")):
                call = call_of(data.get("toolName"), data.get("arguments"), data.get("toolCallId"))
                yield run.said(RecordedMessage("assistant", "", (call,), at=at, model=self._model))
            case "tool.execution_complete":
                yield run.said(_result(data, at))
            case "session.compaction_complete":
                yield CompactionSeen(run=run.id, at=at)
            case "abort":
                run.ended = ("aborted", text(data.get("reason")) or "abort")
            case "session.error":
                run.ended = ("failed", text(data.get("message"))[:200])
            case "session.shutdown" if run.ended is None and data.get("shutdownType") != "routine":
                run.ended = ("failed", text(data.get("shutdownType")))
            case _ if not kind.startswith(_QUIET) or "toolRequests" in data:
                report.does_not_know(kind)


class CopilotCliReader(LineReader):
    """Reads the events of a session of Copilot CLI."""

    format = "copilot-cli"
    agent = "Copilot CLI"
    places = (".copilot/session-state/**/*.jsonl",)
    reading = CopilotCliLines

    def fits(self, source: Source) -> bool:
        """The first record is the start of a session."""
        data = table(source.first_record.get("data"))
        return source.first_record.get("type") == "session.start" and ("sessionId" in data or "producer" in data)


def _message(data: Mapping[str, Any], at: float | None, model: str) -> RecordedMessage:
    calls: list[RecordedCall] = [
        call_of(one.get("name"), one.get("arguments"), one.get("toolCallId"))
        for one in map(table, rows(data.get("toolRequests")))
    ]
    answered = whole(data.get("outputTokens"))
    return RecordedMessage(
        "assistant",
        words(data.get("content")),
        tuple(calls),
        reasoning=text(data.get("reasoningText")),
        at=at,
        usage=Usage(output_tokens=answered, total_tokens=answered) if answered else None,
        model=model,
    )


def _result(data: Mapping[str, Any], at: float | None) -> RecordedMessage:
    said = words(table(data.get("result")).get("content")) or text(table(data.get("error")).get("message"))
    id = text(data.get("toolCallId")) or None
    result = result_of("", said, is_error=data.get("success") is False, call_id=id)
    return RecordedMessage("tool", tool_results=(result,), at=at)
