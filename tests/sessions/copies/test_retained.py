"""Sessions are removed whole, by age and by size, from a folder and from a database."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from monitor.errors import ConfigError
from monitor.sessions import PostgresSession, SQLiteSession, StoredSession, retain, sessions_in
from monitor.sessions.copies import retained
from monitor.sessions.copies.json_lines import remove
from monitor.sessions.postgres.postgres_reader import PostgresReader, SessionsReader
from tests import databases
from tests.sessions.making import says

pytestmark = pytest.mark.anyio


async def folder_of(tmp_path: Path, ages_s: list[float]) -> Path:
    folder = tmp_path / "all"
    folder.mkdir()
    for number, age_s in enumerate(ages_s):
        one = folder / f"{number}.session"
        async with SQLiteSession(one) as session:
            await session.append(says("x" * 10_000))
        os.utime(one, (1e9 - age_s, 1e9 - age_s))
    return folder


async def test_sessions_are_kept_by_age_and_removed_whole(tmp_path: Path):
    folder = await folder_of(tmp_path, [100, 50, 10])
    assert [one.name for one in sessions_in(folder)] == ["0", "1", "2"]
    assert [one.name for one in retain(folder, max_age_s=40, now_s=1e9, dry=True).removed] == ["0", "1"]
    assert len(sessions_in(folder)) == 3
    done = retain(folder, max_age_s=40, now_s=1e9)
    assert [one.name for one in done.removed] == ["0", "1"]
    assert sorted(one.name for one in folder.iterdir()) == ["2.session", "2.session.lock"]
    assert done.size == sum(one.size for one in sessions_in(folder))


async def test_sessions_are_kept_by_size_the_oldest_go_first_and_none_in_use(tmp_path: Path):
    folder = await folder_of(tmp_path, [100, 50, 10])
    each = sessions_in(folder)[0].size
    assert retain(folder, max_bytes=3 * each, now_s=1e9).removed == ()
    async with SQLiteSession(folder / "0.session"):
        done = retain(folder, max_bytes=2 * each, now_s=1e9)
    assert [one.name for one in done.busy] == ["0"]
    assert [one.name for one in done.removed] == ["1"]
    assert [one.name for one in sessions_in(folder)] == ["0", "2"]
    assert retain(folder, now_s=1e9).removed == ()
    with pytest.raises(ConfigError):
        retain(folder, max_bytes=-1)


async def test_sessions_in_a_database_are_removed_by_age_and_size_and_none_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AGENT_MONITOR_SESSIONS", str(tmp_path))
    with databases.postgres() as address:
        names = [uuid4().hex for _ in range(4)]
        for days, name in zip((9, 7, 5, 1), names, strict=True):
            async with PostgresSession(address, name) as session:
                await session.append(says("x" * 10_000))
            with psycopg.connect(address, autocommit=True) as db:
                db.execute(
                    "update monitor_sessions set changed = clock_timestamp() - %s * interval '1 day' where name = %s",
                    (days, name),
                )
        dry = retain(address, max_age_s=8 * 86_400, dry=True)
        assert [one.name for one in dry.removed] == names[:1]
        async with PostgresSession(address, names[1]):
            done = retain(address, max_age_s=6 * 86_400, max_bytes=dry.size // 3)
        assert [one.name for one in done.busy] == names[1:2]
        assert [one.place for one in done.removed] == [f"{address}#{name}" for name in (names[0], names[2], names[3])]


async def test_sessions_that_somebody_else_removes_meanwhile_do_not_end_a_clean_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = await folder_of(tmp_path, [100, 50, 10])

    def overtaken(place: Path) -> None:
        if place.name == "0.session":
            remove(place)
        remove(place)

    monkeypatch.setattr(retained, "remove", overtaken)
    done = retain(folder, max_age_s=0, now_s=1e9)
    assert ([one.name for one in done.removed], done.busy, done.size) == (["1", "2"], (), 0)
    with databases.postgres() as address:
        names = [uuid4().hex for _ in range(2)]
        for name in names:
            async with PostgresSession(address, name) as session:
                await session.append(says("x"))
        opened = SessionsReader.opened

        def removed_before(there: SessionsReader, name: str) -> PostgresReader:
            if name == names[0]:
                remove(f"{address}#{name}")
            return opened(there, name)

        monkeypatch.setattr(SessionsReader, "opened", removed_before)
        listed = [one.name for one in retain(address, max_age_s=0, dry=True).removed]
        assert (names[0] in listed, names[1] in listed) == (False, True)


def test_the_password_of_an_address_does_not_stand_in_what_is_printed_of_a_session():
    one = StoredSession("work", "postgresql://ada:s3cret@host/db#work", 10, 1e9)
    assert "s3cret" not in repr(one)
