"""Files that are whole or as they were, also after a crash and a power cut."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


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
