"""Finds the processes that belong to a command in the process table (Linux: `/proc`).

Ending a process group is not enough: `setsid` leaves it. So each command gets a marker in its
environment, which all its children inherit. A process belongs to a command if its environment has
the marker. It also does if it is in the command's session, or if its parent belongs to the command.

One kind of process still escapes. It has no marker (`env -i`), a session of its own (`setsid`), and
its parent has ended before anybody looked. Without `/proc` only the process group is known.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

MARKER = "AGENT_MONITOR_CALL"
"""The variable of the environment. Its value is one token for each command around the process, the
outermost first, joined by `:`. A token is `<owner's pid>-<owner's start>-<random>`.
"""
HAS_TABLE = Path("/proc/self/environ").exists()
_PROC = "/proc"
SWEEPS = 20
"""A sweep is repeated while it finds processes: a process may start another one in the meantime."""
NAME_CHARS = 80


PROCESSES_A_SECOND = 20_000
"""The most processes and threads that one processor starts in a second."""
MOST_LOOKED_AT = 2_000
"""If more ids than this may be those of descendants, the whole table is read."""


@dataclass(slots=True, frozen=True)
class ProcessInfo:
    """One living process. `pid` alone is reused later, but `pid` and `started` together are not."""

    pid: int
    parent: int
    group: int
    session: int
    started: int
    """Clock ticks since the machine was booted."""
    tokens: tuple[str, ...]
    """The tokens in the marker of the process."""


class RecentProcesses:
    """The ids that processes can have which started after the process `first`.

    Ids are given in their order and begin again at the highest one. So only those between `first`
    and the newest one need to be looked at, as long as they cannot have come round.
    """

    def __init__(self, first: int) -> None:
        self._first = first
        self._began = time.monotonic()

    def ids(self) -> Sequence[int] | None:
        """The ids. `None`: any id is possible."""
        highest = _highest_id()
        if highest is None or (time.monotonic() - self._began) * PROCESSES_A_SECOND * (os.cpu_count() or 1) > highest:
            return None
        try:
            newest = int(Path(_PROC, "loadavg").read_bytes().split()[-1])
        except (OSError, ValueError, IndexError):
            return None
        count = (newest - self._first) % highest + 1
        if count > MOST_LOOKED_AT:
            return None
        return [(self._first + number) % highest for number in range(count)]


def owner_token(random: str) -> str:
    """A token for a new command of this process."""
    pid = os.getpid()
    own = _stat(pid)
    return f"{pid}-{own[3] if own else 0}-{random}"


def marked(token: str) -> str:
    """The value of `MARKER` for the command `token`. Tokens that this process has itself stay."""
    around = os.environ.get(MARKER, "")
    return f"{around}:{token}" if around else token


def living() -> Iterator[ProcessInfo]:
    """All processes that this user may look at. Empty where there is no `/proc`."""
    with suppress(OSError):
        for place in Path(_PROC).iterdir():
            if place.name.isdigit() and (entry := _entry(int(place.name))) is not None:
                yield entry


def members(
    token: str, session: int | None, known: Collection[tuple[int, int]] = (), recent: RecentProcesses | None = None
) -> list[ProcessInfo]:
    """The living processes of the command `token`, without zombies.

    `session`: the id of its session, while that id cannot have been reused. `known`: pid and start
    of processes that were found earlier; they and their children count also without the marker.
    `recent`: when the command began. `None`: that is not known, and the whole table is read.
    """
    ids = recent.ids() if recent is not None and HAS_TABLE else None
    looked_at = living() if ids is None else (entry for pid in ids if (entry := _entry(pid)) is not None)
    entries = {entry.pid: entry for entry in looked_at}
    mine = {
        pid
        for pid, entry in entries.items()
        if token in entry.tokens or entry.session == session or (pid, entry.started) in known
    }
    children: dict[int, list[int]] = {}
    for entry in entries.values():
        children.setdefault(entry.parent, []).append(entry.pid)
    waiting = list(mine)
    while waiting:
        new = set(children.get(waiting.pop(), ())) - mine
        mine |= new
        waiting += new
    # By number, threads are found too.
    return [entries[pid] for pid in sorted(mine) if ids is None or _is_process(pid)]


def below(first: int) -> list[ProcessInfo]:
    """The living processes that `first` has started, and those that these have started."""
    found: dict[int, ProcessInfo] = {}
    waiting = [first]
    while waiting:
        parent = waiting.pop()
        children = _children(parent)
        if children is None:  # a kernel without the list
            return _below_by_table(first)
        for pid in children:
            if pid not in found and (stat := _stat(pid)) is not None:
                found[pid] = ProcessInfo(pid, *stat, ())
                waiting.append(pid)
    return [found[pid] for pid in sorted(found)]


def start_of(pid: int) -> int:
    """The tick at which the process started. Raises `OSError` if it has ended."""
    stat = _stat(pid)
    if stat is None:
        raise ProcessLookupError(pid)
    return stat[3]


def leftovers() -> list[ProcessInfo]:
    """Processes of commands whose owner has ended without ending them, e.g. by `kill -9`."""
    entries = list(living())
    owners = {(entry.pid, entry.started) for entry in entries}
    return [entry for entry in entries if entry.tokens and not any(_owner(token) in owners for token in entry.tokens)]


def end_leftovers() -> int:
    """End the processes of commands whose owner is dead, at once. Returns how many there were."""
    return sweep(leftovers)


def sweep(find: Callable[[], list[ProcessInfo]]) -> int:
    """Kill all processes that `find` finds, until it finds none. Returns how many there were."""
    killed: set[tuple[int, int]] = set()
    for _ in range(SWEEPS):
        found = find()
        for entry in found:
            if send(entry, signal.SIGKILL):
                killed.add((entry.pid, entry.started))
        if not found:
            break
    return len(killed)


def send(entry: ProcessInfo, number: signal.Signals) -> bool:
    """Send a signal to this process, and to no other one that got its pid later."""
    try:
        descriptor = os.pidfd_open(entry.pid)
    except (AttributeError, OSError):
        return False
    try:
        now = _stat(entry.pid)
        if now is None or now[3] != entry.started:
            return False
        signal.pidfd_send_signal(descriptor, number)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def command_of(pid: int) -> str:
    """The command line of the process, for people; empty if the process has ended."""
    try:
        raw = Path(_PROC, str(pid), "cmdline").read_bytes()
    except OSError:
        return ""
    text = " ".join(raw.decode("utf-8", "replace").split("\0")).strip()
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= NAME_CHARS else f"{text[:NAME_CHARS]}..."


def _owner(token: str) -> tuple[int, int] | None:
    pid, _, rest = token.partition("-")
    started, _, _ = rest.partition("-")
    return (int(pid), int(started)) if pid.isdecimal() and started.isdecimal() else None


def _children(pid: int) -> list[int] | None:
    """The children of all threads of the process; of one that has ended, none. `None`: the kernel
    does not say.
    """
    children: list[int] = []
    try:
        for task in Path(_PROC, str(pid), "task").iterdir():
            with suppress(ProcessLookupError):
                children += map(int, (task / "children").read_bytes().split())
    except FileNotFoundError:
        return None if Path(_PROC, str(pid), "task").exists() else []
    except OSError:
        return []
    return children


def _below_by_table(first: int) -> list[ProcessInfo]:
    entries = list(living())
    mine = {first}
    while new := {entry.pid for entry in entries if entry.parent in mine} - mine:
        mine |= new
    return [entry for entry in entries if entry.pid in mine - {first}]


@lru_cache(maxsize=1)
def _highest_id() -> int | None:
    try:
        return int(Path(_PROC, "sys/kernel/pid_max").read_bytes())
    except (OSError, ValueError):
        return None


def _is_process(pid: int) -> bool:
    """Whether `pid` is no thread of another process."""
    with suppress(OSError):
        return b"\nTgid:\t%d\n" % pid in Path(_PROC, str(pid), "status").read_bytes()
    return False


def _entry(pid: int) -> ProcessInfo | None:
    try:
        environment = Path(_PROC, str(pid), "environ").read_bytes()
    except OSError:
        return None
    stat = _stat(pid)
    if stat is None:
        return None
    start = b"\0" + MARKER.encode() + b"="
    _, found, rest = (b"\0" + environment).partition(start)
    value = rest.partition(b"\0")[0].decode("ascii", "replace") if found else ""
    return ProcessInfo(pid, *stat, tuple(value.split(":")) if value else ())


def _stat(pid: int) -> tuple[int, int, int, int] | None:
    """Parent, group, session and start of a process. `None`: it has ended, or is a zombie."""
    try:
        raw = Path(_PROC, str(pid), "stat").read_bytes()
    except OSError:
        return None
    fields = raw[raw.rfind(b")") + 2 :].split()
    if len(fields) < 20 or fields[0] in b"ZX":  # noqa: PLR2004 - proc(5): `starttime` is the 20th after the name
        return None
    return int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19])
