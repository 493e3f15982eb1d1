"""The rows beside the tree, read. Each function is called in the thread of its connection."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from monitor.calls import CallRecord, answer_codec, request_codec
from monitor.chunks import TextDelta, chunk_codec
from monitor.sessions.run_records import ApprovalState, RunRecord, StoredEvent, TurnChunks, run_codec
from monitor.sessions.tables.blobs import Blobs
from monitor.sessions.tables.packing import CALL, call_of, event_of, unpacked
from monitor.sessions.tables.schema import OPEN_CALL, SqlConnection


def runs(connection: SqlConnection, blobs: Blobs) -> list[RunRecord]:
    """All runs, in the order in which they were begun."""
    rows = connection.execute("SELECT body FROM run ORDER BY number")
    return [unpacked(connection, blobs, run_codec.from_dict, body) for (body,) in rows]


def find_call(connection: SqlConnection, blobs: Blobs, key: str) -> CallRecord | None:
    """The call that was recorded under `key`."""
    found = connection.execute(f"{CALL} WHERE key = ?", (key,)).fetchone()
    return call_of(connection, blobs, found) if found else None


def calls(connection: SqlConnection, blobs: Blobs, run: str | None = None) -> list[CallRecord]:
    """The calls of a run or of all, in the order in which they were intended."""
    where, values = ("", ()) if run is None else ("WHERE run = ?", (run,))
    rows = connection.execute(f"{CALL} {where} ORDER BY number", values)
    return [call_of(connection, blobs, row) for row in rows]


def open_calls(connection: SqlConnection, blobs: Blobs, run: str) -> list[CallRecord]:
    """The calls of a run that have not ended, in the order in which they were intended."""
    rows = connection.execute(f"{CALL} WHERE run = ? AND {OPEN_CALL} ORDER BY number", (run,))
    return [call_of(connection, blobs, row) for row in rows]


def approvals(connection: SqlConnection, blobs: Blobs, *, only_open: bool = False) -> list[ApprovalState]:
    """The questions, in the order in which they were asked."""
    rows = connection.execute(
        "SELECT request, answer FROM approval WHERE answer IS NULL OR NOT ? ORDER BY number", (only_open,)
    )
    return [_approval(connection, blobs, request, answer) for request, answer in rows]


def _approval(connection: SqlConnection, blobs: Blobs, request: str, answer: str | None) -> ApprovalState:
    answered = None if answer is None else unpacked(connection, blobs, answer_codec.from_dict, answer)
    return ApprovalState(unpacked(connection, blobs, request_codec.from_dict, request), answered)


_EVENTS: Final = """SELECT e.seq, r.id, e.at_ms, e.type, e.body
    FROM event e LEFT JOIN run r ON r.number = e.run WHERE e.seq > ?"""
_CHUNKS: Final = "SELECT r.id, c.turn, c.body FROM chunk c LEFT JOIN run r ON r.number = c.run WHERE true"
_OF_RUN: Final = "AND {}.run = (SELECT number FROM run WHERE id = ?)"
"""The condition that a row belongs to one run."""


def events(connection: SqlConnection, blobs: Blobs, run: str | None = None, after: int = 0) -> list[StoredEvent]:
    """The events of a run or of all, in their order."""
    where, values = ("", (after,)) if run is None else (_OF_RUN.format("e"), (after, run))
    rows = connection.execute(f"{_EVENTS} {where} ORDER BY e.seq", values)
    return [StoredEvent(seq, of, at_ms, event_of(connection, blobs, kind, body)) for seq, of, at_ms, kind, body in rows]


def chunks(connection: SqlConnection, blobs: Blobs, run: str | None = None) -> list[TurnChunks]:
    """The chunks of a run or of all, in their order."""
    where, values = ("", ()) if run is None else (_OF_RUN.format("c"), (run,))
    rows = connection.execute(f"{_CHUNKS} {where} ORDER BY c.seq", values)
    return [unpacked(connection, blobs, partial(chunks_of, of, turn), body) for of, turn, body in rows]


def chunks_of(run: str | None, turn: int, data: Any) -> TurnChunks:
    """The chunks in the data of a row."""
    pieces, inputs = (data["chunks"], data["inputs"]) if isinstance(data, dict) else (data, ())
    chunks = ((at_s, TextDelta(one) if isinstance(one, str) else chunk_codec.from_dict(one)) for at_s, one in pieces)
    return TurnChunks(run, turn, tuple(chunks), tuple(inputs))
