"""Writes a session as lines of JSON, to keep, to send or to read with other tools; and reads them.

The same session always gives the same bytes. A session that was read from such lines gives the same
bytes again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from monitor.calls import answer_codec, call_codec, request_codec
from monitor.chunks import chunk_codec
from monitor.errors import MonitorError, SessionDamaged
from monitor.events import event_codec
from monitor.sessions.files import made
from monitor.sessions.nodes import Node, NodeKind, canonical
from monitor.sessions.postgres.postgres_reader import AnyReader
from monitor.sessions.run_records import TurnChunks, run_codec
from monitor.sessions.tables import rows, writing
from monitor.sessions.tables.blobs import Blobs
from monitor.sessions.tables.owner_memory import Memory
from monitor.sessions.tables.schema import SqlConnection
from monitor.sessions.tables.seal import IN_USE
from monitor.sessions.tree import verify

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


def imported(lines: Iterable[str], path: Path) -> None:
    """Make the session at `path` from its lines.

    Raises `SessionDamaged` for lines that are no session, or that were changed, which the chain of
    digests shows. Then no file is made. Raises `StoreError` if `path` exists already.
    """
    with made(path) as (connection, blobs):
        reading = _Import(connection, blobs)
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    reading.take(json.loads(line))
                except (MonitorError, ValueError, KeyError, TypeError) as error:
                    raise SessionDamaged(f"line {number} is no line of a session: {error}") from None
        reading.end()


class _Import:
    """Writes each line of an export as a row of a new session."""

    def __init__(self, connection: SqlConnection, blobs: Blobs) -> None:
        self._connection = connection
        self._blobs = blobs
        self._memory = Memory(seals=False)
        self._begun = False

    def take(self, data: Any) -> None:
        """Write the next line of the export as a row."""
        kind = data["type"]
        if self._begun is (kind == "session"):
            raise ValueError("a session has one line of type session, and it is the first")
        match kind:
            case "session":
                self._session(data)
            case "run":
                writing.write_run(self._connection, run_codec.from_dict(data["run"]))
            case "node":
                rows.write_node(self._connection, _node(data), self._blobs)
            case "head":
                rows.write_head(self._connection, data["name"], data["node"])
            case "call":
                writing.put_call(self._connection, call_codec.from_dict(data["call"]), self._blobs, self._memory)
            case "approval":
                writing.write_request(self._connection, request_codec.from_dict(data["request"]))
                if data["answer"] is not None:
                    writing.write_answer(self._connection, answer_codec.from_dict(data["answer"]))
            case "event":
                event = event_codec.from_dict(data["event"])
                writing.write_event(
                    self._connection, data["run"], data["at_ms"], event, blobs=self._blobs, memory=self._memory
                )
            case "chunks":
                pieces = tuple((at_s, chunk_codec.from_dict(one)) for at_s, one in data["chunks"])
                some = TurnChunks(data["run"], data["turn"], pieces, tuple(data.get("inputs", ())))
                writing.write_chunks(self._connection, 0, some, self._blobs, self._memory)
            case _:
                raise ValueError(f"unknown type {kind!r}")

    def _session(self, data: dict[str, Any]) -> None:
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']} is not known")
        self._begun = True
        bytes.fromhex(data["id"])
        for key, value in data.items():
            if key not in {"type", "format"}:
                rows.write_meta(self._connection, key, value)

    def end(self) -> None:
        """Check, after the last line, that the session is whole."""
        if not self._begun:
            raise SessionDamaged("there is no line of type session")
        for problem in verify(rows.nodes(self._connection, self._blobs), rows.heads(self._connection)):
            raise SessionDamaged(f"node number {problem.seq}: {problem.what}")


def _node(data: dict[str, Any]) -> Node:
    fields = {name: data[name] for name in _NODE_FIELDS}
    return Node(kind=NodeKind(data["kind"]), body=canonical(data["body"]), **fields)
