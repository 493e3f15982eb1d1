"""Reads a session's file without being its owner, also while the owner writes."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote

from monitor.errors import (
    ConfigError,
    SessionDamaged,
    SessionNotFound,
    SessionOwner,
    SessionUnavailable,
    StoreError,
)
from monitor.messages import ApprovalAnswer, SteerMessage
from monitor.sessions.faults import READ_FAULTS, not_text, typed
from monitor.sessions.lock import OwnerLock, live_owner, lock_path
from monitor.sessions.mail.mailbox import AnswerLetter, Letter, mailbox_of
from monitor.sessions.nodes import ID_CHANCE_BYTES, new_id
from monitor.sessions.tables import rows
from monitor.sessions.tables.marked_folder import Blobs, blobs_of, blobs_path, sync_file, sync_folder
from monitor.sessions.tables.schema import (
    APPLICATION_ID,
    STEPS,
    Reads,
    SessionRows,
    SqlConnection,
    Steps,
    check_format,
    check_sqlite,
    format_of,
    migrate,
    prepare_reader,
    prepare_writer,
)
from monitor.sessions.tables.seal import IN_USE, seal_anew
from monitor.sessions.tables.stored_rows import StoredRows
from monitor.sessions.tree import ACTIVE

T = TypeVar("T")


def resolved(path: str | os.PathLike[str]) -> Path:
    """The one path of a session, whatever links lead to it. Raises `ConfigError` for a folder."""
    if Path(path).is_dir():
        raise ConfigError(f"{path} is a folder: write a file in it, such as {Path(path, 'work.session')}")
    return Path(os.path.realpath(path))


def connect_reader(path: Path) -> sqlite3.Connection:
    """A connection that cannot write. A finished session may also be in a folder that cannot be
    written.
    """
    address = f"file:{quote(os.fsencode(path.absolute()))}"
    connection = sqlite3.connect(f"{address}?mode=ro", uri=True, isolation_level=None, timeout=0)
    try:
        prepare_reader(connection)
        connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        if os.access(path.parent, os.W_OK) or _size(path.with_name(f"{path.name}-wal")):
            raise
        connection = sqlite3.connect(f"{address}?immutable=1", uri=True, isolation_level=None)
    except BaseException:
        connection.close()
        raise
    return connection


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


CHECKED_BYTES: Final = 16 << 20
"""An owner checks all pages of a smaller file when it opens it: 1.5 ms for each megabyte."""


def check_file(path: Path, steps: Steps = STEPS) -> int | None:
    """The format of a session's file; `None`: it is not there, or is empty.

    Raises `SessionDamaged` for a file that is no session or cannot be read, and `SessionTooNew`.
    The file is not changed.
    """
    if not path.exists() or (not _size(path) and not _size(path.with_name(f"{path.name}-wal"))):
        return None
    try:
        connection = connect_reader(path)
        try:
            return _checked(connection, path, steps)
        finally:
            connection.close()
    except READ_FAULTS as error:
        raise typed(error, path) from error


def _checked(connection: SqlConnection, path: Path, steps: Steps) -> int:
    found = format_of(connection)
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise SessionDamaged(f"{path.name} is no session of agent-monitor. It was not changed.")
    check_format(path.stem, found, steps)
    page_bytes, pages = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count"))
    if not _size(path.with_name(f"{path.name}-wal")) and _size(path) < page_bytes * pages:
        raise SessionDamaged(f"{path.name} was cut off: it has fewer pages than it says. It was not changed.")
    if not {"id", "epoch"} <= rows.meta(connection).keys():
        raise SessionDamaged(f"{path.name} does not say which session it is. It was not changed.")
    connection.execute("SELECT max(seq) FROM node").fetchone()
    if lacks_log(connection, path):
        raise SessionDamaged(
            f"{path.name} was in use, and its log {path.name}-wal is not there: its newest steps are lost, or it is a"
            f" plain copy of an open session. It was not changed. agent-monitor sessions salvage makes a session of"
            " what is left"
        )
    return found


def lacks_log(connection: SqlConnection, path: Path) -> bool:
    """Whether the file says that it is in use, and its log is missing. An owner that begins or ends
    at this moment is no reason.
    """
    log = path.with_name(f"{path.name}-wal")
    return not _size(log) and bool(rows.meta(connection).get(IN_USE)) and not _size(log) and not _owned_elsewhere(path)


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

    def __init__(self, path: str | os.PathLike[str], *, blobs: Blobs | None = None, steps: Steps = STEPS) -> None:
        check_sqlite()
        self.path: Path = resolved(path)
        self._blobs: Blobs = blobs if blobs is not None else blobs_of(self.path)
        found = check_file(self.path, steps)
        if found is None:
            raise SessionNotFound(f"there is no session {self.path}")
        self.format = found
        self._connection = self._typed(lambda: connect_reader(self.path))
        self.meta: dict[str, Any] = self._typed(lambda: rows.meta(self._connection))
        """Facts about the file, such as its id."""

    @property
    def id(self) -> str:
        """128 bits as 32 hexadecimal digits."""
        found: str = self.meta["id"]
        return found

    @property
    def owner(self) -> SessionOwner | None:
        """The process that has the session open to write, at this moment."""
        return live_owner(lock_path(self.path))

    def letters(self) -> list[Letter]:
        """The messages of other processes that the session's owner has not stored yet."""
        return mailbox_of(self.path).letters()

    def put_letter(self, run: str, message: SteerMessage) -> Letter:
        """Leave `message` for the run with the id `run`. It is stored when this returns."""
        return mailbox_of(self.path).put(run, message)

    def answers(self) -> list[AnswerLetter]:
        """The answers of other processes that the session's owner has not stored yet."""
        return mailbox_of(self.path).answers()

    def put_answer(self, answer: ApprovalAnswer) -> AnswerLetter:
        """Leave an answer for the session's owner. It is stored when this returns."""
        return mailbox_of(self.path).put_answer(answer)

    def close(self) -> None:
        """Close the file of the session."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def snapshot(self) -> Iterator[Self]:
        """All reads in this block are of one moment, however much the owner writes meanwhile.

        The owner's log grows as long as the block lasts. A block in a block is the outer one.
        """
        if self._connection.in_transaction:
            yield self
            return
        self._begin()
        try:
            self.meta = self._typed(lambda: rows.meta(self._connection))
            yield self
        finally:
            self._end()

    def _begin(self) -> None:
        self._connection.execute("BEGIN")

    def _end(self) -> None:
        with suppress(sqlite3.Error):  # SQLite may have ended it by itself
            self._connection.execute("ROLLBACK")

    def _typed(self, read: Any) -> Any:
        alone = not self._connection_is_busy
        try:
            if alone:
                self._begin()
            try:
                return read()
            finally:
                if alone:
                    self._end()
        except READ_FAULTS as error:
            raise typed(error, self.path) from error
        except UnicodeEncodeError as error:
            raise StoreError(not_text(error)) from None

    @property
    def _connection_is_busy(self) -> bool:
        """Whether a snapshot is being read, or the connection is being opened."""
        connection: sqlite3.Connection | None = getattr(self, "_connection", None)
        return connection is None or connection.in_transaction

    def _read(self, read: Callable[[SessionRows], T]) -> T:
        found: T = self._typed(lambda: read(StoredRows(self._connection, self._blobs)))
        return found


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
