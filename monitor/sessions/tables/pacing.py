"""Lets the sessions of a process carry out their statements one after the other.

Each statement hands the interpreter over twice. With many sessions in one process, the handing over
took longer than the statements. The order saves time and protects nothing. So no session waits long
for another one, whose disk may be slow.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LONGEST_S: Final = 0.1
"""A session that has waited so long goes on beside the others. The statements of 200 sessions take
about half of this.
"""

_one = threading.Lock()
_here = threading.local()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Carry out the statements of a step. Syncs are not held up: they overlap."""
    _begin()
    try:
        yield
    finally:
        _end()


@contextmanager
def others_go_on() -> Iterator[None]:
    """Let other sessions go on meanwhile: this part of a step waits for the disk or the network."""
    held = _end()
    try:
        yield
    finally:
        if held:
            _begin()


def _begin() -> None:
    lock = _one
    if lock.acquire(timeout=LONGEST_S):
        _here.lock = lock


def _end() -> bool:
    lock: threading.Lock | None = getattr(_here, "lock", None)
    _here.lock = None
    if lock is not None:
        lock.release()
    return lock is not None


def _forked() -> None:
    """A thread that held the lock is not in this process, so nobody would release it."""
    global _one  # noqa: PLW0603 - every process has its own
    _one = threading.Lock()
    _here.lock = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
