"""pi and OpenClaw: JSON lines, a line with the session first. Older files are in file order. Since
version 3 they are a tree: the model was shown the chain from the last entry back to the root.

`pi --mode json` prints events: each message stands in `message_end`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from monitor.transcripts.base import (
    Began,
    CompactionSeen,
    EndState,
    ReadReport,
    RecordedCall,
    RecordedMessage,
    TranscriptEntry,
)
from monitor.transcripts.readers.base import LineReader, LineReading, OpenRun, RecentIds
from monitor.transcripts.readers.values import call_of, dollars, result_of, rows, seconds, table, text, tokens_of, words
from monitor.transcripts.source import Source

_ENDS: Final[Mapping[str, EndState]] = {
    "stop": "finished",
    "aborted": "aborted",
    "error": "failed",
    "length": "limit",
}


class PiLines(LineReading):
    """A session. `active`: the ids of the records that count; `None`: all of them."""

    def __init__(self, source: Source, active: set[str] | None = None) -> None:
        self._stem = source.stem
        self._active = active
        self._run: OpenRun | None = None
        self._foreign = False

    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
        kind = text(record.get("type"))
        if self._run is None:
            self._run = OpenRun(text(record.get("id")) or self._stem)
            yield Began(
                run=self._run.id,
                project=text(record.get("cwd")),
                model=text(record.get("modelId")),
                parent=text(record.get("parentSession")) or None,
            )
        if kind == "session" and text(record.get("id")) not in {"", self._run.id}:
            self._foreign = True
        if self._foreign:
            report.is_of_another_session()
            return
        if self._active is not None and kind != "session" and text(record.get("id")) not in self._active:
            if "id" not in record:
                report.does_not_know(kind)
            return
        if kind in {"message", "message_end"}:
            yield from _entries(self._run, table(record.get("message")), record)
        elif kind == "compaction":
            yield CompactionSeen(run=self._run.id, at=seconds(record.get("timestamp")))
        elif "id" in record and "message" in record:
            report.does_not_know(kind)

    def end(self, report: ReadReport) -> Iterator[TranscriptEntry]:
        if self._run is not None:
            yield self._run.end()


class PiChain(PiLines):
    """A session of which every record that came so far counts: each one follows the one before, or
    none has a parent. A record for which that does not hold makes the reading stale.
    """

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._leaf = ""
        self._is_tree: bool | None = None
        self._ids = RecentIds()

    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
        if record.get("type") != "session":
            self._follow(text(record.get("id")), text(record.get("parentId")))
        yield from super().take(record, report)

    def _follow(self, id: str, parent: str) -> None:
        if not id:
            self.stale = self.stale or self._is_tree is True
            self._is_tree = False
        elif not self._leaf:
            self.stale = self.stale or bool(parent)
        elif parent:
            self.stale = self.stale or self._is_tree is False or parent != self._leaf
            self._is_tree = True
        else:
            self.stale = self.stale or self._is_tree is True
            self._is_tree = False
        self.stale = self.stale or not self._ids.is_new(id)
        self._leaf = id or self._leaf


class PiReader(LineReader):
    """Reads sessions of pi and OpenClaw. The reading of lines goes on while no branch is left."""

    format = "pi"
    agent = "pi, OpenClaw"
    places = (
        ".pi/agent/sessions/**/*.jsonl",
        ".openclaw/agents/*/sessions/*.jsonl",
        ".clawdbot/agents/*/sessions/*.jsonl",
    )
    reading = PiChain

    def fits(self, source: Source) -> bool:
        """The line of the session, or the start of an agent that prints."""
        first = source.first_record
        if first.get("type") == "session":
            return "version" in first or {"provider", "modelId"} <= first.keys()
        return first.get("type") == "agent_start" and len(source.first_records) > 1

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        """The run of the file: the active chain of its records."""
        return PiLines(source, _active(source)).read_all(source, report)


def _active(source: Source) -> set[str] | None:
    """The ids of the active chain; `None`: the file is no tree."""
    parents: dict[str, str] = {}
    calls: dict[str, str] = {}
    leaf = ""
    for record in source.records(ReadReport()):
        id = text(record.get("id"))
        if record.get("type") == "session" and parents:
            break  # another session begins
        if record.get("type") == "session" or not id:
            continue
        leaf = id
        parents[id] = text(record.get("parentId"))
        for block in map(table, rows(table(record.get("message")).get("content"))):
            if "arguments" in block:
                calls[text(block.get("id"))] = id  # OpenClaw: a result's parent may be the call
    if not parents or not any(parents.values()):
        return None
    active: set[str] = set()
    while leaf and leaf not in active:
        active.add(leaf)
        leaf = parents.get(leaf, "")
        leaf = leaf if leaf in parents else calls.get(leaf, "")
    return active


def _entries(run: OpenRun, message: Mapping[str, Any], record: Mapping[str, Any]) -> Iterator[TranscriptEntry]:
    at = seconds(message.get("timestamp")) or seconds(record.get("timestamp"))
    content = message.get("content")
    match message.get("role"):
        case "user":
            run.ended = None
            yield run.said(RecordedMessage("user", words(content), at=at))
        case "assistant":
            stop = text(message.get("stopReason"))
            run.ended = (_ENDS[stop], text(message.get("errorMessage"))[:200] or stop) if stop in _ENDS else None
            blocks = [*map(table, rows(content))]
            usage = table(message.get("usage"))
            cost = table(usage.get("cost")).get("total")
            said = RecordedMessage(
                "assistant",
                text(content) or "\n".join(text(b.get("text")) for b in blocks if b.get("type") == "text"),
                tuple(_calls(blocks)),
                reasoning="\n".join(text(b.get("thinking")) for b in blocks if b.get("type") == "thinking"),
                at=at,
                usage=tokens_of(
                    usage,
                    given=("input", "cacheRead", "cacheWrite"),
                    answered=("output",),
                    cached="cacheRead",
                    written="cacheWrite",
                ),
                cost_usd=dollars(cost),
                model=text(message.get("model")),
            )
            empty = not (said.text or said.tool_calls or said.reasoning)
            if not (empty and stop in {"aborted", "error"}):
                yield run.said(said)
        case "toolResult":
            result = result_of(
                text(message.get("toolName")),
                words(content),
                is_error=message.get("isError") is True,
                call_id=text(message.get("toolCallId")) or None,
            )
            yield run.said(RecordedMessage("tool", tool_results=(result,), at=at))
        case _:
            pass  # the person's own commands, and the like


def _calls(blocks: list[Mapping[str, Any]]) -> Iterator[RecordedCall]:
    for block in blocks:
        if "arguments" in block:
            yield call_of(block.get("name"), block.get("arguments"), block.get("id"))
