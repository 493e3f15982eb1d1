"""A folder beside a session that we have made. One of the same name without our mark is another
program's: it is never written or removed.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from pathlib import Path
from typing import Final

from monitor.errors import SessionUnavailable

MARK: Final = ".agent-monitor"
"""The name of a file that says that a folder is ours."""


class MarkedFolder:
    """A folder with our mark, and whole files in it."""

    def __init__(self, folder: Path, ours: re.Pattern[str]) -> None:
        """`ours`: the names of the files that we write there, whole or not finished."""
        self.folder = folder
        self._ours = ours

    @property
    def is_marked(self) -> bool:
        """Whether the folder is there, and is ours."""
        return (self.folder / MARK).is_file() and not self.folder.is_symlink()

    def make(self) -> None:
        """Make the folder, with its mark from the beginning. Raises `SessionUnavailable` for a
        folder that is there without the mark.
        """
        if self.is_marked:
            return
        if self.folder.exists() or self.folder.is_symlink():
            raise SessionUnavailable(
                f"{self.folder} was not made by agent-monitor, and was not changed. Rename it, or give the session"
                " another name"
            )
        beside = self.folder.with_name(f"{self.folder.name}.{secrets.token_hex(4)}")
        beside.mkdir(mode=0o700)
        (beside / MARK).touch(mode=0o600)
        try:
            beside.rename(self.folder)
        except OSError:
            (beside / MARK).unlink()
            beside.rmdir()
            if not self.is_marked:  # no other thread was quicker
                raise

    def write(self, name: str, data: bytes) -> None:
        """Write the file `name`. It has that name only when it is whole and on the disk. Raises
        `SessionUnavailable`.
        """
        path = self.folder / name
        try:
            self.make()
            write_whole(path, data)
            sync_folder(self.folder)
            sync_folder(self.folder.parent)
        except OSError as error:
            raise SessionUnavailable(f"{path} cannot be written ({error.strerror}); nothing was changed") from error

    def remove(self) -> None:
        """Remove our files and the folder, if it has our mark. What else is in it stays."""
        if not self.is_marked:
            return
        for one in self.folder.iterdir():
            if self._ours.fullmatch(one.name) and one.is_file():
                one.unlink(missing_ok=True)
        if [one.name for one in self.folder.iterdir()] == [MARK]:
            (self.folder / MARK).unlink()
            self.folder.rmdir()


def write_whole(path: Path, data: bytes, *, half: str | None = None, mode: int | None = None) -> None:
    """Write `data` as the file `path`, which has that name only when it is whole and on the disk.

    `half`: the name in the same folder until then. `mode`: of the file; by default it is for its
    owner alone. If anything raises, the file is as it was.
    """
    beside = path.with_name(half or f"{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)  # the whole of it: a nearly full disk may take only a part at once
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            beside.chmod(mode)
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` survive a power cut, where the system can do that."""
    with contextlib.suppress(OSError):  # Windows opens no folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
