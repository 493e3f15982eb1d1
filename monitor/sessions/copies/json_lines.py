"""Writes a session as lines of JSON, to keep, to send or to read with other tools; and reads them.

The same session always gives the same bytes. A session that was read from such lines gives the same
bytes again.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final

from anyio import to_thread

from monitor.chunks import chunk_codec
from monitor.errors import ConfigError, MonitorError, SessionDamaged, SessionUnavailable, StoreError
from monitor.events import event_codec
from monitor.messages import answer_codec, call_codec, request_codec
from monitor.sessions.closed_runs import RunRecord, RunStage, TurnChunks, run_codec
from monitor.sessions.lock import OwnerLock, lock_path
from monitor.sessions.nodes import ID_CHANCE_BYTES, Node, NodeKind, canonical, digest_of, new_id
from monitor.sessions.postgres.postgres_reader import AnyReader, SessionsReader, new_session, rewriting
from monitor.sessions.postgres.postgres_session import is_database, parts_of, reader_at
from monitor.sessions.reader import (
    SessionReader,
    connect_reader,
    log_path,
    made,
    remove_file,
    resolved,
    write_facts,
)
from monitor.sessions.sqlite_session import SQLiteSession
from monitor.sessions.tables.marked_folder import blobs_of, sync_folder
from monitor.sessions.tables.rows import Rows
from monitor.sessions.tables.schema import SQLITE
from monitor.sessions.tables.step import Filling
from monitor.sessions.tree import ACTIVE

FORMAT: Final = 1
"""The number of the format of the lines. A change of the tables does not change it."""


def exported(session: AnyReader) -> Iterator[str]:
    """The lines, without the newlines. They are of one moment: that at which the first is read."""
    with session.snapshot():
        yield from _lines(session)


def _lines(session: AnyReader) -> Iterator[str]:
    head = {key: value for key, value in session.meta.items() if key not in {"epoch", "in_use"}}
    yield canonical({"type": "session", "format": FORMAT, **head})
    for run in session.runs(hidden=True):
        yield canonical({"type": "run", "run": run_codec.to_dict(run)})
    for node in session.nodes():
        yield _node_line(node)
    for name, head_of in session.heads().items():
        yield canonical({"type": "head", "name": name, "node": head_of})
    for call in session.calls():
        yield canonical({"type": "call", "call": call_codec.to_dict(call)})
    for asked in session.approvals():
        answer = None if asked.answer is None else answer_codec.to_dict(asked.answer)
        yield canonical({"type": "approval", "request": request_codec.to_dict(asked.request), "answer": answer})
    for event in session.events():
        data = event_codec.to_dict(event.event)
        yield canonical({"type": "event", "run": event.run, "at_ms": event.at_ms, "event": data})
    for some in session.chunks():
        pieces = [[at_s, chunk_codec.to_dict(chunk)] for at_s, chunk in some.chunks]
        inputs = {"inputs": [dict(one) for one in some.inputs]} if some.inputs else {}
        yield canonical({"type": "chunks", "run": some.run, "turn": some.turn, "chunks": pieces, **inputs})


_NODE_FIELDS: Final = ("seq", "id", "parent", "run", "turn", "at_ms", "tokens", "digest")


def _node_line(node: Node) -> str:
    fields = {name: getattr(node, name) for name in _NODE_FIELDS}
    return canonical({"type": "node", "kind": node.kind.value, "body": json.loads(node.body), **fields})


def imported(lines: Iterable[str], place: Path | str) -> None:
    """Make the session at `place` from its lines: a file, or `postgresql://user@host/db#name`.

    Raises `SessionDamaged` for lines that are no session, or that were changed, which the chain of
    digests shows. Then nothing is made. Raises `StoreError` if `place` exists already.
    """
    if is_database(place):
        with new_session(*parts_of(place)) as begin:
            fill(begin, lines)
        return
    with made(Path(place)) as rows:
        fill(partial(_begun, rows), lines)


def _begun(rows: Rows, facts: Mapping[str, Any]) -> Filling:
    write_facts(rows.connection, facts)
    return Filling(rows, SQLITE)


def fill(begin: Callable[[Mapping[str, Any]], Filling], lines: Iterable[str]) -> None:
    """Write a session from its lines. `begin` makes it, of the facts in the first line. Raises
    `SessionDamaged` for lines that are no session.
    """
    filling: Filling | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
            if (filling is None) is not (data["type"] == "session"):
                raise ValueError("a session has one line of type session, and it is the first")
            if filling is not None:
                _take(filling, data)
                continue
            if data["format"] != FORMAT:
                raise ValueError(f"format {data['format']} is not known")
            bytes.fromhex(data["id"])
        except (MonitorError, ValueError, KeyError, TypeError) as error:
            raise SessionDamaged(f"line {number} is no line of a session: {error}") from None
        filling = begin(data)
    if filling is None:
        raise SessionDamaged("there is no line of type session")
    for problem in filling.problems():
        raise SessionDamaged(f"node number {problem.seq}: {problem.what}")


def _take(filling: Filling, data: Any) -> None:
    """Write the next line of the export as a row."""
    match data["type"]:
        case "run":
            filling.into("runs").run(run_codec.from_dict(data["run"]))
        case "node":
            filling.into("nodes").node(node_in(data))
        case "head":
            filling.into("heads").head(data["name"], data["node"])
        case "call":
            filling.into("calls").call(call_codec.from_dict(data["call"]))
        case "approval":
            answer = None if data["answer"] is None else answer_codec.from_dict(data["answer"])
            filling.into("approvals").questions(
                [request_codec.from_dict(data["request"])], [] if answer is None else [answer]
            )
        case "event":
            filling.into("events").event(data["run"], event_codec.from_dict(data["event"]), data["at_ms"])
        case "chunks":
            pieces = tuple((at_s, chunk_codec.from_dict(one)) for at_s, one in data["chunks"])
            some = TurnChunks(data["run"], data["turn"], pieces, tuple(data.get("inputs", ())))
            filling.into("chunks").chunks(some, 0)
        case kind:
            raise ValueError(f"unknown type {kind!r}")


def node_in(data: dict[str, Any]) -> Node:
    """The node in a line."""
    fields = {name: data[name] for name in _NODE_FIELDS}
    return Node(kind=NodeKind(data["kind"]), body=canonical(data["body"]), **fields)


# --------------------------------------------------------------------------------------------------
# Sessions in files and in databases: copied from one to the other, forked, removed.

Place = str | PathLike[str]
"""The file of a session, or `postgresql://user@host/db#name`."""


def copy_session(source: Place, into: Place) -> None:
    """Copy a session with its id, also one that is being written: all that is stored now, with its
    long texts. A plain copy of an open file has neither. `source`, `into`: files, or
    `postgresql://user@host/db#name`.

    Raises `StoreError` if `into` exists already. A database has no two sessions with one id.
    """
    with reader_at(source) as session:
        imported(exported(session), _place(into))


def fork(source: Place, into: Place, *, at: str | None = None, clock_s: float | None = None) -> str:
    """Copy a session, also one that is being written, with an id of its own. Returns that id.
    `source`, `into`: files, or `postgresql://user@host/db#name`.

    `at`: the node at which the copy's active path ends. Raises `StoreError` if `into` exists
    already, or if the session has no such node.
    """
    at_ms = round((time.time() if clock_s is None else clock_s) * 1000)
    id = new_id(at_ms, secrets.token_bytes(ID_CHANCE_BYTES))
    with reader_at(source) as session, session.snapshot():
        if at is not None and session.find_node(at) is None:
            raise StoreError(f"there is no node {at}")
        imported(
            _forked(exported(session), {"id": id, "created_ms": at_ms, "forked_from": session.id}, at), _place(into)
        )
    return id


def _place(given: Place) -> Path | str:
    return given if is_database(given) else Path(given)


def _forked(lines: Iterator[str], facts: dict[str, object], at: str | None) -> Iterator[str]:
    """The lines of an export with other facts about the session, and another end of its path."""
    yield canonical(json.loads(next(lines)) | facts)
    yield from lines
    if at is not None:  # the last line about a branch counts
        yield canonical({"type": "head", "name": ACTIVE, "node": at})


def remove(place: Place) -> None:
    """Remove a session, and what we have made beside it. Nothing else is touched. `place`: its
    file, or `postgresql://user@host/db#name`.

    Raises `SessionBusy` while it has an owner, and `SessionDamaged` if it is no session.
    """
    if not is_database(place):
        remove_file(Path(place))
        return
    address, name = parts_of(place)
    with SessionsReader(address) as there:
        there.remove(name)


# --------------------------------------------------------------------------------------------------
# Removes what is old, or what must not be kept, from the inside of a session.
#
# Nodes are never changed, so the session is written anew without it, and takes the place of the
# old one. Its digests are made anew.

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
        log = log_path(path)
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
    with rewriting(*parts_of(place)) as (session, begin):
        before = session.size()
        lines = [*work.lines(exported(session), _ended_before(session.runs(hidden=True), events_before_s))]
        fill(begin, lines)
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
        digests = {*Rows(connection).aside()}
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
