"""Ends spans in a thread of its own, because the end of a span may run the program's exporter. Log
records go the same way.

A span is started where its event comes, which costs microseconds. To end it calls every span
processor, and a processor may send, block or raise. A run never waits for that.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from monitor.errors import describe

QUEUED_SPANS: Final = 2_048
"""Ended spans and log records that wait. It is the queue of the SDK's own batch processor."""


class Exports:
    """A bounded queue of ended spans and log records, and the thread that passes them on."""

    def __init__(self, limit: int = QUEUED_SPANS) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._begin()
        self.dropped = 0
        """Spans and records that were not exported, because the queue was full."""

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._failure: str | None = None
        self._told = False

    def end(self, span: Any, end_ns: int, attributes: Mapping[str, Any] | None = None) -> None:
        """Give `span` its last `attributes` and end it at `end_ns`, soon. With a full queue it is
        dropped and counted.
        """
        self._put(partial(_ended, span, end_ns, attributes))

    def log(self, logger: Any, record: Any) -> None:
        """Give `record` to `logger`, soon. With a full queue it is dropped and counted."""
        self._put(partial(logger.emit, record))

    def _put(self, work: Callable[[], None]) -> None:
        self._begin_if_forked()
        if self._queue.qsize() >= self._limit:
            self.dropped += 1
            return
        self._queue.put(work)
        if self._thread is None:
            self._start()

    def _begin_if_forked(self) -> None:
        """A forked process has no thread, its locks may be held for ever, and its parent ends the
        spans that wait.
        """
        if self._pid != os.getpid():
            self._lock = threading.Lock()
            self._begin()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="agent-monitor spans", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        waiting = self._queue
        while True:
            work = waiting.get()
            try:
                if work is None:
                    return
                work()
            except Exception as error:  # noqa: BLE001 - a span processor is the program's code
                self._failure = self._failure or describe(error)
            finally:
                waiting.task_done()

    def failure(self) -> str | None:
        """The error that a span processor has raised, at the first call after it; later `None`."""
        if self._failure is None or self._told:
            return None
        self._told = True
        return self._failure

    def flush(self, timeout_s: float) -> bool:
        """Wait until the queue is empty, for at most `timeout_s` seconds. False: it is not."""
        self._begin_if_forked()
        until = time.monotonic() + timeout_s
        with self._queue.all_tasks_done:
            while self._queue.unfinished_tasks and self._thread is not None:
                left = until - time.monotonic()
                if left <= 0:
                    return False
                self._queue.all_tasks_done.wait(left)
        return True

    def close(self, timeout_s: float) -> bool:
        """`flush`, and end the thread. Spans that end later begin a new thread."""
        flushed = self.flush(timeout_s)
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            if flushed:
                thread.join(timeout_s)
        return flushed


def _ended(span: Any, end_ns: int, attributes: Mapping[str, Any] | None) -> None:
    if attributes:
        span.set_attributes(attributes)
    span.end(end_time=end_ns)
