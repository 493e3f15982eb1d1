"""`agent-monitor scan` over what agents have written: folders, archives, the known places."""

from __future__ import annotations

import csv
import gzip
import json
import signal
import subprocess
import sys
import tarfile
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from monitor.cli.app import app

SAMPLES = Path(__file__).parents[3] / "fixtures" / "readers"
STUCK = SAMPLES / "claude-code" / "554b9fa6-f719-40e8-ba70-beee69bd60b5.jsonl.gz"
FINE = SAMPLES / "gemini-cli" / "session-bridge-23607762cc12.json.gz"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder, and an empty working folder."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    monkeypatch.chdir(folder)
    return folder


def put(sample: Path, place: Path) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(gzip.decompress(sample.read_bytes()) if sample.suffix == ".gz" else sample.read_bytes())
    return place


def scan(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["scan", *arguments])


def summary(done: Any) -> dict[str, Any]:
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def test_without_a_path_it_finds_what_the_agents_of_this_user_wrote(home: Path):
    put(STUCK, home / ".claude/projects/-home-me-x/554b9fa6-f719-40e8-ba70-beee69bd60b5.jsonl")
    put(FINE, home / ".gemini/tmp/abc/chats/session-1.json")
    done = scan("--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [run["format"] for run in found[:-1]] == ["claude-code"]
    assert (found[-1]["runs"], found[-1]["loops"], found[-1]["files"]) == (2, 1, 2)
    assert found[0]["saved_tokens"] == 10_973_214
    assert "haven't granted it yet" in found[0]["result"]


def test_without_a_path_and_with_nothing_there_it_says_where_it_looked_and_is_no_all_clear():
    done = scan()
    assert done.exit_code == 2
    assert "Claude Code, Cline" in done.stderr


def test_a_loop_is_shown_with_its_call_its_result_and_what_a_stop_would_have_saved():
    done = scan(str(STUCK))
    assert done.exit_code == 1  # although 28 of its lines are broken
    for said in (
        "Claude Code",
        "Write was called 5 times in a row",
        "a stop at the fifth would have avoided",
        "haven't granted it yet",
        "10,973,214 tokens",
    ):
        assert said in done.stdout
    assert "and 25 more lines could not be read" in done.stderr


def test_a_folder_is_read_with_its_archives_and_what_is_no_transcript_is_counted(tmp_path: Path):
    folder = tmp_path / "logs"
    put(FINE, folder / "a" / "session.json")
    (folder / "package.json").write_text('{"name": "x", "version": "1"}')
    (folder / "image.png").write_bytes(b"\x89PNG")
    (folder / "node_modules").mkdir()
    put(FINE, folder / "node_modules" / "session.json")
    with zipfile.ZipFile(folder / "more.zip", "w") as archive:
        archive.writestr("x/session.json", gzip.decompress(FINE.read_bytes()))
    with tarfile.open(folder / "old.tar.gz", "w:gz") as tar:
        tar.add(SAMPLES / "openhands" / "basic.json.gz", "basic.json.gz")
    done = scan("--json", str(folder))
    assert done.exit_code == 0, done.output
    found = summary(done)
    assert (found["runs"], found["repeated_runs"], found["unknown_files"]) == (2, 1, 1)


def test_a_folder_without_any_transcript_is_no_all_clear(tmp_path: Path):
    (tmp_path / "x.json").write_text("{}")
    done = scan(str(tmp_path / "x.json"))
    assert done.exit_code == 2
    folder = tmp_path / "empty"
    folder.mkdir()
    assert scan(str(folder)).exit_code == 2
    (folder / "x.json").write_text('{"a": 1}')
    done = scan(str(folder))
    assert (done.exit_code, "1 file of no known format" in done.stderr) == (2, True)


def test_patterns_formats_projects_and_times_choose(tmp_path: Path):
    for kind in ("claude-code", "codex"):
        for sample in (SAMPLES / kind).glob("*.gz"):
            put(sample, tmp_path / kind / sample.name.removesuffix(".gz"))
    everything = summary(scan("--json", str(tmp_path / "**" / "*.jsonl")))
    claude = summary(scan("--json", "--format", "claude-code", str(tmp_path / "claude-code"), str(tmp_path / "codex")))
    assert everything["runs"] > claude["runs"] > 5
    one = summary(scan("--json", "--project", "COSMIC", str(tmp_path / "claude-code")))
    assert (one["runs"], one["loops"]) == (1, 1)
    assert scan("--json", "--since", "2030-01-01", str(tmp_path / "codex")).exit_code == 2
    assert summary(scan("--json", "--since", "2025-01-01", str(tmp_path / "codex")))["runs"] == 5
    for wrong in (("--format", "clod"), ("--since", "yesterday")):
        assert scan(*wrong, str(tmp_path)).exit_code == 2


def test_a_row_for_each_run_goes_into_a_file_that_no_spreadsheet_can_be_hurt_by(tmp_path: Path):
    out = tmp_path / "runs.csv"
    scan("--csv", str(out), str(STUCK), str(FINE))
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["loop"] for row in rows] == ["True", "False"]
    assert rows[0]["avoidable_tokens"] == "10973214"
    formula = tmp_path / "evil.jsonl"
    formula.write_text(
        json.dumps({"id": "=cmd|' /C calc'!A0", "messages": [{"role": "assistant", "text": "hi"}]}) + "\n"
    )
    done = scan("--csv", "-", str(formula))
    assert "'=cmd" in done.stdout


