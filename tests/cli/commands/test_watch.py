"""`agent-monitor watch`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from monitor.cli.app import app

ASK = {"role": "user", "content": "Tidy up."}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def lines(number: int, first: int = 0) -> str:
    messages: list[dict[str, Any]] = [] if first else [ASK]
    for at in range(first, number):
        call = {"id": f"c{at}", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{at}", "content": "permission\x1b denied"})
    return "".join(json.dumps(message) + "\n" for message in messages)


def watch(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["watch", *arguments])


def test_a_loop_that_was_there_is_said_but_did_not_begin(tmp_path: Path):
    (tmp_path / "s.jsonl").write_text(lines(6))
    done = watch("s.jsonl", "--for", "0s")
    assert done.exit_code == 0
    done = watch("s.jsonl", "--for", "1s", "--interval", "0.05", "--bell")
    assert done.exit_code == 0
    assert "already there: ls was called 5 times" in done.stdout
    assert "\a" not in done.stderr


@contextmanager
def following(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, when it has begun to follow."""
    command = [sys.executable, "-m", "monitor.cli", "watch", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as done:
        assert done.stdout is not None
        try:
            assert "followed" in done.stdout.readline()
            yield done
        finally:
            done.kill()


def test_a_loop_that_begins_is_one_line_with_what_is_repeated_and_its_result_and_rings(tmp_path: Path):
    folder = tmp_path / "sessions"
    folder.mkdir()
    with following("sessions", "--bell", "--until-loop", "--interval", "0.05") as done:
        (tmp_path / "half").write_text(lines(6))
        (tmp_path / "half").replace(folder / "s.jsonl")
        out, err = done.communicate(timeout=250)
    assert done.returncode == 1
    (line,) = out.splitlines()
    assert "a loop begins: ls was called 5 times" in line
    assert "repeated: ls({})" in line
    assert "result: permission\\x1b denied" in line
    assert "\a" in err


def test_ctrl_c_ends_it_quietly_with_130(tmp_path: Path):
    (tmp_path / "s.jsonl").write_text(lines(1))
    with following("s.jsonl") as done:
        done.send_signal(signal.SIGINT)
        _, err = done.communicate(timeout=250)
    assert (done.returncode, err) == (130, "")


@pytest.mark.parametrize("given", ["missing.jsonl", "missing/*.jsonl"])
def test_nothing_to_follow_is_2(given: str):
    assert watch(given, "--for", "1s").exit_code == 2


def test_a_named_file_that_is_no_transcript_is_2(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("hello")
    done = watch("notes.txt", "--for", "1s")
    assert done.exit_code == 2
    assert "no transcript of a known format" in done.stderr


def test_json_is_an_object_a_loop(tmp_path: Path):
    (tmp_path / "s.jsonl").write_text(lines(6))
    done = watch("s.jsonl", "--json", "--for", "1s", "--interval", "0.05")
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [(one["type"], one["before"], one["detection"]["kind"]) for one in found] == [
        ("loop", True, "identical_calls")
    ]


def test_a_time_that_is_none_is_refused(tmp_path: Path):
    (tmp_path / "s.jsonl").write_text(lines(1))
    assert watch("s.jsonl", "--for", "soon").exit_code == 2


@pytest.mark.feature("US-01")
def test_a_judge_sees_a_loop_that_no_detector_sees(tmp_path: Path):
    (tmp_path / "s.jsonl").write_text(lines(12))
    reply = json.dumps({"analysis": "The same page.", "confidence": 0.8})
    said = [{"type": "text_delta", "text": reply}, {"type": "turn_finished", "finish_reason": "done"}]
    (tmp_path / "replies.jsonl").write_text("".join(json.dumps(one) + "\n" for one in said * 2))
    options = ("s.jsonl", "--for", "1s", "--interval", "0.05", "--set", "detectors=[]")
    assert "already there" not in watch(*options).stdout
    done = watch(*options, "--judge", "replay:replies.jsonl")
    assert "already there: replay:replies.jsonl is 80% sure that the run is stuck" in done.stdout
