"""The tables of a session's file, and the settings that SQLite needs to keep what it commits."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from typing import Any, Final, Protocol

from monitor.errors import ConfigError

SQLITE_FLOOR: Final = (3, 40, 0)
"""STRICT tables need 3.37 and RETURNING needs 3.35. Debian 12 has 3.40, which is tested."""
APPLICATION_ID: Final = 0x61676D31
"""`agm1`: says that a SQLite file is a session of ours (`PRAGMA application_id`)."""
INLINE_BYTES: Final = 65_536
"""A body with more bytes goes to the artifact store: SQLite is slower than a file from about
100 KB on (sqlite.org/intern-v-extern-blob.html), and each version of a page passes through the log.
"""
BUSY_TIMEOUT_MS: Final = 5_000
"""The new owner waits only if an old owner was stopped in the middle of a transaction."""


def is_inline(body: str) -> bool:
    """Whether the body of a node stands in its row, and not beside the file."""
    return len(body) <= INLINE_BYTES // 4 or len(body.encode()) <= INLINE_BYTES


class SqlRows(Protocol):
    """The rows that a statement returned."""

    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class SqlConnection(Protocol):
    """The methods of a connection that are used, so that another SQLite can take its place."""

    def execute(self, sql: str, parameters: Any = (), /) -> SqlRows: ...
    def close(self) -> object: ...


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


FIRST: Final = (
    """CREATE TABLE meta (
        key TEXT PRIMARY KEY,
        value ANY
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE run (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        parent_run TEXT,
        agent TEXT NOT NULL,
        purpose TEXT NOT NULL,
        state TEXT NOT NULL,
        started_ms INTEGER NOT NULL,
        ended_ms INTEGER,
        body TEXT NOT NULL
    ) STRICT""",
    """CREATE TABLE artifact (
        digest TEXT PRIMARY KEY,
        size INTEGER NOT NULL,
        kind TEXT NOT NULL
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE node (
        seq INTEGER PRIMARY KEY,
        id BLOB NOT NULL UNIQUE,
        parent INTEGER REFERENCES node (seq),
        kind INTEGER NOT NULL,
        run INTEGER REFERENCES run (number),
        turn INTEGER,
        at_ms INTEGER NOT NULL,
        tokens INTEGER,
        digest BLOB NOT NULL,
        body TEXT,
        artifact TEXT REFERENCES artifact (digest),
        CHECK ((body IS NULL) <> (artifact IS NULL))
    ) STRICT""",
    "CREATE INDEX node_parent ON node (parent)",
    "CREATE INDEX node_run ON node (run, turn) WHERE run IS NOT NULL",
    """CREATE TABLE head (
        name TEXT PRIMARY KEY,
        node INTEGER REFERENCES node (seq)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE call (
        number INTEGER PRIMARY KEY,
        run TEXT NOT NULL,
        call_id TEXT NOT NULL,
        node INTEGER REFERENCES node (seq),
        key TEXT NOT NULL UNIQUE,
        state TEXT NOT NULL,
        body TEXT NOT NULL
    ) STRICT""",
    "CREATE INDEX call_open ON call (run) WHERE state IN ('intended', 'running')",
    """CREATE TABLE approval (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        run TEXT,
        request TEXT NOT NULL,
        answer TEXT
    ) STRICT""",
    """CREATE TABLE event (
        seq INTEGER PRIMARY KEY,
        run INTEGER REFERENCES run (number),
        at_ms INTEGER NOT NULL,
        type TEXT NOT NULL,
        body TEXT NOT NULL
    ) STRICT""",
    """CREATE TABLE chunk (
        seq INTEGER PRIMARY KEY,
        run INTEGER REFERENCES run (number),
        turn INTEGER,
        at_ms INTEGER NOT NULL,
        body TEXT NOT NULL
    ) STRICT""",
    *(
        f"""CREATE TRIGGER {table}_is_kept_from_{what.lower()} BEFORE {what} ON {table}
        BEGIN SELECT RAISE(ABORT, 'a {table} is never changed or removed'); END"""
        for table in ("node", "event", "chunk")
        for what in ("UPDATE", "DELETE")
    ),
)
"""Format 1, statement by statement."""
OPEN_CALL: Final = "state IN ('intended', 'awaiting_approval', 'running', 'awaiting_result')"
"""The condition on a row of `call` whose call has not ended."""
SECOND: Final = (
    "DROP INDEX call_open",
    "CREATE INDEX call_open ON call (run) WHERE state IN ('intended', 'awaiting_approval', 'running')",
    *(
        f"""CREATE TRIGGER {table}_is_kept_from_replace BEFORE INSERT ON {table}
    WHEN EXISTS (SELECT 1 FROM {table} WHERE {same})
    BEGIN SELECT RAISE(ABORT, 'a {table} is never changed or removed'); END"""  # noqa: S608 - names of our own
        for table, same in (
            ("node", "seq = NEW.seq OR id = NEW.id"),
            ("event", "seq = NEW.seq"),
            ("chunk", "seq = NEW.seq"),
        )
    ),
)
"""Format 2: a call can wait for an approval. `INSERT OR REPLACE`, which removes a row without
asking the triggers for DELETE, is refused.
"""
THIRD: Final = ("DROP INDEX call_open", f"CREATE INDEX call_open ON call (run) WHERE {OPEN_CALL}")
"""Format 3: a call can wait for its result."""
FOURTH: Final = ("CREATE INDEX call_run ON call (run)", "CREATE INDEX event_run ON event (run) WHERE run IS NOT NULL")
"""Format 4: the calls and the events of one run are found without reading those of all others. Rows
may point to texts of long bodies.
"""


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
    connection.execute("PRAGMA journal_mode=WAL").fetchone()
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
