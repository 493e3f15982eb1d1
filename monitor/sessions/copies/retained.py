"""Whole sessions of a folder or of a database are removed by age and by size."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Final

from monitor.errors import ConfigError, SessionBusy, SessionDamaged, SessionNotFound
from monitor.sessions.copies.json_lines import remove
from monitor.sessions.postgres.postgres_reader import SessionsReader
from monitor.sessions.postgres.postgres_session import is_database
from monitor.sessions.reader import SessionFile, sessions_in

_NOW: Final = "select extract(epoch from clock_timestamp())::double precision"


@dataclass(slots=True, frozen=True)
class StoredSession:
    """A session in a database: facts that are known without opening it."""

    name: str
    place: str = field(repr=False)
    """The address of the session, `postgresql://user@host/db#name`. It may hold a password."""
    size: int
    """The number of bytes of all that it holds, without indexes."""
    changed_s: float
    """The time of the last write, in seconds since 1970 by the clock of the server."""


@dataclass(slots=True, frozen=True)
class Retained:
    """The sessions that a clean-up has removed, and those that it had to keep."""

    removed: tuple[SessionFile | StoredSession, ...]
    busy: tuple[SessionFile | StoredSession, ...]
    """Sessions that were kept although a limit is exceeded, because they have an owner, or are no
    sessions.
    """
    size: int
    """The number of bytes of the sessions that are left."""


def retain(
    where: str | PathLike[str],
    *,
    max_age_s: float | None = None,
    max_bytes: int | None = None,
    now_s: float | None = None,
    dry: bool = False,
) -> Retained:
    """Remove whole sessions: those not written for `max_age_s`, then the oldest until all others
    have at most `max_bytes` together. A session is never removed in part, or while it has an owner.

    `where`: a folder, or a database as `postgresql://user@host/db`. `now_s`: seconds since 1970,
    otherwise the clock of the machine that has the sessions. `dry`: say what would be removed, and
    remove nothing. Raises `ConfigError` for a limit below 0.
    """
    if min(max_age_s or 0, max_bytes or 0) < 0:
        raise ConfigError("max_age_s and max_bytes are at least 0")
    there, clock_s = _stored_in(where) if is_database(where) else (sessions_in(Path(where)), time.time())
    now_s = clock_s if now_s is None else now_s
    removed: list[SessionFile | StoredSession] = []
    busy: list[SessionFile | StoredSession] = []
    size = sum(one.size for one in there)
    for one in there:
        too_old = max_age_s is not None and now_s - one.changed_s > max_age_s
        if not too_old and (max_bytes is None or size <= max_bytes):
            continue
        try:
            if not dry:
                remove(one.place)
        except (SessionBusy, SessionDamaged):
            busy.append(one)
            continue
        except SessionNotFound:  # somebody else has removed it meanwhile
            size -= one.size
            continue
        removed.append(one)
        size -= one.size
    return Retained(tuple(removed), tuple(busy), size)


def _stored_in(address: str) -> tuple[Sequence[StoredSession], float]:
    """The sessions in a database, the one that was written last at the end, and its clock."""
    database = address.partition("#")[0]
    with SessionsReader(database) as there:
        (now_s,) = there.asked(lambda one: one.execute(_NOW).fetchone()) or (time.time(),)
        found: list[StoredSession] = []
        for name, changed_s in there.changed().items():
            with contextlib.suppress(SessionNotFound):  # somebody has removed it since its name was read
                found.append(StoredSession(name, f"{database}#{name}", there.opened(name).size(), changed_s))
        return found, now_s
