"""One step of a session as rows, and the statements that insert them."""

# ruff: noqa: S608 - only names of tables and columns are put into a statement; values are not

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from monitor.chunks import TextDelta, chunk_codec
from monitor.errors import StoreError
from monitor.events import Event, event_codec
from monitor.messages import (
    ApprovalAnswer,
    ApprovalRequest,
    CallRecord,
    CallState,
    answer_codec,
    call_codec,
    may_follow,
    request_codec,
)
from monitor.sessions.closed_runs import Changes, Committed, RunRecord, TurnChunks, run_codec
from monitor.sessions.nodes import Node, canonical
from monitor.sessions.tables.pacing import others_go_on
from monitor.sessions.tables.rows import ASIDE, Rows, id_of, kept
from monitor.sessions.tables.schema import COLUMNS, SqlConnection, SqlDialect, again
from monitor.sessions.tables.sharing import Pointers, can_be_shared, has_pointer
from monitor.sessions.tree import TreeProblem, plan, verify

INLINE_BYTES: Final = 65_536
"""A body with more bytes goes to the artifact store: SQLite is slower than a file from about
100 KB on (sqlite.org/intern-v-extern-blob.html), and each version of a page passes through the log.
"""
_MOST_ROWS: Final = 64
"""The most rows of one statement."""
_MOST_GATHERED: Final = 500
"""The most rows that are gathered while a session is filled."""
_NO_POINTERS: Final = Pointers()
_NOWHERE: Final = (None, 0)
"""The state and the attempt of a call that is not in the ledger."""


