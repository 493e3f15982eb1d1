"""One writer at a time for the files of a folder: in this process, and between processes.

The lock is that of the operating system on the folder itself (`flock`), so nothing is left behind.
A file system without such locks keeps apart the writers of this process only.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from monitor.errors import ToolError
from monitor.reasons import ToolErrorKind

WAIT_S: Final = 30.0
"""The most seconds to wait for another writer. A write takes milliseconds."""
LOOK_S: Final = 0.002
"""Seconds between two looks whether the writer of another process has finished."""
_locks: Final[WeakValueDictionary[tuple[int, int], threading.Lock]] = WeakValueDictionary()
"""The lock of each folder in which this process writes now, by device and inode."""
_finding: Final = threading.Lock()
_without_folders: Final = threading.Lock()


@contextmanager
def only_writer(*folders: int, wait_s: float = WAIT_S) -> Iterator[None]:
    """Within this, nobody else who asks writes into the folders. `folders`: descriptors that were
    opened for this call. Call it in a worker thread: it waits for the other writers.

    Raises `ToolError` if another one has not finished after `wait_s` seconds.
    """
    until = time.monotonic() + wait_s
    by_identity = {_identity(folder): folder for folder in folders}
    held: list[threading.Lock] = []
    try:
        for identity in sorted(by_identity):  # in one order, so that two writers never wait for each other
            with _finding:
                lock = _locks.setdefault(identity, threading.Lock())
            if not lock.acquire(timeout=max(0.0, until - time.monotonic())):
                raise _busy()
            held.append(lock)
            _lock_between_processes(by_identity[identity], until)
        yield
    finally:
        for folder in by_identity.values():
            _unlock(folder)
        for lock in held:
            lock.release()


@contextmanager
def only_writer_of(folder: Path) -> Iterator[None]:
    """`only_writer` for the path of a folder. On a system that opens no folders (Windows), only
    writers of this process are kept apart.
    """
    if not hasattr(os, "O_DIRECTORY"):
        with _without_folders:
            yield
        return
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with only_writer(number):
            yield
    finally:
        os.close(number)


def _identity(folder: int) -> tuple[int, int]:
    status = os.fstat(folder)
    return status.st_dev, status.st_ino


def _lock_between_processes(folder: int, until: float) -> None:
    import fcntl  # noqa: PLC0415 - a system without it has no workspace

    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise _busy() from None
            time.sleep(LOOK_S)
        except OSError:  # this file system has no locks
            return
        else:
            return


def _unlock(folder: int) -> None:
    import fcntl  # noqa: PLC0415 - as above

    try:
        fcntl.flock(folder, fcntl.LOCK_UN)
    except OSError:  # it has none
        return


def _busy() -> ToolError:
    return ToolError(
        "another program is writing into this folder and does not finish; try again later",
        kind=ToolErrorKind.WRITE_FAILED,
    )
