"""Files of the formats 1 to 4: read as they are, and brought to the present format by the first
write.

Views of the connection show the old tables as the present ones, so all statements read both. The
first write copies the views into tables, in its own transaction, and removes the old ones.
"""

# ruff: noqa: S608 - only names of tables and columns are put into a statement; values are not

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from monitor.sessions.tables.marked_folder import Blobs
from monitor.sessions.tables.rows import ASIDE, Rows
from monitor.sessions.tables.schema import COLUMNS, FORMAT, ONLY, SqlConnection, format_of, make_file
from monitor.sessions.tables.seal import MODULUS, OLDER, row_digest
from monitor.sessions.tree import TreeProblem


def _kept(column: str) -> str:
    """`monitor.sessions.tables.rows.kept`, in SQL."""
    return f"replace(replace({column}, '\\', '\\\\'), char(0), '\\0')"


def _meta(key: str) -> str:
    return f"(select value from meta where key = '{key}')"


_KINDS: Final = "json_extract('[null,\"message\",\"compaction\",\"context_edit\",\"marker\",\"branch_note\"]', '$[' || n.kind || ']')"  # fmt: skip  # noqa: E501
_CALL_BODY: Final = """json_set(body, '$.type', 'call_record', '$.run', run, '$.call_id', call_id, '$.key', key,
    '$.state', state)"""
_SHOWN: Final = {
    "sessions": f"""select {ONLY} as number, {_meta("id")} as id, '' as name, {_meta("created_ms")} as created_ms,
        {_meta("epoch")} as token, 0 as step, {_meta("forked_from")} as forked_from, '{OLDER}' as seal,
        case coalesce({_meta("in_use")}, 0) when 0 then 0 end as closed_at""",
    "nodes": f"""select {ONLY} as session, n.seq, lower(hex(n.id)) as id, nullif(lower(hex(p.id)), '') as parent,
        coalesce({_KINDS}, n.kind) as kind, {_kept("r.id")} as run, n.turn, n.at_ms, n.tokens,
        lower(hex(n.digest)) as digest, coalesce(n.body, '{ASIDE}' || n.artifact) as body
        from node n left join node p on p.seq = n.parent left join run r on r.number = n.run order by n.seq""",
    "heads": f"""select {ONLY} as session, {_kept("h.name")} as name, nullif(lower(hex(n.id)), '') as node
        from head h left join node n on n.seq = h.node""",
    "runs": f"select {ONLY} as session, number, {_kept('id')} as id, state, body from run order by number",
    "calls": f"""select {ONLY} as session, number, {_kept("run")} as run, {_kept("key")} as key, state,
        null as approval, {_CALL_BODY} as body from call order by number""",
    "approvals": f"""select {ONLY} as session, number, {_kept("id")} as id, request, answer from approval
        order by number""",
    "events": f"""select {ONLY} as session, e.seq, {_kept("r.id")} as run, e.at_ms, e.type, e.body
        from event e left join run r on r.number = e.run""",
    "chunks": f"""select {ONLY} as session, c.seq, {_kept("r.id")} as run, c.turn, c.at_ms, c.body
        from chunk c left join run r on r.number = c.run""",
}
_FACTS: Final = ("number", "id", "name", "created_ms", "token", "step", "forked_from", "seal", "closed_at")
_SEALED: Final = {
    "schema": "select type, name, tbl_name, sql from sqlite_schema",
    "meta": "select key, value from meta where key <> 'seal'",
    "run": "select number, id, parent_run, agent, purpose, state, started_ms, ended_ms, body from run",
    "artifact": "select digest, size, kind from artifact",
    "node": "select seq, id, parent, kind, run, turn, at_ms, tokens, digest, body, artifact from node",
    "head": "select name, node from head",
    "call": "select number, run, call_id, node, key, state, body from call",
    "approval": "select number, id, run, request, answer from approval order by number",
    "event": "select seq, run, at_ms, type, body from event",
    "chunk": "select seq, run, turn, at_ms, body from chunk",
}
"""The old tables, with the columns of their digests. The tables that others refer to come first."""


def is_older(connection: SqlConnection) -> bool:
    """Whether the file is of a format that is read through views."""
    return 0 < format_of(connection) < FORMAT


def show(connection: SqlConnection) -> None:
    """Show the tables of an older file as the present ones, on this connection alone."""
    if is_older(connection):
        for table, select in _SHOWN.items():
            connection.execute(f"create temp view if not exists monitor_{table} as {select}")


def problems(connection: SqlConnection) -> Iterator[TreeProblem]:
    """The old tables that are not as they were written. Files of the formats 1 and 2 have no
    digests.
    """
    found = connection.execute("select value from meta where key = 'seal'").fetchone()
    for table, number in json.loads(found[0]).items() if found is not None else ():
        if sum(row_digest(table, row) for row in connection.execute(_SEALED[table])) % MODULUS != int(number, 16):
            yield TreeProblem(f"the table {table} is not as it was written: its digest differs")


def bring_forward(connection: SqlConnection, blobs: Blobs) -> None:
    """Write the tables of the present format in the place of the old ones, in the transaction that
    is open. Long bodies are on the disk before their rows are.
    """
    for digest in Rows(connection, blobs=blobs).aside():
        blobs.put(blobs.get(digest))
    for table in _SHOWN:
        connection.execute(f"drop view temp.monitor_{table}")
    make_file(connection)
    for table, select in _SHOWN.items():
        names = ", ".join(("session", *COLUMNS[table]) if table in COLUMNS else _FACTS)
        connection.execute(f"insert into monitor_{table} ({names}) select {names} from ({select})")
    for table in reversed(_SEALED):
        if table != "schema":
            connection.execute(f"drop table {table}")
