"""Removes what is old, or what must not be kept, from the inside of a session.

Nodes are never changed, so the session is written anew without it, and takes the place of the old
one. Its digests are made anew.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final

from anyio import to_thread

from monitor.errors import ConfigError, SessionUnavailable
from monitor.sessions.copies.json_lines import exported, fill, imported, node_in
from monitor.sessions.lock import OwnerLock, lock_path
from monitor.sessions.nodes import canonical, digest_of
from monitor.sessions.postgres.session_address import is_database, parts_of
from monitor.sessions.postgres.session_import import rewriting
from monitor.sessions.reader import SessionReader, connect_reader, resolved
from monitor.sessions.run_records import RunRecord, RunStage
from monitor.sessions.sqlite_session import SQLiteSession
from monitor.sessions.tables.blobs import blobs_of
from monitor.sessions.tables.marked_folder import sync_folder

ERASED: Final = "[erased]"
"""Stands where a text was erased."""
_IDS: Final = frozenset(
    {"type", "id", "run", "parent", "parent_run", "node", "head", "call_id", "key", "bound_to", "digest", "kind"}
)
"""Fields that name something. Nothing is erased in them."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Trimmed:
    """The report of a trimming: how much was removed."""

    events: int
    """The number of events that were removed."""
    pieces: int
    """The number of rows with pieces of answers that were removed: a replay needs them."""
    erased: int
    """The number of rows in which a text was erased."""
    bytes_before: int
    bytes_after: int


async def trim(
    place: str | PathLike[str], *, erase: Sequence[str] = (), events_before_s: float | None = None
) -> Trimmed:
    """Write the session at `place` anew, without some of what it holds. Its id stays. `place`: its
    file, or `postgresql://user@host/db#name`.

    `erase`: texts in whose place `[erased]` stands from now on, in messages, calls, results, events
    and tasks. Pieces of answers go as a whole, so such a session is not replayed any more.
    `events_before_s`: events and pieces of runs that have ended before this time, in seconds since
    1970, are removed; their conversation stays.

    Raises `SessionBusy` while the session has an owner. Raises `SessionUnavailable` while a reader
    is at work or the disk is full, and `ConfigError` if nothing is to be done.
    """
    if not all(erase) or (not erase and events_before_s is None):
        raise ConfigError("say what is removed: texts to erase, or a time before which events go")
    work = _Trim([*erase])
    if is_database(place):
        return await to_thread.run_sync(_trim_in_database, place, work, events_before_s)
    path = resolved(place)
    async with SQLiteSession(path, create=False):
        pass  # it is the owner for a moment: the log is copied into the file
    with OwnerLock(lock_path(path), path.stem):
        log = path.with_name(f"{path.name}-wal")
        if log.exists() and log.stat().st_size:
            raise SessionUnavailable(
                f"the log {log.name} cannot be copied into the file now: a reader is at work, or the disk is full."
                " Nothing was changed"
            )
        before = path.stat().st_size
        new = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
        with SessionReader(path) as session:
            runs = session.runs(hidden=True)
            imported(work.lines(exported(session), _ended_before(runs, events_before_s)), new)
        try:
            _take_the_place(new, path)
        finally:
            new.unlink(missing_ok=True)
            blobs_of(new).remove()
    return work.report(before, path.stat().st_size)


def _trim_in_database(place: str, work: _Trim, events_before_s: float | None) -> Trimmed:
    with rewriting(*parts_of(place)) as (session, target):
        before = session.size()
        lines = [*work.lines(exported(session), _ended_before(session.runs(hidden=True), events_before_s))]
        fill(target, lines)
        return work.report(before, session.size())


def _ended_before(runs: Sequence[RunRecord], at_s: float | None) -> set[str]:
    """The ids of the runs that have ended before this time, with all runs above them."""
    gone: set[str] = set()
    if at_s is not None:
        for run in runs:  # a run stands behind the one that began it
            ended = run.state is RunStage.ENDED and run.ended_at_s is not None and run.ended_at_s < at_s
            if ended and (run.parent_run is None or run.parent_run in gone):
                gone.add(run.id)
    return gone


def _take_the_place(new: Path, path: Path) -> None:
    """Put the file `new` in the place of `path`: first its long texts, then the file, then what is
    not needed any more. A process that dies in between leaves a whole session.
    """
    with closing(connect_reader(new)) as connection:
        digests = {digest for (digest,) in connection.execute("SELECT digest FROM artifact")}
    theirs, ours = blobs_of(new), blobs_of(path)
    for digest in digests:
        ours.put(theirs.get(digest))
    new.replace(path)
    sync_folder(path.parent)
    ours.keep_only(digests)


class _Trim:
    """The lines of an export, without what is removed."""

    def __init__(self, erase: Sequence[str]) -> None:
        self._erase = erase
        self._digests: dict[str, str] = {}
        """The new digests of the nodes, by their ids."""
        self._events = self._pieces = self._erased = 0

    def report(self, bytes_before: int, bytes_after: int) -> Trimmed:
        """How much was removed."""
        return Trimmed(
            events=self._events,
            pieces=self._pieces,
            erased=self._erased,
            bytes_before=bytes_before,
            bytes_after=bytes_after,
        )

    def lines(self, lines: Iterator[str], gone: Collection[str]) -> Iterator[str]:
        """`gone`: the runs whose events are removed."""
        for line in lines:
            data = json.loads(line)
            if data["type"] == "chunks" and (self._erase or data["run"] in gone):
                self._pieces += 1
                continue
            if data["type"] == "event" and data["run"] in gone:
                self._events += 1
                continue
            kept = self._without(data)
            self._erased += kept != data
            yield canonical(self._digested(kept) if data["type"] == "node" else kept)

    def _without(self, data: Any) -> Any:
        if isinstance(data, str):
            for text in self._erase:
                data = data.replace(text, ERASED)
            return data
        if isinstance(data, dict):
            return {
                key: one if key in _IDS and isinstance(one, str) else self._without(one) for key, one in data.items()
            }
        return [self._without(one) for one in data] if isinstance(data, list) else data

    def _digested(self, node: dict[str, Any]) -> dict[str, Any]:
        """The line of a node, with the digest of what it holds now."""
        above = self._digests[node["parent"]] if node["parent"] is not None else None
        digest = digest_of(above, node_in(node))
        self._digests[node["id"]] = digest
        return {**node, "digest": digest}
