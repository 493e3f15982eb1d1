"""Where transcripts are looked for, and what is said of a place that cannot be read."""

from __future__ import annotations

import gzip
import io
import os
import socket
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from monitor.transcripts.analysis.survey import SurveyedFile, survey_file
from monitor.transcripts.places import files, known_places, sources_of

SESSION = (
    Path(__file__).parents[2] / "fixtures/readers/claude-code/bd937e2a-89e9-4d7b-8125-293a35863fa4.jsonl"
).read_bytes()


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(SESSION)
    return path


def read(path: Path) -> SurveyedFile:
    (found,) = map(survey_file, sources_of(path))
    return found


@pytest.fixture
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that cannot be read, also for an administrator."""
    folder = put(tmp_path / "home/.claude/projects/closed/a.jsonl").parent
    scandir, access = os.scandir, os.access

    def denied(path: Any) -> Any:
        if Path(path) == folder:
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(path)

    monkeypatch.setattr("monitor.transcripts.places.os.scandir", denied)
    monkeypatch.setattr(
        "monitor.transcripts.places.os.access", lambda path, mode: path != folder and access(path, mode)
    )
    return folder


def test_a_folder_that_cannot_be_read_stands_for_its_files(tmp_path: Path, closed: Path):
    open_one = put(tmp_path / "home/.claude/projects/open/b.jsonl")
    assert list(files([str(tmp_path / "home")])) == [closed, open_one]
    assert list(files([f"{tmp_path}/home/.claude/**/*.jsonl"])) == [closed, open_one]
    assert list(known_places(tmp_path / "home")) == [("claude-code", closed), ("claude-code", open_one)]
    assert read(closed).error == "the folder cannot be read"


def test_links_to_folders_are_followed_and_circles_end(tmp_path: Path):
    put(tmp_path / "elsewhere/a.jsonl")
    here = put(tmp_path / "here/b.jsonl").parent
    (here / "self").symlink_to(here)
    (here / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/back").symlink_to(here)
    (here / "one.jsonl").symlink_to(here / "two.jsonl")
    (here / "two.jsonl").symlink_to(here / "one.jsonl")
    (here / "gone.jsonl").symlink_to("/nowhere")
    assert [path.name for path in files([str(here)])] == ["b.jsonl", "a.jsonl"]


def test_pipes_sockets_and_devices_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    put(tmp_path / "a.jsonl")
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "zeros.jsonl").symlink_to("/dev/zero")
    monkeypatch.chdir(tmp_path)
    with closing(socket.socket(socket.AF_UNIX)) as one:
        one.bind("socket.jsonl")
        assert [path.name for path in files([str(tmp_path)])] == ["a.jsonl"]
        assert [path.name for path in files([f"{tmp_path}/*.jsonl"])] == ["a.jsonl"]


def test_an_archive_within_an_archive_is_said_to_be_unread(tmp_path: Path):
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("a.jsonl", SESSION)
    with zipfile.ZipFile(tmp_path / "outer.zip", "w") as archive:
        archive.writestr("inner.zip", inner.getvalue())
    assert read(tmp_path / "outer.zip").error == "it is an archive within an archive; unpack it first"


def database(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as file:
        file.executescript("CREATE TABLE session (id); CREATE TABLE message (id); CREATE TABLE part (id);")
    return path


def test_a_database_that_is_locked_or_damaged_or_packed_is_said_to_be_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = database(tmp_path / "opencode.db")
    assert (read(path).format, read(path).error) == ("opencode", "")
    packed = tmp_path / "packed.db.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read(packed).error == "it is an SQLite database that cannot be read: it is packed; unpack it first"
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        connect: Any = sqlite3.connect
        monkeypatch.setattr(sqlite3, "connect", lambda *at, **how: connect(*at, **how, timeout=0))
        assert read(path).error == "it is an SQLite database that cannot be read: database is locked"
    path.write_bytes(path.read_bytes()[:5_000])
    assert read(path).error == "it is an SQLite database that cannot be read: database disk image is malformed"
