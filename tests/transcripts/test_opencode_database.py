"""The database of opencode."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from monitor.transcripts.analysis.survey import survey_file
from monitor.transcripts.places import known_places
from monitor.transcripts.source import Source

TABLES = """
CREATE TABLE session (id TEXT, parent_id TEXT, directory TEXT, title TEXT);
CREATE TABLE message (id TEXT, session_id TEXT, data TEXT);
CREATE TABLE part (id TEXT, message_id TEXT, data TEXT);
"""


def database(home: Path, *, calls: int) -> Path:
    path = home / ".local" / "share" / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as file:
        file.executescript(TABLES)
        file.execute("INSERT INTO session VALUES ('one', NULL, '/home/ada/shop', 'Look')")
        file.execute("INSERT INTO session VALUES ('two', 'one', '/home/ada/shop', 'A part of it')")
        said = {"role": "user", "time": {"created": 1_760_000_000_000}}
        file.execute("INSERT INTO message VALUES ('m00', 'one', ?)", (json.dumps(said),))
        file.execute("INSERT INTO part VALUES ('p00', 'm00', ?)", (json.dumps({"type": "text", "text": "Look"}),))
        for at in range(1, calls + 1):
            tokens = {"input": 100, "output": 10, "reasoning": 5, "cache": {"read": 20, "write": 0}}
            answer = {"role": "assistant", "modelID": "gpt-5.4", "tokens": tokens, "cost": 0.25}
            state = {"status": "error", "input": {"path": "a"}, "error": "no such file"}
            part = {"type": "tool", "tool": "read", "callID": f"c{at}", "state": state}
            file.execute(f"INSERT INTO message VALUES ('m{at:02}', 'one', ?)", (json.dumps(answer),))
            file.execute(f"INSERT INTO part VALUES ('p{at:02}', 'm{at:02}', ?)", (json.dumps(part),))
        file.commit()
    return path


def test_sessions_of_this_user_are_found_and_counted(tmp_path: Path):
    path = database(tmp_path, calls=6)
    assert list(known_places(tmp_path)) == [("opencode", path)]
    found = survey_file(Source.of_path(path))
    assert [run.id for run in found.runs] == ["one", "two"]
    run, part = found.runs
    assert (run.began.project, run.task, part.began.parent) == ("/home/ada/shop", "Look", "one")
    assert (run.total.turns, run.total.tool_calls, run.errors, run.cost_usd) == (6, 6, 6, 1.5)
    assert run.usage is not None
    assert (run.usage.input_tokens, run.usage.output_tokens, run.usage.cached_tokens) == (720, 90, 120)
    assert run.loops


def test_a_message_that_is_no_json_is_counted_as_not_read(tmp_path: Path):
    path = database(tmp_path, calls=1)
    with closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE part SET data = '{' WHERE id = 'p01'")
        file.commit()
    assert survey_file(Source.of_path(path)).report.bad == 1


def test_a_part_that_is_too_deep_for_a_parser_is_said_and_the_others_are_read(tmp_path: Path):
    path = database(tmp_path, calls=6)
    with closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE part SET data = ? WHERE id = 'p03'", ('{"a":' * 20_000,))
        file.commit()
    found = survey_file(Source.of_path(path))
    assert found.report.bad == 1
    assert found.runs[0].total.tool_calls == 5
