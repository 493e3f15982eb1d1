"""`agent-monitor run --workspace --approval`: a model that works on files, from the shell."""

from __future__ import annotations

import io
import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import monitor
from monitor.adapters.replay_model import RecordedChunk, write_chunks
from monitor.chunks import Chunk, TextDelta, ToolCall, TurnFinished
from monitor.cli.app import app
from monitor.cli.options import supervisor_arguments
from tests.processes import nothing_left  # noqa: F401 - a fixture

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.feature("GT-01")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("old\n")
    return tmp_path / "work"


def run(folder: Path, *options: str) -> dict[str, Any]:
    """The results of the calls by tool, of a model that reads, edits and runs a command."""
    calls = [
        ToolCall("c1", "read_file", {"path": "a.txt"}),
        ToolCall("c2", "edit", {"path": "a.txt", "old": "old", "new": "new"}),
        ToolCall("c3", "shell", {"command": "cat a.txt; sleep 100 &"}),
        ToolCall("c4", "read_file", {"path": "../secret"}),
    ]
    done = TurnFinished(monitor.FinishReason.DONE)
    recording = folder.parent / "run.jsonl"
    chunks: list[Chunk] = [*calls, done, TextDelta("Done."), done]
    write_chunks(recording, [RecordedChunk(0.0, chunk) for chunk in chunks])
    arguments = ["run", "x", "--model", f"replay:{recording}", "--workspace", str(folder), "--json", *options]
    ended = CliRunner().invoke(app, arguments)
    assert ended.exit_code == 0, ended.output
    events = [json.loads(line) for line in ended.stdout.splitlines()]
    return {event["result"]["id"]: event["result"] for event in events if event["type"] == "tool_finished"}


def test_with_nobody_at_the_terminal_only_reads_run(folder: Path):
    results = run(folder)
    assert results["c1"]["text"] == "old"
    assert [results[id].get("error_kind") for id in ("c2", "c3")] == ["denied", "denied"]
    assert results["c4"]["error_kind"] == "outside_workspace"
    assert (folder / "a.txt").read_text() == "old\n"


def test_edits_and_commands_run_where_the_mode_says_so(folder: Path):
    results = run(folder, "--approval", "yolo", "--sandbox", "off")
    assert (folder / "a.txt").read_text() == "new\n"
    assert results["c3"]["text"].startswith("exit code 0")
    assert "1 background process: " in results["c3"]["text"]
    assert results["c3"]["text"].endswith("new")


def test_edits_may_run_while_commands_are_asked_for(folder: Path):
    results = run(folder, "--approval", "auto_edit")
    assert (folder / "a.txt").read_text() == "new\n"
    assert results["c3"]["error_kind"] == "denied"


def test_the_settings_say_what_runs_and_an_option_overrides_them(folder: Path):
    config = folder / "agent-monitor.toml"
    config.write_text(
        'max_parallel_tools = 1\n[approval]\nmode = "yolo"\n[[approval.rules]]\ntool = "edit"\ndecision = "deny"'
    )
    results = run(folder, "--config", str(config), "--sandbox", "off")
    assert [results[id].get("error_kind") for id in ("c2", "c3")] == ["denied", None]
    results = run(folder, "--config", str(config), "--approval", "plan")
    assert [results[id].get("error_kind") for id in ("c2", "c3")] == ["denied", "denied"]
    (folder / "rules.toml").write_text('[[rules]]\ntool = "shell"\ndecision = "deny"')
    results = run(folder, "--config", str(config), "--approval", str(folder / "rules.toml"), "--sandbox", "off")
    assert [results[id].get("error_kind") for id in ("c2", "c3")] == [None, "denied"]


def test_a_yes_on_the_terminal_lets_a_call_run(folder: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []

    def read(prompt: str) -> str:
        asked.append(prompt)
        return "y"

    monkeypatch.setattr(
        supervisor_arguments,
        "approver",
        lambda: monitor.tools.TerminalApprover(read=read, write=asked.append, now=count().__next__),
    )
    monkeypatch.setattr("monitor.cli.commands.run.approver", supervisor_arguments.approver)
    run(folder)
    assert (folder / "a.txt").read_text() == "new\n"
    said = "\n".join(asked)
    assert "May edit be called?" in said
    assert "  -old\n  +new" in said  # what it would change


def test_the_prompt_of_a_question_is_not_among_the_json_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    assert supervisor_arguments._line("May it? ") == "yes"
    with pytest.raises(EOFError):
        supervisor_arguments._line("And now? ")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "May it? And now? ")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--workspace", "nowhere"], "nowhere"),
        (["--approval", "always"], "give default, auto_edit, yolo, plan, or a .toml file"),
        (["--approval", "missing.toml"], "missing.toml"),
    ],
)
def test_options_that_make_no_sense_are_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], says: str
):
    monkeypatch.chdir(folder)
    ended = CliRunner().invoke(app, ["run", "--demo", *options])
    assert ended.exit_code == 2
    assert says in ended.output
