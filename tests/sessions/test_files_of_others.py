"""Ten ways to name, link, copy and remove sessions beside the files of other programs."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from monitor.errors import SessionBusy, SessionDamaged, SessionUnavailable
from monitor.sessions import SessionReader, SQLiteSession, fork, remove, retain
from monitor.sessions.lock import lock_path
from monitor.sessions.reader import log_path
from monitor.sessions.tables.marked_folder import MARK, blobs_path
from tests.sessions.making import says

pytestmark = pytest.mark.anyio

LONG = "x" * 70_000
FOREIGN = ("uv.lock", "poetry.lock", "x.lock", "x.blobs/notes.txt", "x.new", "x.session.new", "x.session.bak", "x.db")


@pytest.fixture
def beside(tmp_path: Path) -> Callable[[], None]:
    """Files of other programs. The answer checks that they are as they were."""
    for name in FOREIGN:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"of another program: {name}")
    (tmp_path / "empty.lock").touch()

    def check() -> None:
        for name in FOREIGN:
            assert (tmp_path / name).read_text() == f"of another program: {name}"
        assert (tmp_path / "empty.lock").exists()

    return check


async def write(path: Path, text: str = LONG) -> None:
    async with SQLiteSession(path) as session:
        await session.append(says(text))


def texts(path: Path) -> list[str]:
    with SessionReader(path) as reader:
        assert reader.verify() == ()
        return [node.data["content"][0]["text"] for node in reader.nodes()]


@pytest.mark.parametrize("name", ["uv.session", "poetry.session", "x.session", "empty.session", "x.y.session", "y"])
async def test_nothing_of_others_is_emptied_or_removed(tmp_path: Path, beside: Callable[[], None], name: str):
    path = tmp_path / name
    await write(path)
    await write(path, "more")
    assert texts(path) == [LONG, "more"]
    beside()
    fork(path, tmp_path / "copy.session")
    remove(path)
    assert retain(tmp_path, max_bytes=0).busy == ()
    beside()
    left = {str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*") if one.is_file()}
    assert left == {*FOREIGN, "empty.lock"}


async def test_two_sessions_of_one_stem_share_nothing(tmp_path: Path):
    one, other = tmp_path / "talk.session", tmp_path / "talk.db"
    await write(one)
    await write(other)
    async with SQLiteSession(one), SQLiteSession(other):
        pass
    remove(other)
    assert texts(one) == [LONG]


async def test_two_links_to_one_file_are_one_session_with_one_owner(tmp_path: Path):
    real, link, elsewhere = tmp_path / "real.session", tmp_path / "link.session", tmp_path / "deep" / "er.session"
    await write(real)
    link.symlink_to(real)
    elsewhere.parent.mkdir()
    elsewhere.symlink_to("../link.session")
    async with SQLiteSession(link) as session:
        assert session.path == real
        for name in (real, elsewhere):
            with pytest.raises(SessionBusy):
                await SQLiteSession(name).__aenter__()
        await session.append(says("by the link"))
    assert texts(elsewhere) == texts(real) == [LONG, "by the link"]
    remove(link)
    assert not real.exists()
    assert not link.is_symlink()


async def test_a_hard_link_is_refused_because_its_log_would_be_another_one(tmp_path: Path):
    path, other = tmp_path / "a.session", tmp_path / "b.session"
    await write(path)
    os.link(path, other)
    for name in (path, other):
        with pytest.raises(SessionUnavailable, match="hard links"):
            await SQLiteSession(name).__aenter__()
    other.unlink()
    leftover = tmp_path / "a.session.0123abcd.new"  # of a process that died while it named the file
    os.link(path, leftover)
    await write(path, "more")
    assert not leftover.exists()
    assert texts(path) == [LONG, "more"]


async def test_a_lock_file_of_others_under_our_very_name_is_refused(tmp_path: Path):
    path = tmp_path / "a.session"
    lock_path(path).write_text("of another program")
    with pytest.raises(SessionUnavailable, match="no lock file of agent-monitor"):
        await SQLiteSession(path).__aenter__()
    assert lock_path(path).read_text() == "of another program"
    lock_path(path).unlink()
    await write(path)


@pytest.mark.parametrize("left", [b"", b"\0" * 512])
async def test_a_lock_file_that_a_power_cut_has_left_empty_is_taken(tmp_path: Path, left: bytes):
    path = tmp_path / "a.session"
    lock_path(path).write_bytes(left)
    async with SQLiteSession(path):
        with pytest.raises(SessionBusy, match="process"):
            await SQLiteSession(path).__aenter__()
    await write(path, "more")


async def test_a_log_of_another_file_beside_a_closed_session_is_not_taken(tmp_path: Path):
    path, other = tmp_path / "a.session", tmp_path / "other.session"
    await write(path, "mine")
    async with SQLiteSession(other) as session:
        await session.append(says("another"))
        log = log_path(other).read_bytes()
        older = other.read_bytes()
    log_path(path).write_bytes(log)
    for opened in (SQLiteSession(path).__aenter__, lambda: anyio.to_thread.run_sync(SessionReader, path)):
        with pytest.raises(SessionDamaged, match="steps of another file"):
            await opened()
    log_path(path).unlink()
    assert texts(path) == ["mine"]
    assert other.read_bytes() != older


async def test_an_older_log_of_its_own_is_not_taken(tmp_path: Path):
    path = tmp_path / "a.session"
    await write(path, "first")
    async with SQLiteSession(path) as session:
        await session.append(says("second"))
        log = log_path(path).read_bytes()
    await write(path, "third")
    before = path.read_bytes()
    log_path(path).write_bytes(log)
    with pytest.raises(SessionDamaged, match="steps of another file"):
        await SQLiteSession(path).__aenter__()
    assert path.read_bytes() == before
    log_path(path).unlink()
    assert texts(path) == ["first", "second", "third"]


async def test_a_log_that_a_reader_kept_from_being_copied_is_taken(tmp_path: Path):
    path, copy = tmp_path / "a.session", tmp_path / "copy.session"
    await write(path, "first")
    with SessionReader(path) as reader, reader.snapshot():
        reader.count()
        async with SQLiteSession(path) as session:
            await session.append(says("second"))
            for name in (path, log_path(path)):  # what a kill leaves
                name.with_name(name.name.replace("a.session", "copy.session")).write_bytes(name.read_bytes())
    assert texts(copy) == ["first", "second"]


@pytest.mark.parametrize("held", [None, "notes.txt", "a" * 64])
async def test_a_folder_of_others_under_our_very_name_is_refused(tmp_path: Path, held: str | None):
    path = tmp_path / "a.session"
    folder = blobs_path(path)
    folder.mkdir()
    if held is not None:
        (folder / held).write_text("mine")
    await write(path, "short")
    with pytest.raises(SessionUnavailable, match="not made by agent-monitor"):
        await write(path)
    remove(path)
    assert [one.name for one in folder.iterdir()] == ([held] if held else [])


async def test_what_others_have_put_into_our_folder_stays(tmp_path: Path):
    path = tmp_path / "a.session"
    await write(path)
    (blobs_path(path) / "notes.txt").write_text("mine")
    remove(path)
    assert sorted(one.name for one in blobs_path(path).iterdir()) == [MARK, "notes.txt"]


async def test_a_file_that_is_no_session_is_not_removed(tmp_path: Path):
    foreign = tmp_path / "a.session"
    connection = sqlite3.connect(foreign)
    connection.execute("CREATE TABLE mine (it)")
    connection.close()
    text = tmp_path / "b.session"
    text.write_text("no database")
    before: list[Any] = [foreign.read_bytes(), text.read_bytes()]
    for one in (foreign, text):
        with pytest.raises(SessionDamaged, match="not removed"):
            remove(one)
    assert [one.name for one in retain(tmp_path, max_bytes=0).busy] == ["a", "b"]
    assert [foreign.read_bytes(), text.read_bytes()] == before
