"""The processes that read the transcripts of a scan, and files that change meanwhile."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from monitor.cli.inputs.survey_workers import BytesRead, ScanCache, SurveySettings, surveyed_files, without_interrupts
from monitor.transcripts.analysis.scan import Finding
from monitor.transcripts.analysis.survey import SurveyedFile, Watcher
from monitor.transcripts.base import RecordedMessage


def test_a_process_that_is_started_without_interrupts_never_gets_one():
    look = [sys.executable, "-c", "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))"]
    with without_interrupts():
        inside = subprocess.run(look, capture_output=True, text=True, check=True)
    outside = subprocess.run(look, capture_output=True, text=True, check=True)
    assert (inside.stdout, outside.stdout) == ("True\n", "False\n")


def read_while(change: Callable[[], None], path: Path, *, times: int = 1) -> SurveyedFile:
    """The transcript at `path`. `change` is called with the first message of a run, at most so many
    `times`.
    """
    left = [change] * times

    class Meanwhile(Watcher):
        def take(self, message: RecordedMessage) -> Sequence[Finding]:
            if self._index == 0 and left:
                left.pop()()
            return super().take(message)

    with ScanCache(path.with_name("results.db"), "{}") as cache:
        ((found,),) = surveyed_files([path], SurveySettings("{}", Meanwhile), BytesRead(), cache)
    with closing(sqlite3.connect(path.with_name("results.db"))) as kept:
        assert kept.execute("select count(*) from results").fetchone() == (0,)
    return found


def line(said: str, role: str = "assistant") -> str:
    return json.dumps({"role": role, "content": said}) + "\n"


LONG = line("Go.", "user") + "".join(line(f"Part {at}: {'so' * 200}") for at in range(900))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl"
    path.write_text(LONG)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return path


def test_of_a_file_that_grows_a_whole_beginning_is_read(path: Path):
    def grow() -> None:
        with path.open("a") as file:
            file.write(line("More."))

    found = read_while(grow, path)
    assert (found.error, len(found.runs), found.report.bad) == ("", 1, 0)
    assert found.runs[0].total.turns in {900, 901}


@pytest.mark.parametrize("text", [LONG.replace("so", "no"), LONG[: len(LONG) // 2], LONG[:90], ""])
def test_a_file_that_is_written_anew_is_read_again(text: str, path: Path):
    def write() -> None:
        path.write_text(text)

    found = read_while(write, path)
    assert sum(run.total.turns for run in found.runs) == max(text.count("\n") - 1, 0)


def test_a_file_that_another_takes_the_place_of_is_read_again(path: Path):
    def replace() -> None:
        path.with_name("b").write_text(line("Go.", "user") + line("Other."))
        path.with_name("b").rename(path)

    assert read_while(replace, path).runs[0].total.turns == 1


def test_a_file_that_is_always_written_anew_counts_as_not_read(path: Path):
    texts = [LONG.replace("so", word) for word in ("to", "no", "do", "go")]

    def write() -> None:
        path.write_text(texts.pop())

    found = read_while(write, path, times=4)
    assert (found.error, found.runs) == ("it changes while it is read", ())


def test_a_file_that_goes_is_read_to_its_end(path: Path):
    def remove() -> None:
        path.unlink()

    assert read_while(remove, path).runs[0].total.turns == 900


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_database_that_is_written_gives_whole_sessions_and_holds_up_nobody(mode: str, tmp_path: Path):
    path = tmp_path / "sessions.db"
    with closing(sqlite3.connect(path, timeout=0)) as goose:
        goose.execute(f"PRAGMA journal_mode = {mode}")
        goose.execute("CREATE TABLE sessions (id TEXT, working_dir TEXT, description TEXT)")
        goose.execute("CREATE TABLE messages (session_id TEXT, role TEXT, content_json TEXT, created_timestamp INT)")

        def say() -> None:
            for session in "ab":
                for role in ("user", "assistant"):
                    said = json.dumps([{"type": "text", "text": "Go."}])
                    goose.execute("INSERT INTO messages VALUES (?, ?, ?, 1)", (session, role, said))
            goose.commit()

        goose.execute("INSERT INTO sessions VALUES ('a', '/w', 'one'), ('b', '/w', 'two')")
        for _ in range(20):
            say()
        found = read_while(say, path, times=10)
    assert (found.error, found.report.bad, [run.id for run in found.runs]) == ("", 0, ["a", "b"])
    assert all(run.total.turns in range(20, 23) for run in found.runs)