def test_records_that_a_resumed_session_copied_are_left_out_and_said(tmp_path: Path):
    first = put(SAMPLES / "claude-code" / "entire-6061721bc409-0.jsonl.gz", tmp_path / "a.jsonl")
    lines = first.read_text().splitlines()
    session = next(json.loads(line)["sessionId"] for line in lines if '"sessionId"' in line)
    resumed = tmp_path / "b5c0b7d2-0000-4000-8000-000000000000.jsonl"
    own = [
        {
            "type": "user",
            "uuid": "u1",
            "parentUuid": None,
            "sessionId": resumed.stem,
            "message": {"role": "user", "content": "go on"},
        },
        {
            "type": "assistant",
            "uuid": "u2",
            "parentUuid": "u1",
            "sessionId": resumed.stem,
            "message": {
                "id": "m",
                "role": "assistant",
                "content": [{"type": "text", "text": "Done."}],
                "usage": {"output_tokens": 3},
            },
        },
    ]
    resumed.write_text("\n".join([*lines, *map(json.dumps, own)]) + "\n")
    alone, both = summary(scan("--json", str(first))), summary(scan("--json", str(first), str(resumed)))
    assert session
    assert both["runs"] == alone["runs"] + 1
    assert both["copied_records"] > 10
    assert "records copied from other sessions" in scan(str(first), str(resumed)).stdout


def test_a_file_that_is_being_written_is_no_bad_input(tmp_path: Path):
    path = put(SAMPLES / "claude-code" / "1af7fc5e-8455-4414-9ccd-011d40f70b2a.jsonl.gz", tmp_path / "x.jsonl")
    path.write_bytes(path.read_bytes()[:-40])
    assert scan(str(path)).exit_code == 0


def test_several_processes_find_what_one_finds_in_the_same_order(tmp_path: Path):
    data = gzip.decompress(STUCK.read_bytes())
    for number in range(17):
        own = data.replace(b"554b9fa6-", b"%08d-" % number).replace(b'"2026-01-17T', b'"2026-01-%02dT' % (number + 1))
        (tmp_path / f"{number:02}.jsonl").write_bytes(own)
    many = [json.loads(line) for line in scan("--json", str(tmp_path)).stdout.splitlines()]
    one = json.loads(scan("--json", str(tmp_path / "00.jsonl")).stdout.splitlines()[0])
    assert [Path(run["file"]).name for run in many[:-1]] == [f"{number:02}.jsonl" for number in range(17)]
    for run in many[:-1]:
        assert {**run, **{name: one[name] for name in ("file", "id", "first_at", "last_at")}} == one


