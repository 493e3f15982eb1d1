"""Writes a session as lines of JSON, to keep, to send or to read with other tools; and reads them.

The same session always gives the same bytes. A session that was read from such lines gives the same
bytes again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from monitor.calls import ApprovalAnswer, ApprovalRequest, CallRecord, answer_codec, call_codec, request_codec
from monitor.chunks import chunk_codec
from monitor.errors import MonitorError, SessionDamaged
from monitor.events import Event, event_codec
from monitor.sessions.files import made
from monitor.sessions.nodes import Node, NodeKind, canonical
from monitor.sessions.postgres.postgres_reader import AnyReader
from monitor.sessions.postgres.session_address import is_database, parts_of
from monitor.sessions.postgres.session_import import new_session
from monitor.sessions.run_records import RunRecord, TurnChunks, run_codec
from monitor.sessions.tables import rows, writing
from monitor.sessions.tables.blobs import Blobs
from monitor.sessions.tables.owner_memory import Memory
from monitor.sessions.tables.schema import SqlConnection
from monitor.sessions.tables.seal import IN_USE
from monitor.sessions.tree import TreeProblem, verify

FORMAT: Final = 1
"""The number of the format of the lines. A change of the tables does not change it."""


def exported(session: AnyReader) -> Iterator[str]:
    """The lines, without the newlines. They are of one moment: that at which the first is read."""
    with session.snapshot():
        yield from _lines(session)


def _lines(session: AnyReader) -> Iterator[str]:
    head = {key: value for key, value in session.meta.items() if key not in {"epoch", IN_USE}}
    yield canonical({"type": "session", "format": FORMAT, **head})
    for run in session.runs(hidden=True):
        yield canonical({"type": "run", "run": run_codec.to_dict(run)})
    for node in session.nodes():
        yield _node_line(node)
    for name, head_of in session.heads().items():
        yield canonical({"type": "head", "name": name, "node": head_of})
    for call in session.calls():
        yield canonical({"type": "call", "call": call_codec.to_dict(call)})
    for asked in session.approvals():
        answer = None if asked.answer is None else answer_codec.to_dict(asked.answer)
        yield canonical({"type": "approval", "request": request_codec.to_dict(asked.request), "answer": answer})
    for event in session.events():
        data = event_codec.to_dict(event.event)
        yield canonical({"type": "event", "run": event.run, "at_ms": event.at_ms, "event": data})
    for some in session.chunks():
        pieces = [[at_s, chunk_codec.to_dict(chunk)] for at_s, chunk in some.chunks]
        inputs = {"inputs": [dict(one) for one in some.inputs]} if some.inputs else {}
        yield canonical({"type": "chunks", "run": some.run, "turn": some.turn, "chunks": pieces, **inputs})


_NODE_FIELDS: Final = ("seq", "id", "parent", "run", "turn", "at_ms", "tokens", "digest")


def _node_line(node: Node) -> str:
    fields = {name: getattr(node, name) for name in _NODE_FIELDS}
    return canonical({"type": "node", "kind": node.kind.value, "body": json.loads(node.body), **fields})


def imported(lines: Iterable[str], place: Path | str) -> None:
    """Make the session at `place` from its lines: a file, or `postgresql://user@host/db#name`.

    Raises `SessionDamaged` for lines that are no session, or that were changed, which the chain of
    digests shows. Then nothing is made. Raises `StoreError` if `place` exists already.
    """
    if is_database(place):
        with new_session(*parts_of(place)) as target:
            fill(target, lines)
        return
    with made(Path(place)) as (connection, blobs):
        fill(_FileTarget(connection, blobs), lines)


def fill(target: ImportTarget, lines: Iterable[str]) -> None:
    """Write a session from its lines. Raises `SessionDamaged` for lines that are no session."""
    reading = _Import(target)
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                reading.take(json.loads(line))
            except (MonitorError, ValueError, KeyError, TypeError) as error:
                raise SessionDamaged(f"line {number} is no line of a session: {error}") from None
            reading.begin()
    reading.end()


class ImportTarget(Protocol):
    """A new session that is filled row by row."""

    def session(self, facts: dict[str, Any], /) -> None: ...
    def run(self, record: RunRecord, /) -> None: ...
    def node(self, node: Node, /) -> None: ...
    def head(self, branch: str, node: str | None, /) -> None: ...
    def call(self, record: CallRecord, /) -> None: ...
    def approval(self, request: ApprovalRequest, answer: ApprovalAnswer | None, /) -> None: ...
    def event(self, run: str | None, at_ms: int, event: Event, /) -> None: ...
    def chunks(self, some: TurnChunks, /) -> None: ...

    def problems(self) -> Iterable[TreeProblem]:
        """The faults of the tree, when all rows are written."""
        ...


class _FileTarget:
    """A new file that is filled row by row."""

    def __init__(self, connection: SqlConnection, blobs: Blobs) -> None:
        self._connection = connection
        self._blobs = blobs
        self._memory = Memory(seals=False)

    def session(self, facts: dict[str, Any]) -> None:
        for key, value in facts.items():
            rows.write_meta(self._connection, key, value)

    def run(self, record: RunRecord) -> None:
        writing.write_run(self._connection, record)

    def node(self, node: Node) -> None:
        rows.write_node(self._connection, node, self._blobs)

    def head(self, branch: str, node: str | None) -> None:
        rows.write_head(self._connection, branch, node)

    def call(self, record: CallRecord) -> None:
        writing.put_call(self._connection, record, self._blobs, self._memory)

    def approval(self, request: ApprovalRequest, answer: ApprovalAnswer | None) -> None:
        writing.write_request(self._connection, request)
        if answer is not None:
            writing.write_answer(self._connection, answer)

    def event(self, run: str | None, at_ms: int, event: Event) -> None:
        writing.write_event(self._connection, run, at_ms, event, blobs=self._blobs, memory=self._memory)

    def chunks(self, some: TurnChunks) -> None:
        writing.write_chunks(self._connection, 0, some, self._blobs, self._memory)

    def problems(self) -> Iterable[TreeProblem]:
        return verify(rows.nodes(self._connection, self._blobs), rows.heads(self._connection))


class _Import:
    """Writes each line of an export as a row of a new session."""

    def __init__(self, target: ImportTarget) -> None:
        self._target = target
        self._begun = False
        self._facts: dict[str, Any] | None = None
        """The facts about a session that is to be made now."""

    def take(self, data: Any) -> None:
        """Write the next line of the export as a row."""
        kind = data["type"]
        if self._begun is (kind == "session"):
            raise ValueError("a session has one line of type session, and it is the first")
        match kind:
            case "session":
                self._session(data)
            case "run":
                self._target.run(run_codec.from_dict(data["run"]))
            case "node":
                self._target.node(node_in(data))
            case "head":
                self._target.head(data["name"], data["node"])
            case "call":
                self._target.call(call_codec.from_dict(data["call"]))
            case "approval":
                answer = None if data["answer"] is None else answer_codec.from_dict(data["answer"])
                self._target.approval(request_codec.from_dict(data["request"]), answer)
            case "event":
                self._target.event(data["run"], data["at_ms"], event_codec.from_dict(data["event"]))
            case "chunks":
                pieces = tuple((at_s, chunk_codec.from_dict(one)) for at_s, one in data["chunks"])
                self._target.chunks(TurnChunks(data["run"], data["turn"], pieces, tuple(data.get("inputs", ()))))
            case _:
                raise ValueError(f"unknown type {kind!r}")

    def _session(self, data: dict[str, Any]) -> None:
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']} is not known")
        self._begun = True
        bytes.fromhex(data["id"])
        self._facts = {key: value for key, value in data.items() if key not in {"type", "format"}}

    def begin(self) -> None:
        """Make the session, after its first line. A fault of this is none of the line."""
        facts, self._facts = self._facts, None
        if facts is not None:
            self._target.session(facts)

    def end(self) -> None:
        """Check, after the last line, that the session is whole."""
        if not self._begun:
            raise SessionDamaged("there is no line of type session")
        for problem in self._target.problems():
            raise SessionDamaged(f"node number {problem.seq}: {problem.what}")


def node_in(data: dict[str, Any]) -> Node:
    """The node in a line."""
    fields = {name: data[name] for name in _NODE_FIELDS}
    return Node(kind=NodeKind(data["kind"]), body=canonical(data["body"]), **fields)
