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
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
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


def members(token: str, session: int | None, known: Collection[tuple[int, int]] = ()) -> list[ProcessInfo]:
    """The living processes of the command `token`, without zombies.

    `session`: the id of its session, while that id cannot have been reused. `known`: pid and start
    of processes that were found earlier; they and their children count also without the marker.
    """
    entries = {entry.pid: entry for entry in living()}
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
    return [entries[pid] for pid in sorted(mine)]


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
