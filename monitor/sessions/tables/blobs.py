"""Bodies that are too long for a row: files beside the session, named by their content's digest."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from pathlib import Path
from typing import Final, Protocol

from monitor.errors import SessionDamaged, SessionUnavailable


class Blobs(Protocol):
    """Where long bodies are kept. Any artifact store with these two methods will do."""

    def put(self, data: bytes, /) -> str:
        """Store `data` for good, and answer with its digest. Storing it again changes nothing."""
        ...

    def get(self, digest: str, /) -> bytes:
        """The bytes that were stored under `digest`."""
        ...


MARK: Final = ".agent-monitor"
"""The name of a file that says that a folder is ours."""
_OURS: Final = re.compile(r"[0-9a-f]{64}(\.[0-9a-f]{8})?")
"""The name of a file with a long body, or of one that was not finished."""


def blobs_path(path: Path) -> Path:
    """The folder of a session's long bodies."""
    return path.with_name(f"{path.name}.blobs")


def blobs_of(path: Path) -> BlobFolder:
    """The long bodies of the session at `path`. Older versions have named the folder after the name
    without its ending, and perhaps shared it: it is only read.
    """
    return BlobFolder(blobs_path(path), path.with_name(f"{path.stem}.blobs"))


class BlobFolder:
    """Files in a folder, each named by the SHA-256 of its content.

    The folder has our mark. One of the same name without it is another program's: it is never
    written or removed.
    """

    def __init__(self, folder: Path, older: Path | None = None) -> None:
        """`older`: another folder that may have the file as well."""
        self.folder = folder
        self._older = older

    @property
    def _is_marked(self) -> bool:
        return (self.folder / MARK).is_file() and not self.folder.is_symlink()

    def _make(self) -> None:
        """Make the folder, with its mark from the beginning."""
        if self._is_marked:
            return
        if self.folder.exists() or self.folder.is_symlink():
            if self.folder != self._older or not self._holds_bodies():
                raise SessionUnavailable(
                    f"{self.folder} was not made by agent-monitor, and was not changed. Rename it, or give the session"
                    " another name"
                )
            (self.folder / MARK).touch(mode=0o600)
            return
        beside = self.folder.with_name(f"{self.folder.name}.{secrets.token_hex(4)}")
        beside.mkdir(mode=0o700)
        (beside / MARK).touch(mode=0o600)
        try:
            beside.rename(self.folder)
        except OSError:
            (beside / MARK).unlink()
            beside.rmdir()
            if not self._is_marked:  # no other thread was quicker
                raise

    def _holds_bodies(self) -> bool:
        """Whether everything in the folder is a body under its digest, as older versions have left
        it.
        """
        there = [*self.folder.iterdir()] if self.folder.is_dir() and not self.folder.is_symlink() else []
        return bool(there) and all(
            _OURS.fullmatch(one.name) and one.is_file() and ("." in one.name or _digest(one.read_bytes()) == one.name)
            for one in there
        )

    def remove(self) -> None:
        """Remove the bodies and the folder, if it has our mark. What else is in it stays."""
        if not self._is_marked:
            return
        for one in self.folder.iterdir():
            if _OURS.fullmatch(one.name) and one.is_file():
                one.unlink(missing_ok=True)
        if [one.name for one in self.folder.iterdir()] == [MARK]:
            (self.folder / MARK).unlink()
            self.folder.rmdir()

    def put(self, data: bytes, /) -> str:
        """Write the data under another name, sync them, then rename the file. So a file with the
        name of a digest is always whole. Raises `SessionUnavailable`.
        """
        digest = _digest(data)
        path = self.folder / digest
        if self._is_marked and path.exists():
            return digest
        beside = self.folder / f"{digest}.{secrets.token_hex(4)}"
        try:
            self._make()
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
            sync_folder(self.folder)
            sync_folder(self.folder.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
            raise SessionUnavailable(f"{path} cannot be written ({error.strerror}); nothing was changed") from error
        return digest

    def get(self, digest: str, /) -> bytes:
        """The bytes under `digest`. Raises `SessionDamaged` if they are missing or were changed."""
        try:
            data = self._found(digest).read_bytes()
        except OSError as error:
            raise SessionDamaged(f"the long text {digest} cannot be read: {error.strerror}") from error
        if _digest(data) != digest:
            raise SessionDamaged(f"the long text {digest} is not as it was written")
        return data

    def _found(self, digest: str) -> Path:
        here = self.folder / digest
        if self._older is None or here.exists():
            return here
        older = self._older / digest
        return older if older.exists() else here


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sync_file(path: Path) -> None:
    """Make what is in a file survive a power cut."""
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` survive a power cut, where the system can do that."""
    with contextlib.suppress(OSError):  # Windows opens no folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
