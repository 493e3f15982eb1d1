"""One step of a session as the rows of one statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from monitor.calls import (
    ApprovalAnswer,
    ApprovalRequest,
    CallRecord,
    CallState,
    answer_codec,
    call_codec,
    may_follow,
    request_codec,
)
from monitor.errors import StoreError
from monitor.events import Event
from monitor.sessions.nodes import Node
from monitor.sessions.postgres.session_rows import Rows, id_of, kept
from monitor.sessions.postgres.statements import COLUMNS
from monitor.sessions.run_records import Changes, Committed, RunRecord, TurnChunks, run_codec
from monitor.sessions.tables.owner_memory import Memory
from monitor.sessions.tables.packing import Packing, escaped
from monitor.sessions.tables.writing import NOWHERE, stepped
from monitor.sessions.tree import plan


class StepRows:
    """The rows that one step writes, by the table."""

    def __init__(self, rows: Rows, memory: Memory, last: dict[str, int]) -> None:
        """`last`: the newest number of the events and of the chunks, as far as it is known."""
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.new: set[tuple[str, str]] = set()
        """The tables and keys of rows that are not there yet."""
        self._read = rows
        self._packing = Packing(rows.pointers)
        self._memory = memory
        self._last = dict(last)
        self._calls: list[CallRecord] = []
        self._new_runs: set[str] = set()

    def fill(self, changes: Changes, *, at_ms: int, new_id: Callable[[], str]) -> Committed:
        """Take all changes. Raises `StoreError` for a step that does not fit the session."""
        for run in changes.runs:
            self.run(run)
        planned = plan(self._read, changes.nodes, branch=changes.branch, at_ms=at_ms, new_id=new_id)
        for node in planned.nodes:
            self.node(node)
        if planned.nodes:
            self.head(changes.branch, planned.head)
            self._memory.take(planned.nodes, changes.branch, planned.head)  # what fails forgets everything
        for record, _ in stepped(changes.calls, self._standing):
            self.call(record)
        self.questions(changes.requests, changes.answers)
        for event in changes.events:
            self.event(changes.events_run, event, at_ms)
        for chunks in changes.chunks:
            self.chunks(chunks, at_ms)
        return Committed(planned.nodes, planned.head)

    def intend(self, record: CallRecord) -> None:
        """Take a call unless its key is known."""
        if self._standing(record.key) == NOWHERE:
            self.call(record)

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

    def head(self, branch: str, node: str | None) -> None:
        """Take the end of a branch."""
        self.rows["heads"] = [one for one in self.rows.get("heads", []) if one["name"] != kept(branch)]
        self._add("heads", name=kept(branch), node=None if node is None else id_of(node))

    @property
    def last(self) -> dict[str, int]:
        """The newest numbers once the step is stored."""
        return self._last

    # -------------------------------------------------------------- the parts

    def _add(self, table: str, **row: Any) -> None:
        self.rows.setdefault(table, []).append(row)

    def _of_run(self, run: str | None) -> str | None:
        if run is None:
            return None
        if run not in self._memory.runs and run not in self._new_runs:
            if not self._read.has_run(run):
                raise StoreError(f"the run {run} is not in the session: write its RunRecord first")
            self._memory.runs[run] = 0
        return kept(run)

    def run(self, run: RunRecord) -> None:
        """Take a run."""
        self.rows["runs"] = [one for one in self.rows.get("runs", []) if one["id"] != kept(run.id)]
        for text in (run.agent, run.purpose, run.parent_run or ""):
            kept(text)
        self._add("runs", id=kept(run.id), state=run.state.value, body=escaped(run_codec.to_dict(run)))
        self._new_runs.add(run.id)

    def node(self, node: Node) -> None:
        """Take a node as it is."""
        columns = {name: getattr(node, name) for name in COLUMNS["nodes"]}
        self._add("nodes", **{**columns, "kind": node.kind.value, "run": self._of_run(node.run)})

    def _standing(self, key: str) -> tuple[CallState | None, int]:
        for record in reversed(self._calls):
            if record.key == key:
                return record.state, record.attempt
        if key in self._memory.calls:
            return self._memory.calls[key]
        found = self._read.find(key)
        if found is None:
            self.new.add(("calls", kept(key)))
            return NOWHERE
        return found.state, found.attempt

    def call(self, record: CallRecord) -> None:
        """Take a call as it is."""
        body = self._packing.packed(call_codec.to_brief(record), record.run, record.turn)
        kept(record.call_id)
        self.rows["calls"] = [one for one in self.rows.get("calls", []) if one["key"] != kept(record.key)]
        self._add("calls", run=kept(record.run), key=kept(record.key), state=record.state.value, body=body)
        self._calls.append(record)

    def questions(self, requests: Sequence[ApprovalRequest], answers: Sequence[ApprovalAnswer]) -> None:
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
        kind, body = self._packing.event(run, event)
        self._add("events", seq=self._next("events"), run=self._of_run(run), at_ms=at_ms, type=kind, body=body)

    def chunks(self, chunks: TurnChunks, at_ms: int) -> None:
        """Take some chunks."""
        body, run = self._packing.chunks(chunks), self._of_run(chunks.run)
        self._add("chunks", seq=self._next("chunks"), run=run, turn=chunks.turn, at_ms=at_ms, body=body)

    def _next(self, table: str) -> int:
        if table not in self._last:
            self._last[table] = self._read.newest(table)
        self._last[table] += 1
        return self._last[table]

    def note_stored(self) -> None:
        """The step is stored: remember what the owner knows now."""
        for run in self._new_runs:
            self._memory.runs[run] = 0
        for record in self._calls:
            self._memory.take_call(record)
