"""The tables of sessions in a database, and the statement that writes one step.

A step is one statement, which checks the token of the owner and the number of the step. So no late
write of an old owner is carried out, and no write is carried out twice. No lock outlives the
statement: an owner that freezes holds up nobody.
"""

# ruff: noqa: S608 - only names of tables and columns are put into a statement; values are not

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

FORMAT: Final = 2
"""The format of the tables that this version writes."""

TABLES: Final = (
    "create table if not exists monitor_sessions_format (format integer not null)",
    """create table if not exists monitor_sessions (
        number bigint generated always as identity primary key, id text not null unique, name text not null unique,
        created_ms bigint not null, token bigint not null default 0, step bigint not null default 0,
        holder text not null default '', lease_until timestamptz, changed timestamptz not null default now(), seal text)
        with (fillfactor = 50)""",
    """create table if not exists monitor_nodes (
        session bigint not null references monitor_sessions on delete cascade, seq bigint not null, id text not null,
        parent text, kind text not null, run text, turn bigint, at_ms bigint not null, tokens bigint,
        digest text not null, body text not null, primary key (session, seq), unique (session, id))""",
    "create index if not exists monitor_nodes_by_run on monitor_nodes (session, run, turn) where run is not null",
    """create table if not exists monitor_heads (
        session bigint not null references monitor_sessions on delete cascade, name text not null, node text,
        primary key (session, name))""",
    """create table if not exists monitor_runs (
        session bigint not null references monitor_sessions on delete cascade,
        number bigint generated always as identity, id text not null, state text not null, body text not null,
        primary key (session, id))""",
    """create table if not exists monitor_calls (
        session bigint not null references monitor_sessions on delete cascade,
        number bigint generated always as identity, run text not null, key text not null, state text not null,
        body text not null, primary key (session, key))""",
    """create table if not exists monitor_approvals (
        session bigint not null references monitor_sessions on delete cascade,
        number bigint generated always as identity, id text not null, request text not null, answer text,
        primary key (session, id))""",
    """create table if not exists monitor_events (
        session bigint not null references monitor_sessions on delete cascade, seq bigint not null, run text,
        at_ms bigint not null, type text not null, body text not null, primary key (session, seq))""",
    """create table if not exists monitor_chunks (
        session bigint not null references monitor_sessions on delete cascade, seq bigint not null, run text,
        turn bigint, at_ms bigint not null, body text not null, primary key (session, seq))""",
    """create table if not exists monitor_letters (
        session bigint not null references monitor_sessions on delete cascade, id text not null, body text not null,
        primary key (session, id))""",
    # What people say to the runs of a fleet: aborts and answers.
    """create table if not exists monitor_said (
        session text not null, number bigint generated always as identity, what text not null, body text not null,
        primary key (session, number))""",
)

UPGRADES: Final = {2: ("alter table monitor_sessions add column if not exists seal text",)}
"""For each format, the statements that lead to it from the one before. Format 2: digests."""

_COLUMNS: Final = {
    "nodes": "seq bigint, id text, parent text, kind text, run text, turn bigint, at_ms bigint, tokens bigint,"
    " digest text, body text",
    "heads": "name text, node text",
    "runs": "id text, state text, body text",
    "calls": "run text, key text, state text, body text",
    "approvals": "id text, request text, answer text",
    "events": "seq bigint, run text, at_ms bigint, type text, body text",
    "chunks": "seq bigint, run text, turn bigint, at_ms bigint, body text",
}
PARTS: Final = tuple(_COLUMNS)
"""The tables that a step may write to."""
COLUMNS: Final = {part: tuple(column.split()[0] for column in of.split(",")) for part, of in _COLUMNS.items()}
"""The columns of each of these tables that a step writes."""
_AGAIN: Final = {
    "heads": "on conflict (session, name) do update set node = excluded.node",
    "runs": "on conflict (session, id) do update set state = excluded.state, body = excluded.body",
    "calls": "on conflict (session, key) do update set state = excluded.state, body = excluded.body",
    "approvals": "on conflict (session, id) do update set answer = excluded.answer",
}


def step_of(
    rows: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    session: int,
    token: int,
    step: int,
    lease_s: float,
    seal: str | None,
) -> tuple[bytes, dict[str, Any]]:
    """The statement of a step, and its values. `rows`: those that it writes, by their tables.
    `seal`: the digests of the session after it.
    """
    parts = tuple(part for part in PARTS if rows.get(part))
    values = {part: json.dumps(rows[part], ensure_ascii=False) for part in parts}
    fields = {"session": session, "token": token, "step": step, "lease_s": lease_s, "seal": seal}
    return step_statement(parts).encode(), values | fields


@cache
def step_statement(parts: tuple[str, ...]) -> str:
    """The statement of a step that writes to the tables `parts`. It returns one row, or none if the
    token or the number of the step does not fit. Its values: `session`, `token`, `step`, `lease_s`,
    `seal`, and the rows of each part as JSON.
    """
    mine = """mine as (
        update monitor_sessions set step = step + 1, changed = clock_timestamp(), seal = %(seal)s,
            lease_until = clock_timestamp() + %(lease_s)s * interval '1 second'
        where number = %(session)s and token = %(token)s and step = %(step)s returning number)"""
    return f"with {', '.join([mine, *map(_written, parts)])} select number from mine"


def _written(part: str) -> str:
    names = ", ".join(COLUMNS[part])
    rows = f"json_to_recordset(%({part})s::json) as given({_COLUMNS[part]})"
    return (
        f"{part}_written as (insert into monitor_{part} (session, {names})"
        f" select mine.number, given.* from mine, {rows} {_AGAIN.get(part, '')})"
    )
