"""`agent-monitor sessions resume`: a run that was stored goes on, with the options that it had."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

import monitor
from monitor.cli.options.run_arguments import RunArguments, arguments_in
from monitor.sessions import SessionReader
from monitor.sessions.lock import OwnerLock, lock_path
from monitor.sessions.tables.schema import FORMAT
from monitor.testing import call
from tests.cli.stored import SENDS, by_program, invoke, place, recorded

pytestmark = pytest.mark.usefixtures("place")
__all__ = ["place"]


def sent() -> list[str]:
    return Path("letters.txt").read_text().split() if Path("letters.txt").exists() else []


@pytest.mark.feature("AC-01")
def test_a_run_whose_process_died_in_a_tool_goes_on_and_the_effect_happened_once(tmp_path: Path):
    model = recorded(*SENDS)
    Path("dying_tools.py").write_text(
        "import os\nfrom kept_tools import send as sends\n\n\n"
        'def send(to: str) -> str:\n    """Send a letter."""\n    said = sends(to)\n'
        '    if os.environ.get("DIES"):\n        os._exit(9)\n    return said\n'
    )
    command = [sys.executable, "-m", "monitor.cli", "run", "Write to Ada", "--model", model]
    command += ["--tool", "dying_tools:send", "--session", "letters"]
    died = subprocess.run(command, env={**os.environ, "DIES": "1"}, capture_output=True, text=True, check=False)
    assert died.returncode == 9, died.stderr
    refused = invoke("run", "another task", "--model", model, "--session", "letters")
    assert refused.exit_code == 2
    assert "has not ended: agent-monitor sessions resume letters goes on with it" in refused.output
    went_on = invoke("sessions", "resume", "letters")
    assert went_on.exit_code == 0, went_on.output
    assert "agent-monitor sessions resume letters: replay:run.jsonl; tools send" in went_on.output
    assert "user Write to Ada" in went_on.output
    assert "The outcome of this call is unknown" in went_on.output
    assert "All is done." in went_on.output
    assert sent() == ["Ada"]
    over = invoke("sessions", "resume", "letters")
    assert over.exit_code == 2
    assert "the last run of letters is over (goal: the model gave its answer)" in over.output


def test_everything_that_was_asked_is_stored_and_asked_again(tmp_path: Path, place: Path):
    Path("told.md").write_text("Be brief, ${name}.")
    Path("steps.md").write_text("# Letters\n- write\n- send\n")
    Path("agent-monitor.toml").write_text('detectors = ["ToolCallRepetition"]\n')
    options = {
        "--instructions": "@told.md", "--var": "name=Bob", "--tool": "kept_tools:look", "--plan": "steps.md",
        "--output": "answer:str", "--setting": "top_p=0.5", "--temperature": "0.3", "--max-turns": "1",
        "--timeout": "77", "--idle-timeout": "9", "--max-tool-calls": "8", "--budget-tokens": "900000",
        "--price": "1,2", "--last-turn": "off", "--max-nudges": "1", "--policy": "stop", "--window": "100000",
        "--approval": "yolo", "--compaction": "pi", "--set": "ToolCallRepetition.loop_at=7",
    }  # fmt: skip
    model = recorded([call("look", q="a")], SENDS[1])
    given = [word for option in options.items() for word in option]
    assert invoke("run", "do it", "--model", model, "--session", "all", *given).exit_code == 3
    with SessionReader(place / "all.session") as session:
        asked = arguments_in(session)
    assert asked is not None
    assert asked == RunArguments(
        folder=str(tmp_path), model=model, outputs=("answer:str",), instructions="Be brief, ${name}.",
        variables={"name": "Bob"}, tools=("kept_tools:look",), approval="yolo", steps=("write", "send"),
        title="Letters", model_settings={"temperature": 0.3, "top_p": 0.5}, max_turns="1", timeout="77",
        idle_timeout="9", max_tool_calls=8, budget_tokens=900_000, price="1,2", last_turn="off", max_nudges=1,
        settings={
            "detectors": ["ToolCallRepetition"], "policy": {"type": "stop"}, "compaction": {"preset": "pi"},
            "ToolCallRepetition": {"loop_at": 7},
        },
        window=100_000,
    )  # fmt: skip
    Path("told.md").unlink()
    Path("agent-monitor.toml").unlink()
    went_on = invoke("sessions", "resume", "all", "--json")
    started = json.loads(went_on.output.splitlines()[0])
    assert (started["type"], started["detectors"]) == ("run_started", ["tool_call_repetition"])
    assert started["stop_when"] == "(max_turns | max_tool_calls | timeout | idle_timeout)"


def test_a_run_that_waits_for_an_approval_is_taken_up_on_a_terminal(monkeypatch: pytest.MonkeyPatch, place: Path):
    model = recorded(*SENDS)
    options = ["--model", model, "--tool", "kept_tools:send", "--approval", "default", "--session", "asks"]
    waits = invoke("run", "Write to Ada", *options)
    assert waits.exit_code == 8, waits.output
    assert "waits for an approval" in waits.output
    assert "agent-monitor sessions resume asks goes on with it" in waits.output
    assert sent() == []
    still = invoke("sessions", "resume", "asks")
    assert still.exit_code == 8
    monkeypatch.setattr(
        "monitor.cli.commands.run.approver",
        lambda: monitor.tools.TerminalApprover(read=lambda _: "y", now=count().__next__),
    )
    done = invoke("sessions", "resume", "asks")
    assert done.exit_code == 0, done.output
    assert sent() == ["Ada"]
    with SessionReader(place / "asks.session") as session:
        assert [one.answer and one.answer.decision for one in session.approvals()] == ["approved"]


@pytest.mark.parametrize("ending", [["--max-turns", "1"], ["--timeout", "0.000001"]])
def test_a_run_that_a_limit_has_ended_goes_on_with_limits_that_count_anew(ending: list[str]):
    model = recorded(*SENDS)
    first = invoke(
        "run", "x", "--model", model, "--tool", "kept_tools:send", "--last-turn", "off", "--session", "s", *ending
    )
    assert first.exit_code == 3
    again = invoke("sessions", "resume", "s")
    assert again.exit_code == (0 if ending[0] == "--max-turns" else 3), again.output


def test_another_model_may_go_on():
    first = recorded(*SENDS[:1])
    assert invoke("run", "x", "--model", first, "--tool", "kept_tools:send", "--session", "s").exit_code == 6
    other = recorded(SENDS[1], name="other.jsonl")
    assert invoke("sessions", "resume", "s", "--model", other).exit_code == 0


def test_it_goes_on_in_the_folder_where_it_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model = recorded(*SENDS)
    options = ["--model", model, "--tool", "kept_tools:send", "--max-turns", "1", "--last-turn", "off"]
    assert invoke("run", "x", *options, "--session", "s").exit_code == 3
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert invoke("sessions", "resume", "s").exit_code == 0


def test_a_conversation_goes_on_with_another_task(place: Path):
    model = recorded([monitor.chunks.TextDelta("One.")])
    assert invoke("run", "first", "--model", model, "--session", "talk").exit_code == 0
    assert invoke("run", "second", "--model", model, "--session", str(place / "talk.session")).exit_code == 0
    with SessionReader(place / "talk.session") as session:
        assert len(session.context().messages) == 4
        assert len(session.runs()) == 2


# ---------------------------------------------------------------------- what is refused


def said(*arguments: str) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert result.output.startswith("agent-monitor: ")
    return result.output


@pytest.mark.parametrize("command", ["resume", "replay"])
def test_a_session_that_cannot_be_read_is_one_sentence_and_stays_as_it_is(command: str, place: Path):
    by_program(place / "whole.session", "Done.")
    whole = (place / "whole.session").read_bytes()
    (place / "garbage.session").write_bytes(b"hello " * 100)
    (place / "half.session").write_bytes(whole[:5000])
    (place / "newer.session").write_bytes(whole)
    with sqlite3.connect(place / "newer.session") as connection:
        connection.execute("PRAGMA user_version=99")
    connection.close()
    before = {one.name: one.read_bytes() for one in place.glob("*.session")}
    assert "file is not a database. The file was not changed" in said("sessions", command, "garbage")
    assert "malformed. The file was not changed" in said("sessions", command, "half")
    assert f"has format 99, and this version knows formats up to {FORMAT}: update agent-monitor" in said(
        "sessions", command, "newer"
    )
    assert "there is no session 'nothing'" in said("sessions", command, "nothing")
    assert "there is no session gone/x.session" in said("sessions", command, "gone/x.session")
    assert {one.name: one.read_bytes() for one in place.glob("*.session")} == before


def test_a_session_in_use_is_refused_and_a_run_of_a_program_is_for_the_program(place: Path):
    model = recorded(*SENDS)
    options = ["--model", model, "--tool", "kept_tools:send", "--last-turn", "off", "--session", "s"]
    assert invoke("run", "x", *options, "--max-turns", "1").exit_code == 3
    lock = OwnerLock(lock_path(place / "s.session"), "s")
    lock.acquire()
    try:
        assert "the session s is in use by" in said("sessions", "resume", "s")
        assert "the session s is in use by" in said("run", "y", *options)
    finally:
        lock.release()
    by_program(place / "own.session", call("gone"), "x", stop_when=monitor.MaxTurns(1), last_turn=None)
    assert "was begun by a program, which has its tools: there, supervisor.resume(session)" in said(
        "sessions", "resume", "own"
    )


def test_a_folder_that_is_gone_and_a_wrong_name_of_a_session_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    model = recorded([call("look", q="a")], name=str(tmp_path / "run.jsonl"))
    options = ["--model", model, "--max-turns", "1", "--last-turn", "off"]
    assert invoke("run", "x", *options, "--session", "s").exit_code == 3
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work").rmdir()
    assert "where the run was begun: No such file or directory" in said("sessions", "resume", "s")
    assert "it becomes the name of a file" in said("run", "x", *options, "--session", ".hidden")
    assert "in a folder that exists" in said("run", "x", *options, "--session", "nowhere/x.session")
