"""Nodes, records and events as rows. Each function is called in the thread of its connection."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from monitor.calls import (
    ApprovalAnswer,
    ApprovalRequest,
    CallRecord,
    CallState,
    answer_codec,
    may_follow,
    record_codec,
    request_codec,
)
from monitor.chunks import Chunk, TextDelta, chunk_codec
from monitor.errors import SessionDamaged, StoreError
from monitor.events import Event, event_codec
from monitor.sessions.blobs import Blobs
from monitor.sessions.nodes import Node, NodeKind, canonical
from monitor.sessions.records import (
    ApprovalState,
    Changes,
    Committed,
    RunRecord,
    StoredEvent,
    TurnChunks,
    run_codec,
)
from monitor.sessions.schema import INLINE_BYTES, Connection
from monitor.sessions.sharing import LEAST_CHARS, Pointers, can_be_shared, has_pointer, whole
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


class Memory:
    """What the owner of a file knows without asking it, because nobody else writes: the ends of the
    branches, the nodes of the last steps, the numbers of the runs.
    """

    def __init__(self) -> None:
        self.runs: dict[str, int] = {}
        self.heads: dict[str, Node] = {}
        """The newest node of each branch."""
        self.recent: dict[str, Node] = {}
        """The nodes of the last step of each branch, by their ids."""
        self.last_seq: int | None = None

    def forget(self) -> None:
        """A transaction has failed: what it wrote is not there."""
        self.__init__()  # type: ignore[misc]

    def take(self, nodes: Sequence[Node], branch: str, head: str | None) -> None:
        """These nodes were written, and the branch ends at `head`."""
        written = {node.id: node for node in nodes}
        self.last_seq = nodes[-1].seq
        end = written.get(head) or self.recent.get(head) if head is not None else None
        if end is not None:
            self.heads[branch] = end
        else:
            self.heads.pop(branch, None)
        ends = {node.id: node for node in self.heads.values()}
        self.recent = written | ends


class SqlView:
    """The tree of a file, as the planning of new nodes needs it."""

    def __init__(self, connection: Connection, blobs: Blobs, memory: Memory | None = None) -> None:
        self._connection = connection
        self._blobs = blobs
        self._memory = memory or Memory()

    def tip(self, id: str) -> Tip | None:
        found = self._connection.execute("SELECT id, digest FROM node WHERE id = ?", (_id(id),)).fetchone()
        return Tip(found[0].hex(), found[1].hex()) if found else None

    def head(self, branch: str) -> Tip | None:
        if (known := self._memory.heads.get(branch)) is not None:
            return Tip(known.id, known.digest)
        found = self._connection.execute(
            "SELECT n.id, n.digest FROM head h JOIN node n ON n.seq = h.node WHERE h.name = ?", (branch,)
        ).fetchone()
        return Tip(found[0].hex(), found[1].hex()) if found else None

    def upwards(self, id: str | None) -> Iterator[Node]:
        while id is not None and (known := self._memory.recent.get(id)) is not None:
            yield known
            id = known.parent
        if id is not None:
            for row in self._connection.execute(_UPWARDS, (_id(id),)):
                yield _node(row, self._blobs)

    def last_seq(self) -> int:
        if self._memory.last_seq is not None:
            return self._memory.last_seq
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
    connection: Connection,
    changes: Changes,
    blobs: Blobs,
    *,
    at_ms: int,
    new_id: Callable[[], str],
    memory: Memory | None = None,
) -> Committed:
    """Write one step in the transaction that is open. Raises `StoreError` for a step that does not
    fit the session.
    """
    memory = memory or Memory()
    for run in changes.runs:
        write_run(connection, run)
    view = SqlView(connection, blobs, memory)
    planned = plan(view, changes.nodes, branch=changes.branch, at_ms=at_ms, new_id=new_id)
    seqs = {node.id: node.seq for node in (*memory.recent.values(), *planned.nodes)}
    for node in planned.nodes:
        write_node(connection, node, blobs, memory.runs, seqs)
    newest = planned.nodes[-1].seq if planned.nodes else None
    if planned.nodes:
        write_head(connection, changes.branch, planned.head, seqs)
        memory.take(planned.nodes, changes.branch, planned.head)
    packing = _Packing(connection)
    for steps in _by_key(changes.calls):
        _write_steps(connection, steps, newest, packing)
    for request in changes.requests:
        write_request(connection, request)
    for answer in changes.answers:
        write_answer(connection, answer)
    if changes.events:
        number = _run_number(connection, changes.events_run, memory.runs)
        rows = [(number, at_ms, *_pack_event(packing, changes.events_run, event)) for event in changes.events]
        _write_events(connection, rows)
    for chunks in changes.chunks:
        write_chunks(connection, at_ms, chunks)
    return Committed(planned.nodes, planned.head)


def _by_key(records: Sequence[CallRecord]) -> list[list[CallRecord]]:
    """The steps of each call. A call may take several in one commit; only the last one is kept."""
    found: dict[str, list[CallRecord]] = {}
    for record in records:
        found.setdefault(record.key, []).append(record)
    return [*found.values()]


# ------------------------------------------------------------------ long texts are stored once

NOWHERE: Final = (None, 0)
"""The state and the attempt of a call that is not in the ledger."""
_MOST_ROWS: Final = 64
"""The most rows of one statement."""
_MOST_NODES: Final = 64
"""The most nodes of a turn that are searched for texts to share."""


class _Packing:
    """Writes the bodies of rows, with pointers in the place of texts that the turn's nodes hold."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._of_turn: dict[tuple[str, int], Pointers] = {}

    def packed(self, data: dict[str, Any], run: str | None, turn: Any) -> str:
        body = canonical(data)
        if len(body) < LEAST_CHARS or run is None or not isinstance(turn, int) or not can_be_shared(data):
            return body
        return canonical(self._pointers(run, turn).shared(data))

    def _pointers(self, run: str, turn: int) -> Pointers:
        if (run, turn) not in self._of_turn:
            nodes = self._connection.execute(
                "SELECT n.seq, n.body FROM node n JOIN run r ON r.number = n.run"
                " WHERE r.id = ? AND n.turn = ? AND n.body IS NOT NULL LIMIT ?",
                (run, turn, _MOST_NODES),
            )
            self._of_turn[run, turn] = Pointers(nodes)
        return self._of_turn[run, turn]


