"""Results of scans as bytes, for a cache on the disk.

They are written with `pickle`. Loading makes objects of the classes of results and nothing else,
so bytes that somebody else wrote can call nothing. Bytes that cannot be loaded count as missing.
"""

from __future__ import annotations

import importlib
import io
import os
import pickle
import stat
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

_MODULES: Final = ("monitor.transcripts", "monitor.detections", "monitor.verdicts", "monitor.usage", "monitor.reasons")
"""The modules whose classes may be loaded from a file: they hold data and run no code."""


def dumped(value: Any) -> bytes | None:
    """`value` as bytes. `None`: it has something that cannot be stored, such as a function of the
    user's.
    """
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError):
        return None


def loaded(data: bytes) -> Any:
    """The value that `dumped` wrote. `None`: it is damaged, or of other classes."""
    try:
        return _Loader(io.BytesIO(data)).load()
    except Exception:  # noqa: BLE001 - damaged bytes may raise anything
        return None


def code_version() -> str:
    """What changes when the code changes that read and watched: the files of the library, and the
    version of Python.
    """
    files = [file.stat() for file in Path(__file__).parents[2].rglob("*.py")]
    newest = max((file.st_mtime_ns for file in files), default=0)
    return f"{sys.version} {len(files)} {sum(file.st_size for file in files)} {newest}"


def is_own(path: Path) -> bool:
    """Whether nobody but this user may write to it. On Windows the folder of a user is."""
    if os.name == "nt":
        return True
    status = path.lstat()
    others = stat.S_IWGRP | stat.S_IWOTH
    return status.st_uid == os.getuid() and not stat.S_ISLNK(status.st_mode) and not status.st_mode & others


class _Loader(pickle.Unpickler):
    """Makes objects of the listed modules alone."""

    def find_class(self, module: str, name: str) -> Any:
        return _class_of(module, name)


@cache
def _class_of(module: str, name: str) -> type:
    """Raises `UnpicklingError` for what is no class of the listed modules."""
    if "." not in name and any(module == one or module.startswith(f"{one}.") for one in _MODULES):
        found = getattr(importlib.import_module(module), name)
        if isinstance(found, type) and found.__module__ == module:
            return found
    raise pickle.UnpicklingError(f"{module}.{name} is no part of a result")
