"""The tree of a session as rows. Each function is called in the thread of its connection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from monitor.errors import SessionDamaged, StoreError
from monitor.sessions.nodes import Node, NodeKind
from monitor.sessions.tables.marked_folder import Blobs, body_of
from monitor.sessions.tables.pacing import others_go_on
from monitor.sessions.tables.packing import Memory
from monitor.sessions.tables.schema import SqlConnection, is_inline
from monitor.sessions.tables.seal import KEY, Seal
from monitor.sessions.tree import Tip

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
        UNION ALL SELECT c.parent FROM up CROSS JOIN node c ON c.seq = up.seq WHERE c.parent >= ?
    )
    SELECT {_NODE.format(source="up CROSS JOIN node n ON n.seq = up.seq")}
"""  # noqa: S608 - CROSS JOIN keeps the order of the recursion: newest first, read as far as is needed


class SqlView:
    """The tree of a file, as the planning of new nodes needs it."""

    def __init__(self, connection: SqlConnection, blobs: Blobs, memory: Memory | None = None) -> None:
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

    def upwards(self, id: str | None, since: int = 1) -> Iterator[Node]:
        """See `TreeView.upwards`. `since`: the number of the node that ends it at the latest."""
        while id is not None and (known := self._memory.recent.get(id)) is not None:
            yield known
            id = known.parent
        if id is not None:
            for row in self._connection.execute(_UPWARDS, (_id(id), since)):
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
        body=body_of(blobs, body, artifact),
    )


# ------------------------------------------------------------------ writing


def run_number(connection: SqlConnection, run: str | None, known: dict[str, int] | None = None) -> int | None:
    """The number of a run. `known`: numbers by their ids, to which it is added. Raises `StoreError`
    if there is no such run.
    """
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
    connection: SqlConnection,
    node: Node,
    blobs: Blobs,
    memory: Memory | None = None,
    seqs: Mapping[str, int] | None = None,
) -> None:
    """Store a node. A long body goes beside the file, and is on the disk before the row is.
    `memory`, `seqs`: facts that are known, and numbers of nodes.
    """
    seal = memory.seal(connection) if memory is not None else None
    body: str | None = node.body
    artifact = None
    if not is_inline(node.body):
        data = node.body.encode()
        body = None
        with others_go_on():
            artifact = blobs.put(data)
        long = (artifact, len(data), "body")
        written = connection.execute(
            "INSERT INTO artifact (digest, size, kind) VALUES (?, ?, ?) ON CONFLICT DO NOTHING RETURNING size", long
        ).fetchall()
        if seal is not None and written:
            seal.add("artifact", long)
    row = (
        node.seq,
        _id(node.id),
        _seq(connection, node.parent, seqs) if node.parent else None,
        _KINDS[node.kind],
        run_number(connection, node.run, memory.runs if memory is not None else None),
        node.turn,
        node.at_ms,
        node.tokens,
        bytes.fromhex(node.digest),
        body,
        artifact,
    )
    connection.execute(
        "INSERT INTO node (seq, id, parent, kind, run, turn, at_ms, tokens, digest, body, artifact)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        row,
    )
    if seal is not None:
        seal.add("node", row)


def write_head(
    connection: SqlConnection,
    branch: str,
    node: str | None,
    seqs: Mapping[str, int] | None = None,
    seal: Seal | None = None,
) -> None:
    """Make `node` the end of a branch. Raises `StoreError` if there is no such node."""
    row = (branch, None if node is None else _seq(connection, node, seqs))
    if seal is not None:
        seal.take_out(connection, "head", branch)
    connection.execute(
        "INSERT INTO head (name, node) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET node = excluded.node", row
    )
    if seal is not None:
        seal.add_again("head", branch, row)


def _seq(connection: SqlConnection, node: str, known: Mapping[str, int] | None) -> int:
    if known is not None and node in known:
        return known[node]
    found = connection.execute("SELECT seq FROM node WHERE id = ?", (_id(node),)).fetchone()
    if found is None:
        raise StoreError(f"there is no node {node}")
    seq: int = found[0]
    return seq


# ------------------------------------------------------------------ reading


def upwards(connection: SqlConnection, branch: str, blobs: Blobs, since: int = 1) -> Iterator[Node]:
    """The nodes of a branch, newest first, as far as they are asked for."""
    view = SqlView(connection, blobs)
    head = view.head(branch)
    return view.upwards(head.id if head else None, since)


def path(
    connection: SqlConnection, branch: str, blobs: Blobs, *, last: int | None = None, run: str | None = None
) -> tuple[Node, ...]:
    """The nodes of a branch, oldest first; see `SessionStore.active_path`."""
    since = 1
    if run is not None:
        found = connection.execute(
            "SELECT min(n.seq) FROM run r JOIN node n ON n.run = r.number WHERE r.id = ?", (run,)
        ).fetchone()
        if found[0] is None:
            return ()
        since = found[0]
    above = (node for node in upwards(connection, branch, blobs, since) if run in (None, node.run))
    return tuple(reversed([*islice(above, last)]))


def nodes(connection: SqlConnection, blobs: Blobs) -> Iterator[Node]:
    """All nodes, in the order of their numbers."""
    for row in connection.execute(f"{_ALL} ORDER BY n.seq"):
        yield _node(row, blobs)


def find_node(connection: SqlConnection, id: str, blobs: Blobs) -> Node | None:
    """The node with the id `id`, or `None`."""
    found = connection.execute(f"{_ALL} WHERE n.id = ?", (_id(id),)).fetchone()
    return _node(found, blobs) if found else None


def node_at(connection: SqlConnection, seq: int, blobs: Blobs) -> Node | None:
    """The node with the number `seq`, or `None`."""
    found = connection.execute(f"{_ALL} WHERE n.seq = ?", (seq,)).fetchone()
    return _node(found, blobs) if found else None


def heads(connection: SqlConnection) -> dict[str, str | None]:
    """The newest node of each branch."""
    rows = connection.execute("SELECT h.name, n.id FROM head h LEFT JOIN node n ON n.seq = h.node ORDER BY h.name")
    return {name: node.hex() if node is not None else None for name, node in rows}


def meta(connection: SqlConnection) -> dict[str, Any]:
    """Facts about the file: `id`, `created_ms`, `epoch`, `forked_from`, `in_use`."""
    return dict(connection.execute("SELECT key, value FROM meta WHERE key <> ? ORDER BY key", (KEY,)).fetchall())


def write_meta(connection: SqlConnection, key: str, value: Any) -> None:
    """Write a fact about the file, such as its format."""
    connection.execute(
        "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (key, value),
    )
