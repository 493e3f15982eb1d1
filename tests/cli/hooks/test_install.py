"""`agent-monitor hook AGENT --install`: an entry is added to an agent, and taken out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from monitor.cli.app import app
from monitor.cli.hooks.agents import HOOKS

FOREIGN = {"matcher": "Bash", "hooks": [{"type": "command", "command": "my-check hook claude-code"}]}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for one in HOOKS.values():
        (tmp_path / one.file).parent.mkdir()
    return tmp_path


def invoke(*arguments: str, code: int = 0) -> Any:
    done = CliRunner().invoke(app, ["hook", *arguments])
    assert done.exit_code == code, done.output
    return done


@pytest.mark.parametrize("agent", HOOKS)
def test_a_hook_is_installed_where_the_agent_reads_it_and_asks_the_agent_monitor(agent: str, home: Path):
    done = invoke(agent, "--install", "--on-loop", "deny")
    known, file = HOOKS[agent], home / HOOKS[agent].file
    entry = json.loads(file.read_text())["hooks"][known.before][0]["hooks"][0]
    assert entry["command"].endswith(f"hook {agent} --on-loop deny")
    assert entry["timeout"] == known.timeout
    assert '+      "hooks": [' in done.stdout.replace("        ", "      ")
    assert str(file) in done.stdout
    assert not list(file.parent.glob("*.before*"))  # there was no file to keep


@pytest.mark.parametrize("agent", HOOKS)
def test_what_stood_there_stays_and_comes_back(agent: str, home: Path):
    file, known = home / HOOKS[agent].file, HOOKS[agent]
    before = json.dumps({"theme": "dark", "hooks": {known.before: [FOREIGN], "Stop": []}}, indent=4)
    file.write_text(before)
    file.chmod(0o640)
    invoke(agent, "--install", "--on-loop", "stop")
    there = json.loads(file.read_text())
    assert there["theme"] == "dark"
    assert there["hooks"][known.before][0] == FOREIGN
    assert len(there["hooks"][known.before]) == 2
    assert file.stat().st_mode & 0o777 == 0o640
    assert (file.parent / f"{file.name}.before-agent-monitor").read_text() == before
    invoke(agent, "--uninstall")
    assert json.loads(file.read_text()) == json.loads(before)
    assert (file.parent / f"{file.name}.before-agent-monitor-2").exists()


def test_a_second_installation_replaces_the_first_and_an_equal_one_changes_nothing(home: Path):
    invoke("claude-code", "--install", "--on-loop", "stop")
    invoke("claude-code", "--install", "--on-loop", "deny")
    file = home / HOOKS["claude-code"].file
    hooks = json.loads(file.read_text())["hooks"]
    assert list(hooks) == ["PreToolUse"]
    assert len(hooks["PreToolUse"]) == 1
    before = file.stat().st_mtime_ns
    assert "nothing to change" in invoke("claude-code", "--install", "--on-loop", "deny").stdout
    assert file.stat().st_mtime_ns == before


def test_without_a_hook_nothing_is_taken_out(home: Path):
    file = home / HOOKS["codex"].file
    file.write_text('{"a":   1}')
    assert "nothing to change" in invoke("codex", "--uninstall").stdout
    assert file.read_text() == '{"a":   1}'


def test_a_file_behind_a_link_is_changed_and_the_link_stays(home: Path, tmp_path_factory: pytest.TempPathFactory):
    real = tmp_path_factory.mktemp("dotfiles") / "settings.json"
    real.write_text("{}")
    file = home / HOOKS["gemini-cli"].file
    file.symlink_to(real)
    invoke("gemini-cli", "--install")
    assert file.is_symlink()
    assert "BeforeTool" in real.read_text()


@pytest.mark.parametrize(
    "text", ["{ // a comment\n}", "[1]", '{"hooks": 3}', '{"hooks": {"PreToolUse": "x"}}'], ids=range(4)
)
def test_settings_that_are_not_understood_stay_as_they_are(text: str, home: Path):
    file = home / HOOKS["claude-code"].file
    file.write_text(text)
    assert "nothing was changed" in invoke("claude-code", "--install", code=2).stderr
    assert file.read_text() == text


def test_an_agent_that_is_not_there_and_contradictions_are_said(home: Path):
    assert "is codex installed?" in invoke("codex", "--install", "--file", "nowhere/hooks.json", code=2).stderr
    assert "give one of them" in invoke("codex", "--install", "--uninstall", code=2).stderr
    assert "--file is for" in invoke("codex", "--file", "x", code=2).stderr


def test_another_file_is_named(home: Path):
    (home / "project").mkdir()
    invoke("claude-code", "--install", "--file", "project/settings.json")
    assert "PreToolUse" in (home / "project" / "settings.json").read_text()
    assert not (home / HOOKS["claude-code"].file).exists()
