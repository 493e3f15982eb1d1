"""The bodies of the rows beside the tree: calls, events, questions, runs and chunks.

A text or a call that a node of the turn holds is a pointer there: see `sharing`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from monitor.calls import CallRecord, call_codec
from monitor.chunks import TextDelta, chunk_codec
from monitor.errors import SessionDamaged
from monitor.events import Event, event_codec
from monitor.sessions.nodes import canonical
from monitor.sessions.run_records import TurnChunks
from monitor.sessions.tables.blobs import Blobs, body_of
from monitor.sessions.tables.owner_memory import MOST_NODES, Memory
from monitor.sessions.tables.schema import SqlConnection
from monitor.sessions.tables.sharing import Pointers, can_be_shared, has_pointer, whole

T = TypeVar("T")

(_CALL_TAG,) = call_codec.tags
_CALL_COLUMNS: Final = frozenset({"type", "run", "call_id", "key", "state"})
"""Fields that are left out of the body, because a column holds them."""


_NO_POINTERS: Final = Pointers()


class Packing:
    """Writes the bodies of rows, with pointers in the place of texts that the turn's nodes hold."""

    def __init__(self, pointers: Callable[[str, int], Pointers]) -> None:
        """`pointers`: into the nodes of a run's turn."""
        self._pointers = pointers

    def packed(self, data: dict[str, Any], run: str | None, turn: Any) -> str:
        """`data` of this turn as the body of a row."""
        if run is not None and isinstance(turn, int) and can_be_shared(data):
            return canonical(self._pointers(run, turn).shared(data))
        return escaped(data)

    def call(self, record: CallRecord) -> str:
        """The body of a call's row, packed."""
        data = call_codec.to_brief(record)
        kept = {name: value for name, value in data.items() if name not in _CALL_COLUMNS}
        return self.packed(kept, record.run, record.turn)

    def event(self, run: str | None, event: Event) -> tuple[str, str]:
        """The type and the body of an event."""
        data = event_codec.to_brief(event)
        turn = getattr(event, "turn", None)
        return data.pop("type"), self.packed(data, run, getattr(turn, "number", turn))

    def chunks(self, chunks: TurnChunks) -> str:
        """The body of some chunks. A piece of text is stored as the text: most chunks are such."""
        pieces = [
            [at_s, chunk.text if isinstance(chunk, TextDelta) else chunk_codec.to_dict(chunk)]
            for at_s, chunk in chunks.chunks
        ]
        if not chunks.inputs:
            return escaped(pieces)
        return self.packed({"chunks": pieces, "inputs": [dict(one) for one in chunks.inputs]}, chunks.run, chunks.turn)


def sql_packing(connection: SqlConnection, blobs: Blobs, memory: Memory) -> Packing:
    """The packing of an SQLite, in a file or in memory."""

    def pointers(run: str, turn: int) -> Pointers:
        known = memory.pointers(run, turn)
        if known is None:
            found = connection.execute(
                "SELECT n.seq, n.body, n.artifact FROM node n JOIN run r ON r.number = n.run"
                " WHERE r.id = ? AND n.turn = ? LIMIT ?",
                (run, turn, MOST_NODES),
            )
            known = Pointers((seq, body_of(blobs, body, artifact)) for seq, body, artifact in found)
            memory.take_pointers(run, turn, known)
        return known

    return Packing(pointers)


def escaped(data: Any) -> str:
    """`data` as the body of a row without pointers. Keys of the caller's that look like a pointer
    are read back as they were.
    """
    body = canonical(data)
    return canonical(_NO_POINTERS.shared(data)) if has_pointer(body) else body


def unpacked(connection: SqlConnection, blobs: Blobs, decode: Callable[[Any], T], body: str) -> T:
    """The data in the body of a row. Raises `SessionDamaged` if it cannot be read."""

    def of_node(seq: int) -> str:
        found = connection.execute("SELECT body, artifact FROM node WHERE seq = ?", (seq,)).fetchone()
        if found is None:
            raise ValueError(f"node number {seq} is missing")
        return body_of(blobs, *found)

    try:
        data = json.loads(body)
        return decode(whole(data, of_node) if has_pointer(body) else data)
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        raise SessionDamaged(f"a row of the session cannot be read: {error}") from None


CALL: Final = "SELECT run, call_id, key, state, body FROM call"
"""The columns that `call_of` reads, in order."""


def call_of(connection: SqlConnection, blobs: Blobs, row: Sequence[Any]) -> CallRecord:
    """The record of a call, read from its row."""
    run, call_id, key, state, body = row

    def decode(data: Any) -> CallRecord:
        columns = {"type": _CALL_TAG, "run": run, "call_id": call_id, "key": key, "state": state}
        return call_codec.from_dict({**data, **columns})

    return unpacked(connection, blobs, decode, body)


def event_of(connection: SqlConnection, blobs: Blobs, kind: str, body: str) -> Event:
    """The stored event, read from its row."""
    return unpacked(connection, blobs, lambda data: event_codec.from_dict({**data, "type": kind}), body)