def _unpacked(connection: Connection, decode: Callable[[Any], T], body: str) -> T:
    def of_node(seq: int) -> str:
        found = connection.execute("SELECT body FROM node WHERE seq = ?", (seq,)).fetchone()
        if found is None or found[0] is None:
            raise ValueError(f"node number {seq} is missing")
        text: str = found[0]
        return text

    try:
        data = json.loads(body)
        return decode(whole(data, of_node) if has_pointer(body) else data)
    except (ValueError, TypeError, AttributeError) as error:
        raise SessionDamaged(f"a row of the session cannot be read: {error}") from None


def _pack_call(packing: _Packing, record: CallRecord) -> str:
    data = record_codec.to_brief(record)
    kept = {name: value for name, value in data.items() if name not in _CALL_COLUMNS}
    return packing.packed(kept, record.run, record.turn)


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


def _pack_event(packing: _Packing, run: str | None, event: Event) -> tuple[str, str]:
    data = event_codec.to_brief(event)
    turn = getattr(event, "turn", None)
    return data.pop("type"), packing.packed(data, run, getattr(turn, "number", turn))


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


def _run_number(connection: Connection, run: str | None, known: dict[str, int] | None = None) -> int | None:
    if run is None:
        return None
    if known is not None and run in known:
        return known[run]
    found = connection.execute("SELECT number FROM run WHERE id = ?", (run,)).fetchone()
    if found is None:
        raise StoreError(f"the run {run} is not in the session: write its RunRecord first")
    number: int = found[0]
    if known is not None:
        known[run] = number
    return number


def write_node(
    connection: Connection,
    node: Node,
    blobs: Blobs,
    runs: dict[str, int] | None = None,
    seqs: Mapping[str, int] | None = None,
) -> None:
    """Store a node. A long body goes beside the file, and is on the disk before the row is. `runs`,
    `seqs`: numbers of runs and nodes that are known.
    """
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
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            node.seq,
            _id(node.id),
            _seq(connection, node.parent, seqs) if node.parent else None,
            _KINDS[node.kind],
            _run_number(connection, node.run, runs),
            node.turn,
            node.at_ms,
            node.tokens,
            bytes.fromhex(node.digest),
            body,
            artifact,
        ),
    )


