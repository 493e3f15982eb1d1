"""`scan` with a policy and settings of one's own, and `--explain`: everything that was seen, and
what was done about it.
"""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from monitor.cli.app import app

COMMAND = [sys.executable, "-m", "monitor.cli", "scan"]


def calls(times: int, id: str = "stuck") -> dict[str, Any]:
    call = {"role": "assistant", "text": "", "tool_calls": [{"name": "look", "args": {"at": "door"}}]}
    result = {"role": "tool", "tool_results": [{"name": "look", "text": "closed"}]}
    return {"id": id, "messages": [{"role": "user", "text": "go"}, *[call, result] * times]}


def chant(id: str = "chant") -> dict[str, Any]:
    return {
        "id": id,
        "messages": [{"role": "assistant", "text": "First I look. " + "I will try that again now. " * 40}],
    }


@pytest.fixture
def runs(tmp_path: Path) -> str:
    path = tmp_path / "runs.jsonl"
    path.write_text(
        "".join(json.dumps(run) + "\n" for run in (calls(1, "fine"), calls(3, "odd"), calls(12), chant())), "utf-8"
    )
    return str(path)


def scan(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["scan", *arguments])


def lines(result: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def part(output: str, title: str) -> str:
    return output.split(f"== {title}")[1].split("\n==", maxsplit=1)[0]


# ------------------------------------------------------------------ explain


def test_every_finding_is_told_with_its_evidence_its_place_and_what_was_done(runs: str):
    done = scan("--explain", "--policy", "ladder", runs)
    assert done.exit_code == 1
    told = part(done.stdout, "stuck").splitlines()
    assert told[1] == "12 turns, 12 calls; stopped in turn 8, which would have avoided 4 turns, 4 calls"
    assert told.pop(2).startswith("read as runs, by its content: A run has an id")
    assert told[2] == "  tool_call_repetition: identical_calls"
    assert " ".join(told[3].split()) == (
        "because look was called 8 times in a row with the same arguments and gave the same result each time"
    )
    assert told[4].split() == ["evidence", 'look({"at":"door"})']
    assert len(told[5].split()[1]) == 16
    assert told[6].split() == ["began", "call", "1"]
    assert [" ".join(line.split()) for line in told[7:12]] == [
        "seen #1 turn 3 call 3 message 5 x 3: a suspicion from 3 nudge",
        "#2 turn 5 call 5 message 9 x 5: a loop from 5 refuse",
        "#3 turn 6 call 6 message 11 x 6: a loop from 5 withdraw",
        "#4 turn 7 call 7 message 13 x 7: a loop from 5 last_turn",
        "#5 turn 8 call 8 message 15 x 8: a loop from 5 stop",
    ]


def test_text_is_placed_in_its_message(runs: str):
    told = part(scan("--explain", runs).stdout, "chant")
    assert "began     character " in told
    assert "  character " not in told.split("seen")[1]
    assert "message 0  x " in told


def test_what_only_came_again_is_one_line(runs: str):
    told = part(scan("--explain", "--policy", "observe", runs).stdout, "stuck")
    assert "#9 turn 12 call 12 message 23 7 more, up to x 12 observe" in " ".join(told.split())
    assert "the policy would not have ended it" in told


def test_runs_without_a_finding_are_only_counted_and_all_gives_them_a_line(runs: str):
    assert "fine" not in scan("--explain", runs).stdout
    assert "4 runs in" in scan("--explain", runs).stdout
    assert part(scan("--explain", "--all", runs).stdout, "fine").splitlines()[1] == "1 turn, 1 call; nothing found"


def test_a_suspicion_is_explained_and_counted_and_is_no_loop(runs: str):
    done = scan("--explain", runs)
    assert "a suspicion from 3" in part(done.stdout, "odd")
    assert "1 more run with suspicions and no loop." in done.stdout
    assert "odd" not in scan(runs).stdout


def test_the_findings_as_json(runs: str):
    odd, stuck, text, summary = lines(scan("--explain", "--json", "--policy", "ladder", runs))
    assert (odd["loop"], odd["ended"], odd["rung"]) == (False, False, None)
    assert [finding["rung"] for finding in odd["findings"]] == ["nudge"]
    assert (stuck["loop"], stuck["ended"], stuck["rung"]) == (True, True, "stop")
    assert [(f["rung"], f["turn"], f["message"]) for f in stuck["findings"]] == [
        ("nudge", 3, 5),
        ("refuse", 5, 9),
        ("withdraw", 6, 11),
        ("last_turn", 7, 13),
        ("stop", 8, 15),
    ]
    first = stuck["findings"][0]
    assert first["told"].startswith("You are repeating yourself: look was called 3 times")
    assert (first["detection"]["start_offset"], first["detection"]["offset"], first["detection"]["threshold"]) == (
        0,
        2,
        3,
    )
    assert first["detection"]["evidence"]["xxhash"]
    assert text["findings"][0]["start_char"] < text["findings"][0]["char"]
    assert (summary["loops"], summary["suspected"], summary["ended"]) == (2, 1, 2)


def test_without_explain_a_run_has_no_findings_and_a_suspected_one_no_line(runs: str):
    *found, _ = lines(scan("--json", runs))
    assert [run["id"] for run in found] == ["stuck", "chant"]
    assert all("findings" not in run for run in found)


# ------------------------------------------------------------------ settings


def test_another_policy_gets_a_column(runs: str):
    done = scan("--policy", "ladder", runs)
    row = next(line for line in done.stdout.splitlines() if line.startswith("stuck"))
    assert row.split()[7:9] == ["stop", "4"]
    assert "policy" not in scan(runs).stdout.splitlines()[0]


def test_who_only_observes_is_told_that_nothing_would_have_been_saved(runs: str):
    done = scan("--policy", "observe", runs)
    assert done.exit_code == 1
    assert "The policy would have ended none of them." in done.stdout
    assert lines(scan("--policy", "observe", "--json", runs))[-1]["saved"] == {"chars": 0, "tool_calls": 0, "turns": 0}


@pytest.mark.parametrize("name", ["ContentRepetition", "content-repetition", "content_repetition"])
def test_only_the_detectors_that_are_named(runs: str, name: str):
    assert [run.get("id") for run in lines(scan("--json", "--detectors", name, runs))] == ["chant", None]
    assert len(lines(scan("--json", "--detectors", f"{name}, tool-call-repetition", runs))) == 3


def test_settings_of_the_command_line_stand_above_those_of_the_file(runs: str, tmp_path: Path):
    file = tmp_path / "x.toml"
    file.write_text("detectors = ['ToolCallRepetition']\n[ToolCallRepetition]\nsuspect_at = 4\nloop_at = 9\n")

    def threshold(*arguments: str) -> int:
        threshold: int = lines(scan("--json", "--config", str(file), *arguments, runs))[0]["detection"]["threshold"]
        return threshold

    assert threshold() == 9
    assert threshold("--set", "ToolCallRepetition.loop_at=8") == 8
    assert threshold("--set", "tool-call-repetition.loop_at=8", "--set", "tools.look.loop_at=6") == 6


def test_the_file_of_the_current_directory_is_used_and_named(
    runs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Path("agent-monitor.toml").write_text("[ToolCallRepetition]\nloop_at = 9\n")
    assert "Settings: agent-monitor.toml." in scan(runs).stdout
    assert lines(scan("--json", runs))[-1]["settings"] == "agent-monitor.toml"
    Path("agent-monitor.toml").write_text("polcy = 'ladder'")
    done = scan(runs)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "agent-monitor.toml: there is no setting 'polcy'; did you mean policy?" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--detectors", "tool-call-repetiton"],
            "there is no detector 'tool-call-repetiton'; did you mean ToolCallRepetition? (there are: ",
        ),
        (["--detectors", ","], "--detectors names none"),
        (
            ["--set", "ToolCallRepetition.loop=7"],
            "ToolCallRepetition: there is no option 'loop'; did you mean loop_at?",
        ),
        (["--set", "x"], "'x' sets nothing; write KEY=VALUE"),
        (
            ["--policy", "leader"],
            "there is no policy 'leader'; did you mean ladder? (there are: stop, observe, ladder)",
        ),
        (["--config", "none.toml"], "cannot read none.toml: "),
    ],
)
def test_what_makes_no_sense_is_one_sentence(runs: str, arguments: list[str], says: str):
    done = scan(*arguments, runs)
    assert (done.exit_code, done.stdout) == (2, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


# ------------------------------------------------------------------ terminals


def test_results_that_go_to_a_file_are_not_drawn_above_the_bar(runs: str):
    """Stderr is a terminal, stdout is not: the bar is here, the JSON is there."""
    master, terminal = pty.openpty()
    try:
        done = subprocess.run(
            [*COMMAND, "--json", runs], stdout=subprocess.PIPE, stderr=terminal, text=True, timeout=250, check=False
        )
    finally:
        os.close(terminal)
        os.close(master)
    assert [json.loads(line)["type"] for line in done.stdout.splitlines()] == ["run", "run", "summary"]


def test_ctrl_c_ends_it_quietly(tmp_path: Path):
    """A real process, in the middle of a file that does not end."""
    os.mkfifo(tmp_path / "pipe")
    process = subprocess.Popen(
        [*COMMAND, str(tmp_path / "pipe")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with (tmp_path / "pipe").open("w"):  # opens when the command does
        process.send_signal(signal.SIGINT)
        said, complaints = process.communicate(timeout=250)
    assert (process.returncode, said, complaints) == (130, "", "")


def test_of_a_run_only_its_line_is_kept():
    """Of twenty runs of a megabyte each the report holds next to nothing; the last one is still
    this function's.
    """
    import tracemalloc

    from monitor.cli.render.scan_report import Report
    from monitor.transcripts import RecordedMessage
    from monitor.transcripts.analysis.survey import WatchSettings
    from monitor.transcripts.base import Began, Ended

    report = Report()
    tracemalloc.start()
    for n in range(20):
        text = f"{n} " + "I will try that again now. " * 40_000
        watcher = WatchSettings().begin(Began(run=f"run {n}"))
        watcher.take(RecordedMessage("assistant", text))
        report.add(watcher.run("f", "runs", Ended(run=f"run {n}")), listed=True)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(report.rows) == 20
    assert held < 2_000_000
