"""Conversations in Cursor's database."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from monitor.transcripts.analysis.survey import survey_file
from monitor.transcripts.source import Source


def bubble(id: str, kind: int, said: str = "", **more: Any) -> tuple[str, str]:
    return f"bubbleId:one:{id}", json.dumps({"bubbleId": id, "type": kind, "text": said, **more})


def tool(call: str, result: str, status: str = "completed") -> dict[str, Any]:
    made = {"name": "read_file", "rawArgs": '{"path": "a.py"}', "result": result, "status": status, "toolCallId": call}
    return {"toolFormerData": made, "createdAt": "2026-01-05T10:00:00.000Z"}


def database(folder: Path, *rows: tuple[str, str], status: str = "completed") -> Path:
    headers = [{"bubbleId": key.rsplit(":", 1)[1]} for key, _ in rows]
    about = {"composerId": "one", "name": "Read it", "status": status, "fullConversationHeadersOnly": headers}
    path = folder / "state.vscdb"
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE ItemTable (key TEXT, value BLOB)")
        file.execute("INSERT INTO ItemTable VALUES ('cursorAuth/accessToken', 'secret-token')")
        file.execute("CREATE TABLE cursorDiskKV (key TEXT UNIQUE, value BLOB)")
        file.execute("INSERT INTO cursorDiskKV VALUES ('composerData:one', ?)", (json.dumps(about),))
        file.execute("INSERT INTO cursorDiskKV VALUES ('composerData:draft', '{}')")
        file.executemany("INSERT INTO cursorDiskKV VALUES (?, ?)", rows)
        file.commit()
    return path


def test_a_conversation_is_read_in_its_order(tmp_path: Path):
    path = database(
        tmp_path,
        bubble("z", 1, "Read a.py."),
        bubble("y", 2, "I will.", tokenCount={"inputTokens": 900, "outputTokens": 12}, **tool("c1", "x = 1")),
        bubble("x", 2, **tool("c2", "no such file", "error")),
        bubble("w", 2, "It sets x."),
    )
    found = survey_file(Source.of_path(path))
    (run,) = found.runs
    assert (found.format, run.id, run.began.title, run.task) == ("cursor", "one", "Read it", "Read a.py.")
    assert (run.total.turns, run.total.tool_calls, run.errors, run.ended.state) == (3, 2, 1, "finished")
    assert run.usage is not None
    assert (run.usage.input_tokens, run.usage.output_tokens) == (900, 12)
    assert "secret-token" not in repr(found)


def test_a_loop_in_it_is_seen(tmp_path: Path):
    path = database(tmp_path, *(bubble(f"b{at}", 2, **tool(f"c{at}", "x = 1")) for at in range(9)))
    (run,) = survey_file(Source.of_path(path)).runs
    assert run.loops


def test_a_missing_or_broken_message_is_counted(tmp_path: Path):
    path = database(tmp_path, bubble("a", 1, "Go."), ("bubbleId:one:b", "{"))
    with closing(sqlite3.connect(path)) as file:
        file.execute("DELETE FROM cursorDiskKV WHERE key = 'bubbleId:one:a'")
        file.commit()
    found = survey_file(Source.of_path(path))
    assert found.report.bad == 2
