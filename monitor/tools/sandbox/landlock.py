"""Commands that are started by a thread which has confined itself, so that they inherit it.

That costs nothing, and the rest of the program stays free. Landlock, a part of Linux since 5.13,
has no name for "all but this", so a hidden folder means that everything beside it is named. It does
not see changes of modes and times.
"""

from __future__ import annotations

import os
import queue
import subprocess
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from monitor.tools.sandbox.box_program import NETWORK, BoxRules, confine_thread
from monitor.tools.sandbox.sandbox_places import SandboxPlaces

DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
"""The devices that a command may use: none of them is a disk, a memory or a terminal of others."""


def landlock_rules(places: SandboxPlaces, scratch: Path, *, network: bool) -> BoxRules:
    """The rules for commands in `places`."""
    hidden = [*places.hidden, *([places.home] if places.home else []), Path("/proc"), Path("/dev")]
    readable = [*_beside(hidden), *_system_facts(), *places.read]
    writable = [*places.writable, scratch, *(Path("/dev", name) for name in DEVICES)]
    return BoxRules(
        files=True,
        readable=tuple(map(str, readable)),
        writable=tuple(map(str, writable)),
        families=NETWORK if network else (),
    )


class ConfinedThread:
    """A thread that is confined for good, and starts commands that are confined with it.

    Raises `OSError` if the kernel refuses.
    """

    def __init__(self, rules: BoxRules) -> None:
        self._asked: queue.SimpleQueue[tuple[list[str], dict[str, Any], queue.SimpleQueue[Any]] | None]
        self._asked = queue.SimpleQueue()
        ready: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        threading.Thread(target=_serve, args=(self._asked, ready, rules), name="landlock", daemon=True).start()
        if (error := ready.get()) is not None:
            raise error

    def start(self, argv: list[str], options: dict[str, Any]) -> subprocess.Popen[bytes]:
        """Start a command as `subprocess.Popen` does, and raise what it raises."""
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._asked.put((argv, options, answer))
        started = answer.get()
        if isinstance(started, BaseException):
            raise started
        made: subprocess.Popen[bytes] = started
        return made

    def close(self) -> None:
        """End the thread. Commands that run stay confined."""
        self._asked.put(None)


def _serve(
    asked: queue.SimpleQueue[tuple[list[str], dict[str, Any], queue.SimpleQueue[Any]] | None],
    ready: queue.SimpleQueue[BaseException | None],
    rules: BoxRules,
) -> None:
    """Knows nothing of its owner, which is free to be forgotten and closes it then."""
    try:
        confine_thread(rules)
    except BaseException as error:  # noqa: BLE001 - raised by the one that waits
        ready.put(error)
        return
    ready.put(None)
    while (one := asked.get()) is not None:
        argv, options, answer = one
        try:
            answer.put(subprocess.Popen(argv, **options))  # noqa: S603 - the caller decides what may be run
        except BaseException as error:  # noqa: BLE001 - the same
            answer.put(error)


def _beside(hidden: Iterable[Path], folder: Path = Path("/")) -> Iterator[Path]:
    """Everything below `folder` but what is hidden, in as few paths as possible."""
    hidden = set(hidden)
    for entry in os.scandir(folder):
        path = Path(entry.path)
        if entry.is_symlink() or path in hidden:
            continue
        if any(path in one.parents for one in hidden):
            yield from _beside(hidden, path)
        else:
            yield path


def _system_facts() -> Iterator[Path]:
    """What `/proc` says of the system, and not of single processes."""
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() and not entry.is_symlink():
            yield Path(entry.path)
