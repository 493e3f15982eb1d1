"""Nothing steers the terminal, whoever wrote it: every command with hostile names, contents, errors
and settings.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from monitor._util.printable import printable_json
from monitor.cli.app import app
from monitor.cli.render import output

HOSTILE = "\x1b[31m\x1b]0;title\x07\x9b2J\u202e\u2066\u200b\u200d\u00ad\ufeff\u2028\U000e0041\x7f\x08\r"
"""Controls of C0 and C1, marks of direction, characters of no width, line separators, a tag,
delete.
"""
SURROGATE = "\ud800"
STEERS = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def steering(text: str) -> set[str]:
    return {char for char in text if char != "\n" and category(char) in STEERS}


@given(st.text(alphabet=st.characters(codec=None), max_size=40))
def test_no_character_that_steers_is_left_and_the_others_are(text: str):
    shown = output.printable(text)
    assert steering(shown) == set()
    if not steering(text):
        assert shown == text


def test_every_character_of_unicode_that_steers_is_escaped():
    everyone = "".join(map(chr, range(sys.maxunicode + 1)))
    assert not steering(output.printable(everyone))
    everyone = "x".join(everyone)  # two surrogates beside each other are one character for JSON
    written = printable_json(json.dumps(everyone, ensure_ascii=False))
    assert json.loads(written) == everyone
    assert not steering(written)


def test_what_nobody_made_printable_is_so_where_it_leaves(capsys: pytest.CaptureFixture[str]):
    console = output.stdout()
    console.print(HOSTILE)
    console.print(HOSTILE + SURROGATE, soft_wrap=True)
    output.card(console, HOSTILE, [(HOSTILE, HOSTILE)], style="red")
    output.heading(console, HOSTILE)
    output.complain(output.stderr(), f"{HOSTILE}\nagent-monitor: all is well")
    shown = capsys.readouterr()
    assert steering(shown.out + shown.err) == set()
    assert len(shown.err.splitlines()) == 1


def test_on_a_terminal_only_rich_s_own_codes_are_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("FORCE_COLOR", "1")
    output.stdout().print(f"[{HOSTILE}]", style="red")
    shown = capsys.readouterr().out
    assert shown.count("\x1b") == 2
    assert steering(shown) == {"\x1b"}


# ------------------------------------------------------------------ every command

CALL = {"name": HOSTILE, "args": {HOSTILE: HOSTILE}}
RUN = {
    "id": HOSTILE + SURROGATE,
    "model": HOSTILE,
    "label": "loop",
    "loop": {"kind": HOSTILE, "turn": 1, "turn_3": 5, "turn_5": 9},
    "messages": [
        {"role": "user", "text": HOSTILE},
        *[
            {"role": "assistant", "text": HOSTILE, "tool_calls": [CALL]},
            {"role": "tool", "tool_results": [{"name": HOSTILE, "text": HOSTILE}]},
        ]
        * 12,
    ],
}
CHANT = {"id": "chant", "messages": [{"role": "assistant", "text": f"{HOSTILE} again and again it goes. " * 60}]}
CHAT = [
    {"role": "user", "content": HOSTILE + SURROGATE},
    {
        "role": "assistant",
        "content": HOSTILE,
        "tool_calls": [{"id": HOSTILE, "type": "function", "function": {"name": HOSTILE, "arguments": "{"}}],
    },
    {"role": "tool", "tool_call_id": f"{HOSTILE}x", "content": HOSTILE},
]
CHUNKS = [
    {"type": "text_delta", "text": HOSTILE},
    {"type": "reasoning_delta", "text": HOSTILE},
    {"type": "tool_call", "id": HOSTILE, "name": HOSTILE, "arguments": {HOSTILE: HOSTILE}},
    {"type": "tool_call", "id": "2", "name": "fails", "arguments": {}},
    {"type": "tool_call", "id": "3", "name": "says", "arguments": {}},
    {"type": "turn_finished", "finish_reason": "done", "raw_finish_reason": HOSTILE},
    {"type": "text_delta", "text": "done"},
    {"type": "turn_finished", "finish_reason": "done"},
]
TOOLS = f"""
HOSTILE = {HOSTILE!r}
def fails() -> str:
    raise ValueError(HOSTILE)
def says() -> str:
    return HOSTILE
