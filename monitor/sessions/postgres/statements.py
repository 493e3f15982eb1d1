"""The tables of sessions in PostgreSQL, and the statement that writes one step.

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

from monitor.sessions.tables.schema import COLUMNS, POSTGRES, again, tables_of
from monitor.sessions.tables.seal import OLDER

FORMAT: Final = 3
"""The format of the tables that this version writes."""

TABLES: Final = (
    "create table if not exists monitor_sessions_format (format integer not null)",
    *tables_of(POSTGRES),
    """create table if not exists monitor_letters (
        session bigint not null references monitor_sessions on delete cascade, id text not null, body text not null,
        primary key (session, id))""",
    # What people say to the runs of a fleet: aborts and answers.
    """create table if not exists monitor_said (
        session text not null, number bigint generated always as identity, what text not null, body text not null,
        primary key (session, number))""",
)
OLDER_TABLES: Final = (
    "alter table monitor_sessions add column if not exists seal text",
    "alter table monitor_sessions add column if not exists forked_from text",
    "alter table monitor_calls add column if not exists approval text",
    f"update monitor_sessions set seal = '{OLDER}'",
)
"""The statements that bring tables of the formats 1 and 2 to this one."""
_COUNTS: Final = frozenset({"seq", "turn", "at_ms", "tokens"})
"""The columns that hold a number."""


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
    parts = tuple(part for part in COLUMNS if rows.get(part))
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
    typed = ", ".join(f"{name} {'bigint' if name in _COUNTS else 'text'}" for name in COLUMNS[part])
    return (
        f"{part}_written as (insert into monitor_{part} (session, {names})"
        f" select mine.number, given.* from mine, json_to_recordset(%({part})s::json) as given({typed})"
        f" {again(part, POSTGRES)})"
    )
