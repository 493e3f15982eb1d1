"""opencode: an export (one JSON document), its database (`opencode.db`), and the parts of a message
in both. A compaction's own messages are no turns of the task.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import groupby
from typing import Any, Final

from monitor.chunks import Usage
from monitor.transcripts.base import (
    Began,
    CompactionSeen,
    EndState,
    ReadReport,
    RecordedCall,
    RecordedMessage,
    RecordedResult,
    TranscriptEntry,
)
from monitor.transcripts.readers.base import OpenRun, TranscriptReader
from monitor.transcripts.readers.values import (
    call_of,
    dollars,
    result_of,
    rows,
    seconds,
    table,
    text,
    tokens_of,
    unpacked,
    words,
)
from monitor.transcripts.source import SQLITE_MAGIC, Source

_MESSAGES: Final = """
SELECT message.id, message.data, part.data FROM message LEFT JOIN part ON part.message_id = message.id
WHERE message.session_id = ? ORDER BY message.id, part.id
"""
_ERRORS: Final[Mapping[str, EndState]] = {
    "MessageAbortedError": "aborted",
    "ContextOverflowError": "limit",
    "MessageOutputLengthError": "limit",
}


class OpenCodeReader(TranscriptReader):
    """Reads exports and the database."""

    format = "opencode"
    agent = "opencode"
    places = (".local/share/opencode/opencode.db",)

    def fits(self, source: Source) -> bool:
        """An object with `info` and messages of parts, or a database with the three tables."""
        if source.head.startswith(SQLITE_MAGIC):
            return {"session", "message", "part"} <= source.tables
        if _is_printed(source):
            return True
        document = source.document
        return isinstance(document, dict) and isinstance(document.get("info"), dict) and "messages" in document

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        if source.head.startswith(SQLITE_MAGIC):
            yield from _database(source, report)
            return
        if _is_printed(source):
            yield from _printed(source, report)
            return
        document = table(source.document)
        messages = (
            (table(one.get("info")), rows(one.get("parts"))) for one in map(table, rows(document.get("messages")))
        )
        yield from _session(table(document["info"]), messages)


def _is_printed(source: Source) -> bool:
    """Whether it is what `opencode run --format json` prints."""
    first = source.first_record
    return "sessionID" in first and (first.get("type") == "error" or "messageID" in table(first.get("part")))


def _printed(source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
    state: OpenRun | None = None
    blocks: list[Mapping[str, Any]] = []
    at: float | None = None
    for record in source.records(report):
        if state is None:
            state = OpenRun(text(record.get("sessionID")) or source.stem)
            yield Began(run=state.id)
        kind, part = text(record.get("type")), table(record.get("part"))
        at = at if blocks else seconds(record.get("timestamp"))
        if kind in {"text", "tool_use", "reasoning"}:
            blocks.append(part)
        elif kind == "step_finish":
            step = {**part, "finish": part.get("reason")}
            yield from _turn(state, step, blocks, at)
            blocks = []
        elif kind == "error":
            error = table(record.get("error"))
            name = text(error.get("name"))
            state.ended = (_ERRORS.get(name, "failed"), text(table(error.get("data")).get("message"))[:200] or name)
        elif kind != "step_start":
            report.does_not_know(kind)
    if state is not None:
        if blocks:
            yield from _turn(state, {}, blocks, at)
        yield state.end()


def _database(source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
    try:
        with closing(source.database()) as database:
            sessions = database.execute("SELECT * FROM session ORDER BY rowid").fetchall()
            names = [column[1] for column in database.execute("PRAGMA table_info(session)")]
            for row in sessions:
                columns = dict(zip(names, row, strict=True))
                info = {**columns, **unpacked(columns.get("data"), report)}
                info["parentID"] = columns.get("parent_id") or info.get("parentID")
                found = database.execute(_MESSAGES, (info["id"],)).fetchall()  # at once: opencode may wait to write
                messages = (
                    (unpacked(data, report), [unpacked(part, report) for *_, part in parts if part is not None])
                    for (_, data), parts in groupby(found, lambda row: row[:2])
                )
                yield from _session(info, messages)
    except sqlite3.Error as error:
        report.cannot_read(1, f"it is an SQLite database that cannot be read: {error}")


def _session(
    info: Mapping[str, Any], messages: Iterator[tuple[Mapping[str, Any], list[Any]]]
) -> Iterator[TranscriptEntry]:
    state = OpenRun(text(info.get("id")) or "session")
    yield Began(
        run=state.id,
        parent=text(info.get("parentID")) or None,
        project=text(info.get("directory")),
        title=text(info.get("title")),
    )
    for message, parts in messages:
        blocks = [*map(table, parts)]
        at = seconds(table(message.get("time")).get("created"))
        if any(block.get("type") == "compaction" for block in blocks):
            yield CompactionSeen(run=state.id, at=at)
        elif message.get("mode") == "compaction" or message.get("summary") is True:
            continue
        elif message.get("role") == "user":
            state.ended = None
            said = "\n".join(text(block.get("text")) for block in blocks if block.get("type") == "text")
            synthetic = bool(blocks) and all(block.get("synthetic") for block in blocks if block.get("type") == "text")
            yield state.said(RecordedMessage("user", said, synthetic=synthetic, at=at))
        else:
            yield from _turn(state, message, blocks, at)
    yield state.end()


def _turn(
    state: OpenRun, message: Mapping[str, Any], blocks: list[Mapping[str, Any]], at: float | None
) -> Iterator[TranscriptEntry]:
    calls: list[RecordedCall] = []
    results: list[RecordedResult] = []
    for block in blocks:
        if "callID" in block:
            inside = table(block.get("state"))
            calls.append(call_of(block.get("tool"), inside.get("input"), block.get("callID")))
            if text(inside.get("status")) in {"completed", "error"}:
                failed = inside["status"] == "error"
                said = words(inside.get("error" if failed else "output"))
                results.append(result_of(calls[-1].name, said, is_error=failed, call_id=calls[-1].id))
    yield state.said(
        RecordedMessage(
            "assistant",
            "\n".join(text(block.get("text")) for block in blocks if block.get("type") == "text"),
            tuple(calls),
            reasoning="\n".join(text(block.get("text")) for block in blocks if block.get("type") == "reasoning"),
            at=at,
            usage=_usage(table(message.get("tokens"))),
            cost_usd=dollars(message.get("cost")),
            model=text(message.get("modelID")),
        )
    )
    if results:
        yield state.said(RecordedMessage("tool", tool_results=tuple(results)))
    error = text(table(message.get("error")).get("name"))
    if error:
        state.ended = (_ERRORS.get(error, "failed"), error)
    elif message.get("finish") == "length":
        state.ended = ("limit", "length")
    else:
        state.ended = None


def _usage(tokens: Mapping[str, Any]) -> Usage | None:
    return tokens_of(
        {**tokens, **table(tokens.get("cache"))},
        given=("input", "read", "write"),
        answered=("output", "reasoning"),
        thinking="reasoning",
        cached="read",
        written="write",
    )
