"""A folder beside a session that we have made. One of the same name without our mark is another
program's: it is never written or removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Collection
from pathlib import Path
from typing import Final, Protocol

from monitor.errors import SessionDamaged, SessionUnavailable

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


# --------------------------------------------------------------------------------------------------
# Bodies that are too long for a row: files beside the session, named by their content's digest.


class Blobs(Protocol):
    """Where long bodies are kept. Any artifact store with these two methods will do."""

    def put(self, data: bytes, /) -> str:
        """Store `data` for good, and answer with its digest. Storing it again changes nothing."""
        ...

    def get(self, digest: str, /) -> bytes:
        """The bytes that were stored under `digest`."""
        ...


_OURS: Final = re.compile(r"[0-9a-f]{64}(\.[0-9a-f]{8})?")
"""The name of a file with a long body, or of one that was not finished."""


def blobs_path(path: Path) -> Path:
    """The folder of a session's long bodies."""
    return path.with_name(f"{path.name}.blobs")


def blobs_of(path: Path) -> BlobFolder:
    """The long bodies of the session at `path`. Formats 1 and 2 had another folder."""
    return BlobFolder(blobs_path(path), path.with_name(f"{path.stem}.blobs"))


class BlobFolder:
    """Files in a folder, each named by the SHA-256 of its content."""

    def __init__(self, folder: Path, older: Path | None = None) -> None:
        """`older`: bodies are read there as well."""
        self.folder = folder
        self._older = older or folder
        self._marked = MarkedFolder(folder, _OURS)

    def remove(self) -> None:
        """Remove the bodies and the folder, if it has our mark. What else is in it stays."""
        self._marked.remove()

    def keep_only(self, digests: Collection[str]) -> None:
        """Remove all other bodies, if the folder has our mark."""
        if self._marked.is_marked:
            for one in self.folder.iterdir():
                if _OURS.fullmatch(one.name) and one.name not in digests:
                    one.unlink(missing_ok=True)

    def put(self, data: bytes, /) -> str:
        """Write the data, so that a file with the name of a digest is always whole. Raises
        `SessionUnavailable`.
        """
        digest = _digest(data)
        if not (self._marked.is_marked and (self.folder / digest).exists()):
            self._marked.write(digest, data)
        return digest

    def get(self, digest: str, /) -> bytes:
        """The bytes under `digest`. Raises `SessionDamaged` if they are missing or were changed."""
        if not isinstance(digest, str):  # of a damaged row
            raise SessionDamaged(f"a long text has no digest, but {digest!r}")
        path = self.folder / digest
        try:
            data = (path if path.exists() else self._older / digest).read_bytes()
        except OSError as error:
            raise SessionDamaged(f"the long text {digest} cannot be read: {error.strerror}") from error
        if _digest(data) != digest:
            raise SessionDamaged(f"the long text {digest} is not as it was written")
        return data


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sync_file(path: Path) -> None:
    """Make what is in a file survive a power cut."""
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
