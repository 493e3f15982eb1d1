"""`doctor`: what the settings see, what they miss, what is installed."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import monitor
from monitor.chunks import TextDelta, ToolCall
from monitor.cli.app import app
from monitor.cli.commands.doctor import environment, version_of
from monitor.detectors import ToolPolicy
from monitor.settings import detector_types
from monitor.testing.loops import healthy, loops
from monitor.tools import SandboxFound


def doctor(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["doctor", *arguments])


@cache
def report(*arguments: str) -> dict[str, Any]:
    """Kept, because the runs are always the same."""
    data: dict[str, Any] = json.loads(doctor("--json", *arguments).stdout)
    return data


def row(data: dict[str, Any], kind: str) -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = [one for one in (*data["loops"], *data["healthy"]) if one["kind"] == kind]
    return found


# ------------------------------------------------------------------ what is seen


def test_the_defaults_see_every_kind_and_leave_healthy_work_alone():
    done = doctor()
    assert done.exit_code == 0
    data = report()
    assert (data["ok"], data["not_seen"], data["taken_for_a_loop"]) == (True, [], [])
    assert all(one["seen"] or one["unseen_because"] for one in data["loops"])
    assert not any(one["seen"] for one in data["healthy"])
    assert "20 of 20 kinds of loops are seen, 0 of 10 healthy runs taken for one." in done.stdout


def test_it_says_how_soon():
    data = report()
    same = row(data, "the same call, the same result")
    assert (same["detector"], same["rule"], same["repetitions"], same["after"], same["unit"]) == (
        *("tool_call_repetition", "identical_calls", 5, 5, "call"),
    )
    assert same["steps"] == [{"rung": "observe", "at": 3, "unit": "call"}, {"rung": "stop", "at": 5, "unit": "call"}]
    sentence = row(data, "one sentence over and over")
    assert (sentence["detector"], sentence["unit"]) == ("content_repetition", "char")
    assert 100 < sentence["after"] < 400


def test_it_says_what_the_policy_would_do():
    done = doctor("--policy", "ladder")
    line = next(line for line in done.stdout.splitlines() if line.startswith("the same call, the same result"))
    assert re.split(r"  +", line.strip())[2:] == [
        "5 calls",
        "nudge at 3, refuse at 5, withdraw at 6, last_turn at 7, stop at 8",
    ]


@pytest.mark.parametrize("policy", ["stop", "ladder"])
def test_every_loop_that_is_seen_is_ended_unless_the_policy_only_observes(policy: str):
    assert all(one["ended"] for one in report("--policy", policy)["loops"] if one["seen"])
    assert not any(one["ended"] for one in report("--policy", "observe")["loops"])


def test_each_detector_is_needed():
    """Without any one of the defaults something is not seen: no case is there for show, no detector
    goes untried. `LearnedEvidence` sees most kinds of loops of calls too. What it alone sees stands
    in `tests/detectors/test_composed_runs.py`.
    """
    names = [name for name in detector_types() if name not in {"LearnedEvidence", "NoProgress", "UnknownTool"}]
    for name in names:
        others = ",".join(other for other in names if other != name)
        assert report("--detectors", others)["not_seen"], name


def test_a_kind_that_nobody_sees_is_named_and_the_exit_code_says_so():
    done = doctor("--detectors", "content-repetition")
    assert done.exit_code == 1
    assert "Nobody sees: the same call, the same result; " in done.stdout
    assert report("--detectors", "content-repetition")["ok"] is False


def test_a_threshold_out_of_reach_leaves_a_suspicion():
    done = doctor("--set", "ToolCallRepetition.loop_at=500")
    line = next(line for line in done.stdout.splitlines() if line.startswith("the same call, the same result"))
    assert "tool_call_repetition (only suspected)" in line
    assert done.exit_code == 1


def test_healthy_work_that_is_taken_for_a_loop_is_named():
    done = doctor("--set", "ToolCallRepetition.tools.get_build.side_effect=true")
    assert done.exit_code == 1
    assert "Taken for a loop: polling, the result changes." in done.stdout


# ------------------------------------------------------------------ tools of the settings


def test_a_tool_of_the_settings_gets_a_loop_of_its_own():
    data = report("--set", "tools.deploy.loop_at=20", "--set", 'tools.run.volatile=["pid"]')
    assert row(data, "deploy: the same call")["after"] == 20
    assert row(data, "run: the same call, only pid changes")["after"] == 5


def test_an_exempt_tool_is_not_seen_and_that_is_no_fault():
    done = doctor("--set", "tools.heartbeat.exempt=true")
    assert done.exit_code == 0
    assert "heartbeat: the same call: not seen, the settings exempt it" in done.stdout


# ------------------------------------------------------------------ the runs themselves


def test_the_runs_are_always_the_same_and_their_messages_are_in_order():
    for case in (*loops({"x": ToolPolicy()}), *healthy()):
        once, again = list(case.chunks()), list(case.chunks())
        assert once == again, case.title
        assert all(a <= b for (a, _), (b, _) in pairwise(once)), case.title


def test_titles_tell_the_runs_apart():
    titles = [case.title for case in (*loops({}), *healthy())]
    assert len(titles) == len(set(titles))


def test_healthy_runs_are_long_enough_to_be_taken_for_a_loop():
    for case in healthy():
        chunks: Sequence[Any] = [chunk for _, chunk in case.chunks()]
        calls = sum(isinstance(chunk, ToolCall) for chunk in chunks)
        chars = sum(len(chunk.text) for chunk in chunks if isinstance(chunk, TextDelta))
        assert calls >= 16 or chars >= 900, case.title


# ------------------------------------------------------------------ what there is


def test_it_says_what_is_installed():
    facts = environment()
    assert facts["agent_monitor"] == monitor.__version__
    assert set(facts["extras"]) >= {"cli", "google"}
    assert not {"all", "engines", "frameworks", "test"} & set(facts["extras"])
    assert not [name for name, packages in facts["extras"].items() if "pytest" in packages], "for our own tests"
    assert facts["extras"]["cli"]["typer"] == version_of("typer")
    assert {"anyio", "pydantic"} <= set(facts["needs"])
    assert {"asyncio", "trio"} == set(facts["event_loops"])
    assert json.loads(doctor("--json").stdout)["environment"] == facts


def test_it_says_which_sandbox_works_here(monkeypatch: pytest.MonkeyPatch):
    found = SandboxFound("none", "bubblewrap is not installed")
    monkeypatch.setattr("monitor.cli.commands.doctor.find_sandbox", lambda: found)
    assert "none: bubblewrap is not installed" in doctor().stdout
    assert environment()["sandbox"] == {"kind": "none", "detail": "bubblewrap is not installed"}


def test_what_is_not_installed_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch):
    assert version_of("no-such-package-at-all") is None
    monkeypatch.setattr("monitor.cli.commands.doctor.version_of", lambda name: None if name == "trio" else "1.0")
    assert "trio (not installed)" in doctor().stdout


def test_it_says_which_settings_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert "no file; the defaults" in doctor().stdout
    Path("pyproject.toml").write_text("[tool.agent-monitor.ToolCallRepetition]\nloop_at = 7\n")
    done = doctor("--set", 'tools."a.b".polling=true', "--detectors", "tool-call-repetition")
    for said in ("pyproject.toml", "ToolCallRepetition.loop_at=7", 'tools."a.b".polling=true', "StopAtFirstLoop"):
        assert said in done.stdout
    settings = report.__wrapped__("--policy", "ladder")["settings"]
    assert (settings["file"], settings["policy"]) == ("pyproject.toml", "Ladder")
    assert settings["set"] == ["ToolCallRepetition.loop_at=7", "policy.type=ladder"]


def test_a_setting_that_makes_no_sense_is_exit_code_2():
    done = doctor("--set", "ToolCallRepetition.loop_at=x")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "agent-monitor: ToolCallRepetition.loop_at = 'x': it should be a valid integer\n"


@pytest.mark.parametrize("columns", ["60", "100", "160"])
def test_it_can_be_read_whatever_the_width(columns: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", columns)
    done = doctor()
    assert all(
        len(line) <= int(columns)
        for line in done.stdout.split("healthy work")[0].splitlines()
        if "not seen, " not in line
    )
    assert sum("5 calls" in line for line in done.stdout.splitlines()) >= 4
    assert "3,250 chars" in done.stdout


def test_doctor_says_which_loops_are_lost_without_the_results_of_tools():
    lost = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)["unseen_without_results"]
    shown = CliRunner().invoke(app, ["doctor"]).stdout
    assert lost
    assert "what is guarded here" in shown
    assert lost[0] in shown
