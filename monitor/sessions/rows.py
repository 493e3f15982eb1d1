"""Nodes, records and events as rows. Each function is called in the thread of its connection."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from monitor.calls import (
    ApprovalAnswer,
    ApprovalRequest,
    CallRecord,
    CallState,
    answer_codec,
    record_codec,
    request_codec,
)
from monitor.chunks import Chunk, TextDelta, ToolResult, chunk_codec
from monitor.errors import SessionDamaged, StoreError
from monitor.events import Event, event_codec
from monitor.outcome import Turn
from monitor.sessions.blobs import Blobs
from monitor.sessions.nodes import Node, NodeKind, canonical, short
from monitor.sessions.records import (
    ApprovalState,
    Changes,
    Committed,
    RunRecord,
    StoredEvent,
    TurnChunks,
    may_follow,
    run_codec,
)
from monitor.sessions.schema import INLINE_BYTES, Connection
from monitor.sessions.sharing import AS_IS, POINTER, Pointers, has_long_text, whole
from monitor.sessions.tree import Tip, plan

T = TypeVar("T")

_KINDS: Final = {kind: number for number, kind in enumerate(NodeKind, 1)}
_KIND_OF: Final = {number: kind for kind, number in _KINDS.items()}

_NODE: Final = """
    n.seq, n.id, p.id, n.kind, r.id, n.turn, n.at_ms, n.tokens, n.digest, n.body, n.artifact
    FROM {source} LEFT JOIN node p ON p.seq = n.parent LEFT JOIN run r ON r.number = n.run
"""
_ALL: Final = f"SELECT {_NODE.format(source='node n')}"
_UPWARDS: Final = f"""
    WITH RECURSIVE up (seq) AS (
        SELECT seq FROM node WHERE id = ?
        UNION ALL SELECT c.parent FROM up CROSS JOIN node c ON c.seq = up.seq WHERE c.parent IS NOT NULL
    )
    SELECT {_NODE.format(source="up CROSS JOIN node n ON n.seq = up.seq")}
"""  # noqa: S608 - CROSS JOIN keeps the order of the recursion: newest first, read as far as is needed


class SqlView:
    """The tree of a file, as the planning of new nodes needs it."""

    def __init__(self, connection: Connection, blobs: Blobs) -> None:
        self._connection = connection
        self._blobs = blobs

    def tip(self, id: str) -> Tip | None:
        found = self._connection.execute("SELECT id, digest FROM node WHERE id = ?", (_id(id),)).fetchone()
        return Tip(found[0].hex(), found[1].hex()) if found else None

    def head(self, branch: str) -> Tip | None:
        found = self._connection.execute(
            "SELECT n.id, n.digest FROM head h JOIN node n ON n.seq = h.node WHERE h.name = ?", (branch,)
        ).fetchone()
        return Tip(found[0].hex(), found[1].hex()) if found else None

    def upwards(self, id: str | None) -> Iterator[Node]:
        if id is not None:
            for row in self._connection.execute(_UPWARDS, (_id(id),)):
                yield _node(row, self._blobs)

    def last_seq(self) -> int:
        found: int = self._connection.execute("SELECT coalesce(max(seq), 0) FROM node").fetchone()[0]
        return found


def _id(id: str) -> bytes:
    try:
        return bytes.fromhex(id)
    except ValueError:
        raise StoreError(f"{id!r} is no id of a node: an id is 32 hexadecimal digits") from None


def _node(row: Sequence[Any], blobs: Blobs) -> Node:
    seq, id, parent, kind, run, turn, at_ms, tokens, digest, body, artifact = row
    if kind not in _KIND_OF:
        raise SessionDamaged(f"node number {seq} has the kind {kind}, which is none")
    if body is None:
        body = blobs.get(artifact).decode("utf-8", "replace")
    return Node(
        seq=seq,
        id=id.hex(),
        parent=parent.hex() if parent is not None else None,
        kind=_KIND_OF[kind],
        run=run,
        turn=turn,
        at_ms=at_ms,
        tokens=tokens,
        digest=digest.hex(),
        body=body,
    )


# ------------------------------------------------------------------ writing


def commit(
    connection: Connection, changes: Changes, blobs: Blobs, *, at_ms: int, new_id: Callable[[], str]
) -> Committed:
    """Write one step in the transaction that is open. Raises `StoreError` for a step that does not
    fit the session.
    """
    for run in changes.runs:
        write_run(connection, run)
    view = SqlView(connection, blobs)
    planned = plan(view, changes.nodes, branch=changes.branch, at_ms=at_ms, new_id=new_id)
    for node in planned.nodes:
        write_node(connection, node, blobs)
    if planned.nodes:
        write_head(connection, changes.branch, planned.head)
    newest = planned.nodes[-1].id if planned.nodes else None
    for record in changes.calls:
        _write_step(connection, record, newest)
    for request in changes.requests:
        write_request(connection, request)
    for answer in changes.answers:
        write_answer(connection, answer)
    for event in changes.events:
        write_event(connection, changes.events_run, at_ms, event)
    for chunks in changes.chunks:
        write_chunks(connection, at_ms, chunks)
    return Committed(planned.nodes, planned.head)


# ------------------------------------------------------------------ long texts are stored once

_INNER: Final[dict[str, tuple[str, type]]] = {
    "turn_ended": ("turn", Turn),
    "tool_finished": ("result", ToolResult),
    "tool_call_changed": ("record", CallRecord),
}
"""Fields of events that hold an object with many fields."""
_MOST_NODES: Final = 64
"""The most nodes of a turn that are searched for texts to share."""


def _packed(connection: Connection, data: dict[str, Any], run: str | None, turn: Any) -> str:
    """The body of a row, with pointers in the place of texts that the turn's nodes hold."""
    if run is not None and isinstance(turn, int) and has_long_text(data):
        nodes = connection.execute(
            "SELECT n.seq, n.body FROM node n JOIN run r ON r.number = n.run"
            " WHERE r.id = ? AND n.turn = ? AND n.body IS NOT NULL LIMIT ?",
            (run, turn, _MOST_NODES),
        )
        data = Pointers(nodes).shared(data)
    return canonical(data)


