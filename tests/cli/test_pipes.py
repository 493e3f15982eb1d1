"""The exit code is the verdict, wherever the output goes; and the shell completes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from monitor.cli.app import app
from tests.cli.forked import Forking

COMMAND = [sys.executable, "-m", "monitor.cli"]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    call = {"role": "assistant", "text": "", "tool_calls": [{"name": "look", "args": {"at": "door"}}]}
    result = {"role": "tool", "tool_results": [{"name": "look", "text": "closed"}]}
    stuck = [{"id": f"stuck {n}", "messages": [*[call, result] * 7]} for n in range(60)]
    fine = [{"id": f"fine {n}", "messages": [{"role": "assistant", "text": "done"}]} for n in range(600)]
    (tmp_path / "stuck.jsonl").write_text("".join(json.dumps(run) + "\n" for run in stuck))
    (tmp_path / "fine.jsonl").write_text("".join(json.dumps(run) + "\n" for run in fine))
    (tmp_path / "chat.json").write_text(json.dumps([{"role": "user", "content": "hi"}]))
    return tmp_path


COMMANDS: list[tuple[tuple[str, ...], int]] = [
    (("scan", "--all", "fine.jsonl"), 0),
    (("scan", "--json", "--all", "fine.jsonl"), 0),
    (("scan", "stuck.jsonl"), 1),
    (("scan", "--explain", "stuck.jsonl"), 1),
    (("scan", "--json", "stuck.jsonl"), 1),
    (("scan", "chat.json"), 2),
    (("sessions", "context", "chat.json"), 0),
    (("sessions", "context", "--json", "chat.json"), 0),
    (("sessions", "compact", "chat.json", "--json"), 1),
    (("doctor",), 0),
    (("--version",), 0),
]


@pytest.fixture(scope="module")
def forking() -> Iterator[Forking]:
    with Forking() as forking:
        yield forking


@pytest.mark.parametrize(
    ("arguments", "code"), COMMANDS, ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_the_code_is_the_same_when_nobody_reads(arguments: tuple[str, ...], code: int, runs: Path, forking: Forking):
    read, write = os.pipe()
    os.close(read)
    try:
        ended, complaints = forking.run(arguments, runs, write)
    finally:
        os.close(write)
    assert ended == code
    assert b"Traceback" not in complaints
    assert b"Exception ignored" not in complaints


def test_the_same_of_a_process_that_was_started_and_not_forked(runs: Path):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, "scan", "--json", "stuck.jsonl"],
        cwd=runs,
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=250,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk here")
@pytest.mark.parametrize("arguments", [("scan", "--json", "--all", "fine.jsonl"), ("run", "--demo")], ids=" ".join)
def test_an_output_that_cannot_be_written_is_one_sentence(arguments: tuple[str, ...], runs: Path, forking: Forking):
    with Path("/dev/full").open("wb") as full:
        ended, complaints = forking.run(arguments, runs, full.fileno())
    assert ended == 2
    assert complaints.decode() == "agent-monitor: the output cannot be written: No space left on device\n"


# ------------------------------------------------------------------ completion


def completed(words: str, shell: str = "bash") -> list[str]:
    environment = {
        "_AGENT_MONITOR_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    done = CliRunner().invoke(app, [], env=environment, prog_name="agent-monitor")
    assert done.stderr == ""
    return done.stdout.split()


def test_the_shell_completes_commands_and_options():
    assert set(completed("agent-monitor ")) >= {"scan", "run", "doctor", "demo", "sessions"}
    assert completed("agent-monitor sc") == ["scan"]
    assert completed("agent-monitor scan --exp") == ["--explain"]


def test_completion_is_shown_and_installed_for_the_shell_at_hand(tmp_path: Path):
    def run(option: str) -> subprocess.CompletedProcess[str]:
        program = "import sys; sys.argv[0] = 'agent-monitor'; from monitor.cli import main; main()"
        environment = {**os.environ, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
        command = [sys.executable, "-c", program, option, "bash"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250, check=False)

    shown = run("--show-completion")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "complete -o default -F _agent_monitor_completion agent-monitor" in shown.stdout
    assert run("--install-completion").returncode == 0
    assert "agent-monitor" in (tmp_path / ".bashrc").read_text()
