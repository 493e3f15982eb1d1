"""The tables of a session's file, and the settings that SQLite needs to keep what it commits."""

from __future__ import annotations

import json
import sqlite3
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from monitor.errors import ConfigError, MonitorError, SessionTooNew
from monitor.messages import CallRecord
from monitor.sessions.closed_runs import ApprovalState, RunRecord, StoredEvent, TurnChunks
from monitor.sessions.nodes import Node, canonical
from monitor.sessions.tree import ACTIVE, Context, TreeProblem

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


# --------------------------------------------------------------------------------------------------
# Numbered steps from one format of a session's file to the next.
#
# Step 1 makes the tables. Step 2 adds triggers and the state of a call that waits for an
# approval. Step 3 adds the state of a call that waits for its result. It also adds digests of the
# tables (`seal`), which the first write takes of what is there. Step 4 adds indexes by run. A
# session is opened in its old format, and brought to the present one in the transaction of its
# first write: looking never changes it.

Steps: TypeAlias = Mapping[int, Sequence[str]]
"""For each format, the statements that lead to it from the one before. A step only adds, or makes
an index anew: readers of this version read every older format with the same statements.
"""

STEPS: Final[Steps] = {1: FIRST, 2: SECOND, 3: THIRD, 4: FOURTH}


def format_of(connection: SqlConnection) -> int:
    """The format of a file; 0: it is empty."""
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return found


def check_format(session: str, found: int, steps: Steps = STEPS) -> None:
    """Raise `SessionTooNew` for a format that is not known yet."""
    if found > max(steps):
        raise SessionTooNew(session, found, max(steps))


def migrate(connection: SqlConnection, steps: Steps = STEPS) -> bool:
    """Bring a file to the newest format, in the transaction that the caller has begun. True: the
    format was changed.
    """
    found, newest = format_of(connection), max(steps)
    if found >= newest:
        return False
    for number in range(found + 1, newest + 1):
        for statement in steps[number]:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={newest}")
    return True


# --------------------------------------------------------------------------------------------------
# The methods that read a session, for its owner and for readers, in any database.

T = TypeVar("T")


class SessionRows(Protocol):
    """The rows of a session, read through one connection. See `OwnerReads` for the meanings."""

    def context(self, branch: str = ACTIVE, /) -> Context: ...

    def active_path(self, branch: str, /, *, last: int | None, run: str | None) -> tuple[Node, ...]: ...

    def nodes(self, first: int | None = None, /) -> tuple[Node, ...]: ...

    def last_seq(self) -> int: ...

    def find_node(self, id: str, /) -> Node | None: ...

    def heads(self) -> dict[str, str | None]: ...

    def runs(self) -> tuple[RunRecord, ...]: ...

    def find(self, key: str, /) -> CallRecord | None: ...

    def calls(self, run: str | None = None, /) -> tuple[CallRecord, ...]: ...

    def open_calls(self, run: str, /) -> tuple[CallRecord, ...]: ...

    def approvals(self, *, only_open: bool = False) -> tuple[ApprovalState, ...]: ...

    def events(self, run: str | None = None, after: int = 0, /) -> tuple[StoredEvent, ...]: ...

    def chunks(self, run: str | None = None, /) -> tuple[TurnChunks, ...]: ...

    def verify(self) -> tuple[TreeProblem, ...]: ...


def unreadable(rows: SessionRows) -> Iterator[TreeProblem]:
    """The tables with rows that cannot be read, beside the nodes."""
    for what in ("runs", "calls", "approvals", "events", "chunks"):
        try:
            getattr(rows, what)()
        except MonitorError as error:
            yield TreeProblem(f"the {what}: {error}")


