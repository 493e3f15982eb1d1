"""pi and OpenClaw: JSON lines, a line with the session first. Older files are in file order. Since
version 3 they are a tree: the model was shown the chain from the last entry back to the root.

`pi --mode json` prints events: each message stands in `message_end`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from monitor.transcripts.base import RecordedCall, RecordedMessage
from monitor.transcripts.entries import Began, CompactionSeen, EndState, ReadReport, TranscriptEntry
from monitor.transcripts.readers.base import (
    Recent,
    RunState,
    Steps,
    all_steps,
    call_of,
    dollars,
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

_ENDS: Final[Mapping[str, EndState]] = {
    "stop": "finished",
    "aborted": "aborted",
    "error": "failed",
    "length": "limit",
}


class Pi:
    """Reads sessions of pi and OpenClaw."""

    format: ClassVar[str] = "pi"
    agent: ClassVar[str] = "pi, OpenClaw"
    places: ClassVar[tuple[str, ...]] = (
        ".pi/agent/sessions/**/*.jsonl",
        ".openclaw/agents/*/sessions/*.jsonl",
        ".clawdbot/agents/*/sessions/*.jsonl",
    )

    def fits(self, source: Source) -> bool:
        """The line of the session, or the start of an agent that prints."""
        first = source.first_records[0] if source.first_records else {}
        if first.get("type") == "session":
            return "version" in first or {"provider", "modelId"} <= first.keys()
        return first.get("type") == "agent_start" and len(source.first_records) > 1

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        """The run of the file."""
        return all_steps(_Steps(source, _active(source)), source, report)

    def steps(self, source: Source) -> Steps:
        """A reading that goes on while no branch is left."""
        return _Chain(source)


class _Steps:
    """`active`: the ids of the records that count; `None`: all of them."""

    def __init__(self, source: Source, active: set[str] | None) -> None:
        self.stale = False
        self._stem = source.stem
        self._active = active
        self._state: RunState | None = None

    def began_like(self, source: Source) -> bool:
        return True

    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
        kind = text(record.get("type"))
        if self._state is None:
            self._state = RunState(text(record.get("id")) or self._stem)
            yield Began(
                run=self._state.run,
                project=text(record.get("cwd")),
                model=text(record.get("modelId")),
                parent=text(record.get("parentSession")) or None,
            )
        if self._active is not None and kind != "session" and text(record.get("id")) not in self._active:
            return
        if kind in {"message", "message_end"}:
            yield from _entries(self._state, table(record.get("message")), record)
        elif kind == "compaction":
            yield CompactionSeen(run=self._state.run, at=seconds(record.get("timestamp")))

    def end(self, report: ReadReport) -> Iterator[TranscriptEntry]:
        if self._state is not None:
            yield self._state.end()


class _Chain(_Steps):
    """Every record that came so far counts: each one follows the one before, or none has a parent.
    A record for which that does not hold makes the reading stale.
    """

    def __init__(self, source: Source) -> None:
        super().__init__(source, None)
        self._leaf = ""
        self._is_tree: bool | None = None
        self._ids = Recent()

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


def _active(source: Source) -> set[str] | None:
    """The ids of the active chain; `None`: the file is no tree."""
    parents: dict[str, str] = {}
    calls: dict[str, str] = {}
    leaf = ""
    for record in source.records(ReadReport()):
        id = text(record.get("id"))
        if record.get("type") == "session" or not id:
            continue
        leaf = id
        parents[id] = text(record.get("parentId"))
        for block in map(table, rows(table(record.get("message")).get("content"))):
            if block.get("type") == "toolCall":
                calls[text(block.get("id"))] = id  # OpenClaw: a result's parent may be the call
    if not parents or not any(parents.values()):
        return None
    active: set[str] = set()
    while leaf and leaf not in active:
        active.add(leaf)
        leaf = parents.get(leaf, "")
        leaf = leaf if leaf in parents else calls.get(leaf, "")
    return active


def _entries(state: RunState, message: Mapping[str, Any], record: Mapping[str, Any]) -> Iterator[TranscriptEntry]:
    at = seconds(message.get("timestamp")) or seconds(record.get("timestamp"))
    content = message.get("content")
    match message.get("role"):
        case "user":
            state.ended = None
            yield state.said(RecordedMessage("user", words(content), at=at))
        case "assistant":
            stop = text(message.get("stopReason"))
            state.ended = (_ENDS[stop], text(message.get("errorMessage"))[:200] or stop) if stop in _ENDS else None
            blocks = [*map(table, rows(content))]
            usage = table(message.get("usage"))
            cost = table(usage.get("cost")).get("total")
            said = RecordedMessage(
                "assistant",
                text(content) or "\n".join(text(b.get("text")) for b in blocks if b.get("type") == "text"),
                tuple(_calls(blocks)),
                reasoning="\n".join(text(b.get("thinking")) for b in blocks if b.get("type") == "thinking"),
                at=at,
                usage=_usage(usage) if usage else None,
                cost_usd=dollars(cost),
                model=text(message.get("model")),
            )
            empty = not (said.text or said.tool_calls or said.reasoning)
            if not (empty and stop in {"aborted", "error"}):
                yield state.said(said)
        case "toolResult":
            result = result_of(
                text(message.get("toolName")),
                words(content),
                is_error=message.get("isError") is True,
                call_id=text(message.get("toolCallId")) or None,
            )
            yield state.said(RecordedMessage("tool", tool_results=(result,), at=at))
        case _:
            pass  # the person's own commands, and the like


def _calls(blocks: list[Mapping[str, Any]]) -> Iterator[RecordedCall]:
    for block in blocks:
        if block.get("type") == "toolCall":
            yield call_of(block.get("name"), block.get("arguments"), block.get("id"))


def _usage(usage: Mapping[str, Any]) -> Usage:
    cached = whole(usage.get("cacheRead"))
    given, answered = whole(usage.get("input")) + cached + whole(usage.get("cacheWrite")), whole(usage.get("output"))
    return Usage(given, answered, cached_tokens=cached, total_tokens=given + answered)
