"""The bodies of the rows beside the tree: calls, events, questions, runs and chunks.

A text or a call that a node of the turn holds is a pointer there: see `sharing`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from monitor.chunks import TextDelta, chunk_codec
from monitor.errors import SessionDamaged
from monitor.events import Event, event_codec
from monitor.messages import CallRecord, CallState, call_codec
from monitor.sessions.closed_runs import TurnChunks
from monitor.sessions.nodes import Node, canonical
from monitor.sessions.tables.marked_folder import Blobs, body_of
from monitor.sessions.tables.schema import Pointers, SqlConnection, can_be_shared, has_pointer, whole
from monitor.sessions.tables.seal import Seal

# --------------------------------------------------------------------------------------------------
# Facts that the owner of a session knows without asking SQLite, because nobody else writes.
#
# Each statement costs a change of the thread, so a question that need not be asked saves time.

MOST_NODES: Final = 64
"""The most nodes of a turn that are searched for texts to share."""
MOST_RUNS: Final = 256
"""The most runs whose newest turns are remembered."""


class Memory:
    """The ends of the branches, the nodes of the last steps, the numbers of the runs and the states
    of the open calls.
    """

    def __init__(self, *, seals: bool = True) -> None:
        """`seals`: keeps the digests of the tables. Else they are taken at the end, when the
        session is filled.
        """
        self._seals = seals
        self._seal: Seal | None = None
        self.forget()

    def forget(self) -> None:
        """A transaction has failed: what it wrote is not there."""
        self.runs: dict[str, int] = {}
        """The numbers of runs, by their ids."""
        self.heads: dict[str, Node] = {}
        """The newest node of each branch."""
        self.recent: dict[str, Node] = {}
        """The nodes of the last step of each branch, by their ids."""
        self.calls: dict[str, tuple[CallState, int]] = {}
        """The state and the attempt of each open call, by its key."""
        self.last_seq: int | None = None
        self.last_event: int | None = None
        """The number of the newest event. `None`: not known."""
        self._seal = None
        self._pointers: dict[str, tuple[int, Pointers]] = {}
        """The newest turn of each run, and pointers into all nodes of that turn."""

    def seal(self, connection: SqlConnection) -> Seal | None:
        """The digests of the tables. `None`: they are not kept."""
        if self._seal is None and self._seals:
            self._seal = Seal(connection)
        return self._seal

    def take(self, nodes: Sequence[Node], branch: str, head: str | None) -> None:
        """Note that `nodes` were written, and that the branch ends at `head`."""
        written = {node.id: node for node in nodes}
        for node in nodes:
            self._point_into(node)
        self.last_seq = nodes[-1].seq
        end = written.get(head) or self.recent.get(head) if head is not None else None
        if end is not None:
            self.heads[branch] = end
        else:
            self.heads.pop(branch, None)
        ends = {node.id: node for node in self.heads.values()}
        self.recent = written | ends

    def take_call(self, record: CallRecord) -> None:
        """Note that a step of a call was written."""
        if record.open:
            self.calls[record.key] = record.state, record.attempt
        else:
            self.calls.pop(record.key, None)

    # -------------------------------------------------------------- texts that are stored once

    def pointers(self, run: str, turn: int) -> Pointers | None:
        """Pointers into the nodes of a turn. `None`: they are not known."""
        known = self._pointers.get(run)
        return known[1] if known is not None and known[0] == turn else None

    def take_pointers(self, run: str, turn: int, pointers: Pointers) -> None:
        """Note pointers into all nodes of a turn."""
        self._pointers.pop(run, None)
        self._pointers[run] = turn, pointers
        if len(self._pointers) > MOST_RUNS:
            del self._pointers[next(iter(self._pointers))]

    def _point_into(self, node: Node) -> None:
        known = self._pointers.get(node.run) if node.run is not None else None
        if known is None or node.turn is None or node.turn < known[0]:
            return
        turn, pointers = known
        if node.turn > turn:  # a turn begins
            pointers = Pointers()
            self._pointers[node.run] = node.turn, pointers  # type: ignore[index]
        if pointers.size < MOST_NODES:
            pointers.add(node.seq, node.body)


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
