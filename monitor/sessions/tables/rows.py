"""Reads the rows of one session. Each method is called in a thread with its connection."""

# ruff: noqa: S608 - only names of tables and places of values are put into a statement

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

from monitor.chunks import TextDelta, chunk_codec
from monitor.errors import MonitorError, SessionDamaged, StoreError
from monitor.events import event_codec
from monitor.messages import CallRecord, answer_codec, call_codec, request_codec
from monitor.sessions.closed_runs import ApprovalState, RunRecord, StoredEvent, TurnChunks, run_codec
from monitor.sessions.nodes import Node, NodeKind
from monitor.sessions.tables.marked_folder import Blobs
from monitor.sessions.tables.memory import MOST_NODES, Memory
from monitor.sessions.tables.schema import COLUMNS, ONLY, OPEN_CALL, SqlConnection
from monitor.sessions.tables.seal import Seal, broken
from monitor.sessions.tables.sharing import Pointers, has_pointer, pointed, whole
from monitor.sessions.tree import ACTIVE, Context, Tip, TreeProblem, context_of, verify

T = TypeVar("T")

_NODE: Final = f"select {', '.join(COLUMNS['nodes'])} from monitor_nodes where session = ?"
_CALL: Final = "select body from monitor_calls where session = ?"
_PAGE: Final = 64
_LONGEST_PAGE: Final = 4_096
"""Nodes of one question on the way to the root: each page is twice the one before."""
_AT_ONCE: Final = 500
"""The most nodes that are read by their numbers in one statement."""
ASIDE: Final = "sha256:"
"""How the body of a row begins that stands beside the file. Any other one begins with a brace."""


def kept(text: str) -> str:
    """`text` as a column: PostgreSQL keeps no NUL. Raises `UnicodeEncodeError` for a lone
    surrogate, which no database keeps.
    """
    text.encode()
    return text.replace("\\", "\\\\").replace("\0", "\\0") if "\\" in text or "\0" in text else text


def given(column: str | None) -> Any:
    """The inverse of `kept`."""
    if column is None or "\\" not in column:
        return column
    return re.sub(r"\\(.)", lambda found: "\0" if found[1] == "0" else found[1], column)


def id_of(id: str) -> str:
    """The id of a node as it is stored. Raises `StoreError` for what is no id."""
    try:
        return bytes.fromhex(id).hex()
    except ValueError:
        raise StoreError(f"{id!r} is no id of a node: an id is 32 hexadecimal digits") from None