class OwnerReads(ABC):
    """What the owner of a session reads, beside its writing."""

    @abstractmethod
    async def _read(self, read: Callable[[SessionRows], T]) -> T:
        """Read behind everything that was written before."""

    async def context(self, branch: str = ACTIVE) -> Context:
        """The messages that the model gets of a branch."""
        return await self._read(lambda rows: rows.context(branch))

    async def active_path(
        self, branch: str = ACTIVE, *, last: int | None = None, run: str | None = None
    ) -> tuple[Node, ...]:
        """The nodes of a branch, oldest first; see `SessionStore.active_path`."""
        return await self._read(lambda rows: rows.active_path(branch, last=last, run=run))

    async def nodes(self) -> tuple[Node, ...]:
        """All nodes, in the order of writing."""
        return await self._read(lambda rows: rows.nodes())

    async def find_node(self, id: str) -> Node | None:
        """The node with the id `id`, or `None`."""
        return await self._read(lambda rows: rows.find_node(id))

    async def heads(self) -> dict[str, str | None]:
        """The newest node of each branch."""
        return await self._read(lambda rows: rows.heads())

    async def runs(self, *, hidden: bool = False) -> tuple[RunRecord, ...]:
        """The runs. `hidden`: also those that serve another run, such as compactions."""
        return tuple(run for run in await self._read(lambda rows: rows.runs()) if hidden or not run.hidden)

    async def calls(self, run: str | None = None) -> tuple[CallRecord, ...]:
        """The calls of a run, or of all runs, in the order in which they were intended."""
        return await self._read(lambda rows: rows.calls(run))

    async def approvals(self, *, only_open: bool = False) -> tuple[ApprovalState, ...]:
        """The questions and their answers, in the order in which they were asked."""
        return await self._read(lambda rows: rows.approvals(only_open=only_open))

    async def events(self, run: str | None = None) -> tuple[StoredEvent, ...]:
        """The events of a run, or of all."""
        return await self._read(lambda rows: rows.events(run))

    async def chunks(self, run: str | None = None) -> tuple[TurnChunks, ...]:
        """The chunks of a run, or of all."""
        return await self._read(lambda rows: rows.chunks(run))

    async def find(self, key: str) -> CallRecord | None:
        """See `CallLedger.find`."""
        return await self._read(lambda rows: rows.find(key))

    async def open_calls(self, run: str) -> Sequence[CallRecord]:
        """See `CallLedger.open_calls`."""
        return await self._read(lambda rows: rows.open_calls(run))

    async def verify(self) -> tuple[TreeProblem, ...]:
        """The faults of the stored data; empty, if it is as it was written."""
        return await self._read(lambda rows: rows.verify())


class Reads(ABC):
    """What everybody reads of a session, also while its owner writes."""

    @abstractmethod
    def _read(self, read: Callable[[SessionRows], T]) -> T:
        """Read what is stored at one moment."""

    def context(self, branch: str = ACTIVE) -> Context:
        """The messages that the model gets of a branch."""
        return self._read(lambda rows: rows.context(branch))

    def active_path(self, branch: str = ACTIVE, *, last: int | None = None, run: str | None = None) -> tuple[Node, ...]:
        """The nodes of a branch, oldest first; see `SessionStore.active_path`."""
        return self._read(lambda rows: rows.active_path(branch, last=last, run=run))

    def nodes(self) -> tuple[Node, ...]:
        """All nodes, in the order of writing."""
        return self._read(lambda rows: rows.nodes())

    def count(self) -> int:
        """The number of nodes."""
        return self._read(lambda rows: rows.last_seq())

    def first_nodes(self, number: int) -> tuple[Node, ...]:
        """The `number` nodes that were written first, or all if there are fewer."""
        return self._read(lambda rows: rows.nodes(number))

    def heads(self) -> dict[str, str | None]:
        """The newest node of each branch."""
        return self._read(lambda rows: rows.heads())

    def runs(self, *, hidden: bool = False) -> tuple[RunRecord, ...]:
        """The runs. `hidden`: also those that serve another run, such as compactions."""
        return tuple(run for run in self._read(lambda rows: rows.runs()) if hidden or not run.hidden)

    def calls(self, run: str | None = None) -> tuple[CallRecord, ...]:
        """The calls of a run, or of all runs, in the order in which they were intended."""
        return self._read(lambda rows: rows.calls(run))

    def approvals(self) -> tuple[ApprovalState, ...]:
        """The questions and their answers, in the order in which they were asked."""
        return self._read(lambda rows: rows.approvals())

    def events(self, run: str | None = None, after: int = 0) -> tuple[StoredEvent, ...]:
        """The events of a run, or of all, whose numbers are greater than `after`."""
        return self._read(lambda rows: rows.events(run, after))

    def chunks(self, run: str | None = None) -> tuple[TurnChunks, ...]:
        """The chunks of a run, or of all."""
        return self._read(lambda rows: rows.chunks(run))

    def verify(self) -> tuple[TreeProblem, ...]:
        """The faults of the stored data; empty, if it is as it was written."""
        return self._read(lambda rows: rows.verify())


# --------------------------------------------------------------------------------------------------
# Long texts and calls are stored once: the ledger and the events point to the node that holds
# them.
#
# A result stands in its node, in the record of its call and in two events, a call in its message
# and in two events. Without pointers the session would hold the text four times.