def _unpacked(connection: Connection, decode: Callable[[Any], T], body: str) -> T:
    def of_node(seq: int) -> str:
        found = connection.execute("SELECT body FROM node WHERE seq = ?", (seq,)).fetchone()
        if found is None or found[0] is None:
            raise ValueError(f"node number {seq} is missing")
        text: str = found[0]
        return text

    try:
        data = json.loads(body)
        return decode(whole(data, of_node) if POINTER in body or AS_IS in body else data)
    except (ValueError, TypeError, AttributeError) as error:
        raise SessionDamaged(f"a row of the session cannot be read: {error}") from None


def _pack_call(connection: Connection, record: CallRecord) -> str:
    data = short(record_codec.to_dict(record), CallRecord)
    kept = {name: value for name, value in data.items() if name not in _CALL_COLUMNS}
    return _packed(connection, kept, record.run, record.turn)


(_CALL_TAG,) = record_codec.tags
_CALL_COLUMNS: Final = frozenset({"type", "run", "call_id", "key", "state"})
"""Fields that are left out of the body, because a column holds them."""
_CALL: Final = "SELECT run, call_id, key, state, body FROM call"


def _call(connection: Connection, row: Sequence[Any]) -> CallRecord:
    run, call_id, key, state, body = row

    def decode(data: Any) -> CallRecord:
        columns = {"type": _CALL_TAG, "run": run, "call_id": call_id, "key": key, "state": state}
        return record_codec.from_dict({**data, **columns})

    return _unpacked(connection, decode, body)


def _pack_event(connection: Connection, run: str | None, event: Event) -> tuple[str, str]:
    data = short(event_codec.to_dict(event), type(event))
    if data["type"] in _INNER:
        name, cls = _INNER[data["type"]]
        data[name] = short(data[name], cls)
    turn = getattr(event, "turn", None)
    return data.pop("type"), _packed(connection, data, run, getattr(turn, "number", turn))


def write_run(connection: Connection, run: RunRecord) -> None:
    """Store a run, or replace its record."""
    connection.execute(
        "INSERT INTO run (id, parent_run, agent, purpose, state, started_ms, ended_ms, body)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET parent_run = excluded.parent_run,"
        " agent = excluded.agent, purpose = excluded.purpose, state = excluded.state,"
        " started_ms = excluded.started_ms, ended_ms = excluded.ended_ms, body = excluded.body",
        (
            run.id,
            run.parent_run,
            run.agent,
            run.purpose,
            run.state.value,
            round(run.started_at_s * 1000),
            None if run.ended_at_s is None else round(run.ended_at_s * 1000),
            canonical(run_codec.to_dict(run)),
        ),
    )


def _run_number(connection: Connection, run: str | None) -> int | None:
    if run is None:
        return None
    found = connection.execute("SELECT number FROM run WHERE id = ?", (run,)).fetchone()
    if found is None:
        raise StoreError(f"the run {run} is not in the session: write its RunRecord first")
    number: int = found[0]
    return number


