"""Agents that keep their sessions in an SQLite database: Cursor, goose, opencode. goose had JSON
lines before, and opencode exports and prints sessions as well.

The agent may wait to write, so the rows of a session are fetched at once.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import groupby
from typing import Any, ClassVar, Final

from monitor.chunks import Usage
from monitor.transcripts.base import Began, CompactionSeen, EndState, ReadReport, RecordedMessage, TranscriptEntry
from monitor.transcripts.readers.base import HeldResponse, OpenRun, TranscriptReader, began_of
from monitor.transcripts.readers.chat import is_message, message_of
from monitor.transcripts.readers.values import (
    answer_of,
    call_of,
    dollars,
    parsed,
    result_of,
    rows,
    seconds,
    table,
    tables,
    text,
    tokens_of,
    unpacked,
    words,
)
from monitor.transcripts.source import SQLITE_MAGIC, Source


@contextmanager
def opened(source: Source, report: ReadReport) -> Iterator[sqlite3.Connection]:
    """The database of a transcript. `report` notes the parts that cannot be read."""
    try:
        with closing(source.database()) as database:
            database.row_factory = sqlite3.Row
            yield database
    except (sqlite3.Error, KeyError) as error:
        report.cannot_read(1, f"it is an SQLite database that cannot be read: {error}")


# --------------------------------------------------------------------------------------------------
# Cursor's database (`state.vscdb`): conversations and their messages, as rows of one table of keys
# and values. Another table of the file holds sign-in tokens. It is never read.

_CONVERSATIONS: Final = "SELECT value FROM cursorDiskKV WHERE key GLOB 'composerData:*' ORDER BY rowid"
_PERSON: Final = 1
"""The type of a message that a person wrote. The others are the model's."""
_ENDS: Final[Mapping[str, EndState]] = {"completed": "finished", "aborted": "aborted", "error": "failed"}


class CursorReader(TranscriptReader):
    """Reads the conversations of Cursor's editor."""

    format = "cursor"
    agent = "Cursor"
    places: ClassVar[tuple[str, ...]] = (
        ".config/Cursor/User/globalStorage/state.vscdb",
        "Library/Application Support/Cursor/User/globalStorage/state.vscdb",
    )

    def fits(self, source: Source) -> bool:
        """A database with the table of conversations."""
        return source.head.startswith(SQLITE_MAGIC) and "cursorDiskKV" in source.tables

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        with opened(source, report) as database:
            for (value,) in database.execute(_CONVERSATIONS).fetchall():
                conversation = unpacked(value, report)
                if rows(conversation.get("fullConversationHeadersOnly")):
                    yield from _conversation(database, conversation, report)


def _conversation(
    database: sqlite3.Connection, conversation: Mapping[str, Any], report: ReadReport
) -> Iterator[TranscriptEntry]:
    facts = {**conversation, **table(conversation.get("modelConfig"))}
    began = began_of(facts, "conversation", run="composerId", title="name", model="modelName")
    run = OpenRun(began.run)
    yield began
    for header in tables(conversation.get("fullConversationHeadersOnly")):
        key = f"bubbleId:{run.id}:{text(header.get('bubbleId'))}"
        row = database.execute("SELECT value FROM cursorDiskKV WHERE key = ?", (key,)).fetchone()
        if row is None:
            report.cannot_read(1, f"{key} is missing")
            continue
        yield from map(run.said, _bubble(unpacked(row[0], report), began.model))
    state = text(conversation.get("status"))
    run.ended = (_ENDS[state], state) if state in _ENDS else None
    yield run.end()


