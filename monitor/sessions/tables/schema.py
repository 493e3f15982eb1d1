"""The tables of sessions, for SQLite and for PostgreSQL, and the settings that keep what SQLite
commits.

Both databases have the same tables, and the same statements read and write them. A `SqlDialect` has
what differs. A file holds one session, whose number is 1.
"""

# ruff: noqa: S608 - only names of tables are put into a statement; values are not

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from monitor.errors import ConfigError

SQLITE_FLOOR: Final = (3, 40, 0)
"""STRICT tables need 3.37 and RETURNING needs 3.35. Debian 12 has 3.40, which is tested."""
APPLICATION_ID: Final = 0x61676D31
"""`agm1`: says that a SQLite file is a session of ours (`PRAGMA application_id`)."""
FORMAT: Final = 5
"""The format of a session's file (`PRAGMA user_version`). Older ones are read as they are, and
brought to this one by the first write; see `monitor.sessions.tables.older`.
"""
ONLY: Final = 1
"""The number of the session in a file."""
PAGE_BYTES: Final = 512
"""A step changes some rows of many tables, and the log takes each changed page whole. A turn with a
call of 2 kB writes 20 kB to the log with pages of 512 bytes. With 1,024 it writes 29 kB, with 4,096
90 kB.
"""
CHECKPOINT_PAGES = 8_000
"""Pages of the log after which it is copied into the file: 4 MB, as SQLite has it."""
BUSY_TIMEOUT_MS: Final = 5_000
"""The new owner waits only if an old owner was stopped in the middle of a transaction."""


class SqlRows(Protocol):
    """The rows that a statement returned."""

    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class SqlConnection(Protocol):
    """The methods of a connection that are used, so that another SQLite can take its place. In a
    statement `?` stands for a value.
    """

    def execute(self, sql: str, parameters: Any = (), /) -> SqlRows: ...
    def close(self) -> object: ...


# --------------------------------------------------------------------------------------------------
# The tables.


@dataclass(slots=True, frozen=True)
class SqlDialect:
    """What differs between the tables of the two databases."""

    integer: str
    """The type of a number of 64 bits."""
    number: str
    """The type of a number that the database gives to a new row."""
    seq: str
    """The type of a number that the owner gives to a new row, and that counts in its session."""
    counted: str
    """The constraint that belongs to `seq`."""
    within: str
    """The column before each key. A file needs none, and its indexes are smaller without it."""
    owner: str
    """The columns about the owner."""
    end: str


SQLITE: Final = SqlDialect(
    integer="integer",
    number="integer",
    seq="integer primary key",
    counted="",
    within="",
    owner="closed_at integer default 0",
    end=") strict",
)
POSTGRES: Final = SqlDialect(
    integer="bigint",
    number="bigint generated always as identity",
    seq="bigint not null",
    counted=", primary key (session, seq)",
    within="session, ",
    owner="holder text not null default '', lease_until timestamptz, changed timestamptz not null default now()",
    end=")",
)

_OF: Final = "session {integer} not null references monitor_sessions on delete cascade"
_TABLES: Final = (
    """create table if not exists monitor_sessions (
        number {number} primary key, id text not null unique, name text not null unique,
        created_ms {integer} not null, token {integer} not null default 0, step {integer} not null default 0,
        forked_from text, seal text, {owner}{end}""",
    f"""create table if not exists monitor_nodes (
        {_OF}, seq {{seq}}, id text not null, parent text, kind text not null, run text, turn {{integer}},
        at_ms {{integer}} not null, tokens {{integer}}, digest text not null, body text not null,
        unique ({{within}}id){{counted}}{{end}}""",
    "create index if not exists monitor_nodes_by_run on monitor_nodes ({within}run, turn) where run is not null",
    f"""create table if not exists monitor_heads (
        {_OF}, name text not null, node text, unique ({{within}}name){{end}}""",
    f"""create table if not exists monitor_runs (
        {_OF}, number {{number}} primary key, id text not null, state text not null, body text not null,
        unique ({{within}}id){{end}}""",
    f"""create table if not exists monitor_calls (
        {_OF}, number {{number}} primary key, run text not null, key text not null, state text not null,
        approval text, body text not null, unique ({{within}}key){{end}}""",
    "create index if not exists monitor_calls_by_run on monitor_calls ({within}run)",
    f"""create table if not exists monitor_approvals (
        {_OF}, number {{number}} primary key, id text not null, request text not null, answer text,
        unique ({{within}}id){{end}}""",
    f"""create table if not exists monitor_events (
        {_OF}, seq {{seq}}, run text, at_ms {{integer}} not null, type text not null,
        body text not null{{counted}}{{end}}""",
    "create index if not exists monitor_events_by_run on monitor_events ({within}run) where run is not null",
    f"""create table if not exists monitor_chunks (
        {_OF}, seq {{seq}}, run text, turn {{integer}}, at_ms {{integer}} not null,
        body text not null{{counted}}{{end}}""",
)
COLUMNS: Final = {
    "nodes": ("seq", "id", "parent", "kind", "run", "turn", "at_ms", "tokens", "digest", "body"),
    "heads": ("name", "node"),
    "runs": ("id", "state", "body"),
    "calls": ("run", "key", "state", "approval", "body"),
    "approvals": ("id", "request", "answer"),
    "events": ("seq", "run", "at_ms", "type", "body"),
    "chunks": ("seq", "run", "turn", "at_ms", "body"),
}
"""The tables that a step writes to, and the columns that it writes, beside `session`."""
KEYS: Final = {"heads": "name", "runs": "id", "calls": "key", "approvals": "id"}
"""The columns that name a row of the tables whose rows change."""
_CHANGED: Final = {
    "heads": ("node",),
    "runs": ("state", "body"),
    "calls": ("state", "approval", "body"),
    "approvals": ("answer",),
}
OPEN_CALL: Final = "state in ('intended', 'awaiting_approval', 'running', 'awaiting_result')"
"""The condition on a row of the calls whose call has not ended."""


