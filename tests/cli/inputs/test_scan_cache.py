"""A second scan reads only the files that have changed."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from monitor.cli.app import app
from monitor.cli.inputs import survey_workers
from monitor.cli.inputs.survey_workers import BytesRead, ScanCache, SurveySettings, surveyed_files

OLD_S = 1_700_000_000


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(name: str, calls: int, at_s: int = OLD_S) -> Path:
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Tidy up {name}."}]
    for at in range(calls):
        call = {"id": f"c{at}", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{at}", "content": "denied"})
    path = Path(name)
    path.write_text("".join(json.dumps(message) + "\n" for message in messages))
    os.utime(path, (at_s, at_s))
    return path


def scanned(*options: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["scan", "--json", *options])
    assert done.exit_code in {0, 1}, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return summary


def test_an_unchanged_file_is_not_read_again():
    for number in range(3):
        written(f"{number}.jsonl", 9)
    first, second = scanned("."), scanned(".")
    assert (first["unchanged_files"], second["unchanged_files"]) == (0, 3)
    assert {**first, "unchanged_files": 3} == second
    assert second["loops"] == 3


def test_a_file_whose_name_is_no_text_is_not_read_again_either():
    written(os.fsdecode(b"runs\xff.jsonl"), 9)
    first, second = scanned("."), scanned(".")
    assert (first["unchanged_files"], second["unchanged_files"]) == (0, 1)
    assert (first["loops"], second["loops"]) == (1, 1)


def grown(path: Path) -> None:
    with path.open("a") as out:
        out.write('{"role": "user", "content": "more"}\n')
    os.utime(path, (OLD_S, OLD_S))


def touched(path: Path) -> None:
    os.utime(path, (OLD_S + 1, OLD_S + 1))


def changed_with_the_old_time_and_size(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"denied", b"opened"))
    os.utime(path, (OLD_S, OLD_S))


def replaced(path: Path) -> None:
    other = written("other", 9)
    other.replace(path)


@pytest.mark.parametrize("change", [grown, touched, changed_with_the_old_time_and_size, replaced])
def test_a_file_that_was_changed_is_read_again(change: Callable[[Path], None]):
    path = written("a.jsonl", 9)
    scanned(str(path))
    change(path)
    assert scanned(str(path))["unchanged_files"] == 0
    assert scanned(str(path))["unchanged_files"] == 1


def test_a_file_that_is_being_written_is_read_each_time():
    path = written("a.jsonl", 9)
    os.utime(path)
    scanned(str(path))
    assert scanned(str(path))["unchanged_files"] == 0


def test_a_database_with_a_file_of_new_rows_is_read_each_time():
    path = written("a.jsonl", 9)
    Path("a.jsonl-wal").touch()
    scanned(str(path))
    assert scanned(str(path))["unchanged_files"] == 0


def test_other_settings_read_again():
    path = written("a.jsonl", 6)
    assert scanned(str(path))["loops"] == 1
    other = ("--set", "ToolCallRepetition.loop_at=9", "--detectors", "ToolCallRepetition")
    assert scanned(str(path), *other)["loops"] == 0
    assert scanned(str(path), *other)["unchanged_files"] == 1


def test_without_a_cache_nothing_is_kept(empty_cache: Path):
    path = written("a.jsonl", 6)
    scanned(str(path), "--no-cache")
    assert list(empty_cache.iterdir()) == []
    scanned(str(path))
    assert scanned(str(path), "--no-cache")["unchanged_files"] == 0


def test_the_results_are_for_their_owner_alone(empty_cache: Path):
    path = written("a.jsonl", 6)
    scanned(str(path))
    (kept,) = (empty_cache / "agent-monitor" / "scans").iterdir()
    assert (kept.parent.stat().st_mode & 0o777, kept.stat().st_mode & 0o777) == (0o700, 0o600)
    kept.chmod(0o666)
    assert scanned(str(path))["unchanged_files"] == 0


@pytest.mark.parametrize("harm", [b"no database at all, " * 100, b""])
def test_a_cache_that_is_damaged_is_made_again(harm: bytes, empty_cache: Path):
    path = written("a.jsonl", 6)
    scanned(str(path))
    (kept,) = (empty_cache / "agent-monitor" / "scans").iterdir()
    kept.write_bytes(harm)
    assert scanned(str(path))["unchanged_files"] == 0
    assert scanned(str(path))["unchanged_files"] == 1


def test_a_cache_that_another_scan_holds_holds_up_nobody(empty_cache: Path):
    path = written("a.jsonl", 6)
    scanned(str(path))
    (kept,) = (empty_cache / "agent-monitor" / "scans").iterdir()
    with sqlite3.connect(kept) as other:
        other.execute("begin exclusive")
        assert scanned(str(path))["loops"] == 1
    other.close()


def test_a_scan_that_was_interrupted_keeps_what_it_has_read(tmp_path: Path):
    paths = [written(f"{number}.jsonl", 6) for number in range(3)]
    chosen = SurveySettings("{}")

    def interrupted() -> None:
        with ScanCache(tmp_path / "results.db", "{}") as cache:
            found = surveyed_files(paths, chosen, BytesRead(), cache)
            next(found)
            next(found)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with ScanCache(tmp_path / "results.db", "{}") as cache:
        assert [cache.has(path) for path in paths] == [True, True, False]


def test_the_oldest_results_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(survey_workers, "MOST_ROWS", 2)
    paths = [written(f"{number}.jsonl", 6) for number in range(3)]
    with ScanCache(tmp_path / "results.db", "{}") as cache:
        list(surveyed_files(paths, SurveySettings("{}"), BytesRead(), cache))
    with ScanCache(tmp_path / "results.db", "{}") as cache:
        assert [cache.has(path) for path in paths] == [False, True, True]


def test_the_bytes_of_a_long_file_are_counted_while_it_is_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("monitor.transcripts.source.TELL_BYTES", 1_000)
    path = written("a.jsonl", 60)
    told: list[int] = []
    SurveySettings("{}").examine(path, told.append)
    assert len(told) > 5
    assert sum(told) == path.stat().st_size