class StepRows:
    """The rows that one step writes, by the table."""

    def __init__(self, rows: Rows) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.new: set[tuple[str, str]] = set()
        """The tables and keys of rows that are not there yet."""
        self._read = rows
        self._memory = rows.memory
        self._calls: dict[str, CallRecord] = {}
        self._spent: dict[str, str] = {}
        """The keys of the calls that use an answer up, by its question."""

    def fill(self, changes: Changes, *, at_ms: int, new_id: Callable[[], str]) -> Committed:
        """Take all changes. Raises `StoreError` for a step that does not fit the session."""
        for run in changes.runs:
            self.run(run)
        planned = plan(self._read, changes.nodes, branch=changes.branch, at_ms=at_ms, new_id=new_id)
        for node in planned.nodes:
            self.node(node)
            shares = bool(changes.calls or changes.events or changes.chunks)
            if shares and node.run is not None and node.turn is not None and not self._memory.points_into(node.run):
                self._read.pointers(node.run, node.turn)  # this turn may have older nodes
        if planned.nodes:
            self.head(changes.branch, planned.head)
            self._memory.take(planned.nodes, changes.branch, planned.head)  # what fails forgets everything
        for call in self._stepped(changes.calls):
            self.call(call)
        self.questions(changes.requests, changes.answers)
        for event in changes.events:
            self.event(changes.events_run, event, at_ms)
        for chunks in changes.chunks:
            self.chunks(chunks, at_ms)
        return Committed(planned.nodes, planned.head)

    def _stepped(self, records: Sequence[CallRecord]) -> Iterator[CallRecord]:
        """The last step of each call: a call may take several in one commit. Raises `StoreError`
        for a step that is not allowed.
        """
        by_key: dict[str, list[CallRecord]] = {}
        for record in records:
            by_key.setdefault(record.key, []).append(record)
        for key, steps in by_key.items():
            before = self._standing(key)
            is_new = before == _NOWHERE and steps[0].state is CallState.INTENDED
            if is_new:
                before = steps[0].state, steps[0].attempt
            following = [record for record in steps if record.state is not CallState.INTENDED]
            for record in following:
                if not may_follow(record, *before):
                    raise StoreError(
                        f"the call {record.call_id} cannot become {record.state}: another has taken or ended it"
                    )
                before = record.state, record.attempt
            if is_new or following:
                yield steps[-1]

    def intend(self, record: CallRecord) -> CallRecord:
        """Take a call unless its key is known. Returns the record that now stands under the key."""
        found = self._calls.get(record.key) or self._read.find(record.key)
        if found is None:
            self.new.add(("calls", kept(record.key)))
            self.call(record)
        return found or record

    def advance(self, record: CallRecord) -> bool:
        """Take the next step of a call, if it is allowed. Whether it was."""
        allowed = may_follow(record, *self._standing(record.key))
        if allowed:
            self.call(record)
        return allowed

    def switch(self, branch: str, node: str | None) -> None:
        """Let a branch end at `node`. Raises `StoreError` if there is no such node."""
        if node is not None and self._read.tip(node) is None:
            raise StoreError(f"there is no node {node}")
        self._memory.heads.pop(branch, None)
        self.head(branch, node)

    # -------------------------------------------------------------- the parts

    def _add(self, table: str, **row: Any) -> None:
        self.rows.setdefault(table, []).append(row)

    def _put(self, table: str, key: str, /, **row: Any) -> None:
        """Add a row in the place of the one that the step has under its key."""
        self.rows[table] = [one for one in self.rows.get(table, []) if one[key] != row[key]]
        self._add(table, **row)

    def _of_run(self, run: str | None) -> str | None:
        if run is None:
            return None
        if run not in self._memory.runs:
            if not self._read.has_run(run):
                raise StoreError(f"the run {run} is not in the session: write its RunRecord first")
            self._memory.runs.add(run)
        return kept(run)

    def run(self, run: RunRecord) -> None:
        """Take a run."""
        for text in (run.agent, run.purpose, run.parent_run or ""):
            kept(text)
        self._put("runs", "id", id=kept(run.id), state=run.state.value, body=escaped(run_codec.to_dict(run)))
        self._memory.runs.add(run.id)

    def node(self, node: Node) -> None:
        """Take a node as it is. A long body goes beside the file, and is on the disk before its row
        is.
        """
        columns = {name: getattr(node, name) for name in COLUMNS["nodes"]}
        self._add(
            "nodes",
            **{**columns, "kind": node.kind.value, "run": self._of_run(node.run), "body": self._placed(node.body)},
        )

    def _placed(self, body: str) -> str:
        if self._read.blobs is None or (len(body) <= INLINE_BYTES // 4 or len(body.encode()) <= INLINE_BYTES):
            return body
        with others_go_on():
            return ASIDE + self._read.blobs.put(body.encode())

    def head(self, branch: str, node: str | None) -> None:
        """Take the end of a branch."""
        self._put("heads", "name", name=kept(branch), node=None if node is None else id_of(node))

    def _standing(self, key: str) -> tuple[CallState | None, int]:
        """The state and the attempt of the call under this key."""
        found = self._calls.get(key)
        if found is None:
            if key in self._memory.calls:
                return self._memory.calls[key]
            found = self._read.find(key)
        if found is None:
            self.new.add(("calls", kept(key)))
            return _NOWHERE
        return found.state, found.attempt

    def call(self, record: CallRecord) -> None:
        """Take a call as it is. Raises `StoreError` if another call has used up the answer that it
        was approved with.
        """
        spends = record.approval if record.state is CallState.RUNNING or record.attempt else None
        if record.state is CallState.RUNNING and spends is not None:
            if (self._spent.get(spends) or self._read.spent_by(spends)) not in (None, record.key):
                raise StoreError(f"the answer to the question {spends} is used up: another call was made with it")
            self._spent[spends] = record.key
        body = self._packed(call_codec.to_brief(record), record.run, record.turn)
        kept(record.call_id)
        self._put(
            "calls",
            "key",
            run=kept(record.run),
            key=kept(record.key),
            state=record.state.value,
            approval=None if spends is None else kept(spends),
            body=body,
        )
        self._calls[record.key] = record

    def questions(self, requests: Iterable[ApprovalRequest], answers: Iterable[ApprovalAnswer]) -> None:
        """Take questions, and answers to open ones. Raises `StoreError` for any other answer."""
        asked: dict[str, tuple[str, str | None]] = {}
        for request in requests:
            if request.id not in asked and self._read.approval(request.id) is None:
                kept(request.run or "")
                self.new.add(("approvals", kept(request.id)))
                asked[request.id] = escaped(request_codec.to_dict(request)), None
        for answer in answers:
            found = asked.get(answer.id) or self._read.approval(answer.id)
            if found is None:
                raise StoreError(f"there is no question {answer.id} to answer")
            if found[1] is not None:
                raise StoreError(f"the question {answer.id} has its answer already")
            asked[answer.id] = found[0], escaped(answer_codec.to_dict(answer))
        for id, (question, said) in asked.items():
            self._add("approvals", id=kept(id), request=question, answer=said)

    def event(self, run: str | None, event: Event, at_ms: int) -> None:
        """Take an event."""
        data = event_codec.to_brief(event)
        kind, turn = data.pop("type"), getattr(event, "turn", None)
        of, body = self._of_run(run), self._packed(data, run, getattr(turn, "number", turn))
        self._add("events", seq=self._next("events"), run=of, at_ms=at_ms, type=kind, body=body)

    def chunks(self, chunks: TurnChunks, at_ms: int) -> None:
        """Take some chunks. A piece of text is stored as the text: most chunks are such."""
        run = self._of_run(chunks.run)
        pieces = [
            [at_s, chunk.text if isinstance(chunk, TextDelta) else chunk_codec.to_dict(chunk)]
            for at_s, chunk in chunks.chunks
        ]
        if chunks.inputs:
            data = {"chunks": pieces, "inputs": [dict(one) for one in chunks.inputs]}
            body = self._packed(data, chunks.run, chunks.turn)
        else:
            body = escaped(pieces)
        self._add("chunks", seq=self._next("chunks"), run=run, turn=chunks.turn, at_ms=at_ms, body=body)

    def _next(self, table: str) -> int:
        self._memory.last[table] = self._read.newest(table) + 1
        return self._memory.last[table]

    def _packed(self, data: dict[str, Any], run: str | None, turn: Any) -> str:
        """`data` of this turn as the body of a row, with pointers in the place of texts that the
        turn's nodes hold.
        """
        if run is not None and isinstance(turn, int) and can_be_shared(data):
            return canonical(self._read.pointers(run, turn).shared(data))
        return escaped(data)

    # -------------------------------------------------------------- the end

    def seal(self) -> str:
        """Take the step into the digests, and return them as they are stored."""
        read = self._read
        self._memory.seal = read.seal().after(self.rows, read.connection, read.session, new=self.new)
        return self._memory.seal.stored()

    def note_stored(self) -> None:
        """The rows are written: remember what the owner knows now."""
        for record in self._calls.values():
            self._memory.take_call(record)


def escaped(data: Any) -> str:
    """`data` as the body of a row without pointers. Keys of the caller's that look like a pointer
    are read back as they were.
    """
    body = canonical(data)
    return canonical(_NO_POINTERS.shared(data)) if has_pointer(body) else body


def insert(connection: SqlConnection, step: StepRows, session: int, dialect: SqlDialect) -> None:
    """Insert the rows of a step in the transaction that is open."""
    for table, rows in step.rows.items():
        columns = COLUMNS[table]
        places = f"(?{', ?' * len(columns)})"
        for start in range(0, len(rows), _MOST_ROWS):
            some = rows[start : start + _MOST_ROWS]
            connection.execute(
                f"insert into monitor_{table} (session, {', '.join(columns)})"
                f" values {', '.join([places] * len(some))} {again(table, dialect)}",
                [value for row in some for value in (session, *map(row.__getitem__, columns))],
            )
    step.note_stored()


# --------------------------------------------------------------------------------------------------
# A whole session, written in one transaction: an imported one, or one anew.


class Filling:
    """A new session that is filled row by row. `session` is called first, and then each row in the
    order of an export.
    """

    def __init__(self, rows: Rows, dialect: SqlDialect) -> None:
        self._rows = rows
        self._dialect = dialect
        self._step = StepRows(rows)
        self._table = ""

    def into(self, table: str) -> StepRows:
        """The rows that are gathered. Those of another table are written before."""
        if self._table != table or len(self._step.rows.get(table, ())) >= _MOST_GATHERED:
            self.write()
        self._table = table
        return self._step

    def write(self) -> None:
        """Write what was gathered."""
        insert(self._rows.connection, self._step, self._rows.session, self._dialect)
        self._step = StepRows(self._rows)

    def problems(self) -> Iterator[TreeProblem]:
        """Write what is left, and return the faults of the tree."""
        self.write()
        yield from verify(self._rows.each_node(), self._rows.heads())
