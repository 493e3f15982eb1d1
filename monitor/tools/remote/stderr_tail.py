"""The end of what a server writes to its stderr: read all the time, and bounded."""

from __future__ import annotations

import os
import select
import threading
from contextlib import suppress
from typing import IO, Final

KEPT_BYTES: Final = 16_384
READ_BYTES: Final = 65_536
READS: Final = 64
"""The most reads of one look: a server may write faster than it is read."""


class StderrTail:
    """The last bytes that were written to `file`. A thread reads them, so that nobody who writes
    has to wait, and no event loop.
    """

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        self.file: IO[str] = os.fdopen(self._writing, "w", encoding="utf-8", errors="replace")
        """The end to write to, for the process of the server."""
        self._kept = bytearray()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="stderr of a server", daemon=True)
        self._thread.start()

    def text(self, chars: int) -> str:
        """The last `chars` characters, with what is in the pipe now."""
        with self._lock:
            self._read()
            return self._kept.decode("utf-8", "replace")[-chars:]

    def close(self) -> None:
        """Read no more. Processes that still write get a broken pipe."""
        if self._closed:
            return
        self._closed = True
        with suppress(OSError):  # it wakes the thread
            os.set_blocking(self._writing, False)
            os.write(self._writing, b"\n")
        self._thread.join()
        self.file.close()
        os.close(self._reading)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        while not self._closed:
            poll.poll()
            with self._lock:
                self._read()

    def _read(self) -> None:
        for _ in range(READS):
            try:
                piece = os.read(self._reading, READ_BYTES)
            except BlockingIOError:
                return
            self._kept += piece
            del self._kept[:-KEPT_BYTES]
