"""Events as lines of JSON in a file."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Self

from monitor.errors import StoreError
from monitor.events import Event, event_codec


class JsonlSink:
    """Appends one line an event, flushed at once, so that a crash loses nothing. Close it, or use
    it as `with`.

    Raises `StoreError` if the file cannot be opened.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        try:
            self._file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115 - it lives as long as the sink
        except OSError as error:
            raise StoreError(f"cannot write events to {path}: {error}") from error

    def emit(self, event: Event) -> None:
        """Write `event` as one line."""
        self._file.write(event_codec.dumps(event) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file. Later events raise."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