def write_node(connection: Connection, node: Node, blobs: Blobs) -> None:
    """Store a node. A long body goes beside the file, and is on the disk before the row is."""
    body: str | None = node.body
    artifact = None
    if len(node.body) > INLINE_BYTES // 4 and len(data := node.body.encode()) > INLINE_BYTES:
        artifact, body = blobs.put(data), None
        connection.execute(
            "INSERT INTO artifact (digest, size, kind) VALUES (?, ?, 'body') ON CONFLICT DO NOTHING",
            (artifact, len(data)),
        )
    connection.execute(
        "INSERT INTO node (seq, id, parent, kind, run, turn, at_ms, tokens, digest, body, artifact)"
        " VALUES (?, ?, (SELECT seq FROM node WHERE id = ?), ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            node.seq,
            _id(node.id),
            _id(node.parent) if node.parent else None,
            _KINDS[node.kind],
            _run_number(connection, node.run),
            node.turn,
            node.at_ms,
            node.tokens,
            bytes.fromhex(node.digest),
            body,
            artifact,
        ),
    )


def write_head(connection: Connection, branch: str, node: str | None) -> None:
    """Make `node` the end of a branch. Raises `StoreError` if there is no such node."""
    seq = None
    if node is not None:
        found = connection.execute("SELECT seq FROM node WHERE id = ?", (_id(node),)).fetchone()
        if found is None:
            raise StoreError(f"there is no node {node}")
        seq = found[0]
    connection.execute(
        "INSERT INTO head (name, node) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET node = excluded.node",
        (branch, seq),
    )


def _write_step(connection: Connection, record: CallRecord, node: str | None) -> None:
    if record.state is CallState.INTENDED:
        intend(connection, record, node)
    elif not advance(connection, record):
        raise StoreError(f"the call {record.call_id} cannot become {record.state}: another has taken or ended it")


def intend(connection: Connection, record: CallRecord, node: str | None = None) -> CallRecord:
    """Store a call unless its key is known. Returns the record that now stands under the key."""
    put_call(connection, record, node)
    stored = find_call(connection, record.key)
    if stored is None:
        raise SessionDamaged(f"the call {record.key} was stored and is not there")
    return stored


def put_call(connection: Connection, record: CallRecord, node: str | None = None) -> None:
    """Store a call unless its key is known."""
    connection.execute(
        "INSERT INTO call (run, call_id, node, key, state, body)"
        " VALUES (?, ?, (SELECT seq FROM node WHERE id = ?), ?, ?, ?) ON CONFLICT (key) DO NOTHING",
        (
            record.run,
            record.call_id,
            _id(node) if node else None,
            record.key,
            record.state.value,
            _pack_call(connection, record),
        ),
    )


def advance(connection: Connection, record: CallRecord) -> bool:
    """Replace a call by its next step, if that is allowed. Returns whether it was."""
    if not may_follow(record, find_call(connection, record.key)):
        return False
    connection.execute(
        "UPDATE call SET state = ?, body = ? WHERE key = ?",
        (record.state.value, _pack_call(connection, record), record.key),
    )
    return True


def write_request(connection: Connection, request: ApprovalRequest) -> None:
    """Store a question. Storing it again changes nothing."""
    connection.execute(
        "INSERT INTO approval (id, run, request) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING",
        (request.id, request.run, canonical(request_codec.to_dict(request))),
    )


def write_answer(connection: Connection, answer: ApprovalAnswer) -> None:
    """Store an answer. Raises `StoreError` if there is no such question, or it has an answer."""
    found = connection.execute("SELECT answer FROM approval WHERE id = ?", (answer.id,)).fetchone()
    if found is None:
        raise StoreError(f"there is no question {answer.id} to answer")
    if found[0] is not None:
        raise StoreError(f"the question {answer.id} has its answer already")
    connection.execute(
        "UPDATE approval SET answer = ? WHERE id = ?", (canonical(answer_codec.to_dict(answer)), answer.id)
    )


def write_event(connection: Connection, run: str | None, at_ms: int, event: Event) -> None:
    """Store an event behind those that are there."""
    kind, body = _pack_event(connection, run, event)
    connection.execute(
        "INSERT INTO event (run, at_ms, type, body) VALUES (?, ?, ?, ?)",
        (_run_number(connection, run), at_ms, kind, body),
    )


def _piece(chunk: Chunk) -> Any:
    """A piece of text is stored as the text: most chunks are such pieces."""
    return chunk.text if isinstance(chunk, TextDelta) else chunk_codec.to_dict(chunk)


def write_chunks(connection: Connection, at_ms: int, chunks: TurnChunks) -> None:
    """Store some chunks behind those that are there."""
    pieces = [[at_s, _piece(chunk)] for at_s, chunk in chunks.chunks]
    if chunks.inputs:
        data = {"chunks": pieces, "inputs": [dict(one) for one in chunks.inputs]}
        body = _packed(connection, data, chunks.run, chunks.turn)
    else:
        body = canonical(pieces)
    connection.execute(
        "INSERT INTO chunk (run, turn, at_ms, body) VALUES (?, ?, ?, ?)",
        (_run_number(connection, chunks.run), chunks.turn, at_ms, body),
    )


