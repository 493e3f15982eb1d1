"""Bodies that are too long for a row: files beside the session, named by their content's digest."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Final, Protocol

from monitor.errors import SessionDamaged
from monitor.sessions.tables.marked_folder import MarkedFolder


class Blobs(Protocol):
    """Where long bodies are kept. Any artifact store with these two methods will do."""

    def put(self, data: bytes, /) -> str:
        """Store `data` for good, and answer with its digest. Storing it again changes nothing."""
        ...

    def get(self, digest: str, /) -> bytes:
        """The bytes that were stored under `digest`."""
        ...


def body_of(blobs: Blobs, body: str | None, artifact: str) -> str:
    """The body of a node, by the columns of its row. Raises `SessionDamaged`."""
    return blobs.get(artifact).decode("utf-8", "replace") if body is None else body


_OURS: Final = re.compile(r"[0-9a-f]{64}(\.[0-9a-f]{8})?")
"""The name of a file with a long body, or of one that was not finished."""


def blobs_path(path: Path) -> Path:
    """The folder of a session's long bodies."""
    return path.with_name(f"{path.name}.blobs")


def blobs_of(path: Path) -> BlobFolder:
    """The long bodies of the session at `path`."""
    return BlobFolder(blobs_path(path))


class BlobFolder:
    """Files in a folder, each named by the SHA-256 of its content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
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
        try:
            data = (self.folder / digest).read_bytes()
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
