"""Nothing that was not read passes for a run without a loop."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from monitor.cli.app import app

SAMPLES = Path(__file__).parents[3] / "fixtures" / "readers"
CLAUDE = SAMPLES / "claude-code" / "bd937e2a-89e9-4d7b-8125-293a35863fa4.jsonl"
CODEX = SAMPLES / "codex" / "rollout-hooked-0.169.jsonl"
GEMINI = SAMPLES / "gemini-cli" / "gemini-cli-jsonl-v040.jsonl"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def scan(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["scan", "--json", *arguments])


def summary(done: Any) -> dict[str, Any]:
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def lines_of(path: Path) -> list[bytes]:
    return (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).splitlines(keepends=True)


@pytest.mark.parametrize(
    ("sample", "own"),
    [(CLAUDE, b"bd937e2a"), (CODEX, b"01a202e3-7546"), (GEMINI, None)],
    ids=["claude", "codex", "gemini"],
)
def test_a_second_session_in_one_file_is_counted_as_not_read(sample: Path, own: bytes | None, tmp_path: Path):
    data = sample.read_bytes()
    if own is None:
        session = json.loads(lines_of(sample)[0])["sessionId"].encode()
        other = data.replace(session, b"other-" + session)
    else:
        other = data.replace(own, own[::-1]).replace(b'"uuid":"', b'"uuid":"9')
    file = tmp_path / sample.name
    file.write_bytes(data.rstrip(b"\n") + b"\n" + other)
    done = scan(str(file))
    assert done.exit_code == (1 if summary(done)["loops"] else 2)
    assert "record of another session" in done.stderr
    assert summary(done)["unreadable"] > 1


def test_records_of_another_format_are_counted_as_not_read(tmp_path: Path):
    file = tmp_path / CLAUDE.name
    file.write_bytes(CLAUDE.read_bytes() + CODEX.read_bytes())
    done = scan(str(file))
    assert done.exit_code == 2
    assert summary(done)["unreadable"] >= len(lines_of(CODEX)) / 2


def test_a_first_line_without_end_is_no_all_clear(home: Path):
    folder = home / ".claude/projects/p"
    folder.mkdir(parents=True)
    (folder / "s.jsonl").write_bytes(b'{"type": "user", "x": "' + b"a" * 5_000_000)
    (folder / CLAUDE.name).write_bytes(CLAUDE.read_bytes())
    done = scan()
    assert done.exit_code == 2
    assert "its first line is longer than 4 MB" in done.stderr


def test_a_home_with_a_few_torn_lines_is_healthy(home: Path):
    folder = home / ".claude/projects/p"
    folder.mkdir(parents=True)
    lines = lines_of(CLAUDE) * 2
    lines[5:5] = [b'{"type": "assist\n']
    (folder / CLAUDE.name).write_bytes(b"".join(lines))
    done = scan()
    assert done.exit_code == 0
    assert (summary(done)["torn_lines"], summary(done)["unreadable"]) == (1, 0)
    assert f"{CLAUDE.name}:6: not JSON" in done.stderr


def test_the_same_torn_line_in_a_file_that_was_named_is_no_all_clear(tmp_path: Path):
    file = tmp_path / CLAUDE.name
    file.write_bytes(CLAUDE.read_bytes() + b'{"type": "assist\n')
    assert scan(str(file)).exit_code == 2


def test_a_home_in_which_most_of_a_file_is_not_understood_is_no_all_clear(home: Path):
    folder = home / ".claude/projects/p"
    folder.mkdir(parents=True)
    strange = b'{"type": "of-next-year", "message": {}}\n' * 40
    (folder / CLAUDE.name).write_bytes(CLAUDE.read_bytes() + strange)
    done = scan()
    assert done.exit_code == 2
    assert "40 records of unknown types left out: of-next-year" in done.stderr


def test_of_many_files_the_first_are_named_and_the_others_counted(tmp_path: Path):
    for number in range(9):
        file = tmp_path / "logs" / f"{number}" / CLAUDE.name
        file.parent.mkdir(parents=True)
        data = CLAUDE.read_bytes().replace(b"bd937e2a", b"%08d" % number)
        file.write_bytes(data + b'{"type": "assist\n' * 50)
    done = scan(str(tmp_path / "logs"))
    assert done.exit_code == 2
    assert done.stderr.count("more lines could not be read") == 5
    assert "and 4 more files with parts that could not be read" in done.stderr


def test_a_session_under_two_names_counts_once(home: Path, tmp_path: Path):
    for folder in (home / ".claude/projects/p", home / ".config/claude/projects/p"):
        folder.mkdir(parents=True)
        (folder / CLAUDE.name).write_bytes(CLAUDE.read_bytes())
    done = scan()
    assert (summary(done)["runs"], summary(done)["repeated_runs"]) == (1, 1)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_a_session_in_utf_16_in_a_folder_is_no_all_clear(tmp_path: Path, encoding: str):
    """A shell of Windows writes what a program prints in UTF-16."""
    (tmp_path / CLAUDE.name).write_bytes(CLAUDE.read_bytes())
    (tmp_path / "printed.jsonl").write_bytes(CLAUDE.read_text("utf-8").encode(encoding))
    done = scan(str(tmp_path))
    assert (done.exit_code, summary(done)["unreadable"]) == (2, 1)
    assert "printed.jsonl: it is " in done.stderr


ATIF = SAMPLES / "atif" / "terminus_2_hello-world-context-summarization-linear-history.trajectory.json"
COPILOT = SAMPLES / "copilot-cli" / "stage0-small.jsonl"
OPENCLAW = SAMPLES / "pi" / "openclaw.jsonl"
PI = SAMPLES / "pi" / "pi-v3.jsonl"
NOT_READ: dict[str, tuple[str, bytes]] = {
    "a document that was cut": ("a.json", ATIF.read_bytes()[:-300]),
    "a document in UTF-16": ("a.json", ATIF.read_text().encode("utf-16")),
    "two documents": ("a.json", ATIF.read_bytes() + ATIF.read_bytes()),
    "a document that is nested too deeply": ("a.json", b'{"steps": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"),
    "two sessions of Copilot CLI": ("a.jsonl", COPILOT.read_bytes() * 9 + COPILOT.read_bytes().replace(b"small", b"b")),
    "two sessions of pi": ("a.jsonl", PI.read_bytes() + PI.read_bytes().replace(b'"id":"', b'"id":"b')),
    "two formats": ("a.jsonl", (SAMPLES / "kimi-cli/wire-subagent_agent-0.jsonl").read_bytes() + CODEX.read_bytes()),
    "messages in unknown records": ("a.jsonl", OPENCLAW.read_bytes().replace(b'"type":"message"', b'"type":"said"')),
    "steps of unknown sources": ("a.json", ATIF.read_bytes().replace(b'"source": "agent"', b'"source": "robot"')),
    "messages of unknown roles": (
        "a.json",
        b'[{"task_id": 1, "reward": 0, "traj": [{"role": "robot", "content": "a"}]}]',
    ),
}


@pytest.mark.parametrize("name", NOT_READ)
def test_beside_a_whole_session_it_is_no_all_clear(name: str, tmp_path: Path):
    file, data = NOT_READ[name]
    (tmp_path / file).write_bytes(data)
    (tmp_path / CLAUDE.name).write_bytes(CLAUDE.read_bytes())
    done = scan(str(tmp_path))
    assert done.exit_code == (1 if summary(done)["loops"] else 2)
    assert summary(done)["unreadable"] or file in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "[a link](https://example.org)\n",
        "{\n  // settings\n  'a': 1\n}\n",
        "[1, 2]\n[3]\n",
        '{"name": "left-pad"}',
        "[ ] to do",
    ],
)
def test_what_is_no_transcript_beside_a_whole_session_is_an_all_clear(text: str, tmp_path: Path):
    (tmp_path / "a.json").write_text(text)
    (tmp_path / CLAUDE.name).write_bytes(CLAUDE.read_bytes())
    assert scan(str(tmp_path)).exit_code == 0


def test_a_packed_session_that_was_cut_is_no_all_clear_though_one_line_is_missing(tmp_path: Path):
    whole = gzip.compress(CLAUDE.read_bytes() * 40)
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[: len(whole) * 4 // 5])
    done = scan(str(tmp_path))
    assert (done.exit_code, summary(done)["unreadable"]) == (2, 1)