# ------------------------------------------------------------------ reading


def nodes(connection: Connection, blobs: Blobs) -> Iterator[Node]:
    """All nodes, in the order of their numbers."""
    for row in connection.execute(f"{_ALL} ORDER BY n.seq"):
        yield _node(row, blobs)


def find_node(connection: Connection, id: str, blobs: Blobs) -> Node | None:
    """The node with this id."""
    found = connection.execute(f"{_ALL} WHERE n.id = ?", (_id(id),)).fetchone()
    return _node(found, blobs) if found else None


def heads(connection: Connection) -> dict[str, str | None]:
    """The newest node of each branch."""
    rows = connection.execute("SELECT h.name, n.id FROM head h LEFT JOIN node n ON n.seq = h.node ORDER BY h.name")
    return {name: node.hex() if node is not None else None for name, node in rows}


def runs(connection: Connection) -> list[RunRecord]:
    """All runs, in the order in which they were begun."""
    rows = connection.execute("SELECT body FROM run ORDER BY number")
    return [_unpacked(connection, run_codec.from_dict, body) for (body,) in rows]


def find_call(connection: Connection, key: str) -> CallRecord | None:
    """The call under this key."""
    found = connection.execute(f"{_CALL} WHERE key = ?", (key,)).fetchone()
    return _call(connection, found) if found else None


def calls(connection: Connection, run: str | None = None) -> list[CallRecord]:
    """The calls of a run or of all, in the order in which they were intended."""
    rows = connection.execute(f"{_CALL} WHERE ?1 IS NULL OR run = ?1 ORDER BY number", (run,))
    return [_call(connection, row) for row in rows]


def open_calls(connection: Connection, run: str) -> list[CallRecord]:
    """The calls of a run that have not ended, in the order in which they were intended."""
    rows = connection.execute(f"{_CALL} WHERE run = ? AND state IN ('intended', 'running') ORDER BY number", (run,))
    return [_call(connection, row) for row in rows]


def approvals(connection: Connection, *, only_open: bool = False) -> list[ApprovalState]:
    """The questions, in the order in which they were asked."""
    rows = connection.execute(
        "SELECT request, answer FROM approval WHERE answer IS NULL OR NOT ? ORDER BY number", (only_open,)
    )
    return [_approval(connection, request, answer) for request, answer in rows]


def _approval(connection: Connection, request: str, answer: str | None) -> ApprovalState:
    answered = None if answer is None else _unpacked(connection, answer_codec.from_dict, answer)
    return ApprovalState(_unpacked(connection, request_codec.from_dict, request), answered)


def events(connection: Connection, run: str | None = None, after: int = 0) -> list[StoredEvent]:
    """The events of a run or of all, in their order."""
    rows = connection.execute(
        "SELECT e.seq, r.id, e.at_ms, e.type, e.body FROM event e LEFT JOIN run r ON r.number = e.run"
        " WHERE e.seq > ?2 AND (?1 IS NULL OR r.id = ?1) ORDER BY e.seq",
        (run, after),
    )
    return [StoredEvent(seq, of, at_ms, _event(connection, kind, body)) for seq, of, at_ms, kind, body in rows]


def _event(connection: Connection, kind: str, body: str) -> Event:
    return _unpacked(connection, lambda data: event_codec.from_dict({**data, "type": kind}), body)


def chunks(connection: Connection, run: str | None = None) -> list[TurnChunks]:
    """The chunks of a run or of all, in their order."""
    rows = connection.execute(
        "SELECT r.id, c.turn, c.body FROM chunk c LEFT JOIN run r ON r.number = c.run"
        " WHERE (?1 IS NULL OR r.id = ?1) ORDER BY c.seq",
        (run,),
    )
    return [_unpacked(connection, partial(_chunks, of, turn), body) for of, turn, body in rows]


def _chunks(run: str | None, turn: int, data: Any) -> TurnChunks:
    pieces, inputs = (data["chunks"], data["inputs"]) if isinstance(data, dict) else (data, ())
    chunks = ((at_s, TextDelta(one) if isinstance(one, str) else chunk_codec.from_dict(one)) for at_s, one in pieces)
    return TurnChunks(run, turn, tuple(chunks), tuple(inputs))


def meta(connection: Connection) -> dict[str, Any]:
    """Facts about the file: `id`, `created_ms`, `epoch`, `forked_from`."""
    return dict(connection.execute("SELECT key, value FROM meta ORDER BY key").fetchall())


def write_meta(connection: Connection, key: str, value: Any) -> None:
    """Set a fact about the file."""
    connection.execute(
        "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (key, value),
    )
