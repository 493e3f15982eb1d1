"""Full disks, read-only files, damaged files, replaced files: typed, and nothing is made worse."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monitor.errors import (
    ConfigError,
    SessionDamaged,
    SessionLost,
    SessionTooNew,
    SessionUnavailable,
    StoreError,
)
from monitor.sessions import Changes, RunRecord, SessionReader, SQLiteSession, marker
from monitor.sessions.tables.marked_folder import MARK, BlobFolder, blobs_path
from monitor.sessions.tables.schema import FORMAT, PAGE_BYTES, check_sqlite
from tests.sessions.making import call, request, says

pytestmark = [pytest.mark.anyio, pytest.mark.feature("AC-01")]


async def make(path: Path, nodes: int = 40) -> list[str]:
    async with SQLiteSession(path) as session:
        return [(await session.append(says(f"{number} {'x' * 900}")))[0].id for number in range(nodes)]


class Failing:
    """A connection that fails at its n-th statement, as SQLite says it."""

    def __init__(self, path: Path, at: int, code: int) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._left = at
        self._code = code
        self.failed = False

    def execute(self, sql: str, parameters: Any = ()) -> Any:
        self._left -= 1
        if self._left == 0 and not sql.startswith("ROLLBACK"):
            self.failed = True
            error = sqlite3.OperationalError("it failed")
            error.sqlite_errorcode = self._code
            raise error
        return self._connection.execute(sql, parameters)

    def close(self) -> None:
        self._connection.close()


EVERYTHING = Changes(
    runs=[RunRecord(id="r")],
    nodes=[says("a", run="r"), says("b" * 70_000), marker("m")],
    calls=[call("1")],
    requests=[request("q")],
)


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY])
async def test_a_failure_at_any_statement_is_typed_and_stores_nothing_of_the_step(path: Path, code: Any):
    ids = await make(path, 2)
    at = 0
    while True:
        at += 1
        made: list[Failing] = []

        def connect(file: Path, at: int = at, made: list[Failing] = made) -> Failing:
            made.append(Failing(file, at, code))
            return made[-1]

        session = SQLiteSession(path, connect=connect)
        try:
            async with session:
                await session.commit(EVERYTHING)
        except SessionUnavailable:
            pass  # the session is looked at below
        if not made[-1].failed:
            break
        with SessionReader(path) as reader:
            assert [node.id for node in reader.nodes()][:2] == ids
            assert len(reader.nodes()) in {2, 5}  # a statement behind the commit only closes
            assert reader.verify() == ()
            if len(reader.nodes()) == 5:
                break
    assert at > 20


@pytest.mark.parametrize("at", [1, 8, 20, 30])
async def test_a_session_that_could_not_be_made_leaves_no_file(path: Path, at: int):
    with pytest.raises(SessionUnavailable, match=r"cannot be made .*; nothing was written"):
        await SQLiteSession(path, connect=lambda file: Failing(file, at, sqlite3.SQLITE_FULL)).__aenter__()
    assert [one.name for one in path.parent.iterdir()] == ["a.session.lock"]
    assert await make(path, 1)


async def test_on_a_full_disk_the_step_is_refused_and_the_next_one_fits_when_there_is_room(path: Path):
    await make(path, 2)
    made: list[sqlite3.Connection] = []

    def connect(file: Path) -> sqlite3.Connection:
        made.append(sqlite3.connect(file, isolation_level=None, check_same_thread=False))
        made[0].execute("PRAGMA max_page_count=320")
        return made[0]

    async with SQLiteSession(path, connect=connect) as session:
        for stored in range(2, 40):  # noqa: B007 - how far it came
            try:
                await session.append(says("x" * 5_000))
            except SessionUnavailable:
                break
        with pytest.raises(SessionUnavailable, match=r"full.*make room"):
            await session.append(says("x" * 5_000))
        assert 5 < stored < 39
        assert len(await session.nodes()) == stored
        made[0].execute("PRAGMA max_page_count=32000")
        await session.append(says("x" * 5_000))
        assert len(await session.nodes()) == stored + 1
        assert await session.verify() == ()


async def test_after_a_disk_failure_nothing_more_is_written_until_it_is_opened_again(path: Path):
    await make(path, 1)

    def connect(file: Path) -> Failing:
        return Failing(file, 20, sqlite3.SQLITE_IOERR)

    async with SQLiteSession(path, connect=connect) as session:
        for _ in range(9):
            with contextlib.suppress(SessionUnavailable):
                await session.append(says("a"))
        with pytest.raises(SessionUnavailable, match="open it again"):
            await session.append(says("b"))
        count = len(await session.nodes())
    async with SQLiteSession(path) as session:
        await session.append(says("c"))
        assert len(await session.nodes()) == count + 1


async def test_a_read_only_file_can_be_read_and_says_so_at_a_write(path: Path):
    await make(path, 2)
    before = path.read_bytes()

    def connect(file: Path) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{file}?mode=ro", uri=True, isolation_level=None)

    async with SQLiteSession(path, connect=connect) as session:
        assert len(await session.nodes()) == 2
        with pytest.raises(SessionUnavailable, match="read only"):
            await session.append(says("a"))
    assert path.read_bytes() == before


async def test_a_file_that_is_replaced_while_open_gets_nothing_more(path: Path, tmp_path: Path):
    await make(path, 2)
    await make(tmp_path / "other.session", 3)
    async with SQLiteSession(path) as session:
        await session.append(says("a"))
        (tmp_path / "other.session").replace(path)
        before = path.read_bytes()
        for _ in range(2):
            with pytest.raises(SessionLost, match="replaced"):
                await session.append(says("b"))
    assert path.read_bytes() == before


async def test_a_file_that_is_removed_while_open_gets_nothing_more(path: Path):
    async with SQLiteSession(path) as session:
        await session.append(says("a"))
        path.unlink()
        with pytest.raises(SessionLost, match="removed"):
            await session.append(says("b"))
    assert not path.exists()


async def try_to_open(opened: Any, path: Path) -> None:
    made = opened(path)
    await made.__aenter__()


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def stub(data: bytes) -> bytes:
    return data[:300]


def text(data: bytes) -> bytes:
    return b"This is a letter, and no session. " * 200


def garbage_at_the_start(data: bytes) -> bytes:
    return data[:100] + os.urandom(PAGE_BYTES - 100) + data[PAGE_BYTES:]


def foreign(data: bytes) -> bytes:
    return data[:68] + b"\0\0\0\0" + data[72:]


@pytest.mark.parametrize("harm", [cut, stub, text, garbage_at_the_start, foreign])
@pytest.mark.parametrize("opened", [SQLiteSession, SessionReader])
async def test_a_damaged_file_is_named_as_such_and_left_as_it_is(
    path: Path, harm: Callable[[bytes], bytes], opened: Any
):
    await make(path)
    path.write_bytes(harm(path.read_bytes()))
    before = path.read_bytes()
    with pytest.raises(SessionDamaged, match="not changed"):
        await try_to_open(opened, path)
    assert path.read_bytes() == before
    log = path.with_name("a.session-wal")  # SQLite leaves an empty one where a reader came first
    assert not log.exists() or log.stat().st_size == 0


async def test_a_garbage_page_in_the_middle_is_found_when_it_is_read_and_by_verify(path: Path):
    await make(path)
    with SessionReader(path) as reader:
        page = reader._connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'monitor_nodes'").fetchone()[
            0
        ]
    data = bytearray(path.read_bytes())
    data[(page - 1) * PAGE_BYTES : page * PAGE_BYTES] = b"\x5a" * PAGE_BYTES
    path.write_bytes(data)
    before = path.read_bytes()
    with pytest.raises(SessionDamaged):
        async with SQLiteSession(path) as session:
            await session.nodes()
    with pytest.raises(SessionDamaged), SessionReader(path) as reader:
        reader.nodes()
    assert path.read_bytes() == before


async def test_whichever_page_is_garbage_its_owner_gets_no_session_to_append_to(path: Path):
    await make(path, 20)
    whole = path.read_bytes()
    for start in range(PAGE_BYTES, len(whole), PAGE_BYTES):
        path.write_bytes(harmed := whole[:start] + b"\x5a" * PAGE_BYTES + whole[start + PAGE_BYTES :])
        with pytest.raises(SessionDamaged, match="not changed"):
            async with SQLiteSession(path):
                pass
        assert path.read_bytes() == harmed


@pytest.mark.parametrize("opened", [SQLiteSession, SessionReader])
async def test_a_newer_format_is_too_new_for_an_owner_and_for_a_reader(path: Path, opened: Any):
    await make(path, 2)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA user_version={FORMAT + 1}")
    before = path.read_bytes()
    with pytest.raises(SessionTooNew) as refused:
        await try_to_open(opened, path)
    assert (refused.value.found, refused.value.known) == (FORMAT + 1, FORMAT)
    assert path.read_bytes() == before


async def test_a_session_that_is_not_there_is_made_or_refused(path: Path):
    with pytest.raises(StoreError, match="there is no session"):
        await SQLiteSession(path, create=False).__aenter__()
    assert not path.exists()
    with pytest.raises(StoreError, match="there is no session"):
        SessionReader(path)
    path.touch()
    async with SQLiteSession(path) as session:
        await session.append(says("a"))
    with pytest.raises(SessionUnavailable, match="nothing was"):
        await SQLiteSession(path.parent / "no folder" / "a.session").__aenter__()


async def test_a_long_body_that_is_missing_or_changed_is_found(path: Path):
    async with SQLiteSession(path) as session:
        await session.append(says("x" * 70_000))
        (blob,) = (one for one in blobs_path(path).iterdir() if one.name != MARK)
        data = blob.read_bytes()
        blob.write_bytes(data[:-1] + b"!")
        with pytest.raises(SessionDamaged, match="not as it was written"):
            await session.context()
        assert await session.verify() != ()
        blob.unlink()
        with pytest.raises(SessionDamaged, match="cannot be read"):
            await session.context()
        blob.write_bytes(data)
        assert await session.verify() == ()


async def test_blobs_are_stored_once_and_for_their_owner_alone(tmp_path: Path):
    folder = BlobFolder(tmp_path / "b")
    digest = folder.put(b"x" * 10)
    assert folder.put(b"x" * 10) == digest
    assert {one.name for one in (tmp_path / "b").iterdir()} == {MARK, digest}
    assert folder.get(digest) == b"x" * 10
    assert ((tmp_path / "b").stat().st_mode & 0o777, (tmp_path / "b" / digest).stat().st_mode & 0o777) == (0o700, 0o600)
    (tmp_path / "file").touch()
    with pytest.raises(SessionUnavailable):
        BlobFolder(tmp_path / "file").put(b"x")


async def test_an_old_sqlite_is_refused_by_its_version():
    with pytest.raises(ConfigError, match=r"3\.40\.0 or newer, and this Python has 3\.39\.4"):
        check_sqlite((3, 39, 4))


KEPT = ("monitor_nodes", "monitor_events", "monitor_chunks")
"""Tables whose rows are never changed or removed."""
HARMS = {
    "update": "UPDATE {table} SET body = '{{}}'",
    "update or replace": "UPDATE OR REPLACE {table} SET seq = 1 WHERE seq = 2",
    "delete": "DELETE FROM {table}",
    "replace": "REPLACE INTO {table} SELECT * FROM {table} WHERE seq = 1",
    "insert or replace": "INSERT OR REPLACE INTO {table} SELECT * FROM {table} WHERE seq = 2",
    "upsert": "INSERT INTO {table} SELECT * FROM {table} WHERE seq = 1 ON CONFLICT DO UPDATE SET body = '{{}}'",
}


@pytest.mark.feature("AC-01")
@pytest.mark.parametrize("table", KEPT)
@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
async def test_no_statement_changes_or_removes_a_row_that_is_kept(path: Path, table: str, harm: str):
    await make(path, 2)
    connection = sqlite3.connect(path, isolation_level=None)
    for _ in range(2):
        if table != "monitor_nodes":
            connection.execute(
                f"INSERT INTO {table} (session, at_ms, body{', type' if table == 'monitor_events' else ''})"
                f" VALUES (1, 1, '{{}}'{', 1' if table == 'monitor_events' else ''})"
            )
    before = connection.execute(f"SELECT * FROM {table} ORDER BY seq").fetchall()
    with pytest.raises(sqlite3.IntegrityError, match="never changed or removed"):
        connection.execute(harm.format(table=table))
    assert connection.execute(f"SELECT * FROM {table} ORDER BY seq").fetchall() == before
    connection.close()


@pytest.mark.feature("AC-01")
async def test_a_node_with_the_id_of_another_does_not_replace_it(path: Path):
    await make(path, 2)
    connection = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(sqlite3.IntegrityError, match="never changed or removed"):
        connection.execute(
            "INSERT OR REPLACE INTO monitor_nodes (session, id, kind, at_ms, digest, body)"
            " SELECT session, id, kind, at_ms, digest, '{}' FROM monitor_nodes WHERE seq = 1"
        )
    connection.close()


async def test_the_file_is_for_its_owner_alone_and_alone_when_closed(path: Path):
    await make(path, 2)
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(one.name for one in path.parent.iterdir()) == ["a.session", "a.session.lock"]
