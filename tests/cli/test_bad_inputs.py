"""Whatever a command is pointed at: it says in a sentence what is wrong, and never gives an
all-clear.
"""

from __future__ import annotations

import gzip
import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from rich.console import Console
from typer.testing import CliRunner

from monitor.cli.app import app
from monitor.cli.render.scan_report import progress

SAMPLE = Path(__file__).parents[2] / "fixtures/readers/claude-code/4c289ca8-f8bb-4588-8400-88b78beb784d.jsonl.gz"


def archive() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.jsonl", gzip.decompress(SAMPLE.read_bytes()))
    return packed.getvalue()


def folder(place: Path) -> None:
    place.mkdir()


INPUTS: Final[dict[str, Callable[[Path], object]]] = {
    "nothing": lambda place: place,
    "an empty folder": folder,
    "an empty file": lambda place: place.write_bytes(b""),
    "foreign bytes": lambda place: place.write_bytes(bytes(range(256)) * 20),
    "a text": lambda place: place.write_text("Dear reader,\n"),
    "a cut archive": lambda place: place.with_suffix(".zip").write_bytes(archive()[:5_000]),
    "a cut packed file": lambda place: place.write_bytes(gzip.compress(os.urandom(9_000))[:4_000]),
    "a damaged packed file": lambda place: place.write_bytes(b"\x28\xb5\x2f\xfd" + b"nonsense" * 9),
}
COMMANDS: Final[dict[str, list[str]]] = {
    "scan": [],
    "report": ["-o", "page.html"],
    "calibrate": [],
    "context": [],
    "compact": [],
    "judge-eval": ["--judge", "replay:nowhere.jsonl"],
}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize("given", INPUTS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_what_is_wrong_with_what_it_was_given(command: str, given: str, tmp_path: Path):
    place = tmp_path / "given"
    INPUTS[given](place)
    path = place if place.exists() else next(tmp_path.glob("given.*"), place)
    done = run(command, str(path), *COMMANDS[command])
    assert done.exit_code == 2
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert path.name in done.stderr or "nowhere.jsonl" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["scan", "report", "calibrate"])
def test_without_a_path_and_without_transcripts_the_agents_are_named(command: str, tmp_path: Path):
    done = run(command)
    assert done.exit_code == 2
    assert f"below {tmp_path}" in done.stderr
    assert all(agent in done.stderr for agent in ("Claude Code", "Codex", "Gemini CLI", "opencode"))
    assert "see above" not in done.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--project", "other"], "1 run left out by --project"),
        (["--format", "codex"], "1 run left out by --format"),
        (["--since", "2200-01-01"], "1 file not written since then"),
    ],
)
def test_a_choice_that_leaves_nothing_is_named(options: list[str], said: str, tmp_path: Path):
    path = tmp_path / "session.jsonl"
    path.write_bytes(gzip.decompress(SAMPLE.read_bytes()))
    done = run("scan", *options, str(path))
    assert done.exit_code == 2
    assert said in done.stderr
    assert "could not be read" not in done.output


def test_a_few_files_of_no_known_format_are_named(tmp_path: Path):
    (tmp_path / "session.jsonl").write_bytes(gzip.decompress(SAMPLE.read_bytes()))
    (tmp_path / "notes.json").write_text("{}")
    assert "1 file of no known format (notes.json)" in run("scan", str(tmp_path)).stdout


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_the_bar_the_counts_and_the_time_left_stay_on_one_line(width: int):
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    with progress(console, 1_000, lambda: 500, quiet=False) as tick:
        tick(12, 3, "/a/very/long/path/of/folders/rollout-2026-11-22T10-00-00-0123456789abcdef.jsonl")
    drawn = [line for line in out.getvalue().replace("\r", "\n").splitlines() if "12 runs" in line]
    assert drawn
    for line in drawn:
        assert "3 with a loop" in line or width < 60