def tables_of(dialect: SqlDialect) -> list[str]:
    """The statements that make the tables that are not there."""
    facts = {name: getattr(dialect, name) for name in dialect.__slots__}
    return [table.format(**facts) for table in _TABLES]


def again(table: str, dialect: SqlDialect) -> str:
    """The end of an insertion: what happens to a row that is there already, if rows can change."""
    if table not in KEYS:
        return ""
    changed = ", ".join(f"{column} = excluded.{column}" for column in _CHANGED[table])
    return f"on conflict ({dialect.within}{KEYS[table]}) do update set {changed}"


_KEPT: Final = {"nodes": "seq = new.seq or id = new.id", "events": "seq = new.seq", "chunks": "seq = new.seq"}
TRIGGERS: Final = tuple(
    f"""create trigger monitor_{table}_kept_from_{what} before {what} on monitor_{table} {when}
    begin select raise(abort, 'one of the {table} is never changed or removed'); end"""
    for table, same in _KEPT.items()
    for what, when in {
        "update": "",
        "delete": "",
        "insert": f"when exists (select 1 from monitor_{table} where {same})",
    }.items()
)
"""Keep rows of a file from being changed or removed. `insert or replace` removes a row without
asking the triggers for removals, so such an insertion is refused.
"""


def make_file(connection: SqlConnection) -> None:
    """Make the tables of a session's file, in the transaction that the caller has begun."""
    for statement in (*tables_of(SQLITE), *TRIGGERS):
        connection.execute(statement)
    connection.execute(f"pragma application_id={APPLICATION_ID}")
    connection.execute(f"pragma user_version={FORMAT}")


# --------------------------------------------------------------------------------------------------
# SQLite and its settings.


def check_sqlite(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> None:
    """Raise `ConfigError` if Python's SQLite is too old."""
    if version < SQLITE_FLOOR:
        found, floor = (".".join(map(str, one)) for one in (version, SQLITE_FLOOR))
        raise ConfigError(
            f"sessions need SQLite {floor} or newer, and this Python has {found} (sqlite3.sqlite_version)"
        )


def has_reset_bug(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> bool:
    """Whether this SQLite can lose a commit when two connections write or checkpoint one log at the
    same instant (sqlite.org/wal.html, "The WAL-reset bug").

    It cannot happen with one writing connection. Fixed in 3.51.3, 3.50.7 and 3.44.6.
    """
    repaired = {(3, 50): 7, (3, 44): 6}
    major, minor, patch = version[:3]
    return version < (3, 51, 3) and patch < repaired.get((major, minor), patch + 1)


def prepare_reader(connection: SqlConnection) -> None:
    """Set what every connection needs, of readers too."""
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")
    connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")


def prepare_writer(connection: SqlConnection) -> None:
    """Settings of the one connection that writes.

    `synchronous=FULL`, because in WAL mode NORMAL loses acknowledged transactions when the power
    goes. On macOS `fsync` does not reach the medium, `fullfsync` does; elsewhere it does nothing.
    """
    prepare_reader(connection)
    if sys.platform == "darwin":
        connection.execute("PRAGMA fullfsync=1")
        connection.execute("PRAGMA checkpoint_fullfsync=1")
    connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
    connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
    connection.execute("PRAGMA journal_mode=WAL").fetchone()
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")


def format_of(connection: SqlConnection) -> int:
    """The format of a file; 0: it is empty."""
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return found
