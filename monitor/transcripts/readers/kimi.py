"""Kimi CLI: the wire of a session as JSON lines. Ids of calls (`Bash_0`) begin anew in each turn,
so a call is known by its turn and its id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from monitor.transcripts.base import Began, CompactionSeen, ReadReport, RecordedMessage, TranscriptEntry
from monitor.transcripts.readers.base import HeldResponse, LineReader, LineReading, OpenRun
from monitor.transcripts.readers.values import call_of, result_of, seconds, table, text, tokens_of, words
from monitor.transcripts.source import Source

_CONTEXT: Final = ("context.append_message", "context.append_loop_event")


class KimiLines(LineReading):
    """A reading of the wire of a session."""

    def __init__(self, source: Source) -> None:
        self._run = OpenRun(source.stem)
        self._project = ""
        self._model = ""
        self._began = False
        self._held = HeldResponse()

    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
        kind, at = text(record.get("type")), seconds(record.get("time"))
        if kind == "config.update":
            self._project = text(record.get("cwd")) or self._project
            self._model = text(record.get("modelAlias")) or self._model
        if not self._began and kind in {"turn.prompt", *_CONTEXT}:
            self._began = True
            yield Began(run=self._run.id, project=self._project, model=self._model)
        if kind == "context.append_message":
            yield from self._message(table(record.get("message")), at)
        elif kind == "context.append_loop_event":
            yield from self._event(table(record.get("event")), at, report)
        elif kind.startswith("full_compaction") and kind.endswith(("complete", "end", "done")):
            yield from self._flush()
            yield CompactionSeen(run=self._run.id, at=at)
        elif "time" not in record and kind != "metadata":
            report.does_not_know(kind)

    def end(self, report: ReadReport) -> Iterator[TranscriptEntry]:
        if self._began:
            yield from self._flush()
            yield self._run.end()

    def _message(self, message: Mapping[str, Any], at: float | None) -> Iterator[TranscriptEntry]:
        """A message that is not the model's."""
        if message.get("role") == "user":
            yield from self._flush()
            self._run.ended = None
            by_person = table(message.get("origin")).get("kind", "user") == "user"
            yield self._run.said(RecordedMessage("user", words(message.get("content")), synthetic=not by_person, at=at))

    def _event(self, event: Mapping[str, Any], at: float | None, report: ReadReport) -> Iterator[TranscriptEntry]:
        kind = text(event.get("type"))
        turn = text(event.get("turnId"))
        held = self._held
        match kind:
            case "step.begin":
                yield from self._flush()
                self._held.at, self._run.ended = at, None
            case "content.part":
                part = table(event.get("part"))
                pieces = held.reasoning if part.get("type") == "think" else held.text
                pieces.append(text(part.get("think")) or words(part))
            case "tool.call":
                held.calls.append(call_of(event.get("name"), event.get("args"), f"{turn}/{event.get('toolCallId')}"))
            case "tool.result":
                result = table(event.get("result"))
                id = f"{turn}/{event.get('toolCallId')}"
                if not turn:  # a result does not say its turn
                    id = next((call.id or "" for call in held.calls if f"{call.id}".endswith(id)), id)
                failed = result.get("isError") is True
                answered = result_of("", words(result.get("output")), is_error=failed, call_id=id)
                held.results.append(RecordedMessage("tool", tool_results=(answered,), at=at))
            case "step.end":
                held.usage = tokens_of(
                    table(event.get("usage")),
                    given=("inputOther", "inputCacheRead", "inputCacheCreation"),
                    answered=("output",),
                    cached="inputCacheRead",
                    written="inputCacheCreation",
                )
                if event.get("finishReason") == "end_turn":
                    self._run.ended = ("finished", "end_turn")
                elif text(event.get("finishReason")) in {"max_tokens", "length"}:
                    self._run.ended = ("limit", str(event["finishReason"]))
            case _:
                report.does_not_know(kind)

    def _flush(self) -> Iterator[TranscriptEntry]:
        """The step that is held, and its results."""
        held, self._held = self._held, HeldResponse()
        held.model = self._model
        yield from map(self._run.said, held.messages(between=""))


class KimiReader(LineReader):
    """Reads the wire of a session of Kimi CLI."""

    format = "kimi-cli"
    agent = "Kimi CLI"
    places = (".kimi/sessions/**/*.jsonl",)
    reading = KimiLines

    def fits(self, source: Source) -> bool:
        """The version of the protocol stands first."""
        return source.first_record.get("type") == "metadata" and "protocol_version" in source.first_record