LEAST_CHARS: Final = 48
"""A shorter text costs no more than the pointer to it."""
MOST_CHARS: Final = 1_000
"""A longer text is remembered by its digest."""
POINTER: Final = "$node"
"""`{"$node": [7, 0]}`: the first long text of node number 7."""
CALL: Final = "$call"
"""`{"$call": [7, 0]}`: the first call of node number 7."""
AS_IS: Final = "$as_is"
"""An object of the caller's that has one of these keys is stored as the value of this key."""
_KEYS: Final = frozenset({POINTER, CALL, AS_IS})
_CALL_KEYS: Final = frozenset({"arguments", "id", "name"})


class Pointers:
    """The places of the long texts and the calls of some nodes."""

    def __init__(self, nodes: Iterable[tuple[int, str]] = ()) -> None:
        """`nodes`: the number and the body of each node."""
        self._places: dict[str | bytes, tuple[int, int]] = {}
        self._calls: dict[str, tuple[int, int]] = {}
        self._unread = list(nodes)
        self.size = len(self._unread)
        """The number of nodes that can be pointed into."""

    def add(self, seq: int, body: str) -> None:
        """Add a node whose texts can be pointed to."""
        self._unread.append((seq, body))
        self.size += 1

    def shared(self, data: Any) -> Any:
        """`data` with pointers in the place of long texts and calls."""
        if self._unread:
            self._read()
        return self._walked(data)

    def _read(self) -> None:
        for seq, body in self._unread:
            said = json.loads(body)
            for at, text in enumerate(long_texts(said)):
                self._places.setdefault(_key(text), (seq, at))
            for at, call in enumerate(calls_in(said)):
                self._calls.setdefault(canonical(call), (seq, at))
        self._unread.clear()

    def _walked(self, data: Any) -> Any:
        if isinstance(data, str):
            place = self._places.get(_key(data)) if len(data) >= LEAST_CHARS else None
            return data if place is None else {POINTER: list(place)}
        if isinstance(data, dict):
            if self._calls and data.keys() == _CALL_KEYS and (place := self._calls.get(canonical(data))) is not None:
                return {CALL: list(place)}
            walked = {key: self._walked(value) for key, value in data.items()}
            return walked if _KEYS.isdisjoint(data) else {AS_IS: walked}
        return [self._walked(value) for value in data] if isinstance(data, list) else data


def _key(text: str) -> str | bytes:
    """The text, or the digest of one that would take up memory until its turn ends."""
    return text if len(text) <= MOST_CHARS else sha256(text.encode("utf-8", "surrogatepass")).digest()


def long_texts(data: Any) -> Iterator[str]:
    """The texts that may be pointed to, in the order of the stored body."""
    if isinstance(data, str):
        if len(data) >= LEAST_CHARS:
            yield data
    elif isinstance(data, dict | list):
        for value in data.values() if isinstance(data, dict) else data:
            yield from long_texts(value)


def calls_in(data: Any) -> Iterator[Any]:
    """The calls that may be pointed to, in the order of the stored body."""
    if isinstance(data, dict):
        if data.keys() == _CALL_KEYS:
            yield data
        else:
            for value in data.values():
                yield from calls_in(value)
    elif isinstance(data, list):
        for value in data:
            yield from calls_in(value)


def can_be_shared(data: Any) -> bool:
    """Whether `data` has a text or a call that a node may have too."""
    kind = type(data)
    if kind is str:
        return len(data) >= LEAST_CHARS
    if kind is dict:
        return data.keys() == _CALL_KEYS or any(map(can_be_shared, data.values()))
    return kind is list and any(map(can_be_shared, data))


def has_pointer(body: str) -> bool:
    """Whether the body of a row may have a pointer."""
    return '"$' in body


def whole(data: Any, body: Callable[[int], str]) -> Any:
    """The inverse of `Pointers.shared`. `body(number)` is the body of a node. Raises `ValueError`
    for a pointer to a text that is not there.
    """
    texts: dict[int, list[str]] = {}
    calls: dict[int, list[Any]] = {}

    def walk(data: Any) -> Any:
        if isinstance(data, list):
            return [walk(value) for value in data]
        if not isinstance(data, dict):
            return data
        if AS_IS in data:
            return {key: walk(value) for key, value in data[AS_IS].items()}
        if CALL in data:
            return found(data[CALL], calls, calls_in, "call")
        if POINTER not in data:
            return {key: walk(value) for key, value in data.items()}
        return found(data[POINTER], texts, long_texts, "text")

    def found(place: Any, known: dict[int, list[Any]], parts: Callable[[Any], Iterator[Any]], what: str) -> Any:
        seq, at = place
        if seq not in known:
            known[seq] = list(parts(json.loads(body(seq))))
        if at >= len(known[seq]):
            raise ValueError(f"node number {seq} has no {what} number {at}")
        return known[seq][at]

    return walk(data)
