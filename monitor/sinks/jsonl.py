"""Events as lines of JSON in a file, each with whose it is. They contain texts of models and
tools, so only the owner can read a new file.
"""

from __future__ import annotations

import os
from os import PathLike
from pathlib import Path
from typing import Self

from monitor._util.explained_options import explained
from monitor.errors import StoreError
from monitor.events import Envelope, Event, envelope_codec, event_codec


@explained(example="monitor.JsonlSink('events.jsonl')")
class JsonlSink:
    """Appends one line an event, flushed at once, so that a crash loses nothing. Close it, or use
    it as `with`.

    A line is the JSON of an envelope: the fields of the event, and under `envelope` the run, its
    parent, its root, its agent, its model and the number of the event. `envelope_codec.loads` reads
    it, and `event_codec.loads` reads the event alone. The lines of nested runs stand among those of
    their callers.

    Raises `StoreError` if the file cannot be opened, or if it is a symbolic link to another file.
    Otherwise anybody who may write into the folder could choose that file.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        try:
            self._file = os.fdopen(_opened(Path(path)), "a", encoding="utf-8")
        except OSError as error:
            raise StoreError(f"cannot write events to {path}: {error}") from error

    def receive(self, envelope: Envelope) -> None:
        """Write `envelope` as one line of JSON."""
        self._write(envelope_codec.dumps(envelope))

    def emit(self, event: Event) -> None:
        """Write `event` as one line, without whose it is."""
        self._write(event_codec.dumps(event))

    def _write(self, line: str) -> None:
        self._file.write(line + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file. Later events raise."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _opened(path: Path) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    if not path.is_symlink():
        return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)
    if path.is_file() or not path.exists():
        raise OSError("it is a symbolic link; name the file itself")
    return os.open(path, os.O_WRONLY)  # /dev/stderr, a pipe
