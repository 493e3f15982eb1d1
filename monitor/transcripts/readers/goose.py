"""goose: JSON lines, a line with the session first (older), or a database (newer)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

from monitor.transcripts.base import Began, ReadReport, TranscriptEntry
from monitor.transcripts.readers.base import OpenRun, TranscriptReader
from monitor.transcripts.readers.chat import is_message, message_of
from monitor.transcripts.readers.values import rows, table, text
from monitor.transcripts.source import SQLITE_MAGIC, Source


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
        if source.head.startswith(SQLITE_MAGIC):
            yield from _database(source, report)
            return
        state: OpenRun | None = None
        for record in source.records(report):
            if state is None:
                state = OpenRun(text(record.get("id")) or source.stem)
                yield Began(
                    run=state.id, project=text(record.get("working_dir")), title=text(record.get("description"))
                )
            elif is_message(record):
                for message in message_of(record):
                    yield state.said(message)
            else:
                report.does_not_know(record.get("role"))
        if state is not None:
            yield state.end()


def _database(source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
    try:
        with closing(source.database()) as database:
            database.row_factory = sqlite3.Row
            for session in database.execute("SELECT * FROM sessions").fetchall():
                columns: Mapping[str, Any] = dict(session)
                state = OpenRun(str(columns["id"]))
                yield Began(
                    run=state.id, project=text(columns.get("working_dir")), title=text(columns.get("description"))
                )
                said = database.execute("SELECT * FROM messages WHERE session_id = ? ORDER BY rowid", (columns["id"],))
                for row in said.fetchall():  # a reader that is slow would hold up goose
                    yield from _row(state, dict(row), report)
                yield state.end()
    except (sqlite3.Error, KeyError) as error:
        report.cannot_read(1, f"it is an SQLite database that cannot be read: {error}")


def _row(state: OpenRun, row: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
    try:
        content = json.loads(row["content_json"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        report.cannot_read(1, f"a message: {error}")
        return
    record = {"role": row.get("role"), "created": row.get("created_timestamp"), "content": rows(content)}
    if is_message(record):
        for message in message_of(table(record)):
            yield state.said(message)
    else:
        report.does_not_know(record["role"])
