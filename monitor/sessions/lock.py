"""Decides which process may write: the one that holds the lock of a file beside the session.

The lock file is not the database itself. On POSIX systems a process that closes any handle of a
file loses all its locks on it, also those of SQLite. When the owner dies, the system releases the
lock, so nobody has to guess whether the owner is alive.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from monitor.errors import SessionBusy, SessionOwner, SessionUnavailable

if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: int) -> bool:
        os.lseek(file, 1 << 30, os.SEEK_SET)  # behind the text: a locked byte cannot be read
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(file: int) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


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
        """Become the owner at once. Raises `SessionBusy` if another process is the owner.

        `takeover`: take the lock also from an owner that is alive but stopped, or that is on
        another host. The old owner learns at its next write that it has lost the session.
        """
        while self._file is None:
            file = self._opened()
            if not _try_lock(file):
                owner = owner_of(self._path)
                os.close(file)
                if not takeover:
                    raise SessionBusy(self._session, owner)
                self._path.unlink(missing_ok=True)  # the old owner keeps its lock on a file that has no name
                continue
            if not _is_at(file, self._path):  # it was replaced between opening and locking
                os.close(file)
                continue
            self._refuse_other_host(file, takeover=takeover)
            self._file = file
            _write(file, this_process())

    def _refuse_other_host(self, file: int, *, takeover: bool) -> None:
        left = owner_of(self._path)
        if left is not None and left.host != socket.gethostname() and not takeover:
            os.close(file)
            why = "it is on another host, where this lock may not be seen; open it with takeover if it is gone"
            raise SessionBusy(self._session, left, why)

    def _opened(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        except OSError as error:
            raise SessionUnavailable(
                f"the lock file {self._path} cannot be opened ({error.strerror}); nothing was changed"
            ) from error

    def release(self) -> None:
        """Give up the lock. The file stays: removing it would race with the next owner."""
        if self._file is not None:
            if _is_at(self._file, self._path):
                os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def owner_of(path: Path) -> SessionOwner | None:
    """The owner that the lock file names. `None`: it names nobody, or it cannot be read."""
    try:
        return SessionOwner(**json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _write(file: int, owner: SessionOwner) -> None:
    text = {"pid": owner.pid, "started_at_s": owner.started_at_s, "host": owner.host, "program": owner.program}
    with contextlib.suppress(OSError):  # on a full disk the file names nobody, and the lock holds all the same
        os.ftruncate(file, 0)
        os.lseek(file, 0, os.SEEK_SET)
        os.write(file, json.dumps(text).encode())


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False
