"""Reads the rows of a session in an SQLite, in the thread of its connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

from monitor.chunks import TextDelta, chunk_codec
from monitor.errors import MonitorError
from monitor.messages import CallRecord, answer_codec, request_codec
from monitor.sessions.closed_runs import ApprovalState, RunRecord, StoredEvent, TurnChunks, run_codec
from monitor.sessions.faults import READ_FAULTS
from monitor.sessions.nodes import Node
from monitor.sessions.tables import rows
from monitor.sessions.tables.marked_folder import Blobs
from monitor.sessions.tables.packing import CALL, call_of, event_of, unpacked
from monitor.sessions.tables.schema import OPEN_CALL, SqlConnection, format_of, unreadable
from monitor.sessions.tables.seal import broken
from monitor.sessions.tree import ACTIVE, Context, TreeProblem, context_of, verify

T = TypeVar("T")

_EVENTS: Final = """SELECT e.seq, r.id, e.at_ms, e.type, e.body
    FROM event e LEFT JOIN run r ON r.number = e.run WHERE e.seq > ?"""
_CHUNKS: Final = "SELECT r.id, c.turn, c.body FROM chunk c LEFT JOIN run r ON r.number = c.run WHERE true"
_OF_RUN: Final = "AND {}.run = (SELECT number FROM run WHERE id = ?)"
"""The condition that a row belongs to one run."""


class StoredRows:
    """The `SessionRows` of the tables behind `connection`."""

    def __init__(self, connection: SqlConnection, blobs: Blobs) -> None:
        self._connection = connection
        self._blobs = blobs

    def context(self, branch: str = ACTIVE) -> Context:
        return context_of(rows.upwards(self._connection, branch, self._blobs))

    def active_path(self, branch: str, *, last: int | None, run: str | None) -> tuple[Node, ...]:
        return rows.path(self._connection, branch, self._blobs, last=last, run=run)

    def nodes(self, first: int | None = None) -> tuple[Node, ...]:
        return tuple(islice(rows.nodes(self._connection, self._blobs), first))

    def last_seq(self) -> int:
        return rows.SqlView(self._connection, self._blobs).last_seq()

    def find_node(self, id: str) -> Node | None:
        return rows.find_node(self._connection, id, self._blobs)

    def heads(self) -> dict[str, str | None]:
        return rows.heads(self._connection)

    def runs(self) -> tuple[RunRecord, ...]:
        found = self._connection.execute("SELECT body FROM run ORDER BY number")
        return tuple(self._unpacked(run_codec.from_dict, body) for (body,) in found)

    def find(self, key: str) -> CallRecord | None:
        return next(iter(self._calls("WHERE key = ?", key)), None)

    def calls(self, run: str | None = None) -> tuple[CallRecord, ...]:
        return self._calls("") if run is None else self._calls("WHERE run = ?", run)

    def open_calls(self, run: str) -> tuple[CallRecord, ...]:
        return self._calls(f"WHERE run = ? AND {OPEN_CALL}", run)

    def _calls(self, where: str, *values: str) -> tuple[CallRecord, ...]:
        found = self._connection.execute(f"{CALL} {where} ORDER BY number", values)
        return tuple(call_of(self._connection, self._blobs, row) for row in found)

    def approvals(self, *, only_open: bool = False) -> tuple[ApprovalState, ...]:
        found = self._connection.execute(
            "SELECT request, answer FROM approval WHERE answer IS NULL OR NOT ? ORDER BY number", (only_open,)
        )
        return tuple(
            ApprovalState(
                self._unpacked(request_codec.from_dict, request),
                None if answer is None else self._unpacked(answer_codec.from_dict, answer),
            )
            for request, answer in found
        )

    def events(self, run: str | None = None, after: int = 0) -> tuple[StoredEvent, ...]:
        where, values = ("", (after,)) if run is None else (_OF_RUN.format("e"), (after, run))
        found = self._connection.execute(f"{_EVENTS} {where} ORDER BY e.seq", values)
        return tuple(
            StoredEvent(seq, of, at_ms, event_of(self._connection, self._blobs, kind, body))
            for seq, of, at_ms, kind, body in found
        )

    def chunks(self, run: str | None = None) -> tuple[TurnChunks, ...]:
        where, values = ("", ()) if run is None else (_OF_RUN.format("c"), (run,))
        found = self._connection.execute(f"{_CHUNKS} {where} ORDER BY c.seq", values)
        return tuple(self._unpacked(partial(chunks_of, of, turn), body) for of, turn, body in found)

    def _unpacked(self, read: Callable[[Any], T], body: Any) -> T:
        return unpacked(self._connection, self._blobs, read, body)

    def verify(self) -> tuple[TreeProblem, ...]:
        return tuple(self._problems())

    def _problems(self) -> Iterator[TreeProblem]:
        """The faults of its pages, of the chain of its nodes, of the bodies beside it."""
        try:
            for (said,) in self._connection.execute("PRAGMA integrity_check(20)"):
                if said != "ok":
                    yield TreeProblem(f"the file: {said}")
            for table, number, *_ in self._connection.execute("PRAGMA foreign_key_check"):
                yield TreeProblem(f"the table {table}: row {number} refers to a row that is missing")
            yield from verify(rows.nodes(self._connection, self._blobs), self.heads())
            yield from broken(self._connection, format_of(self._connection))
            yield from unreadable(self)
        except (*READ_FAULTS, MonitorError) as error:
            yield TreeProblem(f"the file cannot be read to its end: {error}")


def chunks_of(run: str | None, turn: int, data: Any) -> TurnChunks:
    """The chunks in the data of a row."""
    pieces, inputs = (data["chunks"], data["inputs"]) if isinstance(data, dict) else (data, ())
    chunks = ((at_s, TextDelta(one) if isinstance(one, str) else chunk_codec.from_dict(one)) for at_s, one in pieces)
    return TurnChunks(run, turn, tuple(chunks), tuple(inputs))
