"""`scan`: exit codes, what is read, what is listed, and JSON for programs."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from monitor.chunks import Chunk, TextDelta
from monitor.cli.app import app
from monitor.errors import TerminateReason
from monitor.outcome import Outcome, RunFailed
from monitor.prices import table_facts
from monitor.transcripts.analysis.scan import RunScanner

CORPUS = Path(__file__).parents[3] / "fixtures" / "transcripts" / "dev.jsonl.gz"


def looping(id: str = "stuck", **more: object) -> dict[str, Any]:
    call = {"role": "assistant", "text": "", "tool_calls": [{"name": "look", "args": {"at": "door"}}]}
    result = {"role": "tool", "tool_results": [{"name": "look", "text": "closed"}]}
    return {"id": id, "messages": [{"role": "user", "text": "go"}, *[call, result] * 7], **more}


def clean(id: str = "fine", **more: object) -> dict[str, Any]:
    return {"id": id, "messages": [{"role": "user", "text": "go"}, {"role": "assistant", "text": "done"}], **more}


def write(path: Path, *runs: dict[str, Any] | str) -> str:
    path.write_text("".join((run if isinstance(run, str) else json.dumps(run)) + "\n" for run in runs), "utf-8")
    return str(path)


def scan(*arguments: str, stdin: str | bytes | None = None) -> Any:
    return CliRunner().invoke(app, ["scan", *arguments], input=stdin)


def lines(result: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_exit_code_0_without_a_loop(tmp_path: Path):
    done = scan(write(tmp_path / "runs.jsonl", clean()))
    assert done.exit_code == 0
    assert "1 run in" in done.stdout
    assert "fine" not in done.stdout


def test_exit_code_1_with_a_loop(tmp_path: Path):
    done = scan(write(tmp_path / "runs.jsonl", clean(), looping()))
    assert done.exit_code == 1
    row = next(line for line in done.stdout.splitlines() if line.startswith("stuck"))
    assert row.split() == ["stuck", "identical_calls", "x", "7", "9", "call", "5", "2", "calls", 'look({"at":"door"})']
    assert "Stopping them there would have avoided 2 turns, 2 tool calls and 0 characters." in done.stdout


def test_a_bad_line_is_named_and_hides_no_loop(tmp_path: Path):
    file = write(tmp_path / "runs.jsonl", clean(), '{"id": "half', "", looping(), '{"id": 3, "messages": []}')
    done = scan(file)
    assert done.exit_code == 1
    assert scan(write(tmp_path / "fine.jsonl", clean(), "nonsense")).exit_code == 2
    said = done.stderr.splitlines()
    assert [line.startswith(f"{file}:{number}: ") for line, number in zip(said, (2, 5), strict=True)] == [True, True]
    assert "stuck" in done.stdout
    assert "2 lines or files could not be read" in done.stdout


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir()], ids=["missing", "folder"])
def test_a_file_that_cannot_be_opened_is_named_and_the_others_are_read(tmp_path: Path, make: Any):
    make(tmp_path / "bad")
    done = scan(str(tmp_path / "bad"), write(tmp_path / "runs.jsonl", looping()))
    assert done.exit_code == 1
    assert scan(str(tmp_path / "bad"), write(tmp_path / "fine.jsonl", clean())).exit_code == 2
    assert f"cannot read {tmp_path / 'bad'}: " in done.stderr
    assert "Traceback" not in done.stderr
    assert "stuck" in done.stdout


def test_exit_code_2_without_a_file():
    assert scan().exit_code == 2


def test_a_damaged_gzip_file_is_bad_input(tmp_path: Path):
    runs = "".join(json.dumps(clean(f"run-{n}")) + "\n" for n in range(1000))
    (tmp_path / "cut.gz").write_bytes(gzip.compress(runs.encode())[:-20])
    done = scan("--all", str(tmp_path / "cut.gz"))
    assert done.exit_code == 2
    assert "run-0" in done.stdout
    assert "damaged or cut" in done.stderr


def test_a_run_that_could_not_be_watched_is_named_and_the_others_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    class Broken(RunScanner):
        def take(self, index: int, chunk: Chunk) -> None:
            if isinstance(chunk, TextDelta) and chunk.text == "done":
                raise RunFailed(
                    Outcome(ok=False, reason=TerminateReason.ERROR, detail="a detector crashed", source="x")
                )
            super().take(index, chunk)

    monkeypatch.setattr(sys.modules["monitor.transcripts.analysis.survey"], "RunScanner", Broken)
    done = scan(write(tmp_path / "runs.jsonl", clean("odd"), looping()))
    assert done.exit_code == 1
    assert "run odd: error: a detector crashed" in done.stderr
    assert "stuck" in done.stdout


@pytest.mark.parametrize("zipped", [False, True])
def test_stdin_plain_or_zipped(zipped: bool):
    data = (json.dumps(looping()) + "\nnonsense\n").encode()
    done = scan("-", stdin=gzip.compress(data) if zipped else data)
    assert done.exit_code == 1
    assert done.stderr.startswith("<stdin>:2: not JSON")
    assert "stuck" in done.stdout


def test_all_lists_the_runs_without_a_loop_too(tmp_path: Path):
    done = scan("--all", write(tmp_path / "runs.jsonl", clean(), looping()))
    assert {"fine", "stuck"} <= set(done.stdout.split())


def test_the_limit_counts_over_all_files(tmp_path: Path):
    first, second = write(tmp_path / "1", clean("a"), clean("b")), write(tmp_path / "2", clean("c"), looping("d"))
    done = scan("--json", "--all", "--limit", "3", first, second)
    assert [line.get("id") for line in lines(done)] == ["a", "b", "c", None]
    assert done.exit_code == 0
    assert scan("--limit", "0", first).exit_code == 2


def test_several_files_are_told_apart(tmp_path: Path):
    done = scan(write(tmp_path / "one", looping("stuck1")), write(tmp_path / "two", looping("stuck2")))
    assert [line.split()[0][-3:] for line in done.stdout.splitlines() if "stuck" in line] == ["one", "two"]


def test_json_is_json_and_nothing_else(tmp_path: Path):
    file = write(
        tmp_path / "runs.jsonl",
        clean(label="clean"),
        looping(label="loop", loop={"kind": "tool_identical"}),
        "nonsense",
    )
    done = scan("--json", file)
    assert done.exit_code == 1
    run, summary = lines(done)
    assert (run["type"], run["id"], run["loop"], run["file"]) == ("run", "stuck", True, file)
    assert (run["message"], run["char"], run["labelled_kind"]) == (9, None, "tool_identical")
    assert run["detection"]["kind"] == "identical_calls"
    assert run["detection"]["evidence"]["xxhash"]
    assert run["saved"] == {"chars": 0, "tool_calls": 2, "turns": 2}
    assert (run["count"], run["first_step"], run["last_step"], run["loop_usd"]) == (7, 1, 7, None)
    assert summary == {
        "type": "summary",
        "runs": 2,
        "loops": 1,
        "suspected": 0,
        "ended": 1,
        "by_kind": {"tool_call_repetition/identical_calls": 1},
        "saved": {"chars": 0, "tool_calls": 2, "turns": 2},
        "labels": {"loops": {"tool_identical": 1}, "found": {"tool_identical": 1}, "others": 1, "others_flagged": []},
        "settings": None,
        "prices": str(table_facts()),
        "unreadable": 1,
        "saved_tokens": None,
        "saved_usd": None,
        "files": 1,
        "unchanged_files": 0,
        "unknown_files": 0,
        "silent_runs": 0,
        "copied_records": 0,
        "repeated_records": 0,
        "repeated_runs": 0,
        "torn_lines": 0,
        "card": "1 of 2 runs looped: look 7 times with the same arguments, step 1 to 7, at an unknown cost;"
        " a stop at the fifth would have avoided 2 steps",
    }


def test_json_of_a_text_that_is_no_utf_8(tmp_path: Path):
    run = {
        "id": "odd",
        "messages": [{"role": "assistant", "text": "\ud800 again and again and again it goes on. " * 40}],
    }
    done = scan("--json", write(tmp_path / "runs.jsonl", run))
    assert done.exit_code == 1
    assert lines(done)[0]["loop"]


def test_labels_are_compared_and_borderline_counts_neither_way(tmp_path: Path):
    runs = [
        looping("a", label="loop"),
        clean("b", label="loop"),
        looping("c", label="borderline"),
        looping("d", label="clean"),
        clean("e", label="x"),
    ]
    done = scan(write(tmp_path / "runs.jsonl", *runs))
    assert "Labels: of 2 labelled loops 1 found, 1 of 2 others flagged (d)." in done.stdout
    assert "Labels" not in scan(write(tmp_path / "none.jsonl", clean())).stdout


def test_what_a_model_wrote_cannot_steer_the_terminal(tmp_path: Path):
    run = {"id": "\x1b[2Jrun", "messages": [{"role": "assistant", "text": "\x1b[31mred and red and red again. " * 40}]}
    done = scan(write(tmp_path / "runs.jsonl", run))
    assert done.exit_code == 1
    assert "\x1b" not in done.output
    assert r"\x1b[2Jrun" in done.output


@pytest.mark.parametrize("columns", ["40", "80", "100", "200"])
def test_rows_stay_on_one_line_whatever_the_width(tmp_path: Path, columns: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", columns)
    done = scan(
        write(tmp_path / "runs.jsonl", *[looping("a-rather-long-name-of-a-run/" * 3 + str(n)) for n in range(3)])
    )
    rows = [line for line in done.stdout.splitlines() if line.startswith("a-")]
    assert len(rows) == 3
    assert all(len(row) <= int(columns) for row in rows)


def test_runs_of_the_corpus_in_a_process_of_its_own(tmp_path: Path):
    """Most labelled loops are found and nothing else is flagged; exact numbers are the benchmark's
    business.
    """
    some = tmp_path / "some.jsonl"
    with gzip.open(CORPUS, "rt", encoding="utf-8") as lines:
        some.write_text("".join(islice(lines, 0, None, 5)), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "monitor.cli", "scan", "--json", str(some)],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    *runs, summary = map(json.loads, done.stdout.splitlines())
    assert summary["runs"] == 166
    assert len(runs) == summary["loops"]
    assert sum(summary["labels"]["found"].values()) > sum(summary["labels"]["loops"].values()) / 2
    assert len(summary["labels"]["others_flagged"]) <= 3
