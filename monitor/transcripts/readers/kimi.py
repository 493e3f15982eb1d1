"""Kimi CLI: the wire of a session as JSON lines. Ids of calls (`Bash_0`) begin anew in each turn,
so a call is known by its turn and its id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from monitor.transcripts.base import RecordedCall, RecordedMessage
from monitor.transcripts.entries import Began, CompactionSeen, ReadReport, TranscriptEntry
from monitor.transcripts.readers.base import (
    RunState,
    Steps,
    all_steps,
    call_of,
    result_of,
    seconds,
    table,
    text,
    whole,
    words,
)
from monitor.transcripts.source import Source
from monitor.usage import Usage


class Kimi:
    """Reads the wire of a session."""

    format: ClassVar[str] = "kimi-cli"
    agent: ClassVar[str] = "Kimi CLI"
    places: ClassVar[tuple[str, ...]] = (".kimi/sessions/**/*.jsonl",)

    def fits(self, source: Source) -> bool:
        """The version of the protocol stands first."""
        first = source.first_records[0] if source.first_records else {}
        return first.get("type") == "metadata" and "protocol_version" in first

    def steps(self, source: Source) -> Steps:
        """A reading of the session."""
        return _Steps(source)

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        """The run of the session."""
        return all_steps(self.steps(source), source, report)


class _Steps:
    def __init__(self, source: Source) -> None:
        self.stale = False
        self._run = _Run(source.stem)
        self._project = ""
        self._began = False

    def began_like(self, source: Source) -> bool:
        return True

    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
        run, kind = self._run, text(record.get("type"))
        if kind == "config.update":
            self._project = text(record.get("cwd")) or self._project
            run.model = text(record.get("modelAlias")) or run.model
        if not self._began and kind in {"turn.prompt", "context.append_message", "context.append_loop_event"}:
            self._began = True
            yield Began(run=run.state.run, project=self._project, model=run.model)
        if kind == "context.append_message":
            yield from run.asked(table(record.get("message")), seconds(record.get("time")))
        elif kind == "context.append_loop_event":
            yield from run.event(table(record.get("event")), seconds(record.get("time")), report)
        elif kind.startswith("full_compaction") and kind.endswith(("complete", "end", "done")):
            yield from run.flush()
            yield CompactionSeen(run=run.state.run, at=seconds(record.get("time")))

    def end(self, report: ReadReport) -> Iterator[TranscriptEntry]:
        if self._began:
            yield from self._run.flush()
            yield self._run.state.end()


class _Run:
    def __init__(self, id: str) -> None:
        self.state = RunState(id)
        self.model = ""
        self._clear()

    def _clear(self) -> None:
        self._step: object = None
        self._said: list[str] = []
        self._thought: list[str] = []
        self._calls: list[RecordedCall] = []
        self._results: list[RecordedMessage] = []
        self._usage: Usage | None = None
        self._at: float | None = None

    def asked(self, message: Mapping[str, Any], at: float | None) -> Iterator[TranscriptEntry]:
        """A message that is not the model's."""
        if message.get("role") == "user":
            yield from self.flush()
            self.state.ended = None
            by_person = table(message.get("origin")).get("kind", "user") == "user"
            yield self.state.said(
                RecordedMessage("user", words(message.get("content")), synthetic=not by_person, at=at)
            )

    def event(self, event: Mapping[str, Any], at: float | None, report: ReadReport) -> Iterator[TranscriptEntry]:
        kind = text(event.get("type"))
        turn = text(event.get("turnId"))
        match kind:
            case "step.begin":
                yield from self.flush()
                self._step, self._at = event.get("uuid"), at
                self.state.ended = None
            case "content.part":
                part = table(event.get("part"))
                (self._thought if part.get("type") == "think" else self._said).append(
                    text(part.get("think")) or words(part)
                )
            case "tool.call":
                self._calls.append(call_of(event.get("name"), event.get("args"), f"{turn}/{event.get('toolCallId')}"))
            case "tool.result":
                result = table(event.get("result"))
                id = f"{turn}/{event.get('toolCallId')}"
                if not turn:  # a result does not say its turn
                    id = next((call.id or "" for call in self._calls if f"{call.id}".endswith(id)), id)
                failed = result.get("isError") is True
                answered = result_of("", words(result.get("output")), is_error=failed, call_id=id)
                self._results.append(RecordedMessage("tool", tool_results=(answered,), at=at))
            case "step.end":
                self._usage = _usage(table(event.get("usage")))
                if event.get("finishReason") == "end_turn":
                    self.state.ended = ("finished", "end_turn")
                elif text(event.get("finishReason")) in {"max_tokens", "length"}:
                    self.state.ended = ("limit", str(event["finishReason"]))
            case _:
                report.does_not_know(kind)

    def flush(self) -> Iterator[TranscriptEntry]:
        """The step that is held, and its results."""
        if self._said or self._thought or self._calls:
            yield self.state.said(
                RecordedMessage(
                    "assistant",
                    "".join(self._said),
                    tuple(self._calls),
                    reasoning="".join(self._thought),
                    at=self._at,
                    usage=self._usage,
                    model=self.model,
                )
            )
        for result in self._results:
            yield self.state.said(result)
        self._clear()


def _usage(usage: Mapping[str, Any]) -> Usage | None:
    if not usage:
        return None
    cached = whole(usage.get("inputCacheRead"))
    given = whole(usage.get("inputOther")) + cached + whole(usage.get("inputCacheCreation"))
    answered = whole(usage.get("output"))
    return Usage(given, answered, cached_tokens=cached, total_tokens=given + answered)
