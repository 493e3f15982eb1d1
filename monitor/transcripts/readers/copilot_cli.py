"""GitHub Copilot CLI: JSON lines of events. A call stands in the message that made it, and again in
`tool.execution_start`, which is read only where the message has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from monitor.transcripts.base import RecordedCall, RecordedMessage
from monitor.transcripts.entries import Began, CompactionSeen, ReadReport, TranscriptEntry
from monitor.transcripts.readers.base import (
    Recent,
    RunState,
    Steps,
    all_steps,
    call_of,
    result_of,
    rows,
    seconds,
    table,
    text,
    whole,
    words,
)
from monitor.transcripts.source import Source
from monitor.usage import Usage

_QUIET: Final = ("hook.", "session.", "assistant.", "permission.", "tool.", "subagent.", "skill.", "system.", "user.")


class CopilotCli:
    """Reads the events of a session."""

    format: ClassVar[str] = "copilot-cli"
    agent: ClassVar[str] = "Copilot CLI"
    places: ClassVar[tuple[str, ...]] = (".copilot/session-state/**/*.jsonl",)

    def fits(self, source: Source) -> bool:
        """The start of a session."""
        first = source.first_records[0] if source.first_records else {}
        data = table(first.get("data"))
        return first.get("type") == "session.start" and ("sessionId" in data or "producer" in data)

    def steps(self, source: Source) -> Steps:
        """A reading of the session."""
        return _Steps(source)

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        """The run of the session."""
        return all_steps(self.steps(source), source, report)


class _Steps:
    def __init__(self, source: Source) -> None:
        self.stale = False
        self._stem = source.stem
        self._run: _Run | None = None
        self._seen = Recent()

    def began_like(self, source: Source) -> bool:
        return True

    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
        data = table(record.get("data"))
        if self._run is None:
            self._run = _Run(text(data.get("sessionId")) or self._stem)
            yield Began(run=self._run.state.run, project=text(table(data.get("context")).get("cwd")))
        if not self._seen.is_new(record.get("id")):
            report.repeated += 1
        else:
            yield from self._run.take(text(record.get("type")), data, seconds(record.get("timestamp")), report)

    def end(self, report: ReadReport) -> Iterator[TranscriptEntry]:
        if self._run is not None:
            yield self._run.state.end()


class _Run:
    def __init__(self, id: str) -> None:
        self.state = RunState(id)
        self._model = ""
        self._called = Recent()

    def take(
        self, kind: str, data: Mapping[str, Any], at: float | None, report: ReadReport
    ) -> Iterator[TranscriptEntry]:
        state = self.state
        match kind:
            case "session.model_change":
                self._model = text(data.get("newModel"))
            case "user.message":
                state.ended = None
                yield state.said(RecordedMessage("user", words(data.get("content")), at=at))
            case "assistant.message":
                state.ended = None
                message = _message(data, at, text(data.get("model")) or self._model)
                for call in message.tool_calls:
                    self._called.is_new(call.id)
                yield state.said(message)
            case "tool.execution_start" if self._called.is_new(data.get("toolCallId")):
                call = call_of(data.get("toolName"), data.get("arguments"), data.get("toolCallId"))
                yield state.said(RecordedMessage("assistant", "", (call,), at=at, model=self._model))
            case "tool.execution_complete":
                yield state.said(_result(data, at))
            case "session.compaction_complete":
                yield CompactionSeen(run=state.run, at=at)
            case "abort":
                state.ended = ("aborted", text(data.get("reason")) or "abort")
            case "session.error":
                state.ended = ("failed", text(data.get("message"))[:200])
            case "session.shutdown" if state.ended is None and data.get("shutdownType") != "routine":
                state.ended = ("failed", text(data.get("shutdownType")))
            case _ if not kind.startswith(_QUIET):
                report.does_not_know(kind)


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
    result, error = table(data.get("result")), table(data.get("error"))
    said = words(result.get("content")) or text(error.get("message"))
    return RecordedMessage(
        "tool",
        tool_results=(
            result_of("", said, is_error=data.get("success") is False, call_id=text(data.get("toolCallId")) or None),
        ),
        at=at,
    )
