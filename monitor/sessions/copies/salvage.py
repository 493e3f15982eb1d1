"""Saves what is readable of a damaged session into a new one.

Failure answered: one flipped bit, and a conversation of a month is refused as a whole.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from monitor.errors import MonitorError, SessionDamaged, SessionNotFound
from monitor.messages import answer_codec, call_codec, request_codec
from monitor.sessions.closed_runs import run_codec
from monitor.sessions.faults import READ_FAULTS, typed
from monitor.sessions.nodes import ID_CHANCE_BYTES, Node, check_readable, digest_of, new_id
from monitor.sessions.reader import (
    check_session,
    connect_reader,
    facts_of,
    lacks_log,
    made,
    write_facts,
)
from monitor.sessions.tables import older
from monitor.sessions.tables.marked_folder import blobs_of
from monitor.sessions.tables.rows import Rows, chunks_of, event_of, given
from monitor.sessions.tables.schema import ONLY, SQLITE
from monitor.sessions.tables.seal import broken
from monitor.sessions.tables.sharing import pointed
from monitor.sessions.tables.step import Filling, StepRows
from monitor.sessions.tree import ACTIVE, TreeProblem

_UNREADABLE: Final = (sqlite3.Error, MonitorError, ValueError, TypeError, KeyError, AttributeError, IndexError)
"""What a damaged row raises when it is read."""
_RECORDS: Final = {
    "runs": ("number", "body"),
    "calls": ("number", "body"),
    "approvals": ("number", "request, answer"),
    "events": ("seq", "run, at_ms, type, body"),
    "chunks": ("seq", "run, turn, at_ms, body"),
}
"""The key of each table beside the tree, and the columns that are saved."""
T = TypeVar("T")


@dataclass(slots=True, frozen=True, kw_only=True)
class Salvaged:
    """The report of a salvage: how much was saved of a damaged session, and what is lost."""

    id: str
    """The id of the new session."""
    nodes: int
    """The number of nodes that were saved."""
    records: int
    """The number of runs, calls, approvals, events and pieces of chunks that were saved."""
    lost: tuple[TreeProblem, ...] = ()
    """What could not be read, or is not as it was written. It is not in the new session."""

    @property
    def whole(self) -> bool:
        """Nothing was lost."""
        return not self.lost


def salvage(source: Path, into: Path, *, clock_s: float | None = None) -> Salvaged:
    """Make a new session at `into` of everything in `source` that can be read and is as it was
    written. `source` is not changed.

    A node behind a lost one follows the nearest node before it that was saved. Raises `StoreError`
    if `into` exists already, or if `source` is no session, and `SessionTooNew`.
    """
    if not source.exists():
        raise SessionNotFound(f"there is no session {source}")
    try:
        reader = connect_reader(source)
    except READ_FAULTS as error:
        raise typed(error, source) from error
    with contextlib.closing(reader):
        try:
            check_session(reader, source)
        except READ_FAULTS as error:
            raise typed(error, source) from error
        reader.execute("BEGIN")  # what the owner writes meanwhile is not saved in part
        with made(into) as rows:
            at_ms = round((time.time() if clock_s is None else clock_s) * 1000)
            saving = _Salvage(Rows(reader, blobs=blobs_of(source)), rows)
            saving.begin(new_id(at_ms, secrets.token_bytes(ID_CHANCE_BYTES)), at_ms)
            saving.records("runs", saving.run)
            saving.nodes()
            saving.heads()
            saving.records("calls", saving.call)
            saving.records("approvals", saving.approval)
            saving.records("events", saving.event)
            saving.records("chunks", saving.chunk)
            saving.end(source)
    return Salvaged(id=saving.id, nodes=saving.saved_nodes, records=saving.saved_records, lost=tuple(saving.lost))


class _Salvage:
    """Copies row after row; a row that cannot be read is noted."""

    def __init__(self, old: Rows, new: Rows) -> None:
        self._old = old
        self._reader = old.connection
        self._new = new
        self._filling = Filling(new, SQLITE)
        self._saved: dict[str, Node] = {}
        """The saved nodes, oldest first, by their ids."""
        self._seqs: set[int] = set()
        """The old numbers of the saved nodes."""
        self._parents: dict[str, str | None] = {}
        self._digests: dict[str, set[str]] = {}
        """For each old node, its stored digest and the digest that it should have."""
        self.id = ""
        self.saved_nodes = 0
        self.saved_records = 0
        self.lost: list[TreeProblem] = []

    def _keys(self, table: str, key: str) -> list[int]:
        """The keys of a table, also if a page of it is damaged: then those on both sides of it."""
        found: set[int] = set()
        for order in ("ASC", "DESC"):
            try:
                for (number,) in self._reader.execute(f"select {key} from monitor_{table} order by {key} {order}"):  # noqa: S608 - names of our own
                    found.add(number)
                break
            except READ_FAULTS as error:
                self.lost.append(TreeProblem(f"the table {table} cannot be read to its end: {error}"))
        return sorted(found)

    def end(self, source: Path) -> None:
        """Write what is left, and note what the digests say of the session as a whole."""
        self._filling.write()
        with contextlib.suppress(*_UNREADABLE):
            self.lost += older.problems(self._reader) if older.is_older(self._reader) else broken(self._reader, ONLY)
        with contextlib.suppress(*_UNREADABLE):
            if lacks_log(self._reader, source):
                self.lost.append(TreeProblem(f"its log {source.name}-wal is not there, and steps may have been in it"))

    def begin(self, id: str, at_ms: int) -> None:
        """Make the new session, which says where it comes from."""
        self.id, origin = id, None
        with contextlib.suppress(*_UNREADABLE):
            origin = facts_of(self._reader)["id"]
        write_facts(self._new.connection, {"id": id, "created_ms": at_ms, "forked_from": origin})

    # ------------------------------------------------------------------ the tree

    def nodes(self) -> None:
        """Save the nodes, each behind the nearest one before it that was saved."""
        for seq in self._keys("nodes", "seq"):
            try:
                node = self._read_node(seq)
                at = self._nearest(node.parent)
                saved = replace(node, seq=self.saved_nodes + 1, parent=at.id if at is not None else None)
                saved = replace(saved, digest=digest_of(at.digest if at is not None else None, saved))
                self._filling.into("nodes").node(saved)
                self._saved[node.id] = saved
                self._seqs.add(seq)
                self.saved_nodes += 1
            except _UNREADABLE as error:
                self.lost.append(TreeProblem(f"node number {seq}: {error}", seq))

    def _read_node(self, seq: int) -> Node:
        """A node that is as it was written."""
        id, parent = self._reader.execute("select id, parent from monitor_nodes where seq = ?", (seq,)).fetchone()
        self._parents[id] = parent
        node = self._old.node_at(seq)
        if node is None:
            raise SessionDamaged("it cannot be read")
        before = {None} if parent is None else self._digests.get(parent, set())
        wanted = {digest_of(one, node) for one in before}
        self._digests[id] = {node.digest} | wanted
        if wanted and node.digest not in wanted:
            raise SessionDamaged("it is not as it was written: its digest differs")
        check_readable(node)
        return node

    def _nearest(self, id: str | None) -> Node | None:
        """The saved node at or above this one. If its row is gone, and with it the node that it
        followed, that is the newest one.
        """
        while id is not None and id not in self._saved:
            if id not in self._parents:
                return next(reversed(self._saved.values()), None)
            id = self._parents[id]
        return self._saved[id] if id is not None else None

    def heads(self) -> None:
        """Each branch ends at the nearest node that was saved."""
        try:
            heads = self._old.heads()
        except READ_FAULTS as error:
            self.lost.append(TreeProblem(f"the branches cannot be read: {error}"))
            heads = {ACTIVE: next(reversed(self._saved), None)}
        for name, id in heads.items():
            end = self._nearest(id)
            self._filling.into("heads").head(name, end.id if end is not None else None)

    # ------------------------------------------------------------------ beside the tree

    def records(self, table: str, save: Callable[[StepRows, Sequence[Any]], None]) -> None:
        """Save the rows of a table one by one."""
        key, columns = _RECORDS[table]
        sql = f"select {columns} from monitor_{table} where {key} = ?"  # noqa: S608 - names of our own
        for number in self._keys(table, key):
            try:
                row = self._reader.execute(sql, (number,)).fetchone()
                for seq in (seq for body in row if isinstance(body, str) for seq in pointed(body)):
                    if seq not in self._seqs:
                        raise SessionDamaged(f"a part of it stands in node number {seq}, which is lost")
                save(self._filling.into(table), row)
                self.saved_records += 1
            except _UNREADABLE as error:
                self.lost.append(TreeProblem(f"the {table} number {number}: {error}"))

    def _read(self, decode: Callable[[Any], T], body: str) -> T:
        return self._old.read([(decode, body)])[0]

    def run(self, step: StepRows, row: Sequence[Any]) -> None:
        """Save a run."""
        step.run(self._read(run_codec.from_dict, row[0]))

    def call(self, step: StepRows, row: Sequence[Any]) -> None:
        """Save a call."""
        step.call(self._read(call_codec.from_dict, row[0]))

    def approval(self, step: StepRows, row: Sequence[Any]) -> None:
        """Save a question, and its answer."""
        request, answer = row
        answers = [] if answer is None else [self._read(answer_codec.from_dict, answer)]
        step.questions([self._read(request_codec.from_dict, request)], answers)

    def event(self, step: StepRows, row: Sequence[Any]) -> None:
        """Save an event."""
        run, at_ms, kind, body = row
        step.event(given(run), self._read(partial(event_of, 0, None, at_ms, kind), body).event, at_ms)

    def chunk(self, step: StepRows, row: Sequence[Any]) -> None:
        """Save some chunks."""
        run, turn, at_ms, body = row
        step.chunks(self._read(partial(chunks_of, given(run), turn), body), at_ms)
