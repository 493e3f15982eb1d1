"""Saves what is readable of a damaged session into a new one.

Failure answered: one flipped bit, and a conversation of a month is refused as a whole.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from monitor.errors import MonitorError, SessionDamaged, SessionNotFound
from monitor.messages import answer_codec, request_codec
from monitor.sessions.closed_runs import run_codec
from monitor.sessions.faults import READ_FAULTS, typed
from monitor.sessions.nodes import ID_CHANCE_BYTES, Node, check_readable, digest_of, new_id
from monitor.sessions.reader import connect_reader, lacks_log, made
from monitor.sessions.tables import rows, stored_rows, writing
from monitor.sessions.tables.marked_folder import Blobs, blobs_of
from monitor.sessions.tables.packing import CALL, Memory, call_of, event_of, unpacked
from monitor.sessions.tables.schema import APPLICATION_ID, SqlConnection, check_format, format_of
from monitor.sessions.tables.seal import broken
from monitor.sessions.tree import ACTIVE, TreeProblem

_UNREADABLE: Final = (sqlite3.Error, MonitorError, ValueError, TypeError, KeyError, AttributeError, IndexError)
"""What a damaged row raises when it is read."""
_NUMBER: Final = {"run": "number", "call": "number", "approval": "number", "event": "seq", "chunk": "seq"}
"""The key of each table beside the tree."""
_POINTED: Final = re.compile(r'"\$(?:node|call)":\[(\d+),')
"""The number of a node that holds a text or a call of the row."""


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
    at_ms = round((time.time() if clock_s is None else clock_s) * 1000)
    id = new_id(at_ms, secrets.token_bytes(ID_CHANCE_BYTES))
    try:
        reader = connect_reader(source)
    except READ_FAULTS as error:
        raise typed(error, source) from error
    with contextlib.closing(reader):
        try:
            if reader.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                raise SessionDamaged(f"{source.name} is no session of agent-monitor. It was not changed.")
            check_format(source.stem, format_of(reader))
        except READ_FAULTS as error:
            raise typed(error, source) from error
        reader.execute("BEGIN")  # what the owner writes meanwhile is not saved in part
        with made(into) as (connection, blobs):
            saving = _Salvage(reader, blobs_of(source), connection, blobs)
            saving.meta(id, at_ms)
            saving.records("run", "SELECT body FROM run", saving.run)
            saving.nodes()
            saving.heads()
            saving.records("call", CALL, saving.call)
            saving.records("approval", "SELECT request, answer FROM approval", saving.approval)
            saving.records("event", "SELECT run, at_ms, type, body FROM event", saving.event)
            saving.records("chunk", "SELECT run, turn, at_ms, body FROM chunk", saving.chunk)
            saving.whole(source)
    return Salvaged(id=id, nodes=saving.saved_nodes, records=saving.saved_records, lost=tuple(saving.lost))


class _Salvage:
    """Copies row after row; a row that cannot be read is noted."""

    def __init__(self, reader: SqlConnection, old: Blobs, connection: SqlConnection, blobs: Blobs) -> None:
        self._reader = reader
        self._old = old
        self._connection = connection
        self._blobs = blobs
        self._memory = Memory(seals=False)
        self._runs: dict[int, str] = {}
        """The ids of the runs that were saved, by their old numbers."""
        self._saved: dict[int, Node] = {}
        """The saved nodes by their old numbers."""
        self._parents: dict[int, int | None] = {}
        self._digests: dict[int, set[str]] = {}
        """For each old node, its stored digest and the digest that it should have."""
        self.saved_nodes = 0
        self.saved_records = 0
        self.lost: list[TreeProblem] = []

    def _keys(self, table: str, key: str) -> list[int]:
        """The keys of a table, also if a page of it is damaged: then those on both sides of it."""
        found: set[int] = set()
        for order in ("ASC", "DESC"):
            try:
                for (number,) in self._reader.execute(f"SELECT {key} FROM {table} ORDER BY {key} {order}"):  # noqa: S608 - names of our own
                    found.add(number)
                break
            except READ_FAULTS as error:
                self.lost.append(TreeProblem(f"the table {table} cannot be read to its end: {error}"))
        return sorted(found)

    def whole(self, source: Path) -> None:
        """Note what the digests of the tables say of the session as a whole."""
        with contextlib.suppress(*_UNREADABLE):
            self.lost += broken(self._reader, format_of(self._reader))
        with contextlib.suppress(*_UNREADABLE):
            if lacks_log(self._reader, source):
                self.lost.append(TreeProblem(f"its log {source.name}-wal is not there, and steps may have been in it"))

    def meta(self, id: str, at_ms: int) -> None:
        """The new session says where it comes from."""
        rows.write_meta(self._connection, "id", id)
        rows.write_meta(self._connection, "created_ms", at_ms)
        with contextlib.suppress(*_UNREADABLE):
            rows.write_meta(self._connection, "forked_from", rows.meta(self._reader)["id"])

    # ------------------------------------------------------------------ the tree

    def nodes(self) -> None:
        """Save the nodes, each behind the nearest one before it that was saved."""
        for seq in self._keys("node", "seq"):
            try:
                node, parent = self._read_node(seq)
                at = self._nearest(seq, parent)
                self.saved_nodes += 1
                saved = replace(node, seq=self.saved_nodes, parent=at.id if at is not None else None)
                saved = replace(saved, digest=digest_of(at.digest if at is not None else None, saved))
                rows.write_node(self._connection, saved, self._blobs)
                self._saved[seq] = saved
            except _UNREADABLE as error:
                self.lost.append(TreeProblem(f"node number {seq}: {error}", seq))

    def _read_node(self, seq: int) -> tuple[Node, int | None]:
        """A node that is as it was written, and the old number of its parent."""
        parent: int | None = self._reader.execute("SELECT parent FROM node WHERE seq = ?", (seq,)).fetchone()[0]
        self._parents[seq] = parent
        node = rows.node_at(self._reader, seq, self._old)
        if node is None:
            raise SessionDamaged("it cannot be read")
        before = {None} if parent is None else self._digests.get(parent, set())
        wanted = {digest_of(one, node) for one in before}
        self._digests[seq] = {node.digest} | wanted
        if wanted and node.digest not in wanted:
            raise SessionDamaged("it is not as it was written: its digest differs")
        check_readable(node)
        return node, parent

    def _nearest(self, seq: int, parent: int | None) -> Node | None:
        """The saved node that a node follows."""
        while parent is not None and parent not in self._saved:
            if parent not in self._parents:  # its row is gone, and with it the node that it followed
                return next((self._saved[one] for one in sorted(self._saved, reverse=True) if one < seq), None)
            parent = self._parents[parent]
        return self._saved[parent] if parent is not None else None

    def heads(self) -> None:
        """Each branch ends at the nearest node that was saved."""
        try:
            heads = self._reader.execute("SELECT name, node FROM head ORDER BY name").fetchall()
        except READ_FAULTS as error:
            self.lost.append(TreeProblem(f"the branches cannot be read: {error}"))
            heads = [(ACTIVE, max(self._saved, default=None))]
        for name, seq in heads:
            end = self._nearest(seq + 1, seq) if seq is not None else None
            rows.write_head(self._connection, name, end.id if end is not None else None)

    # ------------------------------------------------------------------ beside the tree

    def records(self, table: str, select: str, save: Callable[[int, Any], None]) -> None:
        """Save the rows of a table one by one."""
        key = _NUMBER[table]
        for number in self._keys(table, key):
            try:
                row = self._reader.execute(f"{select} WHERE {key} = ?", (number,)).fetchone()
                for body in row:
                    self._check_pointers(body)
                save(number, row)
                self.saved_records += 1
            except _UNREADABLE as error:
                self.lost.append(TreeProblem(f"the {table} number {number}: {error}"))

    def _check_pointers(self, body: object) -> None:
        """Raise `SessionDamaged` if a text of the row stands in a node that was lost."""
        for seq in _POINTED.findall(body) if isinstance(body, str) else ():
            if int(seq) not in self._saved:
                raise SessionDamaged(f"a part of it stands in node number {seq}, which is lost")

    def run(self, number: int, row: Any) -> None:
        """Save a run."""
        record = unpacked(self._reader, self._old, run_codec.from_dict, row[0])
        writing.write_run(self._connection, record)
        self._runs[number] = record.id

    def call(self, _: int, row: Any) -> None:
        """Save a call."""
        writing.put_call(self._connection, call_of(self._reader, self._old, row), self._blobs, self._memory)

    def approval(self, _: int, row: Any) -> None:
        """Save a question, and its answer."""
        request, answer = row
        asked = unpacked(self._reader, self._old, request_codec.from_dict, request)
        answered = None if answer is None else unpacked(self._reader, self._old, answer_codec.from_dict, answer)
        writing.write_request(self._connection, asked)
        if answered is not None:
            writing.write_answer(self._connection, answered)

    def event(self, _: int, row: Any) -> None:
        """Save an event."""
        run, at_ms, kind, body = row
        event = event_of(self._reader, self._old, kind, body)
        writing.write_event(self._connection, self._run(run), at_ms, event, blobs=self._blobs, memory=self._memory)

    def chunk(self, _: int, row: Any) -> None:
        """Save some chunks."""
        run, turn, at_ms, body = row
        chunks = unpacked(self._reader, self._old, partial(stored_rows.chunks_of, self._run(run), turn), body)
        writing.write_chunks(self._connection, at_ms, chunks, self._blobs, self._memory)

    def _run(self, number: int | None) -> str | None:
        return None if number is None else self._runs[number]
