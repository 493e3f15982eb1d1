"""What `gemini --output-format stream-json` prints: a line with the session, pieces of messages,
calls, results, and the sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from monitor.transcripts.base import RecordedMessage
from monitor.transcripts.entries import Began, ReadReport, RunTotals, TranscriptEntry
from monitor.transcripts.readers.base import OpenRun
from monitor.transcripts.readers.lines import HeldResponse, LineReading
from monitor.transcripts.readers.values import call_of, result_of, seconds, table, text, tokens_of, words
from monitor.transcripts.source import Source


def is_gemini_stream(source: Source) -> bool:
    """Whether the first line begins a session, and a line after it is one of its events."""
    first, rest = source.first_record, source.first_records[1:]
    if first.get("type") != "init" or "session_id" not in first:
        return False
    return not rest or any("role" in one or "tool_id" in one or one.get("type") == "result" for one in rest)


class GeminiStreamLines(LineReading):
    """The events of one run of the command."""

    def __init__(self, source: Source) -> None:
        self._run = OpenRun(source.stem)
        self._began = False
        self._model = ""
        self._held = HeldResponse()

    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
        kind, at = text(record.get("type")), seconds(record.get("timestamp"))
        if not self._began:
            self._began = True
            self._run.id = text(record.get("session_id")) or self._run.id
            self._model = text(record.get("model"))
            yield Began(run=self._run.id, model=self._model)
        match kind:
            case "init":
                pass
            case "message" if record.get("role") == "user":
                yield from self._flush()
                yield self._run.said(RecordedMessage("user", words(record.get("content")), at=at))
            case "message" | "tool_use":
                if self._held.results:
                    yield from self._flush()
                self._held.at = self._held.at or at
                if kind == "message":
                    self._held.text.append(words(record.get("content")))
                else:
                    call = call_of(record.get("tool_name"), record.get("parameters"), record.get("tool_id"))
                    self._held.calls.append(call)
            case "tool_result":
                failed = record.get("status") == "error"
                said = words(record.get("output")) or text(table(record.get("error")).get("message"))
                result = result_of("", said, is_error=failed, call_id=text(record.get("tool_id")) or None)
                self._held.results.append(RecordedMessage("tool", tool_results=(result,), at=at))
            case "error":
                self._run.ended = ("failed", text(record.get("message"))[:200])
            case "result":
                yield from self._flush()
                self._end(record)
            case _:
                report.does_not_know(kind)

    def _end(self, record: Mapping[str, Any]) -> None:
        error = text(table(record.get("error")).get("message"))[:200]
        if record.get("status") == "success":
            self._run.ended = ("finished", "success")
        else:
            self._run.ended = ("limit" if "turns" in error.lower() else "failed", error or text(record.get("status")))
        stats = table(record.get("stats"))
        usage = tokens_of(
            stats, given=("input_tokens",), answered=("output_tokens",), cached="cached", total="total_tokens"
        )
        if usage is not None:
            self._run.totals = RunTotals(usage=((self._model, usage),))

    def _flush(self) -> Iterator[TranscriptEntry]:
        held, self._held = self._held, HeldResponse(model=self._model)
        held.model = self._model
        yield from map(self._run.said, held.messages(""))

    def end(self, report: ReadReport) -> Iterator[TranscriptEntry]:
        if self._began:
            yield from self._flush()
            yield self._run.end()