def _bubble(bubble: Mapping[str, Any], model: str) -> Iterator[RecordedMessage]:
    at, said = seconds(bubble.get("createdAt")), text(bubble.get("text"))
    if bubble.get("type") == _PERSON:
        yield RecordedMessage("user", said, at=at)
        return
    usage = tokens_of(table(bubble.get("tokenCount")), "inputTokens", "outputTokens")  # mostly 0, which is not counted
    held, tool = HeldResponse(at, model, usage, id=""), table(bubble.get("toolFormerData"))
    held.text.append(said)
    held.reasoning.append(text(table(bubble.get("thinking")).get("text")))
    if tool:
        id = text(tool.get("toolCallId")) or text(bubble.get("bubbleId"))
        held.calls.append(call_of(tool.get("name"), parsed(tool.get("rawArgs")), id))
        if text(tool.get("status")) in {"completed", "error", "cancelled"}:
            failed, result = tool["status"] != "completed", words(tool.get("result"))
            held.results.append(answer_of(tool.get("name"), result, at=at, is_error=failed, call_id=id))
    yield from held.messages()


# --------------------------------------------------------------------------------------------------
# goose: JSON lines, a line with the session first (older), or a database (newer).


class GooseReader(TranscriptReader):
    """Reads sessions of goose, from lines or from its database."""

    format = "goose"
    agent = "goose"
    places = (
        ".local/share/goose/sessions/*.jsonl",
        ".local/share/goose/sessions/sessions.db",
    )

    def fits(self, source: Source) -> bool:
        """Messages with requests for tools, after a line without a role; or the two tables."""
        if source.head.startswith(SQLITE_MAGIC):
            return {"sessions", "messages"} <= source.tables
        records = source.first_records
        if len(records) < 2 or "role" in records[0]:  # noqa: PLR2004 - a session and a message
            return False
        header = {"working_dir", "message_count", "tools", "description"} & records[0].keys()
        return bool(header) and is_message(records[1]) and "created" in records[1]

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        if not source.head.startswith(SQLITE_MAGIC):
            records = source.records(report)
            if (session := next(records, None)) is not None:
                yield from _goose(text(session.get("id")) or source.stem, session, records, report)
            return
        with opened(source, report) as database:
            for session in map(dict, database.execute("SELECT * FROM sessions").fetchall()):
                said = "SELECT * FROM messages WHERE session_id = ? ORDER BY rowid"
                messages = database.execute(said, (session["id"],)).fetchall()
                yield from _goose(str(session["id"]), session, _goose_rows(map(dict, messages), report), report)


def _goose(
    id: str, session: Mapping[str, Any], records: Iterable[Mapping[str, Any]], report: ReadReport
) -> Iterator[TranscriptEntry]:
    run = OpenRun(id)
    yield Began(run=id, project=text(session.get("working_dir")), title=text(session.get("description")))
    for record in records:
        if is_message(record):
            yield from map(run.said, message_of(record))
        else:
            report.does_not_know(record.get("role"))
    yield run.end()


def _goose_rows(messages: Iterable[Mapping[str, Any]], report: ReadReport) -> Iterator[Mapping[str, Any]]:
    """The messages of a session, as its lines have them."""
    for row in messages:
        try:
            content = rows(json.loads(row["content_json"]))
            yield {"role": row.get("role"), "created": row.get("created_timestamp"), "content": content}
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            report.cannot_read(1, f"a message: {error}")


# --------------------------------------------------------------------------------------------------
# opencode: an export (one JSON document), its database (`opencode.db`), and the parts of a message
# in both. A compaction's own messages are no turns of the task.

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
        document = source.document
        is_export = isinstance(document, dict) and isinstance(document.get("info"), dict) and "messages" in document
        return _is_printed(source) or is_export

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        if _is_printed(source):
            yield from _printed(source, report)
            return
        if not source.head.startswith(SQLITE_MAGIC):
            document = table(source.document)
            messages = ((table(one.get("info")), tables(one.get("parts"))) for one in tables(document.get("messages")))
            yield from _session(table(document["info"]), messages)
            return
        with opened(source, report) as database:
            for row in map(dict, database.execute("SELECT * FROM session ORDER BY rowid").fetchall()):
                info = {**row, **unpacked(row.get("data"), report)}
                info["parentID"] = row.get("parent_id") or info.get("parentID")
                found = database.execute(_MESSAGES, (info["id"],)).fetchall()
                messages = (
                    (unpacked(data, report), [unpacked(part, report) for *_, part in parts if part is not None])
                    for (_, data), parts in groupby(found, lambda row: row[:2])
                )
                yield from _session(info, messages)


