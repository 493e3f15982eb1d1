"""Sessions as files of a folder: made whole or not at all, copied, listed, removed."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from monitor.errors import SessionDamaged, SessionNotFound, SessionUnavailable, StoreError
from monitor.sessions.beside.mailbox import mailbox_of
from monitor.sessions.faults import typed
from monitor.sessions.lock import OwnerLock, lock_path
from monitor.sessions.nodes import ID_CHANCE_BYTES, new_id
from monitor.sessions.reader import check_file, connect_reader, is_session, resolved, unfinished
from monitor.sessions.tables import rows
from monitor.sessions.tables.blobs import Blobs, blobs_of, blobs_path, sync_file
from monitor.sessions.tables.marked_folder import sync_folder
from monitor.sessions.tables.migrations import STEPS, migrate
from monitor.sessions.tables.schema import SqlConnection, prepare_writer
from monitor.sessions.tables.seal import seal_anew
from monitor.sessions.tree import ACTIVE

ENDING: Final = ".session"
"""The ending of the name of a session's file."""
_BESIDE: Final = ("-wal", "-shm", "-journal")


def default_folder() -> Path:
    """The folder for sessions on this machine: `AGENT_MONITOR_SESSIONS`, or a folder where the
    system keeps the state of programs.
    """
    if named := os.environ.get("AGENT_MONITOR_SESSIONS"):
        return Path(named)
    given = os.environ.get("XDG_STATE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(given) if given else Path.home() / ".local" / "state") / "agent-monitor" / "sessions"


@contextlib.contextmanager
def made(path: Path, *, copy_of: Path | None = None) -> Iterator[tuple[SqlConnection, Blobs]]:
    """A new file to fill. It gets the name `path` when it is whole and on the disk.

    `copy_of`: the new file begins as a copy of that session. Raises `StoreError` if something has
    the name `path` already.
    """
    if path.exists():
        raise StoreError(f"{path} is there already; nothing was changed")
    beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    path = resolved(path)
    blobs = blobs_of(path)
    had_folder = blobs.folder.exists()
    try:
        if copy_of is not None:
            _copy(copy_of, beside)
        else:
            os.close(os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with contextlib.closing(sqlite3.connect(beside, isolation_level=None)) as connection:
            prepare_writer(connection)
            connection.execute("BEGIN IMMEDIATE")
            migrate(connection, STEPS)
            rows.write_meta(connection, "epoch", 1)
            yield connection, blobs
            seal_anew(connection)
            connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        sync_file(beside)
        os.link(beside, path)  # unlike a renaming, it never takes the place of another file
        sync_folder(path.parent)
    except FileExistsError:
        raise StoreError(f"{path} is there already; nothing was changed") from None
    except (sqlite3.Error, OSError) as error:
        raise _fault(error, path) from error
    except BaseException:
        if not had_folder:
            blobs.remove()
        raise
    finally:
        for ending in ("", "-wal", "-shm", "-journal"):
            beside.with_name(f"{beside.name}{ending}").unlink(missing_ok=True)


def _fault(error: BaseException, path: Path) -> StoreError:
    if isinstance(error, OSError):
        return SessionUnavailable(f"{path} cannot be made ({error.strerror}); nothing was changed")
    return typed(error, path)


def _copy(source: Path, beside: Path) -> None:
    """Copy everything that is acknowledged now. The owner may go on writing meanwhile."""
    with contextlib.closing(connect_reader(source)) as reader:
        os.close(os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        reader.execute("VACUUM INTO ?", (f"file:{quote(os.fsencode(beside.absolute()))}",))


def fork_file(source: Path, into: Path, *, at: str | None = None, clock_s: float | None = None) -> str:
    """Copy a session, also one that is being written. Returns the id of the copy.

    `at`: the node at which the copy's active path ends. Raises `StoreError` if `into` exists
    already, or if the session has no such node.
    """
    at_ms = round((time.time() if clock_s is None else clock_s) * 1000)
    id = new_id(at_ms, secrets.token_bytes(ID_CHANCE_BYTES))
    with _copied(source, into) as connection:
        rows.write_meta(connection, "forked_from", rows.meta(connection)["id"])
        rows.write_meta(connection, "id", id)
        rows.write_meta(connection, "created_ms", at_ms)
        if at is not None:
            rows.write_head(connection, ACTIVE, at)
    return id


def copy_file(source: Path, into: Path) -> None:
    """Copy a session with its id, also one that is being written: all that is stored now, with its
    long texts. A plain copy of an open file has neither.

    Raises `StoreError` if `into` exists already.
    """
    with _copied(source, into):
        pass


@contextlib.contextmanager
def _copied(source: Path, into: Path) -> Iterator[SqlConnection]:
    source = resolved(source)
    if check_file(source) is None:
        raise SessionNotFound(f"there is no session {source}")
    with made(into, copy_of=source) as (connection, blobs):
        yield connection
        old = blobs_of(source)
        for (digest,) in connection.execute("SELECT digest FROM artifact").fetchall():
            blobs.put(old.get(digest))


@dataclass(slots=True, frozen=True)
class SessionFile:
    """A session in a folder: facts that are known without opening it."""

    path: Path
    size: int
    """The number of bytes of all its files."""
    changed_s: float
    """The time of the last write, in seconds since 1970."""

    @property
    def place(self) -> Path:
        """The same as `path`, as a `StoredSession` has it."""
        return self.path

    @property
    def name(self) -> str:
        """The name of the file in its folder, without the ending."""
        return self.path.name.removesuffix(ENDING)


def sessions_in(folder: Path) -> list[SessionFile]:
    """The sessions of a folder, the one that was written last at the end."""
    found = [_file(path) for path in folder.glob(f"*{ENDING}") if path.is_file()]
    return sorted(found, key=lambda one: (one.changed_s, one.name))


def _file(path: Path) -> SessionFile:
    size, changed = 0, 0.0
    blobs = blobs_path(path)
    parts = [path, path.with_name(f"{path.name}-wal"), *(blobs.iterdir() if blobs.is_dir() else ())]
    for part in parts:
        with contextlib.suppress(OSError):  # the log comes and goes with its owner
            stat = part.stat()
            size += stat.st_size
            changed = max(changed, stat.st_mtime if stat.st_size else 0.0)
    return SessionFile(path, size, changed)


def remove_file(path: Path) -> None:
    """Remove a session, and what we have made beside it. Nothing else is touched.

    Raises `SessionBusy` while it has an owner, and `SessionDamaged` if it is no session.
    """
    given, path = path, resolved(path)
    if not path.exists():
        raise SessionNotFound(f"there is no session {given}")
    with OwnerLock(lock_path(path), path.stem):
        if not is_session(path):
            raise SessionDamaged(f"{path} is no session of agent-monitor, or is damaged. It was not removed.")
        try:
            left = unfinished(path)
            for one in (*left, path):
                one.unlink()
                for ending in _BESIDE:
                    one.with_name(f"{one.name}{ending}").unlink(missing_ok=True)
            blobs_of(path).remove()
            mailbox_of(path).discard()
            lock_path(path).unlink(missing_ok=True)  # last: an owner that waits looks at the name again
            if given.is_symlink():
                given.unlink()
        except OSError as error:
            raise SessionUnavailable(f"{path} cannot be removed: {error.strerror}") from error
