"""A file of an older format is read as it is, and brought to the present one by the first write."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from monitor.sessions import SessionReader, SQLiteSession, exported, remove, salvage
from monitor.sessions.nodes import canonical
from monitor.sessions.tables.marked_folder import MARK
from monitor.sessions.tables.schema import APPLICATION_ID, FORMAT
from tests.sessions.making import says

pytestmark = [pytest.mark.anyio, pytest.mark.feature("AC-01")]

STATEMENTS = Path(__file__).with_name("format_4.sql").read_text("utf-8")
"""What `everything` of `test_files` wrote in format 4. The older formats have the same tables."""
LINES = "3b4f6199948718e997cdf2b12d4c600b2ecf95f146e4fb793041b29fa450a596"
"""The SHA-256 of its export: as the version that wrote it, with the fields since then."""
LONG = canonical({"content": [{"text": "x" * 70_000}], "type": "user_message"}).encode()
"""The body that stands beside the file."""


@pytest.fixture(params=[1, 2, 3, 4])
def older(path: Path, request: pytest.FixtureRequest) -> Path:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(STATEMENTS)
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={request.param}")
        connection.execute("PRAGMA journal_mode=WAL").fetchall()
        if request.param < 3:
            connection.execute("DELETE FROM meta WHERE key IN ('seal', 'in_use')")
    folder = path.with_name("a.blobs" if request.param < 3 else "a.session.blobs")
    folder.mkdir()
    if request.param >= 3:
        (folder / MARK).touch()
    (folder / hashlib.sha256(LONG).hexdigest()).write_bytes(LONG)
    return path


def digest_of(path: Path) -> str:
    with SessionReader(path) as reader:
        assert reader.verify() == ()
        return hashlib.sha256("\n".join(exported(reader)).encode()).hexdigest()


async def test_it_is_read_as_it_is_and_looking_changes_nothing(older: Path):
    before = older.read_bytes()
    assert digest_of(older) == LINES
    async with SQLiteSession(older) as session:
        assert session.pending_migration is not None
        assert session.pending_migration[1] == FORMAT
        assert len((await session.context()).messages) == 5
        assert await session.verify() == ()
    assert older.read_bytes() == before


async def test_the_first_write_brings_it_forward_whole(older: Path):
    async with SQLiteSession(older) as session:
        await session.switch_node(None, branch="new")
        assert session.pending_migration is None
        assert await session.verify() == ()
    with SessionReader(older) as reader:
        assert (reader.format, reader.verify()) == (FORMAT, ())
        lines = [line for line in exported(reader) if '"name":"new"' not in line]
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest() == LINES
    async with SQLiteSession(older) as session:
        await session.append(says("more"))
        assert await session.verify() == ()
    remove(older)
    assert [one.name for one in older.parent.iterdir() if one.name != "a.blobs"] == []


async def test_it_is_salvaged(older: Path, tmp_path: Path):
    saved = salvage(older, tmp_path / "b.session")
    assert saved.lost == ()
    with SessionReader(tmp_path / "b.session") as new, SessionReader(older) as old:
        assert (new.nodes(), new.calls(), new.heads()) == (old.nodes(), old.calls(), old.heads())
        assert new.verify() == ()


@pytest.mark.parametrize(
    "harm", ["UPDATE call SET state = 'intended'", "UPDATE meta SET value = 1 WHERE key = 'created_ms'"]
)
@pytest.mark.parametrize("older", [3, 4], indirect=True)
async def test_a_change_by_another_program_shows(older: Path, harm: str):
    with closing(sqlite3.connect(older, isolation_level=None)) as connection:
        connection.execute(harm)
    with SessionReader(older) as reader:
        assert reader.verify() != ()
