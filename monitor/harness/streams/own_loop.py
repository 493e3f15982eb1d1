"""An event loop for programs that have none: one for each thread, as long as the thread lives.

The connections that an SDK's client keeps open belong to the loop in which they were opened. So all
runs of one thread share a loop: with a loop for each run, the second run would find the connections
of the first in a loop that is closed.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _ThreadLoop(threading.local):
    """The loop of the current thread. It is closed when the thread or the program ends."""

    runner: asyncio.Runner | None = None
    process: int = 0

    def of_this_process(self) -> asyncio.Runner:
        if self.runner is None or self.process != os.getpid():  # a loop does not survive a fork
            self.runner, self.process = asyncio.Runner(), os.getpid()
            self.closes = _LoopCloser(self.runner)  # dropped with the thread
        return self.runner


class _LoopCloser:
    """Closes the loop of a thread that ends, and that of the main thread with the program."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._process = os.getpid()
        if threading.current_thread() is threading.main_thread():
            atexit.register(self.close)

    def close(self) -> None:
        if self._process == os.getpid():
            self._runner.close()

    __del__ = close


_OWN = _ThreadLoop()


def run_in_own_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The result of `work`, in the loop of this thread. No loop may run here."""
    return _OWN.of_this_process().run(work(), context=contextvars.copy_context())
