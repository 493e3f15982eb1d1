"""Factory Droid: its session files, with Anthropic's blocks, and the events that `droid exec`
prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from monitor.transcripts.base import ReadReport, RecordedMessage, TranscriptEntry
from monitor.transcripts.readers.base import LineReader
from monitor.transcripts.readers.chat import message_of
from monitor.transcripts.readers.values import answer_of, call_of, seconds, table, text, whole, words
from monitor.transcripts.source import Source

_STREAMED: Final = frozenset({"message", "tool_call", "tool_result", "completion"})


class FactoryDroidReader(LineReader):
    """Reads sessions and printed events."""

    format = "factory-droid"
    agent = "Factory Droid"
    places = (".factory/sessions/**/*.jsonl",)
    head: ClassVar[Mapping[str, str]] = {"run": "session_id id", "project": "cwd", "title": "title", "model": "model"}

    def fits(self, source: Source) -> bool:
        """A line that starts a session, and messages; or a system line and its events."""
        first, rest = source.first_record, source.first_records[1:]
        if first.get("type") == "session_start":
            return not rest or any("role" in table(one.get("message")) for one in rest)
        if first.get("type") != "system" or "session_id" not in first or "subtype" in first:
            return False
        return any(text(one.get("type")) in _STREAMED and one.get("session_id") == first["session_id"] for one in rest)

    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
        kind, at = text(record.get("type")), seconds(record.get("timestamp"))
        if kind in {"session_start", "system"}:
            yield from self.begin(record)
        elif kind == "message" and isinstance(record.get("message"), dict):
            yield from self.begin()
            yield from map(self.run.said, message_of({**record["message"], "timestamp": record.get("timestamp")}))
        elif kind in _STREAMED:
            yield from self.begin()
            yield from self._event(kind, record, at)
        else:
            report.does_not_know(kind)

    def _event(self, kind: str, event: Mapping[str, Any], at: float | None) -> Iterator[TranscriptEntry]:
        if kind == "tool_result":
            value = table(event.get("value"))
            said = words(event.get("value")) or "\n".join(map(text, (value.get("stdout"), value.get("stderr")))).strip()
            failed = event.get("isError") is True or whole(value.get("exitCode")) > 0
            answered = answer_of("", said, at=at, is_error=failed, call_id=event.get("toolCallId"))
            self.run.held.results.append(answered)
        elif kind == "message" and event.get("role") == "user":
            yield from self.flush()
            yield self.run.said(RecordedMessage("user", text(event.get("text")), at=at))
        else:
            yield from self.piece(at)
            held = self.run.held
            if kind == "tool_call":
                held.calls.append(call_of(event.get("toolName"), event.get("parameters"), event.get("toolCallId")))
            else:
                held.text.append(text(event.get("text")) or text(event.get("finalText")))
            if kind == "completion":
                yield from self.flush()
                self.run.ended = ("finished", kind)
