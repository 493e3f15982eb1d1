"""pi and OpenClaw: JSON lines, a line with the session first. Older files are in file order. Since
version 3 they are a tree: the model was shown the chain from the last entry back to the root.

`pi --mode json` prints events: each message stands in `message_end`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from monitor.transcripts.base import CompactionSeen, EndState, ReadReport, RecordedMessage, TranscriptEntry
from monitor.transcripts.readers.base import NOTHING, LineReader, OpenRun, RecentIds, chain_of
from monitor.transcripts.readers.values import (
    answer_of,
    call_of,
    dollars,
    seconds,
    table,
    tables,
    text,
    tokens_of,
    words,
)
from monitor.transcripts.source import Source

_ENDS: Final[Mapping[str, EndState]] = {
    "stop": "finished",
    "aborted": "aborted",
    "error": "failed",
    "length": "limit",
}


class PiReader(LineReader):
    """Reads sessions of pi and OpenClaw. The reading of lines goes on while every record that came
    so far counts: each one follows the one before, or none has a parent. A record for which that
    does not hold makes the reading stale.
    """

    format = "pi"
    agent = "pi, OpenClaw"
    places = (
        ".pi/agent/sessions/**/*.jsonl",
        ".openclaw/agents/*/sessions/*.jsonl",
        ".clawdbot/agents/*/sessions/*.jsonl",
    )
    head: ClassVar[Mapping[str, str]] = {"run": "id", "parent": "parentSession", "project": "cwd", "model": "modelId"}

    def __init__(self, source: Source = NOTHING, active: set[str] | None = None) -> None:
        """`active`: the ids of the records that count; `None`: all of them."""
        super().__init__(source)
        self._active = active
        self._leaf = ""
        self._is_tree: bool | None = None
        self._ids = RecentIds()

    def fits(self, source: Source) -> bool:
        """The line of the session, or the start of an agent that prints."""
        first = source.first_record
        if first.get("type") == "session":
            return "version" in first or {"provider", "modelId"} <= first.keys()
        return first.get("type") == "agent_start" and len(source.first_records) > 1

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        """The run of the file: the active chain of its records."""
        yield from PiReader(source, _active(source)).take_all(source.records(report), report)

    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
        kind, id = text(record.get("type")), text(record.get("id"))
        if kind != "session":
            self._follow(id, text(record.get("parentId")))
        yield from self.begin(record)
        if self.is_foreign(id if kind == "session" else None, report):
            return
        if self._active is not None and kind != "session" and id not in self._active:
            if "id" not in record:
                report.does_not_know(kind)
        elif kind in {"message", "message_end"}:
            yield from _entries(self.run, table(record.get("message")), record)
        elif kind == "compaction":
            yield CompactionSeen(run=self.run.id, at=seconds(record.get("timestamp")))
        elif "id" in record and "message" in record:
            report.does_not_know(kind)

    def _follow(self, id: str, parent: str) -> None:
        """Note whether the record follows the one before it. In a tree each one has a parent."""
        if id and not self._leaf:
            self.stale |= bool(parent)
        else:
            is_tree = bool(id and parent)
            self.stale |= self._is_tree not in {None, is_tree} or (is_tree and parent != self._leaf)
            self._is_tree = is_tree
        self.stale |= not self._ids.is_new(id)
        self._leaf = id or self._leaf


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
        for block in tables(table(record.get("message")).get("content")):
            if "arguments" in block:
                calls[text(block.get("id"))] = id  # OpenClaw: a result's parent may be the call
    if not parents or not any(parents.values()):
        return None
    above = {id: parent if parent in parents else calls.get(parent, "") for id, parent in parents.items()}
    return set(chain_of(above, leaf))


def _entries(run: OpenRun, message: Mapping[str, Any], record: Mapping[str, Any]) -> Iterator[TranscriptEntry]:
    at = seconds(message.get("timestamp")) or seconds(record.get("timestamp"))
    content, blocks = message.get("content"), tables(message.get("content"))
    match message.get("role"):
        case "user":
            yield run.asked(words(content), at)
        case "assistant":
            stop, usage = text(message.get("stopReason")), table(message.get("usage"))
            read, written = "cacheRead", "cacheWrite"
            run.ended = (_ENDS[stop], text(message.get("errorMessage"))[:200] or stop) if stop in _ENDS else None
            said = RecordedMessage(
                "assistant",
                text(content) or "\n".join(text(b.get("text")) for b in blocks if b.get("type") == "text"),
                tuple(call_of(b.get("name"), b.get("arguments"), b.get("id")) for b in blocks if "arguments" in b),
                reasoning="\n".join(text(b.get("thinking")) for b in blocks if b.get("type") == "thinking"),
                at=at,
                usage=tokens_of(usage, "input cacheRead cacheWrite", "output", cached=read, written=written),
                cost_usd=dollars(table(usage.get("cost")).get("total")),
                model=text(message.get("model")),
            )
            empty = not (said.text or said.tool_calls or said.reasoning)
            if not (empty and stop in {"aborted", "error"}):
                yield run.said(said)
        case "toolResult":
            tool, failed, id = message.get("toolName"), message.get("isError") is True, message.get("toolCallId")
            yield run.said(answer_of(tool, words(content), at=at, is_error=failed, call_id=id))
        case _:
            pass  # the person's own commands, and the like
