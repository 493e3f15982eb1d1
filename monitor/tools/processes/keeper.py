"""Ends the namespaces of this program when the program has died, also by `kill -9`.

The system can end a child with its parent. But that follows the thread that has started it, and it
would end processes in the background with their command. So one small shell waits at the end of a
pipe, which closes with the program. It knows which namespaces were open.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import Final

_SHELL: Final = """
trap '' HUP INT TERM
open=
while read -r word one; do
  kept=
  for other in $open; do [ "$other" = "$one" ] || kept="$kept $other"; done
  open=$kept
  [ "$word" = add ] && open="$open $one"
done
for one in $open; do
  { read -r line < "/proc/${one%%-*}/stat"; } 2> /dev/null || continue
  set -- $line
  [ "${22}" = "${one##*-}" ] && kill -9 "$1"
done
"""
"""Kills a process only if it started at the tick that was named: an id alone is used again."""
_lock = threading.Lock()
_pipes: dict[int, int] = {}
"""The pipe to the keeper of each process: a fork has its own."""


def watch_over(pid: int, started: int) -> None:
    """End the process `pid`, which started at the tick `started`, when this program has died."""
    _tell(f"add {pid}-{started}\n")


def forget(pid: int, started: int) -> None:
    """The process has ended."""
    _tell(f"drop {pid}-{started}\n")


def start_keeper() -> int:
    """Start the shell if this process has none. Returns the descriptor of the pipe to it, or -1 if
    it cannot be started.
    """
    with _lock:
        own = os.getpid()
        if own not in _pipes:
            _pipes[own] = _started()
        return _pipes[own]


def _started() -> int:
    reading, writing = os.pipe()
    try:
        nul = os.open(os.devnull, os.O_RDWR)
        try:
            actions = [(os.POSIX_SPAWN_DUP2, reading, 0), (os.POSIX_SPAWN_DUP2, nul, 1), (os.POSIX_SPAWN_DUP2, nul, 2)]
            # Started by a shell that ends at once, so that it is no child of this program.
            script = f"exec 3<&0; ({_SHELL}) <&3 3<&- &"
            pid = os.posix_spawn("/bin/sh", ["/bin/sh", "-c", script], {}, file_actions=actions, setsid=True)
            with suppress(ChildProcessError):  # the program reaps all of its children itself
                os.waitpid(pid, 0)
        finally:
            os.close(nul)
    except (OSError, NotImplementedError):
        os.close(writing)
        return -1
    finally:
        os.close(reading)
    return writing


def _tell(line: str) -> None:
    pipe = start_keeper()
    if pipe >= 0:
        with suppress(OSError):
            os.write(pipe, line.encode())
