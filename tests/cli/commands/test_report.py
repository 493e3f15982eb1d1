"""`agent-monitor report`: the page is written whole, or not at all."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from monitor.cli.app import app

SAMPLES = Path(__file__).parents[3] / "fixtures" / "readers"
STUCK = SAMPLES / "claude-code" / "554b9fa6-f719-40e8-ba70-beee69bd60b5.jsonl.gz"
FINE = SAMPLES / "gemini-cli"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def report(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def data(page: Path) -> dict[str, Any]:
    """The data of the page: the runs, each with its details."""
    first, *pieces = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page.read_text(), re.DOTALL)
    found = json.loads(first)
    details = [one for piece in pieces for one in json.loads(piece)]
    return {**found, "runs": [{**run, **more} for run, more in zip(found["runs"], details, strict=True)]}


def test_the_page_holds_each_run_with_its_loop_and_its_steps(tmp_path: Path):
    done = report(STUCK, FINE, "-o", "page.html")
    assert "page.html: " in done.stdout
    first, *others = data(tmp_path / "page.html")["runs"]
    assert first["saved"] == [94, 98, 10_973_214, pytest.approx(5.74, abs=0.01)]
    assert [step[3] for step in first["steps"] if len(step) > 6 and step[6] & 1] == ["Write"] * 5
    assert others
    assert all(run["agent"] == "Gemini CLI" for run in others)


def test_what_could_not_be_read_is_2_and_stands_on_the_page(tmp_path: Path):
    done = report(STUCK, "-o", "page.html")
    assert done.exit_code == 2
    assert data(tmp_path / "page.html")["facts"]["bad"] == 28


def test_runs_of_the_projects_own_form_have_their_steps_too(tmp_path: Path):
    call = {"role": "assistant", "text": "", "tool_calls": [{"name": "look", "args": {}}]}
    (tmp_path / "runs.jsonl").write_text(json.dumps({"id": "stuck", "messages": [call] * 9}) + "\n")
    assert report("runs.jsonl", "-o", "page.html").exit_code == 0
    (run,) = data(tmp_path / "page.html")["runs"]
    assert (run["loop"]["kind"], run["all_steps"]) == ("identical_calls", 9)


def test_without_texts_no_result_is_on_the_page(tmp_path: Path):
    report(STUCK, "--no-text", "-o", "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "granted it yet" not in page
    assert "cosmic-apple-tile" not in page
    assert "identical_calls" in page


@pytest.mark.parametrize("order", [1, -1], ids=["the beginning first", "the whole first"])
def test_a_session_and_its_longer_copy_are_one_run_as_in_a_scan(tmp_path: Path, order: int):
    lines = gzip.decompress(STUCK.read_bytes()).splitlines(keepends=True)
    Path("a.jsonl").write_bytes(b"".join(lines[: len(lines) * 2 // 3]))
    Path("b.jsonl").write_bytes(b"".join(lines))
    files = ["a.jsonl", "b.jsonl"][::order]
    scanned = json.loads(CliRunner().invoke(app, ["scan", "--json", *files]).stdout.splitlines()[-1])
    assert (scanned["runs"], scanned["loops"]) == (1, 1)
    assert ": 1 run, 1 with a loop, " in report(*files, "-o", "page.html").stdout
    begun, *rest = sorted(data(tmp_path / "page.html")["runs"], key=lambda run: run.get("of", ""))
    assert [run["of"] for run in rest] == [begun["key"]] * len(rest)


def test_nothing_to_show_is_2_and_writes_nothing(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    assert report("empty", "-o", "page.html").exit_code == 2
    assert not (tmp_path / "page.html").exists()


def test_a_link_is_not_written_through(tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "page.html").symlink_to(victim)
    done = report(FINE, "-o", "page.html")
    assert done.exit_code == 2
    assert "symbolic link" in done.stderr
    assert victim.read_text() == "mine"


def test_a_page_that_fails_half_way_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "page.html").write_text("old")

    def fails(*_: object, **__: object) -> Any:
        yield "<!doctype html>"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("monitor.report.report_page.ReportPage.pieces", fails)
    assert report(FINE, "-o", "page.html").exit_code == 2
    assert (tmp_path / "page.html").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_limit_and_format_choose_the_runs(tmp_path: Path):
    report(SAMPLES, "--format", "gemini-cli", "--limit", 2, "-o", "page.html")
    runs = data(tmp_path / "page.html")["runs"]
    assert [run["agent"] for run in runs] == ["Gemini CLI"] * 2
