"""Bodies that are too long for a row: files beside the session, named by their content's digest."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from pathlib import Path
from typing import Protocol

from monitor.errors import SessionDamaged, SessionUnavailable


class Blobs(Protocol):
    """Where long bodies are kept. Any artifact store with these two methods will do."""

    def put(self, data: bytes, /) -> str:
        """Store `data` for good, and answer with its digest. Storing it again changes nothing."""
        ...

    def get(self, digest: str, /) -> bytes:
        """The bytes that were stored under `digest`."""
        ...


class BlobFolder:
    """Files in a folder, each named by the SHA-256 of its content."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, data: bytes, /) -> str:
        """Write the data under another name, sync them, then rename the file. So a file with the
        name of a digest is always whole. Raises `SessionUnavailable`.
        """
        digest = hashlib.sha256(data).hexdigest()
        path = self._folder / digest
        if path.exists():
            return digest
        beside = self._folder / f"{digest}.{secrets.token_hex(4)}"
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
            sync_folder(self._folder)
            sync_folder(self._folder.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
            raise SessionUnavailable(f"{path} cannot be written ({error.strerror}); nothing was changed") from error
        return digest

    def get(self, digest: str, /) -> bytes:
        """The bytes under `digest`. Raises `SessionDamaged` if they are missing or were changed."""
        try:
            data = (self._folder / digest).read_bytes()
        except OSError as error:
            raise SessionDamaged(f"the long text {digest} cannot be read: {error.strerror}") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise SessionDamaged(f"the long text {digest} is not as it was written")
        return data


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