class Rows:
    """Reads one session over a connection."""

    def __init__(
        self,
        connection: SqlConnection,
        session: int = ONLY,
        *,
        memory: Memory | None = None,
        blobs: Blobs | None = None,
    ) -> None:
        """`session`: its number in the database. `memory`: facts that the owner knows. `blobs`:
        has the long bodies, if they do not stand in their rows.
        """
        self.connection = connection
        self.session = session
        self.blobs = blobs
        self.memory = memory or Memory()

    def _all(self, sql: str, *values: Any) -> list[Any]:
        return self.connection.execute(sql, (self.session, *values)).fetchall()

    # -------------------------------------------------------------- the tree, as `plan` needs it

    def tip(self, id: str) -> Tip | None:
        """See `TreeView.tip`."""
        found = self._all("select id, digest from monitor_nodes where session = ? and id = ?", id_of(id))
        return Tip(*found[0]) if found else None

    def head(self, branch: str) -> Tip | None:
        """See `TreeView.head`."""
        if (known := self.memory.heads.get(branch)) is not None:
            return Tip(known.id, known.digest)
        found = self._all("select node from monitor_heads where session = ? and name = ?", kept(branch))
        return self.tip(found[0][0]) if found and found[0][0] is not None else None

    def upwards(self, id: str | None, since: int = 1, page: int = _PAGE) -> Iterator[Node]:
        """See `TreeView.upwards`. `since`: the number of the node that ends it at the latest.
        `page`: how many nodes are read at first.
        """
        while id is not None and (known := self.memory.recent.get(id)) is not None:
            yield known
            id = known.parent
        below = "(select seq from monitor_nodes where session = ? and id = ?)"
        sql = f"{_NODE} and seq <= {below} and seq >= ? order by seq desc limit ?"
        while id is not None:
            before = id
            for row in self.connection.execute(sql, (self.session, self.session, id_of(id), since, page)):
                if row[1] == id:
                    yield (node := self._node(row))
                    id = node.parent
            if id == before:
                return
            page = min(2 * page, _LONGEST_PAGE)

    def last_seq(self) -> int:
        """See `TreeView.last_seq`."""
        return self.newest("nodes")

    def newest(self, table: str) -> int:
        """The newest number of a table; 0: it has no row of this session."""
        if table not in self.memory.last:
            sql = f"select coalesce(max(seq), 0) from monitor_{table} where session = ?"
            self.memory.last[table] = self._all(sql)[0][0]
        return self.memory.last[table]

    # -------------------------------------------------------------- the tree

    def context(self, branch: str = ACTIVE) -> Context:
        head = self.head(branch)
        return context_of(self.upwards(head.id if head else None))

    def active_path(self, branch: str, *, last: int | None, run: str | None) -> tuple[Node, ...]:
        since = 1
        if run is not None:
            sql = "select min(seq) from monitor_nodes where session = ? and run = ?"
            since = self._all(sql, kept(run))[0][0]
            if since is None:
                return ()
        head = self.head(branch)
        page = _PAGE if last is None else max(1, min(last, _LONGEST_PAGE))
        above = self.upwards(head.id if head else None, since, page)
        return tuple(reversed([*islice((node for node in above if run in (None, node.run)), last)]))

    def each_node(self) -> Iterator[Node]:
        """The nodes in the order of writing."""
        for row in self.connection.execute(f"{_NODE} order by seq", (self.session,)):
            yield self._node(row)

    def nodes(self, first: int | None = None) -> tuple[Node, ...]:
        """The nodes in the order of writing: all, or the `first` of them."""
        return tuple(islice(self.each_node(), first))

    def find_node(self, id: str) -> Node | None:
        found = self._all(f"{_NODE} and id = ?", id_of(id))
        return self._node(found[0]) if found else None

    def node_at(self, seq: int) -> Node | None:
        """The node with the number `seq`, or `None`."""
        found = self._all(f"{_NODE} and seq = ?", seq)
        return self._node(found[0]) if found else None

    def heads(self) -> dict[str, str | None]:
        rows = self._all("select name, node from monitor_heads where session = ?")
        return dict(sorted((given(name), node) for name, node in rows))

    def _node(self, row: Sequence[Any]) -> Node:
        columns = dict(zip(COLUMNS["nodes"], row, strict=True))
        try:
            kind = NodeKind(columns["kind"])
        except ValueError:
            seq, said = columns["seq"], columns["kind"]
            raise SessionDamaged(f"node number {seq} has the kind {said!r}, which is none") from None
        return Node(**{**columns, "kind": kind, "run": given(columns["run"]), "body": self._whole(columns["body"])})

    def _whole(self, body: str) -> str:
        """The body of a node, wherever it stands. Raises `SessionDamaged`."""
        if self.blobs is None or not body.startswith(ASIDE):
            return body
        return self.blobs.get(body.removeprefix(ASIDE)).decode("utf-8", "replace")

    def aside(self) -> list[str]:
        """The digests of the bodies that stand beside the file."""
        sql = "select substr(body, ?) from monitor_nodes where session = ? and substr(body, 1, ?) = ?"
        values = (len(ASIDE) + 1, self.session, len(ASIDE), ASIDE)
        return [digest for (digest,) in self.connection.execute(sql, values).fetchall()]

    # -------------------------------------------------------------- beside the tree

    def runs(self) -> tuple[RunRecord, ...]:
        rows = self._all("select body from monitor_runs where session = ? order by number")
        return self.read([(run_codec.from_dict, body) for (body,) in rows])

    def has_run(self, id: str) -> bool:
        """Whether the session has the record of this run."""
        return bool(self._all("select 1 from monitor_runs where session = ? and id = ?", kept(id)))

    def calls(self, run: str | None = None) -> tuple[CallRecord, ...]:
        if run is None:
            return self._calls("order by number")
        return self._calls("and run = ? order by number", kept(run))

    def open_calls(self, run: str) -> tuple[CallRecord, ...]:
        return self._calls(f"and run = ? and {OPEN_CALL} order by number", kept(run))

    def find(self, key: str) -> CallRecord | None:
        found = self._calls("and key = ?", kept(key))
        return found[0] if found else None

    def _calls(self, where: str, *values: Any) -> tuple[CallRecord, ...]:
        return self.read([(call_codec.from_dict, body) for (body,) in self._all(f"{_CALL} {where}", *values)])

    def spent_by(self, approval: str) -> str | None:
        """The key of the call that was entered with the answer to a question. `None`: none was."""
        found = self._all("select key from monitor_calls where session = ? and approval = ?", kept(approval))
        return given(found[0][0]) if found else None

    def approvals(self, *, only_open: bool = False) -> tuple[ApprovalState, ...]:
        where = "and answer is null" if only_open else ""
        rows = self._all(f"select request, answer from monitor_approvals where session = ? {where} order by number")
        requests = self.read([(request_codec.from_dict, request) for request, _ in rows])
        answers = iter(self.read([(answer_codec.from_dict, answer) for _, answer in rows if answer is not None]))
        answered = (None if answer is None else next(answers) for _, answer in rows)
        return tuple(map(ApprovalState, requests, answered))

    def approval(self, id: str) -> tuple[str, str | None] | None:
        """The bodies of a question and of its answer. `None`: there is no such question."""
        found = self._all("select request, answer from monitor_approvals where session = ? and id = ?", kept(id))
        return (found[0][0], found[0][1]) if found else None

    def events(self, run: str | None = None, after: int = 0) -> tuple[StoredEvent, ...]:
        of, values = ("", ()) if run is None else (" and run = ?", (kept(run),))
        sql = f"select seq, run, at_ms, type, body from monitor_events where session = ? and seq > ?{of} order by seq"
        rows = self._all(sql, after, *values)
        return self.read([(partial(event_of, seq, given(run), at, kind), body) for seq, run, at, kind, body in rows])

    def chunks(self, run: str | None = None) -> tuple[TurnChunks, ...]:
        of, values = ("", ()) if run is None else (" and run = ?", (kept(run),))
        rows = self._all(f"select run, turn, body from monitor_chunks where session = ?{of} order by seq", *values)
        return self.read([(partial(chunks_of, given(run), turn), body) for run, turn, body in rows])

    def verify(self) -> Iterator[TreeProblem]:
        """The faults of the chain of nodes and of the digests, and the rows that cannot be read."""
        yield from verify(self.each_node(), self.heads())
        yield from broken(self.connection, self.session)
        for what in ("runs", "calls", "approvals", "events", "chunks"):
            try:
                getattr(self, what)()
            except MonitorError as error:
                yield TreeProblem(f"the {what}: {error}")

    # -------------------------------------------------------------- what the owner knows

    def seal(self) -> Seal:
        """The digests of the session."""
        if self.memory.seal is None:
            self.memory.seal = Seal.of(self.connection, self.session)
        return self.memory.seal

    def pointers(self, run: str, turn: int) -> Pointers:
        """Pointers into the nodes of a turn, which hold the texts of its calls and events."""
        found = self.memory.pointers(run, turn)
        if found is None:
            sql = "select seq, body from monitor_nodes where session = ? and run = ? and turn = ? limit ?"
            rows = self._all(sql, kept(run), turn, MOST_NODES)
            found = Pointers((seq, self._whole(body)) for seq, body in rows)
            self.memory.take_pointers(run, turn, found)
        return found

    def read(self, rows: Sequence[tuple[Callable[[Any], T], str]]) -> tuple[T, ...]:
        """The bodies of rows, decoded. The nodes that they point into are read together. Raises
        `SessionDamaged` if one cannot be read.
        """
        seqs = sorted({seq for _, body in rows for seq in pointed(body)})
        bodies: dict[int, str] = {}
        for start in range(0, len(seqs), _AT_ONCE):
            some = seqs[start : start + _AT_ONCE]
            places = ", ".join("?" * len(some))
            found = self._all(f"select seq, body from monitor_nodes where session = ? and seq in ({places})", *some)
            bodies |= {seq: self._whole(body) for seq, body in found}
        try:
            return tuple(
                decode(whole(json.loads(body), bodies.__getitem__) if has_pointer(body) else json.loads(body))
                for decode, body in rows
            )
        except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
            raise SessionDamaged(f"a row of the session cannot be read: {error}") from None


def event_of(seq: int, run: str | None, at_ms: int, kind: str, data: Any) -> StoredEvent:
    """The event in the data of a row."""
    return StoredEvent(seq, run, at_ms, event_codec.from_dict({**data, "type": kind}))


def chunks_of(run: str | None, turn: int, data: Any) -> TurnChunks:
    """The chunks in the data of a row."""
    pieces, inputs = (data["chunks"], data["inputs"]) if isinstance(data, dict) else (data, ())
    chunks = ((at_s, TextDelta(one) if isinstance(one, str) else chunk_codec.from_dict(one)) for at_s, one in pieces)
    return TurnChunks(run, turn, tuple(chunks), tuple(inputs))