def _is_printed(source: Source) -> bool:
    """Whether it is what `opencode run --format json` prints."""
    first = source.first_record
    return "sessionID" in first and (first.get("type") == "error" or "messageID" in table(first.get("part")))


def _printed(source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
    run: OpenRun | None = None
    blocks: list[Mapping[str, Any]] = []
    at: float | None = None
    for record in source.records(report):
        if run is None:
            run = OpenRun(text(record.get("sessionID")) or source.stem)
            yield Began(run=run.id)
        kind, part = text(record.get("type")), table(record.get("part"))
        at = at if blocks else seconds(record.get("timestamp"))
        if kind in {"text", "tool_use", "reasoning"}:
            blocks.append(part)
        elif kind == "step_finish":
            yield from _turn(run, {**part, "finish": part.get("reason")}, blocks, at)
            blocks = []
        elif kind == "error":
            error = table(record.get("error"))
            name = text(error.get("name"))
            run.ended = (_ERRORS.get(name, "failed"), text(table(error.get("data")).get("message"))[:200] or name)
        elif kind != "step_start":
            report.does_not_know(kind)
    if run is not None:
        if blocks:
            yield from _turn(run, {}, blocks, at)
        yield run.end()


def _session(
    info: Mapping[str, Any], messages: Iterable[tuple[Mapping[str, Any], list[Mapping[str, Any]]]]
) -> Iterator[TranscriptEntry]:
    began = began_of(info, "session", parent="parentID", project="directory", title="title")
    run = OpenRun(began.run)
    yield began
    for message, blocks in messages:
        at = seconds(table(message.get("time")).get("created"))
        if any(block.get("type") == "compaction" for block in blocks):
            yield CompactionSeen(run=run.id, at=at)
        elif message.get("mode") == "compaction" or message.get("summary") is True:
            continue
        elif message.get("role") == "user":
            run.ended = None
            texts = [block for block in blocks if block.get("type") == "text"]
            synthetic = bool(blocks) and all(block.get("synthetic") for block in texts)
            yield run.asked("\n".join(text(block.get("text")) for block in texts), at, synthetic=synthetic)
        else:
            yield from _turn(run, message, blocks, at)
    yield run.end()


def _turn(
    run: OpenRun, message: Mapping[str, Any], blocks: list[Mapping[str, Any]], at: float | None
) -> Iterator[TranscriptEntry]:
    held = HeldResponse(
        at, text(message.get("modelID")), _usage(table(message.get("tokens"))), dollars(message.get("cost")), id=""
    )
    for block in blocks:
        if block.get("type") == "text":
            held.text.append(text(block.get("text")))
        elif block.get("type") == "reasoning":
            held.reasoning.append(text(block.get("text")))
        if "callID" in block:
            inside = table(block.get("state"))
            call = call_of(block.get("tool"), inside.get("input"), block.get("callID"))
            held.calls.append(call)
            if text(inside.get("status")) in {"completed", "error"}:
                failed = inside["status"] == "error"
                said = words(inside.get("error" if failed else "output"))
                held.answers.append(result_of(call.name, said, is_error=failed, call_id=call.id))
    yield from map(run.said, held.messages())
    error = text(table(message.get("error")).get("name"))
    if error:
        run.ended = (_ERRORS.get(error, "failed"), error)
    else:
        run.ended = ("limit", "length") if message.get("finish") == "length" else None


def _usage(tokens: Mapping[str, Any]) -> Usage | None:
    facts = {**tokens, **table(tokens.get("cache"))}
    return tokens_of(
        facts, "input read write", "output reasoning", thinking="reasoning", cached="read", written="write"
    )
