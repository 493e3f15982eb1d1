"""One step as rows. Each function is called in the thread of its connection."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from monitor.errors import SessionDamaged, StoreError
from monitor.events import Event
from monitor.messages import (
    ApprovalAnswer,
    ApprovalRequest,
    CallRecord,
    CallState,
    answer_codec,
    may_follow,
    request_codec,
)
from monitor.sessions.closed_runs import Changes, Committed, RunRecord, TurnChunks, run_codec
from monitor.sessions.tables.marked_folder import Blobs
from monitor.sessions.tables.packing import Memory, Packing, escaped, sql_packing
from monitor.sessions.tables.rows import SqlView, run_number, write_head, write_node
from monitor.sessions.tables.schema import SqlConnection
from monitor.sessions.tables.seal import Seal
from monitor.sessions.tables.stored_rows import StoredRows
from monitor.sessions.tree import Planned, plan

NOWHERE: Final = (None, 0)
"""The state and the attempt of a call that is not in the ledger."""
_MOST_ROWS: Final = 64
"""The most rows of one statement."""


def commit(
    connection: SqlConnection,
    changes: Changes,
    blobs: Blobs,
    *,
    at_ms: int,
    new_id: Callable[[], str],
    memory: Memory,
) -> Committed:
    """Write one step in the transaction that is open. Raises `StoreError` for a step that does not
    fit the session.
    """
    seal = memory.seal(connection)
    for run in changes.runs:
        write_run(connection, run, seal)
    planned = plan(SqlView(connection, blobs, memory), changes.nodes, branch=changes.branch, at_ms=at_ms, new_id=new_id)
    if planned.nodes:
        _write_nodes(connection, planned, changes.branch, blobs, memory)
    newest = planned.nodes[-1].seq if planned.nodes else None
    packing = sql_packing(connection, blobs, memory)
    for call, is_new in stepped(changes.calls, lambda key: _standing(connection, key, memory)):
        if is_new:
            _insert_call(connection, call, newest, packing, memory)
        else:
            _update_call(connection, call, packing, memory)
    for request in changes.requests:
        write_request(connection, request, seal)
    for answer in changes.answers:
        write_answer(connection, answer, seal)
    if changes.events:
        number = run_number(connection, changes.events_run, memory.runs)
        _write_events(
            connection, [(number, at_ms, *packing.event(changes.events_run, event)) for event in changes.events], memory
        )
    for chunks in changes.chunks:
        write_chunks(connection, at_ms, chunks, blobs, memory)
    write_seal(connection, memory)
    return Committed(planned.nodes, planned.head)


def write_seal(connection: SqlConnection, memory: Memory) -> None:
    """Store the digests of the tables, at the end of each step."""
    if (seal := memory.seal(connection)) is not None:
        seal.write(connection)


def _write_nodes(connection: SqlConnection, planned: Planned, branch: str, blobs: Blobs, memory: Memory) -> None:
    seqs = {node.id: node.seq for node in (*memory.recent.values(), *planned.nodes)}
    for node in planned.nodes:
        write_node(connection, node, blobs, memory, seqs)
    write_head(connection, branch, planned.head, seqs, memory.seal(connection))
    memory.take(planned.nodes, branch, planned.head)


def stepped(
    records: Sequence[CallRecord], standing: Callable[[str], tuple[CallState | None, int]]
) -> Iterator[tuple[CallRecord, bool]]:
    """The last step of each call, and whether the call is new. A call may take several steps in
    one commit. `standing`: the state and the attempt of the call under a key.

    Raises `StoreError` for a step that is not allowed.
    """
    by_key: dict[str, list[CallRecord]] = {}
    for record in records:
        by_key.setdefault(record.key, []).append(record)
    for key, steps in by_key.items():
        before = standing(key)
        is_new = before == NOWHERE and steps[0].state is CallState.INTENDED
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
            yield steps[-1], is_new


def write_run(connection: SqlConnection, run: RunRecord, seal: Seal | None = None) -> None:
    """Store a run, or replace its record."""
    if seal is not None:
        seal.take_out(connection, "run", run.id)
    row = (
        run.id,
        run.parent_run,
        run.agent,
        run.purpose,
        run.state.value,
        round(run.started_at_s * 1000),
        None if run.ended_at_s is None else round(run.ended_at_s * 1000),
        escaped(run_codec.to_dict(run)),
    )
    (number,) = connection.execute(
        "INSERT INTO run (id, parent_run, agent, purpose, state, started_ms, ended_ms, body)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET parent_run = excluded.parent_run,"
        " agent = excluded.agent, purpose = excluded.purpose, state = excluded.state,"
        " started_ms = excluded.started_ms, ended_ms = excluded.ended_ms, body = excluded.body RETURNING number",
        row,
    ).fetchall()[0]
    if seal is not None:
        seal.add_again("run", run.id, (number, *row))


def _standing(connection: SqlConnection, key: str, memory: Memory) -> tuple[CallState | None, int]:
    """The state and the attempt of the call under this key."""
    if key in memory.calls:
        return memory.calls[key]
    found = connection.execute("SELECT state, body FROM call WHERE key = ?", (key,)).fetchone()
    if found is None:
        return NOWHERE
    state, body = found
    try:
        return CallState(state), json.loads(body).get("attempt", 0)
    except (ValueError, AttributeError) as error:
        raise SessionDamaged(f"a row of the session cannot be read: {error}") from None


def intend(connection: SqlConnection, record: CallRecord, blobs: Blobs, memory: Memory) -> CallRecord:
    """Store a call unless its key is known. Returns the record that now stands under the key."""
    put_call(connection, record, blobs, memory)
    write_seal(connection, memory)
    stored = StoredRows(connection, blobs).find(record.key)
    if stored is None:
        raise SessionDamaged(f"the call {record.key} was stored and is not there")
    return stored


def put_call(connection: SqlConnection, record: CallRecord, blobs: Blobs, memory: Memory) -> None:
    """Store a call unless its key is known."""
    if _standing(connection, record.key, memory) == NOWHERE:
        _insert_call(connection, record, None, sql_packing(connection, blobs, memory), memory)


def _insert_call(
    connection: SqlConnection, record: CallRecord, node: int | None, packing: Packing, memory: Memory
) -> None:
    row = (record.run, record.call_id, node, record.key, record.state.value, packing.call(record))
    (number,) = connection.execute(
        "INSERT INTO call (run, call_id, node, key, state, body) VALUES (?, ?, ?, ?, ?, ?) RETURNING number", row
    ).fetchall()[0]
    memory.take_call(record)
    if (seal := memory.seal(connection)) is not None:
        seal.add_again("call", record.key, (number, *row))


def advance(connection: SqlConnection, record: CallRecord, blobs: Blobs, memory: Memory) -> bool:
    """Replace a call by its next step, if that is allowed. Returns whether it was."""
    if not may_follow(record, *_standing(connection, record.key, memory)):
        return False
    _update_call(connection, record, sql_packing(connection, blobs, memory), memory)
    write_seal(connection, memory)
    return True


def _update_call(connection: SqlConnection, record: CallRecord, packing: Packing, memory: Memory) -> None:
    seal = memory.seal(connection)
    if seal is not None:
        seal.take_out(connection, "call", record.key)
    row = connection.execute(
        "UPDATE call SET state = ?, body = ? WHERE key = ? RETURNING number, run, call_id, node, key, state, body",
        (record.state.value, packing.call(record), record.key),
    ).fetchall()[0]
    memory.take_call(record)
    if seal is not None:
        seal.add_again("call", record.key, row)


def write_request(connection: SqlConnection, request: ApprovalRequest, seal: Seal | None = None) -> None:
    """Store a question. Storing it again changes nothing."""
    row = (request.id, request.run, escaped(request_codec.to_dict(request)))
    written = connection.execute(
        "INSERT INTO approval (id, run, request) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING RETURNING number", row
    ).fetchall()
    if seal is not None and written:
        seal.add_again("approval", request.id, (*written[0], *row, None))


def write_answer(connection: SqlConnection, answer: ApprovalAnswer, seal: Seal | None = None) -> None:
    """Store an answer. Raises `StoreError` if there is no such question, or it has an answer."""
    found = connection.execute("SELECT answer FROM approval WHERE id = ?", (answer.id,)).fetchone()
    if found is None:
        raise StoreError(f"there is no question {answer.id} to answer")
    if found[0] is not None:
        raise StoreError(f"the question {answer.id} has its answer already")
    if seal is not None:
        seal.take_out(connection, "approval", answer.id)
    row = connection.execute(
        "UPDATE approval SET answer = ? WHERE id = ? RETURNING number, id, run, request, answer",
        (escaped(answer_codec.to_dict(answer)), answer.id),
    ).fetchall()[0]
    if seal is not None:
        seal.add_again("approval", answer.id, row)


def write_event(
    connection: SqlConnection, run: str | None, at_ms: int, event: Event, *, blobs: Blobs, memory: Memory
) -> None:
    """Store an event behind those that are there."""
    row = (run_number(connection, run), at_ms, *sql_packing(connection, blobs, memory).event(run, event))
    _write_events(connection, [row], memory)


def _write_events(connection: SqlConnection, rows: Sequence[tuple[Any, ...]], memory: Memory) -> None:
    """All events of a step with one statement: each statement costs a change of the thread."""
    seal, last = memory.seal(connection), memory.last_event
    if last is None:
        last = connection.execute("SELECT coalesce(max(seq), 0) FROM event").fetchone()[0]
    numbered = [(last + number, *row) for number, row in enumerate(rows, 1)]
    for start in range(0, len(numbered), _MOST_ROWS):
        some = numbered[start : start + _MOST_ROWS]
        places = ", ".join(["(?, ?, ?, ?, ?)"] * len(some))
        connection.execute(
            f"INSERT INTO event (seq, run, at_ms, type, body) VALUES {places}",  # noqa: S608 - only places
            [value for row in some for value in row],
        )
    memory.last_event = last + len(rows)
    if seal is not None:
        for row in numbered:
            seal.add("event", row)


def write_chunks(connection: SqlConnection, at_ms: int, chunks: TurnChunks, blobs: Blobs, memory: Memory) -> None:
    """Store some chunks behind those that are there."""
    body = sql_packing(connection, blobs, memory).chunks(chunks)
    row = (run_number(connection, chunks.run), chunks.turn, at_ms, body)
    (number,) = connection.execute(
        "INSERT INTO chunk (run, turn, at_ms, body) VALUES (?, ?, ?, ?) RETURNING seq", row
    ).fetchall()[0]
    if (seal := memory.seal(connection)) is not None:
        seal.add("chunk", (number, *row))
