"""A file that a command writes: all of it or nothing, and never through a link."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from monitor.errors import ConfigError

PREFIX_CHARS: Final = 50
"""The name of a half-written file has at most this many characters of the name of the file."""


def check_out(out: Path, option: str) -> None:
    """Raises `ConfigError` if the file of `option` cannot be written, before any work is done."""
    if not out.absolute().parent.is_dir():
        raise ConfigError(f"{option} {out}: there is no such directory")
    if out.is_symlink():
        raise ConfigError(f"{option} {out}: it is a symbolic link; name the file itself")
    if out.exists() and not out.is_file():
        raise ConfigError(f"{option} {out}: it is {'a directory' if out.is_dir() else 'no regular file'}")


def write_out(out: Path, pieces: Iterable[bytes], option: str) -> None:
    """Write `pieces` through a name that nobody can have taken. A new file is for its owner alone;
    an old one keeps its mode.
    """
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{out.name[:PREFIX_CHARS]}.", dir=out.absolute().parent)
        try:
            with os.fdopen(descriptor, "wb") as half:
                half.writelines(pieces)
                if out.is_file() and not out.is_symlink():
                    Path(name).chmod(stat.S_IMODE(out.stat().st_mode))
            Path(name).replace(out)  # of a link that was put there meanwhile it takes the place, and does not follow it
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"{option} {out}: cannot be written: {error.strerror or error}") from None
