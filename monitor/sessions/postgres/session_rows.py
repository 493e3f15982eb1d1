"""The rows of one session, read. Each function is called in a thread with its connection."""

# ruff: noqa: S608 - only names of tables are put into a statement; values are not

# ruff: noqa: S608 - only names of tables are put into a statement; values are not

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from monitor.errors import SessionDamaged, StoreError
from monitor.events import event_codec
from monitor.messages import CallRecord, answer_codec, call_codec, request_codec
from monitor.sessions.closed_runs import ApprovalState, RunRecord, StoredEvent, TurnChunks, run_codec
from monitor.sessions.nodes import Node, NodeKind
from monitor.sessions.postgres.session_seal import broken
from monitor.sessions.postgres.statements import COLUMNS
from monitor.sessions.tables.packing import MOST_NODES, Memory
from monitor.sessions.tables.schema import OPEN_CALL, Pointers, has_pointer, unreadable, whole
from monitor.sessions.tables.stored_rows import chunks_of
from monitor.sessions.tree import ACTIVE, Context, Tip, TreeProblem, context_of, verify

if TYPE_CHECKING:
    from monitor.sessions.postgres.database import Connection

T = TypeVar("T")

_NODE: Final = f"select {', '.join(COLUMNS['nodes'])} from monitor_nodes where session = %s"
_CALL: Final = "select body from monitor_calls where session = %s"
_PAGE: Final = 64
_LONGEST_PAGE: Final = 4_096
"""Nodes of one question on the way to the root: each page is twice the one before."""
_POINTED: Final = re.compile(r'"\$(?:node|call)":\[(\d+),')
"""The number of a node that a body points into."""


