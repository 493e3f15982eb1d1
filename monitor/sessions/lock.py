"""Decides which process may write: the one that holds the lock of a file beside the session.

The lock file is not the database itself. On POSIX systems a process that closes any handle of a
file loses all its locks on it, also those of SQLite. When the owner dies, the system releases the
lock. So the lock alone says whether there is an owner: no process number and no host name does.

The file is made whole, with our mark in it. A file of the same name without the mark is another
program's: it is never locked, written or removed. An empty one is ours: a power cut may leave it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import socket
import sys
import time
import weakref
from pathlib import Path
from typing import Final, Self

from monitor.errors import SessionBusy, SessionOwner, SessionUnavailable
from monitor.sessions.tables.marked_folder import sync_folder

MARK: Final = '{"agent_monitor": "the lock of a session"'
"""The first characters of a lock file of ours."""
LENGTH: Final = 512
"""Bytes of a lock file. It never changes its length, so nobody reads it half written."""
AGAIN_S: Final = 0.005
"""Seconds before a second attempt: somebody may only have looked whether there is an owner."""

if sys.platform == "win32":
    import msvcrt

    _BUSY = {errno.EACCES, errno.EDEADLK}

    def _lock(file: int, *, shared: bool = False) -> None:  # noqa: ARG001 - there is one kind of lock
        os.lseek(file, 1 << 30, os.SEEK_SET)  # behind the text: a locked byte cannot be read
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    _BUSY = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}

    def _lock(file: int, *, shared: bool = False) -> None:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def lock_path(path: Path) -> Path:
    """The path of the lock file of a session."""
    return path.with_name(f"{path.name}.lock")


def this_process() -> SessionOwner:
    """The description of the calling process as an owner."""
    program = Path(sys.argv[0] if sys.argv and sys.argv[0] else sys.executable).name
    return SessionOwner(pid=os.getpid(), started_at_s=time.time(), host=socket.gethostname(), program=program)


class OwnerLock:
    """The lock that makes one process the owner of a session."""

    def __init__(self, path: Path, session: str) -> None:
        self._path = path
        self._session = session
        self._file: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._file is not None

    def acquire(self, *, takeover: bool = False) -> None:
        """Become the owner at once. Raises `SessionBusy` if another process is the owner, and
        `SessionUnavailable` where nothing can be locked.

        `takeover`: take the lock also from an owner that is alive but stopped. The old owner learns
        at its next write that it has lost the session.
        """
        while self._file is None:
            file = self._opened()
            try:
                if not (_try_lock(file, self._path) or _try_later(file, self._path)):
                    if not takeover:
                        raise SessionBusy(self._session, owner_of(self._path))
                    self._path.unlink(missing_ok=True)  # the old owner keeps its lock on a file that has no name
                elif _is_at(file, self._path):  # else it was replaced between opening and locking
                    self._file = file
            finally:
                if self._file is None:
                    os.close(file)
        _held.add(self)
        _write(self._file, this_process())

    def _opened(self) -> int:
        try:
            while True:
                with contextlib.suppress(FileNotFoundError):
                    file = os.open(self._path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
                    break
                _make(self._path)
        except OSError as error:
            raise SessionUnavailable(
                f"the lock file {self._path} cannot be opened ({error.strerror}); nothing was changed"
            ) from error
        if not _is_ours(file):
            os.close(file)
            raise SessionUnavailable(
                f"{self._path} is no lock file of agent-monitor, and was not changed. Rename it, or give the session"
                " another name"
            )
        return file

    def release(self) -> None:
        """Give up the lock. The file stays: removing it would race with the next owner."""
        file, self._file = self._file, None
        if file is not None:
            _held.discard(self)
            if _is_at(file, self._path):
                _write(file, None)
            os.close(file)

    def forked(self) -> None:
        """Keep no handle in a copy of the owner's process, so that the lock ends with the owner."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


_held: Final[weakref.WeakSet[OwnerLock]] = weakref.WeakSet()
"""The locks that this process holds."""


def _forked() -> None:
    for lock in [*_held]:
        lock.forked()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _try_lock(file: int, path: Path, *, shared: bool = False) -> bool:
    """Lock `file`. False: another holds the lock. Raises `SessionUnavailable`."""
    try:
        _lock(file, shared=shared)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise SessionUnavailable(f"{path} cannot be locked ({_why(error)}). Nothing was changed") from error
    return True


def _try_later(file: int, path: Path) -> bool:
    time.sleep(AGAIN_S)
    return _try_lock(file, path)


def _why(error: OSError) -> str:
    """The fault of a lock, and what to do."""
    said = error.strerror or str(error)
    if error.errno in {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, getattr(errno, "ENOTSUP", errno.EOPNOTSUPP)}:
        return f"{said}: this file system has no locks; put the session on a local disk, or mount it with locks"
    if error.errno == errno.EIO:
        return f"{said}: the disk does not answer; look at it, then open the session again"
    return f"{said}: put the session where its folder can be written and locked"


def owner_of(path: Path) -> SessionOwner | None:
    """The owner that the lock file names, alive or not. `None`: it names nobody, or it cannot be
    read.
    """
    try:
        named = json.loads(path.read_text("utf-8"))
        return SessionOwner(**{name: named[name] for name in ("pid", "started_at_s", "host", "program")})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def live_owner(path: Path) -> SessionOwner | None:
    """The owner that holds the lock file now. `None`: nobody does, or it is not known."""
    owner = owner_of(path)
    if owner is None:
        return None
    try:
        file = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        return None if _try_lock(file, path, shared=True) else owner
    except SessionUnavailable:
        return None
    finally:
        os.close(file)


def _make(path: Path) -> None:
    """Make a lock file with our mark, whole or not at all."""
    beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    file = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        _write(file, None, must=True)
        os.fsync(file)
        os.close(file)
        sync_folder(path.parent)
        try:
            os.link(beside, path)
        except FileExistsError:
            pass  # another process was quicker
        except OSError:  # a file system without links
            if not path.exists():
                beside.rename(path)
    finally:
        beside.unlink(missing_ok=True)
    sync_folder(path.parent)


def _is_ours(file: int) -> bool:
    """Whether the file has our mark. A power cut may leave a file of ours empty, or with zeros."""
    os.lseek(file, 0, os.SEEK_SET)
    text = os.read(file, LENGTH).decode("utf-8", "replace")
    return text.startswith(MARK) or not text.strip("\0")


def _write(file: int, owner: SessionOwner | None, *, must: bool = False) -> None:
    names = ""
    if owner is not None:
        named = {"pid": owner.pid, "started_at_s": owner.started_at_s, "host": owner.host, "program": owner.program}
        names = f", {json.dumps(named)[1:-1]}"
    text = f"{MARK}{names}}}".encode()
    with contextlib.nullcontext() if must else contextlib.suppress(OSError):  # the lock holds all the same
        os.lseek(file, 0, os.SEEK_SET)
        os.write(file, (text if len(text) < LENGTH else f"{MARK}}}".encode()).ljust(LENGTH - 1) + b"\n")


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False