def write_head(connection: Connection, branch: str, node: str | None, seqs: Mapping[str, int] | None = None) -> None:
    """Make `node` the end of a branch. Raises `StoreError` if there is no such node."""
    seq = None if node is None else _seq(connection, node, seqs)
    connection.execute(
        "INSERT INTO head (name, node) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET node = excluded.node",
        (branch, seq),
    )


def _seq(connection: Connection, node: str, known: Mapping[str, int] | None) -> int:
    if known is not None and node in known:
        return known[node]
    found = connection.execute("SELECT seq FROM node WHERE id = ?", (_id(node),)).fetchone()
    if found is None:
        raise StoreError(f"there is no node {node}")
    seq: int = found[0]
    return seq


def _write_steps(connection: Connection, steps: Sequence[CallRecord], node: int | None, packing: _Packing) -> None:
    """Write the last of the steps of one call, if each of them is allowed."""
    first, last = steps[0], steps[-1]
    before = _standing(connection, first.key)
    is_new = before == NOWHERE and first.state is CallState.INTENDED
    if is_new:
        before = first.state, first.attempt
    following = [record for record in steps if record.state is not CallState.INTENDED]
    for record in following:
        if not may_follow(record, *before):
            raise StoreError(f"the call {record.call_id} cannot become {record.state}: another has taken or ended it")
        before = record.state, record.attempt
    if is_new:
        _insert_call(connection, last, node, packing)
    elif following:
        _update_call(connection, last, packing)


def _standing(connection: Connection, key: str) -> tuple[CallState | None, int]:
    """The state and the attempt of the call under this key."""
    found = connection.execute("SELECT state, body FROM call WHERE key = ?", (key,)).fetchone()
    if found is None:
        return NOWHERE
    state, body = found
    try:
        return CallState(state), json.loads(body).get("attempt", 0)
    except (ValueError, AttributeError) as error:
        raise SessionDamaged(f"a row of the session cannot be read: {error}") from None


def intend(connection: Connection, record: CallRecord) -> CallRecord:
    """Store a call unless its key is known. Returns the record that now stands under the key."""
    put_call(connection, record)
    stored = find_call(connection, record.key)
    if stored is None:
        raise SessionDamaged(f"the call {record.key} was stored and is not there")
    return stored


def put_call(connection: Connection, record: CallRecord) -> None:
    """Store a call unless its key is known."""
    if _standing(connection, record.key) == NOWHERE:
        _insert_call(connection, record, None, _Packing(connection))


def _insert_call(connection: Connection, record: CallRecord, node: int | None, packing: _Packing) -> None:
    connection.execute(
        "INSERT INTO call (run, call_id, node, key, state, body) VALUES (?, ?, ?, ?, ?, ?)",
        (record.run, record.call_id, node, record.key, record.state.value, _pack_call(packing, record)),
    )


def advance(connection: Connection, record: CallRecord) -> bool:
    """Replace a call by its next step, if that is allowed. Returns whether it was."""
    if not may_follow(record, *_standing(connection, record.key)):
        return False
    _update_call(connection, record, _Packing(connection))
    return True


def _update_call(connection: Connection, record: CallRecord, packing: _Packing) -> None:
    connection.execute(
        "UPDATE call SET state = ?, body = ? WHERE key = ?",
        (record.state.value, _pack_call(packing, record), record.key),
    )


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
    packed = _pack_event(_Packing(connection), run, event)
    _write_events(connection, [(_run_number(connection, run), at_ms, *packed)])


def _write_events(connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """All events of a step with one statement: each statement costs a change of the thread."""
    for start in range(0, len(rows), _MOST_ROWS):
        some = rows[start : start + _MOST_ROWS]
        places = ", ".join(["(?, ?, ?, ?)"] * len(some))
        connection.execute(
            f"INSERT INTO event (run, at_ms, type, body) VALUES {places}",  # noqa: S608 - only places
            [value for row in some for value in row],
        )


def _piece(chunk: Chunk) -> Any:
    """A piece of text is stored as the text: most chunks are such pieces."""
    return chunk.text if isinstance(chunk, TextDelta) else chunk_codec.to_dict(chunk)


def write_chunks(connection: Connection, at_ms: int, chunks: TurnChunks) -> None:
    """Store some chunks behind those that are there."""
    pieces = [[at_s, _piece(chunk)] for at_s, chunk in chunks.chunks]
    if chunks.inputs:
        data = {"chunks": pieces, "inputs": [dict(one) for one in chunks.inputs]}
        body = _Packing(connection).packed(data, chunks.run, chunks.turn)
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