def test_ctrl_c_keeps_what_was_read(tmp_path: Path):
    data = gzip.decompress(STUCK.read_bytes())
    (tmp_path / "a.jsonl").write_bytes(data)
    (tmp_path / "b.jsonl").write_bytes(data * 60)
    process = subprocess.Popen(
        [sys.executable, "-m", "monitor.cli", "scan", "--json", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest, complaints = process.communicate(timeout=250)
    assert json.loads(first)["file"].endswith("a.jsonl")
    if process.returncode != 2:  # it was faster than the signal
        assert process.returncode == 130, complaints
        assert json.loads(rest.splitlines()[-1])["runs"] == 1
        assert "interrupted: 1 of 2 files were read" in complaints


def test_the_judge_sees_runs_of_any_format(tmp_path: Path):
    replies = tmp_path / "replies.jsonl"
    said = json.dumps({"stuck": False, "confidence": 0.1, "analysis": "x"})
    replies.write_text(
        "".join(
            json.dumps(c) + "\n"
            for c in ({"type": "text_delta", "text": said}, {"type": "turn_finished", "finish_reason": "done"})
        )
        * 40
    )
    done = scan(
        "--judge", f"replay:{replies}", "--judge-from", "5", str(FINE), str(SAMPLES / "swe-agent" / "eps.traj.gz")
    )
    assert "Judge: " in done.stdout, done.output
    assert "question" in done.stdout


def a_session_and_its_beginning(folder: Path, *options: str) -> tuple[str, ...]:
    """`options`, and two files: a session, and a copy of its first two thirds."""
    lines = gzip.decompress(STUCK.read_bytes()).splitlines(keepends=True)
    names = [str(folder / "a.jsonl"), str(folder / "b.jsonl")]
    for name, some in zip(names, (lines[: len(lines) * 2 // 3], lines), strict=True):
        Path(name).write_bytes(b"".join(some))
    return ("--json", "--all", *options, *names)


def counts(done: Any) -> dict[str, Any]:
    """What a scan has counted, without the costs of its judge."""
    runs = [json.loads(line) for line in done.stdout.splitlines()[:-1]]
    sums = {name: sum(run[name] or 0 for run in runs) for name in ("tokens", "errors", "compactions")}
    return {**sums, "runs": summary(done)["runs"], "turns": sum(run["total"]["turns"] for run in runs)}


def test_with_a_judge_the_copy_of_a_session_counts_once_too(tmp_path: Path):
    replies = tmp_path / "replies.jsonl"
    answer = {"type": "text_delta", "text": json.dumps({"analysis": "x", "confidence": 0.1})}
    replies.write_text(f"{json.dumps(answer)}\n{json.dumps({'type': 'turn_finished', 'finish_reason': 'done'})}\n" * 99)
    asked = scan(*a_session_and_its_beginning(tmp_path, "--judge", f"replay:{replies}", "--judge-from", "3"))
    assert summary(asked)["judge"]["questions"] > 0
    alone = scan("--json", "--all", str(tmp_path / "b.jsonl"))
    assert counts(asked) == counts(alone)
    assert counts(asked)["runs"] == 1


def test_a_session_goes_on_from_a_run_only_if_that_run_was_asked_for(tmp_path: Path):
    """The beginning ended before `--since`, so it is left out, and the whole session is one run."""
    last = max(run["last_at"] for run in map(json.loads, scan("--json", "--all", str(STUCK)).stdout.splitlines()[:-1]))
    since = datetime.fromtimestamp(last - 1, UTC).isoformat()
    done = scan(*a_session_and_its_beginning(tmp_path, "--since", since))
    assert counts(done) == counts(scan("--json", "--all", str(tmp_path / "b.jsonl")))
    assert counts(done)["runs"] == 1


def test_a_run_that_goes_on_in_another_project_is_a_run_of_both(tmp_path: Path):
    *_, first, second = a_session_and_its_beginning(tmp_path)
    Path(second).write_text(Path(second).read_text().replace("/cosmic-apple-tile", "/there"))
    done = scan(first, second)
    rows = [
        line.split()[2:4] for line in done.stdout.splitlines() if line.startswith("Claude Code") and "554b9" not in line
    ]
    assert sorted(rows) == [["cosmic-apple-tile", "1"], ["there", "1"]]
    assert "\n1 run in" in done.stdout


def test_a_terminal_is_never_steered_by_a_transcript(tmp_path: Path):
    evil = "\x1b[2J\u202e"
    calls = [
        {
            "type": "assistant",
            "uuid": f"a{n}",
            "parentUuid": None,
            "sessionId": "s",
            "cwd": f"/home/{evil}",
            "message": {
                "id": f"m{n}",
                "role": "assistant",
                "content": [{"type": "tool_use", "id": f"t{n}", "name": f"Run{evil}", "input": {"x": evil}}],
            },
        }
        for n in range(7)
    ]
    results = [
        {
            "type": "user",
            "uuid": f"r{n}",
            "parentUuid": None,
            "sessionId": "s",
            "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{n}", "content": evil}]},
        }
        for n in range(7)
    ]
    path = tmp_path / "s.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for pair in zip(calls, results, strict=True) for line in pair))
    done = scan(str(path))
    assert done.exit_code == 1
    assert "\x1b[2J" not in done.output
    assert "\u202e" not in done.output


def test_memory_does_not_grow_with_a_file(tmp_path: Path):
    """A process of its own reads a file of 26 MB."""
    data = gzip.decompress((SAMPLES / "codex" / "rollout-skills-6cfb81c05ca9-0.jsonl.gz").read_bytes())
    small, large = tmp_path / "small.jsonl", tmp_path / "large.jsonl"
    small.write_bytes(data)
    with large.open("wb") as file:
        for _ in range(120):
            file.write(data)
    code = (
        "import resource, sys; from monitor.transcripts.source import Source;"
        " from monitor.transcripts.readers.registry import reader_of;"
        " from monitor.transcripts.base import ReadReport;"
        " s = Source.of_path(sys.argv[1]); n = sum(1 for _ in reader_of(s).read(s, ReadReport()));"
        " print(n, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    used = []
    for path in (small, large):
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
        used.append(int(done.stdout.split()[1]))
    assert used[1] < used[0] + 60_000  # kilobytes
