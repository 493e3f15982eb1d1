"""Reads a session's file without being its owner, also while the owner writes."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote

from monitor.errors import (
    ConfigError,
    MonitorError,
    SessionDamaged,
    SessionNotFound,
    SessionOwner,
    SessionTooNew,
    SessionUnavailable,
    StoreError,
)
from monitor.sessions.faults import READ_FAULTS, not_text, typed
from monitor.sessions.lock import OwnerLock, live_owner, lock_path
from monitor.sessions.mail.mailbox import Mailbox, mailbox_of
from monitor.sessions.tables import older
from monitor.sessions.tables.marked_folder import Blobs, blobs_of, blobs_path, sync_file, sync_folder
from monitor.sessions.tables.reads import Reads
from monitor.sessions.tables.rows import Rows
from monitor.sessions.tables.schema import (
    APPLICATION_ID,
    FORMAT,
    ONLY,
    SqlConnection,
    check_sqlite,
    format_of,
    make_file,
    prepare_reader,
    prepare_writer,
)
from monitor.sessions.tree import TreeProblem

T = TypeVar("T")


def resolved(path: str | os.PathLike[str]) -> Path:
    """The one path of a session, whatever links lead to it. Raises `ConfigError` for a folder."""
    if Path(path).is_dir():
        raise ConfigError(f"{path} is a folder: write a file in it, such as {Path(path, 'work.session')}")
    return Path(os.path.realpath(path))


def _address(path: Path) -> str:
    return f"file:{quote(os.fsencode(path.absolute()))}"


def connect_reader(path: Path) -> sqlite3.Connection:
    """A connection that cannot write. A finished session may also be in a folder that cannot be
    written.
    """
    connection = sqlite3.connect(f"{_address(path)}?mode=ro", uri=True, isolation_level=None, timeout=0)
    try:
        prepare_reader(connection)
        connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        if os.access(path.parent, os.W_OK) or _size(log_path(path)):
            raise
        connection = sqlite3.connect(f"{_address(path)}?immutable=1", uri=True, isolation_level=None)
    except BaseException:
        connection.close()
        raise
    older.show(connection)
    return connection


def connect_writer(path: Path) -> SqlConnection:
    """A connection of the one owner."""
    return sqlite3.connect(path, isolation_level=None, timeout=0)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


CHECKED_BYTES: Final = 16 << 20
"""An owner checks all pages of a smaller file when it opens it: 1.5 ms for each megabyte."""


def check_file(path: Path, *, owns: bool = False) -> int | None:
    """The format of a session's file; `None`: it is not there, or is empty. `owns`: the caller
    holds the lock.

    Raises `SessionDamaged` for a file that is no session or cannot be read, and `SessionTooNew`.
    The file is not changed.
    """
    if not path.exists() or (not _size(path) and not _size(log_path(path))):
        return None
    try:
        with closing(connect_reader(path)) as connection:
            return _checked(connection, path, owns=owns)
    except READ_FAULTS as error:
        raise typed(error, path) from error


def check_session(connection: SqlConnection, path: Path) -> int:
    """The format of the file. Raises `SessionDamaged` if it is no session, and `SessionTooNew`."""
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise SessionDamaged(f"{path.name} is no session of agent-monitor. It was not changed.")
    found = format_of(connection)
    if found > FORMAT:
        raise SessionTooNew(path.stem, found, FORMAT)
    return found


def _checked(connection: SqlConnection, path: Path, *, owns: bool) -> int:
    found = check_session(connection, path)
    page_bytes, pages = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count"))
    if not _size(log_path(path)) and _size(path) < page_bytes * pages:
        raise SessionDamaged(f"{path.name} was cut off: it has fewer pages than it says. It was not changed.")
    if facts_of(connection)["id"] is None:
        raise SessionDamaged(f"{path.name} does not say which session it is. It was not changed.")
    connection.execute("select max(seq) from monitor_nodes").fetchone()
    if lacks_log(connection, path):
        raise SessionDamaged(
            f"{path.name} was in use, and its log {path.name}-wal is not there: its newest steps are lost, or it is a"
            " plain copy of an open session. It was not changed. agent-monitor sessions salvage makes a session of"
            " what is left"
        )
    if has_foreign_log(connection, path, owns=owns):
        raise SessionDamaged(
            f"{path.name} was closed as a whole, and the log {path.name}-wal beside it has steps of another file."
            " Nothing was changed: move the log away, then open the session"
        )
    return found


def log_path(path: Path) -> Path:
    """The path of the log that SQLite keeps beside a file."""
    return path.with_name(f"{path.name}-wal")


def facts_of(connection: SqlConnection) -> dict[str, Any]:
    """Facts about the session in a file: `id`, `created_ms`, `epoch`, `forked_from`, `step`, and
    `in_use`.

    The file says after which step it was closed. So of a row that a power cut has torn, it is never
    taken that the session is not in use.
    """
    found = (
        connection.execute(
            "select id, created_ms, token, forked_from, step, closed_at from monitor_sessions"
        ).fetchone()
        or (None,) * 6
    )
    facts = dict(zip(("id", "created_ms", "epoch", "forked_from", "step"), found[:-1], strict=True))
    return {**facts, "in_use": int(found[-1] != facts["step"])}


def has_foreign_log(connection: SqlConnection, path: Path, *, owns: bool) -> bool:
    """Whether the file says that it was closed as a whole, and has another session's log beside it.
    `connection` reads both.
    """
    if not _size(log_path(path)) or not (owns or live_owner(lock_path(path)) is None):
        return False
    with closing(sqlite3.connect(f"{_address(path)}?immutable=1", uri=True, isolation_level=None)) as alone:
        try:
            older.show(alone)
            closed = facts_of(alone)
        except READ_FAULTS:  # a power cut came while the log was being copied into the file
            return False
    now = facts_of(connection)
    if closed["in_use"] or closed["id"] is None:
        return False
    later, same = now["epoch"] > closed["epoch"], now["epoch"] == closed["epoch"]
    return now["id"] != closed["id"] or not (later or (same and now["step"] == closed["step"]))


def lacks_log(connection: SqlConnection, path: Path) -> bool:
    """Whether the file says that it is in use, and its log is missing. An owner that begins or ends
    at this moment is no reason.
    """
    log = log_path(path)
    return not _size(log) and bool(facts_of(connection)["in_use"]) and not _size(log) and not _owned_elsewhere(path)


def _owned_elsewhere(path: Path) -> bool:
    """Whether another owner is alive."""
    owner = live_owner(lock_path(path))
    return owner is not None and owner.pid != os.getpid()


def check_pages(path: Path) -> None:
    """Raise `SessionDamaged` if a page of a small file is not one of SQLite's. The file is not
    changed. A step more would make such a file worse. A reader may still save a part of it.
    """
    if _size(path) > CHECKED_BYTES:
        return
    try:
        with closing(connect_reader(path)) as connection:
            said = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except READ_FAULTS as error:
        raise typed(error, path) from error
    if said != "ok":
        raise SessionDamaged(
            f"{path.name} has damaged pages ({' '.join(said.split())}). It was not changed: copy it, see what"
            " `sessions verify` finds, and read what is left with a SessionReader"
        )


UNFINISHED: Final = re.compile(r"\.[0-9a-f]{8}\.new")
"""What stands behind the name of a session in the name of a file that is not finished."""


def unfinished(path: Path) -> list[Path]:
    """Files that a process has left beside the session `path`, because it died while it made it.
    Only those that SQLite knows as ours.
    """
    there = (one for one in path.parent.iterdir() if one.name.startswith(path.name))
    return [one for one in there if UNFINISHED.fullmatch(one.name.removeprefix(path.name)) and is_session(one)]


def is_session(path: Path) -> bool:
    """Whether the file is a session of ours, as far as it can be read."""
    try:
        with closing(connect_reader(path)) as connection:
            found: int = connection.execute("PRAGMA application_id").fetchone()[0]
            return found == APPLICATION_ID
    except READ_FAULTS:
        return False


def check_names(path: Path) -> None:
    """Raise `SessionUnavailable` if the file has a second name, which would have its own log. One
    that a dying process has left is removed.
    """
    if path.stat().st_nlink > 1:
        for one in unfinished(path):
            if one.samefile(path):
                one.unlink()
    if path.stat().st_nlink > 1:
        raise SessionUnavailable(
            f"{path} is a file with several names (hard links). Nothing was changed: remove the other names, or copy"
            f" the session with agent-monitor sessions copy {path.stem}"
        )


class SessionReader(Reads):
    """A session as it is at the moment, without waiting for its owner.

        with SessionReader("work.session") as session:
            print(session.context().messages)

    Each method reads at one moment. `snapshot` makes several of them read at the same one.

    Raises `SessionNotFound` where there is no session. The other errors are those of
    `SQLiteSession`.
    """

    def __init__(self, path: str | os.PathLike[str], *, blobs: Blobs | None = None) -> None:
        check_sqlite()
        self.path: Path = resolved(path)
        self._blobs: Blobs = blobs if blobs is not None else blobs_of(self.path)
        self.mailbox: Mailbox = mailbox_of(self.path)
        """Where other processes leave messages for the runs."""
        found = check_file(self.path)
        if found is None:
            raise SessionNotFound(f"there is no session {self.path}")
        self.format = found
        self._connection = self._typed(lambda: connect_reader(self.path))
        self.meta: dict[str, Any] = self._typed(self._facts)
        """Facts about the file, such as its id."""

    def _facts(self) -> dict[str, Any]:
        facts = facts_of(self._connection)
        return {name: value for name, value in facts.items() if value is not None and name != "step"}

    @property
    def id(self) -> str:
        """128 bits as 32 hexadecimal digits."""
        found: str = self.meta["id"]
        return found

    @property
    def owner(self) -> SessionOwner | None:
        """The process that has the session open to write, at this moment."""
        return live_owner(lock_path(self.path))

    def close(self) -> None:
        """Close the file of the session."""
        self._connection.close()

    @contextmanager
    def snapshot(self) -> Iterator[Self]:
        """All reads in this block are of one moment, however much the owner writes meanwhile.

        The owner's log grows as long as the block lasts. A block in a block is the outer one.
        """
        if self._connection.in_transaction:
            yield self
            return
        self._connection.execute("BEGIN")
        try:
            self.meta = self._typed(self._facts)
            yield self
        finally:
            with suppress(sqlite3.Error):  # SQLite may have ended it by itself
                self._connection.execute("ROLLBACK")

    def _typed(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except READ_FAULTS as error:
            raise typed(error, self.path) from error
        except UnicodeEncodeError as error:
            raise StoreError(not_text(error)) from None

    def _read(self, read: Callable[[Rows], T]) -> T:
        with self.snapshot():
            return self._typed(lambda: read(FileRows(self._connection, blobs=self._blobs)))


class FileRows(Rows):
    """The rows of a session in a file, whose pages can be damaged as well."""

    def verify(self) -> Iterator[TreeProblem]:
        """The faults of its pages, of its tables, of the chain of its nodes, of its long bodies."""
        try:
            for (said,) in self.connection.execute("PRAGMA integrity_check(20)"):
                if said != "ok":
                    yield TreeProblem(f"the file: {said}")
            for table, number, *_ in self.connection.execute("PRAGMA foreign_key_check"):
                yield TreeProblem(f"the table {table}: row {number} refers to a row that is missing")
            if older.is_older(self.connection):
                yield from older.problems(self.connection)
            yield from super().verify()
            if not older.is_older(self.connection) and tables_in(self.connection) != _tables():
                yield TreeProblem("the tables are not those that were made: a trigger or an index was changed")
        except (*READ_FAULTS, MonitorError) as error:
            yield TreeProblem(f"the file cannot be read to its end: {error}")


@cache
def _tables() -> frozenset[Any]:
    with closing(sqlite3.connect(":memory:")) as connection:
        make_file(connection)
        return tables_in(connection)


def tables_in(connection: SqlConnection) -> frozenset[Any]:
    """The tables, indexes and triggers of a file, as the statements that made them."""
    return frozenset(connection.execute("select type, name, tbl_name, sql from sqlite_schema").fetchall())


# --------------------------------------------------------------------------------------------------
# Sessions as files of a folder: made whole or not at all, copied, listed, removed.

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
def made(
    path: Path,
    *,
    connect: Callable[[Path], SqlConnection] = connect_writer,
    name: Callable[[Path, Path], None] = os.link,
) -> Iterator[FileRows]:
    """A new file to fill. It gets the name `path` when it is whole and on the disk, so a power cut
    leaves no half-made session. Raises `SessionUnavailable`, and `StoreError` if something has the
    name `path` already.

    `name`: gives the file its name. `os.link` never takes the place of another file.
    """
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    path = resolved(path)
    blobs = blobs_of(path)
    had_folder = blobs.folder.exists()
    try:
        if name is os.link and path.exists():
            raise FileExistsError
        os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))  # what models said is in it
        with closing(connect(new)) as connection:
            prepare_writer(connection)
            connection.execute("BEGIN IMMEDIATE")
            make_file(connection)
            yield (rows := FileRows(connection, blobs=blobs))
            connection.execute("update monitor_sessions set seal = ?", (rows.seal().stored(),))
            connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        sync_file(new)
        name(new, path)
        sync_folder(path.parent)
    except BaseException as error:
        if not had_folder:
            blobs.remove()
        if isinstance(error, FileExistsError):
            raise StoreError(f"{path} is there already; nothing was changed") from None
        if isinstance(error, OSError | sqlite3.Error):
            why = error.strerror if isinstance(error, OSError) else error
            raise SessionUnavailable(f"{path} cannot be made ({why}); nothing was written") from error
        raise
    finally:
        with contextlib.suppress(OSError):
            for ending in ("", *_BESIDE):
                new.with_name(f"{new.name}{ending}").unlink(missing_ok=True)


def write_facts(connection: SqlConnection, facts: Mapping[str, Any]) -> None:
    """Write the row of a new session in a file."""
    connection.execute(
        "insert into monitor_sessions (number, id, name, created_ms, token, forked_from) values (?, ?, '', ?, 1, ?)",
        (ONLY, facts["id"], facts.get("created_ms", 0), facts.get("forked_from")),
    )


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
    parts = [path, log_path(path), *(blobs.iterdir() if blobs.is_dir() else ())]
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
