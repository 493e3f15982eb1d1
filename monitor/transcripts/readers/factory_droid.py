"""Factory Droid: its session files, with Anthropic's blocks, and the events that `droid exec`
prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from monitor.transcripts.base import Began, ReadReport, RecordedMessage, TranscriptEntry
from monitor.transcripts.readers.base import HeldResponse, LineReader, LineReading, OpenRun
from monitor.transcripts.readers.chat import message_of
from monitor.transcripts.readers.values import call_of, result_of, seconds, table, text, whole, words
from monitor.transcripts.source import Source

_STREAMED: Final = frozenset({"message", "tool_call", "tool_result", "completion"})


class FactoryDroidLines(LineReading):
    """A session, or the events that were printed."""

    def __init__(self, source: Source) -> None:
        self._run = OpenRun(source.stem)
        self._began = False
        self._held = HeldResponse()

    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
        kind, at = text(record.get("type")), seconds(record.get("timestamp"))
        if kind in {"session_start", "system"}:
            yield from self._begin(record)
        elif kind == "message" and isinstance(record.get("message"), dict):
            yield from self._begin({})
            for message in message_of({**record["message"], "timestamp": record.get("timestamp")}):
                yield self._run.said(message)
        elif kind in _STREAMED:
            yield from self._begin({})
            yield from self._event(kind, record, at)
        else:
            report.does_not_know(kind)

    def _begin(self, record: Mapping[str, Any]) -> Iterator[TranscriptEntry]:
        if self._began:
            return
        self._began = True
        self._run.id = text(record.get("session_id")) or text(record.get("id")) or self._run.id
        yield Began(
            run=self._run.id,
            project=text(record.get("cwd")),
            title=text(record.get("title")),
            model=text(record.get("model")),
        )

    def _event(self, kind: str, event: Mapping[str, Any], at: float | None) -> Iterator[TranscriptEntry]:
        if kind == "tool_result":
            value = table(event.get("value"))
            said = words(event.get("value")) or "\n".join(map(text, (value.get("stdout"), value.get("stderr")))).strip()
            failed = event.get("isError") is True or whole(value.get("exitCode")) > 0
            result = result_of("", said, is_error=failed, call_id=text(event.get("toolCallId")) or None)
            self._held.results.append(RecordedMessage("tool", tool_results=(result,), at=at))
            return
        if self._held.results or event.get("role") == "user":
            yield from self._flush()
        if kind == "message" and event.get("role") == "user":
            yield self._run.said(RecordedMessage("user", text(event.get("text")), at=at))
            return
        self._held.at = self._held.at or at
        if kind == "tool_call":
            self._held.calls.append(call_of(event.get("toolName"), event.get("parameters"), event.get("toolCallId")))
        else:
            self._held.text.append(text(event.get("text")) or text(event.get("finalText")))
        if kind == "completion":
            yield from self._flush()
            self._run.ended = ("finished", kind)

    def _flush(self) -> Iterator[TranscriptEntry]:
        held, self._held = self._held, HeldResponse()
        yield from map(self._run.said, held.messages())

    def end(self, report: ReadReport) -> Iterator[TranscriptEntry]:
        if self._began:
            yield from self._flush()
            yield self._run.end()


class FactoryDroidReader(LineReader):
    """Reads sessions and printed events."""

    format = "factory-droid"
    agent = "Factory Droid"
    places = (".factory/sessions/**/*.jsonl",)
    reading = FactoryDroidLines

    def fits(self, source: Source) -> bool:
        """A line that starts a session, and messages; or a system line and its events."""
        first, rest = source.first_record, source.first_records[1:]
        if first.get("type") == "session_start":
            return not rest or any("role" in table(one.get("message")) for one in rest)
        if first.get("type") != "system" or "session_id" not in first or "subtype" in first:
            return False
        return any(text(one.get("type")) in _STREAMED and one.get("session_id") == first["session_id"] for one in rest)
