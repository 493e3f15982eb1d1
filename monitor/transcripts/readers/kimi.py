"""Kimi CLI: the wire of a session as JSON lines. Ids of calls (`Bash_0`) begin anew in each turn,
so a call is known by its turn and its id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from monitor.transcripts.base import CompactionSeen, ReadReport, TranscriptEntry
from monitor.transcripts.readers.base import NOTHING, LineReader
from monitor.transcripts.readers.values import answer_of, call_of, seconds, table, text, tokens_of, words
from monitor.transcripts.source import Source

_CONTEXT: Final = ("context.append_message", "context.append_loop_event")


class KimiReader(LineReader):
    """Reads the wire of a session of Kimi CLI."""

    format = "kimi-cli"
    agent = "Kimi CLI"
    places = (".kimi/sessions/**/*.jsonl",)
    head: ClassVar[Mapping[str, str]] = {"run": "", "project": "cwd", "model": "modelAlias"}
    between = ""

    def __init__(self, source: Source = NOTHING) -> None:
        super().__init__(source)
        self._config: dict[str, Any] = {}

    def fits(self, source: Source) -> bool:
        """The version of the protocol stands first."""
        return source.first_record.get("type") == "metadata" and "protocol_version" in source.first_record

    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
        kind, at = text(record.get("type")), seconds(record.get("time"))
        if kind == "config.update":
            self._config.update((name, record[name]) for name in ("cwd", "modelAlias") if text(record.get(name)))
            self.run.model = text(self._config.get("modelAlias"))
        if kind in {"turn.prompt", *_CONTEXT}:
            yield from self.begin(self._config)
        if kind == "context.append_message":
            yield from self._message(table(record.get("message")), at)
        elif kind == "context.append_loop_event":
            yield from self._event(table(record.get("event")), at, report)
        elif kind.startswith("full_compaction") and kind.endswith(("complete", "end", "done")):
            yield from self.flush()
            yield CompactionSeen(run=self.run.id, at=at)
        elif "time" not in record and kind != "metadata":
            report.does_not_know(kind)

    def _message(self, message: Mapping[str, Any], at: float | None) -> Iterator[TranscriptEntry]:
        """A message that is not the model's."""
        if message.get("role") == "user":
            yield from self.flush()
            self.run.ended = None
            by_person = table(message.get("origin")).get("kind", "user") == "user"
            yield self.run.asked(words(message.get("content")), at, synthetic=not by_person)

    def _event(self, event: Mapping[str, Any], at: float | None, report: ReadReport) -> Iterator[TranscriptEntry]:
        kind, turn, held = text(event.get("type")), text(event.get("turnId")), self.run.held
        id = f"{turn}/{event.get('toolCallId')}"
        match kind:
            case "step.begin":
                yield from self.flush()
                self.run.held.at, self.run.ended = at, None
            case "content.part":
                part = table(event.get("part"))
                pieces = held.reasoning if part.get("type") == "think" else held.text
                pieces.append(text(part.get("think")) or words(part))
            case "tool.call":
                held.calls.append(call_of(event.get("name"), event.get("args"), id))
            case "tool.result":
                result = table(event.get("result"))
                if not turn:  # a result does not say its turn
                    id = next((call.id or "" for call in held.calls if f"{call.id}".endswith(id)), id)
                failed = result.get("isError") is True
                held.results.append(answer_of("", words(result.get("output")), at=at, is_error=failed, call_id=id))
            case "step.end":
                given = "inputOther inputCacheRead inputCacheCreation"
                cached, written = "inputCacheRead", "inputCacheCreation"
                held.usage = tokens_of(table(event.get("usage")), given, "output", cached=cached, written=written)
                if event.get("finishReason") == "end_turn":
                    self.run.ended = ("finished", "end_turn")
                elif text(event.get("finishReason")) in {"max_tokens", "length"}:
                    self.run.ended = ("limit", str(event["finishReason"]))
            case _:
                report.does_not_know(kind)
