"""Conversations of Antigravity."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from monitor.cli.app import app
from monitor.transcripts.base import ReadReport, collected
from monitor.transcripts.places import known_places
from monitor.transcripts.readers.registry import READERS, reader_of, signs_of
from monitor.transcripts.source import Source

HOME = ".gemini/antigravity-cli/brain/11111111-2222/.system_generated/logs"


def step(at: int, kind: str, content: str = "", source: str = "MODEL", **more: Any) -> dict[str, Any]:
    return {"step_index": at, "source": source, "type": kind, "status": "DONE", "content": content, **more}


ASKED = step(0, "USER_INPUT", "<USER_REQUEST>Look</USER_REQUEST><META>x</META>", "USER_EXPLICIT")


def call(at: int, *names: str) -> dict[str, Any]:
    return step(at, "PLANNER_RESPONSE", tool_calls=[{"name": name, "args": {"toolSummary": f"{at}"}} for name in names])


def read(path: Path, *steps: dict[str, Any]) -> tuple[Any, Any, ReadReport]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in steps))
    report, source = ReadReport(), Source.of_path(path)
    reader = reader_of(source)
    assert reader is not None
    assert reader.format == "antigravity"
    ((run, ended),) = collected(reader.read(source, report))
    return run, ended, report


def test_a_conversation_of_this_user_is_found_and_named_after_its_folder(tmp_path: Path):
    run, _, _ = read(tmp_path / HOME / "transcript.jsonl", ASKED, step(1, "PLANNER_RESPONSE", "Fine."))
    assert run.id == "11111111-2222"
    assert run.task == "Look"
    assert [kind for kind, _ in known_places(tmp_path)] == ["antigravity"]


def test_results_answer_the_calls_in_their_order(tmp_path: Path):
    failed = {**step(3, "VIEW_FILE", "no such file"), "status": "ERROR"}
    run, ended, _ = read(tmp_path / "a.jsonl", ASKED, call(1, "look", "read"), step(2, "RUN_COMMAND", "one"), failed)
    results = [result for message in run.messages for result in message.tool_results]
    calls = [one for message in run.messages for one in message.tool_calls]
    assert [(one.text, one.is_error, one.call_id) for one in results] == [
        ("one", False, calls[0].id),
        ("no such file", True, calls[1].id),
    ]
    assert ended.state == "unfinished"


def test_the_times_and_labels_of_a_call_do_not_tell_two_equal_calls_apart(tmp_path: Path):
    steps = [ASKED]
    for at in range(1, 11, 2):
        times = f"Created At: 2026-09-08T12:02:{at:02}-07:00\nCompleted At: 2026-09-08T12:03:{at:02}-07:00\n"
        steps += [call(at, "look"), step(at + 1, "GENERIC", f"{times}nothing")]
    run, _, _ = read(tmp_path / "a.jsonl", *steps)
    results = {result.text for message in run.messages for result in message.tool_results}
    assert results == {"nothing"}
    assert {repr(one.arguments) for message in run.messages for one in message.tool_calls} == {"{}"}


def test_a_step_that_was_written_while_it_ran_counts_once(tmp_path: Path):
    running = {**call(1, "look"), "status": "RUNNING"}
    run, _, report = read(
        tmp_path / "a.jsonl", ASKED, running, call(1, "look"), call(1, "look"), step(2, "GENERIC", "x")
    )
    assert sum(len(message.tool_calls) for message in run.messages) == 1
    assert report.repeated == 1


@pytest.mark.parametrize("strange", [{"type": "PLANNER_RESPONSE"}, {"step_index": 4}, {"other": 1}])
def test_a_line_of_another_kind_is_counted_as_not_read(strange: dict[str, Any], tmp_path: Path):
    _, _, report = read(tmp_path / "a.jsonl", ASKED, step(1, "PLANNER_RESPONSE", "Fine."), strange)
    assert report.left_out == 1


def test_each_format_says_by_what_it_is_recognised():
    assert all(len(signs_of(reader.format)) > 15 for reader in READERS)
    assert signs_of("antigravity") == "Steps with a number, a source and a type"


def test_an_explanation_says_what_a_file_was_taken_for_and_why(tmp_path: Path):
    read(tmp_path / "a.jsonl", ASKED, step(1, "PLANNER_RESPONSE", "Fine."))
    done = CliRunner().invoke(app, ["scan", "--explain", "--all", "--no-cache", str(tmp_path)])
    assert "read as antigravity, by its content: Steps with a number, a source and a type" in done.stdout
    told = CliRunner().invoke(app, ["scan", "--explain", "--json", "--all", "--no-cache", str(tmp_path)])
    assert json.loads(told.stdout.splitlines()[0])["recognised_by"] == signs_of("antigravity")