"""
REPLY = json.dumps({"unproductive_state_analysis": HOSTILE, "unproductive_state_confidence": 0.95})
JUDGE = [{"type": "text_delta", "text": REPLY}, {"type": "turn_finished", "finish_reason": "done"}]


def lines(records: Sequence[object]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything in it is hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    name = HOSTILE.replace("/", "")
    (folder / "runs.jsonl").write_text(lines([RUN, CHANT]))
    (folder / f"runs{name}.jsonl").write_text(lines([RUN, {"id": HOSTILE}, {HOSTILE: 1}]))
    (folder / "chat.json").write_text(json.dumps({"model": HOSTILE, "messages": CHAT}))
    (folder / f"chat{name}.json").write_text(json.dumps(CHAT))
    (folder / "chunks.jsonl").write_text(lines(CHUNKS))
    (folder / f"bad{name}.jsonl").write_text(
        lines([{"type": HOSTILE, HOSTILE: HOSTILE}, {"role": HOSTILE, HOSTILE: 2}])
    )
    (folder / "judge.jsonl").write_text(lines(JUDGE * 9))
    (folder / "hostile_tools.py").write_text(TOOLS)
    (folder / "hostile_module.py").write_text(f"raise RuntimeError({HOSTILE!r})\n")
    (folder / "hostile.toml").write_text(f"[tools.{json.dumps(HOSTILE)}]\npolling = true\n")
    (folder / "wrong.toml").write_text(f"[{json.dumps(HOSTILE)}]\nx = 1\n")
    (folder / "plan.txt").write_text(f"# {HOSTILE}\n- {HOSTILE}\n")
    return folder


NAME = HOSTILE.replace("/", "")
COMMANDS: list[tuple[str, ...]] = [
    ("scan", "runs.jsonl"),
    ("scan", "--all", "--explain", "--policy", "ladder", "runs.jsonl", f"runs{NAME}.jsonl"),
    ("scan", "--json", "--explain", "runs.jsonl"),
    ("scan", f"missing{NAME}"),
    ("scan", f"bad{NAME}.jsonl"),
    ("scan", "--config", "hostile.toml", "runs.jsonl"),
    ("scan", "--config", "wrong.toml", "runs.jsonl"),
    ("scan", "--config", f"missing{NAME}.toml", "runs.jsonl"),
    ("scan", "--set", f"{NAME}=1", "runs.jsonl"),
    ("scan", "--detectors", NAME, "runs.jsonl"),
    ("scan", "--policy", NAME, "runs.jsonl"),
    ("scan", "--judge", "replay:judge.jsonl", "--judge-from", "5", "--explain", "runs.jsonl"),
    ("scan", "--judge", f"replay:bad{NAME}.jsonl", "runs.jsonl"),
    ("scan", f"--{NAME}"),
    ("scan", "--limit", NAME, "runs.jsonl"),
    (NAME,),
    ("calibrate", "judge-eval", "--judge", "replay:judge.jsonl", "runs.jsonl", f"runs{NAME}.jsonl"),
    ("calibrate", "judge-eval", "--judge", NAME, "runs.jsonl"),
    ("sessions", "context", "chat.json"),
    ("sessions", "context", "--json", "chat.json"),
    ("sessions", "context", f"bad{NAME}.jsonl"),
    ("sessions", "context", f"missing{NAME}"),
    ("sessions", "context", "--form", NAME, "chat.json"),
    ("sessions", "context", "--model", f"google:{NAME}", "chat.json"),
    ("sessions", "compact", "chat.json", "--show", "--window", "20000"),
    ("sessions", "compact", f"chat{NAME}.json", "--json", "--out", f"out{NAME}.json"),
    ("sessions", "compact", "chat.json", "--preset", NAME),
    ("sessions", "compact", "chat.json", "--out", f"nowhere{NAME}/x"),
    ("doctor", "--config", "hostile.toml"),
    ("doctor", "--json", "--config", "hostile.toml"),
    ("doctor", "--config", "wrong.toml"),
    ("demo", "--prompt", NAME),
    (
        "run",
        HOSTILE,
        "--model",
        "replay:chunks.jsonl",
        "--tool",
        "hostile_tools:fails",
        "--tool",
        "hostile_tools:says",
        "--verbose",
    ),
    (
        "run",
        HOSTILE,
        "--model",
        "replay:chunks.jsonl",
        "--tool",
        "hostile_tools:fails",
        "--output",
        f"{NAME}:str",
        "--max-turns",
        "2",
    ),
    ("run", HOSTILE, "--model", "replay:chunks.jsonl", "--tool", "hostile_tools:says", "--json", "--verbose"),
    ("run", "x", "--model", "replay:chunks.jsonl", "--plan", "plan.txt", "--max-turns", "2"),
    ("run", "x", "--model", f"replay:bad{NAME}.jsonl"),
    ("run", "x", "--model", NAME),
    ("run", "x", "--model", "google:x", "--base-url", NAME),
    ("run", "x", "--demo", "--tool", "hostile_module:x"),
    ("run", "x", "--demo", "--tool", f"hostile_tools:{NAME}"),
    ("run", "x", "--demo", "--tool", NAME),
    ("run", "x", "--demo", "--output", NAME),
    ("run", "x", "--demo", "--instructions", f"@missing{NAME}"),
    ("run", "x", "--demo", "--log", f"nowhere{NAME}/x"),
    ("run", "x", "--demo", "--max-turns", NAME),
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: ascii(" ".join(arguments))[1:60])
def test_no_command_prints_what_steers(arguments: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    done = CliRunner().invoke(app, list(arguments))
    assert isinstance(done.exception, SystemExit | None), done.exception
    assert done.output
    assert steering(done.stdout) == set()
    assert steering(done.stderr) == set()


def test_a_name_that_is_no_text_reaches_no_terminal(tmp_path: Path):
    """A file's name is bytes; Python makes lone surrogates of those that are no text."""
    name = tmp_path / os.fsdecode(b"runs\xff\x1b[2J.jsonl")
    name.write_text(json.dumps(CHANT))
    done = subprocess.run(
        [sys.executable, "-m", "monitor.cli", "scan", name, name], capture_output=True, timeout=250, check=False
    )
    assert done.returncode == 1
    assert b"\x1b" not in done.stdout + done.stderr


BUG = f"""
import sys, logging, warnings
from monitor.cli import main
from monitor.cli.commands import doctor
def broken(*_):
    logging.getLogger("x").warning("%s", {HOSTILE!r})
    warnings.warn({HOSTILE!r})
    raise RuntimeError({HOSTILE!r})
doctor.loops = broken
sys.argv = ["agent-monitor", "doctor"]
main()
"""


def test_tracebacks_warnings_and_log_lines_do_not_steer_either_and_a_bug_is_no_finding():
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", BUG], capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 70
    assert "RuntimeError: " in done.stderr
    assert "UserWarning: " in done.stderr
    assert steering(done.stderr) == set()
