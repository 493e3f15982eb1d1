"""Cursor's database (`state.vscdb`): conversations and their messages, as rows of one table of keys
and values. Another table of the file holds sign-in tokens. It is never read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, ClassVar, Final

from monitor.transcripts.base import Began, EndState, ReadReport, RecordedMessage, TranscriptEntry
from monitor.transcripts.readers.base import OpenRun, TranscriptReader
from monitor.transcripts.readers.values import (
    call_of,
    parsed,
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
        try:
            with closing(source.database()) as database:
                for (value,) in database.execute(_CONVERSATIONS).fetchall():
                    conversation = unpacked(value, report)
                    if rows(conversation.get("fullConversationHeadersOnly")):
                        yield from _conversation(database, conversation, report)
        except sqlite3.Error as error:
            report.cannot_read(1, f"it is an SQLite database that cannot be read: {error}")


def _conversation(
    database: sqlite3.Connection, conversation: Mapping[str, Any], report: ReadReport
) -> Iterator[TranscriptEntry]:
    id = text(conversation.get("composerId")) or "conversation"
    model = text(table(conversation.get("modelConfig")).get("modelName"))
    run = OpenRun(id)
    yield Began(run=id, title=text(conversation.get("name")), model=model)
    for header in map(table, rows(conversation.get("fullConversationHeadersOnly"))):
        key = f"bubbleId:{id}:{text(header.get('bubbleId'))}"
        row = database.execute("SELECT value FROM cursorDiskKV WHERE key = ?", (key,)).fetchone()
        if row is None:
            report.cannot_read(1, f"{key} is missing")
            continue
        for message in _messages(unpacked(row[0], report), model):
            yield run.said(message)
    state = text(conversation.get("status"))
    run.ended = (_ENDS[state], state) if state in _ENDS else None
    yield run.end()


def _messages(bubble: Mapping[str, Any], model: str) -> Iterator[RecordedMessage]:
    at, said = seconds(bubble.get("createdAt")), text(bubble.get("text"))
    if bubble.get("type") == _PERSON:
        yield RecordedMessage("user", said, at=at)
        return
    tool = table(bubble.get("toolFormerData"))
    id = text(tool.get("toolCallId")) or text(bubble.get("bubbleId")) or None
    calls = (call_of(tool.get("name"), parsed(tool.get("rawArgs")), id),) if tool else ()
    usage = tokens_of(table(bubble.get("tokenCount")), given=("inputTokens",), answered=("outputTokens",))
    yield RecordedMessage(
        "assistant",
        said,
        calls,
        reasoning=text(table(bubble.get("thinking")).get("text")),
        at=at,
        usage=usage if usage is not None and usage.total_tokens else None,  # mostly 0, which is not counted
        model=model,
    )
    if tool and text(tool.get("status")) in {"completed", "error", "cancelled"}:
        failed = tool["status"] != "completed"
        answer = result_of(text(tool.get("name")), words(tool.get("result")), is_error=failed, call_id=id)
        yield RecordedMessage("tool", tool_results=(answer,), at=at)
