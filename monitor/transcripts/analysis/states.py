"""Where the states of readings are kept: in memory, or in files.

A state has objects of this library, so it is stored with `pickle`. Loading it uses nothing but the
modules that are pure arithmetic, and the classes of transcripts. The files are for their owner
alone, and a folder that somebody else may write to is not used. A state that cannot be loaded is
none: the transcript is read from its start.
"""

from __future__ import annotations

import importlib
import io
import os
import pickle
import stat
import sys
import tempfile
import time
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from types import MethodType
from typing import Any, Final, Protocol

from monitor._util.hashing import fingerprint

_PURE: Final = (
    *("monitor.core", "monitor.detectors", "monitor.judges", "monitor.verdicts"),
    *("monitor.budget", "monitor.calls", "monitor.chunks", "monitor.conditions", "monitor.outcome"),
    *("monitor.policy", "monitor.reasons", "monitor.state", "monitor.usage"),
)
_CLASSES: Final = "monitor.transcripts"
_FUNCTIONS: Final = frozenset(
    {("monitor.transcripts.analysis.scan", "_listener_to"), ("monitor.transcripts.analysis.scan", "_ignore")}
)
_OTHERS: Final = frozenset(
    {
        ("functools", "partial"),
        *(("collections", name) for name in ("Counter", "OrderedDict", "defaultdict", "deque")),
        *(("builtins", name) for name in ("bytearray", "frozenset", "range", "set")),
    }
)
MOST_IN_MEMORY: Final = 64
"""Files whose states are kept in memory. The others are read from their start again."""
KEPT_S: Final = 7 * 24 * 3600.0
"""A state of a session that nobody has asked about for so long is removed."""


class States(Protocol):
    """The states of readings, by file."""

    def get(self, path: Path) -> Any:
        """The latest state; `None`: there is no usable one."""
        ...

    def put(self, path: Path, state: Any) -> None:
        """Keep a state. One that cannot be kept is left out."""
        ...

    def forget(self, path: Path) -> None:
        """Drop the state of the file."""
        ...


class InMemory:
    """Keeps the states of readings in memory, for one process."""

    def __init__(self) -> None:
        self._states: OrderedDict[Path, bytes] = OrderedDict()

    def get(self, path: Path) -> Any:
        data = self._states.get(path)
        return None if data is None else _loaded(data)

    def put(self, path: Path, state: Any) -> None:
        self.forget(path)
        if (data := _dumped(state)) is not None:
            self._states[path] = data
            if len(self._states) > MOST_IN_MEMORY:
                self._states.popitem(last=False)

    def forget(self, path: Path) -> None:
        self._states.pop(path, None)


class InFiles:
    """States in the files of one folder, which is made with the first. `settings`: what the states
    depend on. Those of other settings, or of another version, are not found.
    """

    def __init__(self, folder: Path, settings: str) -> None:
        self._folder = folder
        self._settings = f"{settings}\n{sys.version}\n{_version()}"

    def get(self, path: Path) -> Any:
        file = self._file(path)
        try:
            if not _is_own(self._folder) or not _is_own(file):
                return None
            return _loaded(file.read_bytes())
        except OSError:
            return None

    def put(self, path: Path, state: Any) -> None:
        data = _dumped(state)
        if data is None:
            return
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_own(self._folder):
                return
            file = self._file(path)
            if not file.exists():
                self._remove_old()
            descriptor, half = tempfile.mkstemp(dir=self._folder)
            with os.fdopen(descriptor, "wb") as out:
                out.write(data)
            Path(half).replace(file)

    def forget(self, path: Path) -> None:
        with suppress(OSError):
            self._file(path).unlink()

    def _file(self, path: Path) -> Path:
        return self._folder / fingerprint(os.fsencode(f"{path.absolute()}\n{self._settings}"))

    def _remove_old(self) -> None:
        """A new session has begun, which is rare: time to look for old ones."""
        now = time.time()
        for file in self._folder.iterdir():
            with suppress(OSError):
                if now - file.stat().st_mtime > KEPT_S:
                    file.unlink()


def _version() -> str:
    """A hash of the code of the library, on which the classes of a state depend."""
    root = Path(__file__).parents[2]
    changed = [
        file.stat().st_mtime_ns
        for folder in ("transcripts", "detectors", "core")
        for file in (root / folder).rglob("*.py")
    ]
    return f"{len(changed)} {max(changed)}"


def _is_own(path: Path) -> bool:
    """Whether nobody but this user may write to it. On Windows the folder of a user is."""
    if os.name == "nt":
        return True
    status = path.lstat()
    others = stat.S_IWGRP | stat.S_IWOTH
    return status.st_uid == os.getuid() and not stat.S_ISLNK(status.st_mode) and not status.st_mode & others


def _dumped(state: Any) -> bytes | None:
    """`None`: it has something that cannot be stored, such as a function of the user's."""
    try:
        return pickle.dumps(state, protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError):
        return None


def _loaded(data: bytes) -> Any:
    try:
        return _Loader(io.BytesIO(data)).load()
    except Exception:  # noqa: BLE001 - a damaged state may raise anything, and is none
        return None


def _is_pure(module: str) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in _PURE)


def _method(of: Any, name: str) -> MethodType:
    """A method that an object has kept. `pickle` writes it as `getattr(of, name)`."""
    found = getattr(of, name) if _is_pure(type(of).__module__) else None
    if not isinstance(found, MethodType) or found.__self__ is not of:
        raise pickle.UnpicklingError(f"{name} is no part of a state")
    return found


class _Loader(pickle.Unpickler):
    """Makes objects of the listed modules alone."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _OTHERS:
            return getattr(importlib.import_module(module), name)
        if (module, name) == ("builtins", "getattr"):
            return _method
        pure = _is_pure(module)
        if "." not in name and (pure or module.startswith(f"{_CLASSES}.")):
            found = getattr(importlib.import_module(module), name)
            defined = getattr(found, "__module__", None) == module
            if defined and (pure or isinstance(found, type) or (module, name) in _FUNCTIONS):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a state")