def kept(text: str) -> str:
    """`text` as a column: PostgreSQL keeps no NUL. Raises `UnicodeEncodeError` for a lone
    surrogate, which it does not keep either.
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

    def __init__(self, connection: Connection, session: int, memory: Memory | None = None) -> None:
        """`session`: its number in the database. `memory`: facts that the owner knows."""
        self._connection = connection
        self._session = session
        self._memory = memory or Memory()

    def _all(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql.encode(), (self._session, *values)).fetchall()

    # -------------------------------------------------------------- the tree, as `plan` needs it

    def tip(self, id: str) -> Tip | None:
        found = self._all("select id, digest from monitor_nodes where session = %s and id = %s", id_of(id))
        return Tip(*found[0]) if found else None

    def head(self, branch: str) -> Tip | None:
        if (known := self._memory.heads.get(branch)) is not None:
            return Tip(known.id, known.digest)
        found = self._all("select node from monitor_heads where session = %s and name = %s", kept(branch))
        return self.tip(found[0][0]) if found and found[0][0] is not None else None

    def upwards(self, id: str | None, since: int = 1, page: int = _PAGE) -> Iterator[Node]:
        """See `TreeView.upwards`. `since`: the number of the node that ends it at the latest.
        `page`: how many nodes are read at first.
        """
        while id is not None and (known := self._memory.recent.get(id)) is not None:
            yield known
            id = known.parent
        while id is not None:
            below = "(select seq from monitor_nodes where session = %s and id = %s)"
            sql = f"{_NODE} and seq <= {below} and seq >= %s order by seq desc limit %s"
            rows = self._all(sql, self._session, id_of(id), since, page)
            if not rows:
                return
            for row in rows:
                if row[1] == id:
                    yield (node := _node(row))
                    id = node.parent
            page = min(2 * page, _LONGEST_PAGE)

    def last_seq(self) -> int:
        if self._memory.last_seq is not None:
            return self._memory.last_seq
        return self.newest("nodes")

    def newest(self, table: str) -> int:
        """The newest number of a table; 0: it has no row of this session."""
        ((found,),) = self._all(f"select coalesce(max(seq), 0) from monitor_{table} where session = %s")
        number: int = found
        return number

    def size(self) -> int:
        """The bytes of the bodies of all rows."""
        bodies = {"approvals": "request || coalesce(answer, '')"}
        of = [
            f"(select coalesce(sum(octet_length({bodies.get(table, 'body')})), 0)"
            f" from monitor_{table} where session = one)"
            for table in ("nodes", "runs", "calls", "approvals", "events", "chunks")
        ]
        ((found,),) = self._all(f"select {' + '.join(of)} from (select %s::bigint as one) mine")
        return int(found)

    # -------------------------------------------------------------- the tree

    def context(self, branch: str = ACTIVE) -> Context:
        head = self.head(branch)
        return context_of(self.upwards(head.id if head else None))

    def active_path(self, branch: str, *, last: int | None, run: str | None) -> tuple[Node, ...]:
        since = 1
        if run is not None:
            sql = "select min(seq) from monitor_nodes where session = %s and run = %s"
            since = self._all(sql, kept(run))[0][0]
            if since is None:
                return ()
        head = self.head(branch)
        page = _PAGE if last is None else max(1, min(last, _LONGEST_PAGE))
        above = self.upwards(head.id if head else None, since, page)
        return tuple(reversed([*islice((node for node in above if run in (None, node.run)), last)]))

    def nodes(self, first: int | None = None) -> tuple[Node, ...]:
        """The nodes in the order of writing: all, or the `first` of them."""
        return tuple(_node(row) for row in self._all(f"{_NODE} order by seq limit %s", first))

    def find_node(self, id: str) -> Node | None:
        found = self._all(f"{_NODE} and id = %s", id_of(id))
        return _node(found[0]) if found else None

    def heads(self) -> dict[str, str | None]:
        rows = self._all("select name, node from monitor_heads where session = %s")
        return dict(sorted((given(name), node) for name, node in rows))

    # -------------------------------------------------------------- beside the tree

    def runs(self) -> tuple[RunRecord, ...]:
        rows = self._all("select body from monitor_runs where session = %s order by number")
        return self._read([(run_codec.from_dict, body) for (body,) in rows])

    def has_run(self, id: str) -> bool:
        """Whether the session has the record of this run."""
        return bool(self._all("select 1 from monitor_runs where session = %s and id = %s", kept(id)))

    def calls(self, run: str | None = None) -> tuple[CallRecord, ...]:
        if run is None:
            return self._calls("order by number")
        return self._calls("and run = %s order by number", kept(run))

    def open_calls(self, run: str) -> tuple[CallRecord, ...]:
        return self._calls(f"and run = %s and {OPEN_CALL} order by number", kept(run))

    def find(self, key: str) -> CallRecord | None:
        found = self._calls("and key = %s", kept(key))
        return found[0] if found else None

    def _calls(self, where: str, *values: Any) -> tuple[CallRecord, ...]:
        return self._read([(call_codec.from_dict, body) for (body,) in self._all(f"{_CALL} {where}", *values)])

    def approvals(self, *, only_open: bool = False) -> tuple[ApprovalState, ...]:
        where = "and answer is null" if only_open else ""
        rows = self._all(f"select request, answer from monitor_approvals where session = %s {where} order by number")
        requests = self._read([(request_codec.from_dict, request) for request, _ in rows])
        answers = iter(self._read([(answer_codec.from_dict, answer) for _, answer in rows if answer is not None]))
        answered = (None if answer is None else next(answers) for _, answer in rows)
        return tuple(map(ApprovalState, requests, answered))

    def approval(self, id: str) -> tuple[str, str | None] | None:
        """The bodies of a question and of its answer. `None`: there is no such question."""
        found = self._all("select request, answer from monitor_approvals where session = %s and id = %s", kept(id))
        return (found[0][0], found[0][1]) if found else None

    def events(self, run: str | None = None, after: int = 0) -> tuple[StoredEvent, ...]:
        of, values = ("", ()) if run is None else (" and run = %s", (kept(run),))
        sql = f"select seq, run, at_ms, type, body from monitor_events where session = %s and seq > %s{of} order by seq"
        rows = self._all(sql, after, *values)

        def stored(seq: int, run: str | None, at_ms: int, kind: str, data: Any) -> StoredEvent:
            return StoredEvent(seq, run, at_ms, event_codec.from_dict({**data, "type": kind}))

        return self._read([(partial(stored, seq, given(run), at, kind), body) for seq, run, at, kind, body in rows])

    def chunks(self, run: str | None = None) -> tuple[TurnChunks, ...]:
        of, values = ("", ()) if run is None else (" and run = %s", (kept(run),))
        rows = self._all(f"select run, turn, body from monitor_chunks where session = %s{of} order by seq", *values)
        return self._read([(partial(chunks_of, given(run), turn), body) for run, turn, body in rows])

    def verify(self) -> tuple[TreeProblem, ...]:
        """The faults of the chain of nodes and of the digests, and the rows that cannot be read."""
        chain = verify(self.nodes(), self.heads())
        return (*chain, *broken(self._connection, self._session), *unreadable(self))

    # -------------------------------------------------------------- texts that are stored once

    def pointers(self, run: str, turn: int) -> Pointers:
        """Pointers into the nodes of a turn, which hold the texts of its calls and events."""
        found = self._memory.pointers(run, turn)
        if found is None:
            sql = "select seq, body from monitor_nodes where session = %s and run = %s and turn = %s limit %s"
            found = Pointers((seq, body) for seq, body in self._all(sql, kept(run), turn, MOST_NODES))
            self._memory.take_pointers(run, turn, found)
        return found

    def _read(self, rows: Sequence[tuple[Callable[[Any], T], str]]) -> tuple[T, ...]:
        """The bodies of rows, decoded. The nodes that they point into are read at once."""
        seqs = {int(seq) for _, body in rows if has_pointer(body) for seq in _POINTED.findall(body)}
        sql = "select seq, body from monitor_nodes where session = %s and seq = any(%s)"
        bodies: dict[int, str] = dict(self._all(sql, [*seqs])) if seqs else {}
        try:
            return tuple(
                decode(whole(json.loads(body), bodies.__getitem__) if has_pointer(body) else json.loads(body))
                for decode, body in rows
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise SessionDamaged(f"a row of the session cannot be read: {error}") from None


def _node(row: Sequence[Any]) -> Node:
    columns = dict(zip(COLUMNS["nodes"], row, strict=True))
    try:
        kind = NodeKind(columns["kind"])
    except ValueError:
        seq, given_kind = columns["seq"], columns["kind"]
        raise SessionDamaged(f"node number {seq} has the kind {given_kind!r}, which is none") from None
    return Node(**{**columns, "kind": kind, "run": given(columns["run"])})
