"""GitHub Copilot CLI: JSON lines of events. A call stands in the message that made it, and again in
`tool.execution_start`, which is read only where the message has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from monitor.chunks import Usage
from monitor.transcripts.base import CompactionSeen, ReadReport, RecordedMessage, TranscriptEntry
from monitor.transcripts.readers.base import NOTHING, LineReader, RecentIds
from monitor.transcripts.readers.values import answer_of, call_of, seconds, table, tables, text, whole, words
from monitor.transcripts.source import Source

_QUIET: Final = ("hook.", "session.", "assistant.", "permission.", "tool.", "subagent.", "skill.", "system.", "user.")


class CopilotCliReader(LineReader):
    """Reads the events of a session of Copilot CLI."""

    format = "copilot-cli"
    agent = "Copilot CLI"
    places = (".copilot/session-state/**/*.jsonl",)
    head: ClassVar[Mapping[str, str]] = {"run": "sessionId", "project": "cwd"}

    def __init__(self, source: Source = NOTHING) -> None:
        super().__init__(source)
        self._seen = RecentIds()
        self._called = RecentIds()

    def fits(self, source: Source) -> bool:
        """The first record is the start of a session."""
        data = table(source.first_record.get("data"))
        return source.first_record.get("type") == "session.start" and ("sessionId" in data or "producer" in data)

    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
        kind, data = text(record.get("type")), table(record.get("data"))
        if not self.known:
            yield from self.begin({**table(data.get("context")), "sessionId": data.get("sessionId")})
        if self.is_foreign(data.get("sessionId") if kind == "session.start" else None, report):
            return
        if self._seen.is_new(record.get("id")):
            yield from self._event(kind, data, seconds(record.get("timestamp")), report)
        else:
            report.repeated += 1

    def _event(
        self, kind: str, data: Mapping[str, Any], at: float | None, report: ReadReport
    ) -> Iterator[TranscriptEntry]:
        run = self.run
        match kind:
            case "session.model_change":
                run.model = text(data.get("newModel"))
            case "user.message":
                yield run.asked(words(data.get("content")), at)
            case "assistant.message":
                run.ended = None
                message = _message(data, at, text(data.get("model")) or run.model)
                for call in message.tool_calls:
                    self._called.is_new(call.id)
                yield run.said(message)
            case "tool.execution_start" if self._called.is_new(data.get("toolCallId")):
                call = call_of(data.get("toolName"), data.get("arguments"), data.get("toolCallId"))
                yield run.said(RecordedMessage("assistant", "", (call,), at=at, model=run.model))
            case "tool.execution_complete":
                said = words(table(data.get("result")).get("content")) or text(table(data.get("error")).get("message"))
                failed = data.get("success") is False
                yield run.said(answer_of("", said, at=at, is_error=failed, call_id=data.get("toolCallId")))
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


def _message(data: Mapping[str, Any], at: float | None, model: str) -> RecordedMessage:
    requests, answered = tables(data.get("toolRequests")), whole(data.get("outputTokens"))
    return RecordedMessage(
        "assistant",
        words(data.get("content")),
        tuple(call_of(one.get("name"), one.get("arguments"), one.get("toolCallId")) for one in requests),
        reasoning=text(data.get("reasoningText")),
        at=at,
        usage=Usage(output_tokens=answered, total_tokens=answered) if answered else None,
        model=model,
    )
