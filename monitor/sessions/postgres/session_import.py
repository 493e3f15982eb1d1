"""Writes a whole session into a database in one transaction: an imported one, or one anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from monitor.calls import ApprovalAnswer, ApprovalRequest, CallRecord
from monitor.errors import SessionBusy, SessionNotFound, StoreError
from monitor.events import Event
from monitor.sessions.nodes import Node
from monitor.sessions.postgres.database import LEASE_S, Database
from monitor.sessions.postgres.postgres_reader import PostgresReader, SessionsReader, owner_in, without_password
from monitor.sessions.postgres.session_rows import Rows, kept
from monitor.sessions.postgres.session_seal import SessionSeal, sums_of
from monitor.sessions.postgres.statements import PARTS, step_of
from monitor.sessions.postgres.step_rows import StepRows
from monitor.sessions.run_records import RunRecord, TurnChunks
from monitor.sessions.tables.owner_memory import Memory
from monitor.sessions.tree import TreeProblem, verify

if TYPE_CHECKING:
    from monitor.sessions.postgres.database import Connection

_MOST_ROWS: Final = 500
"""The most rows of one statement."""
_NEW: Final = """insert into monitor_sessions (id, name, created_ms) values (%s, %s, %s)
    on conflict do nothing returning number"""
_LOCK: Final = """select number, holder, coalesce(lease_until > clock_timestamp(), false)
    from monitor_sessions where name = %s for update"""
_FENCE: Final = "update monitor_sessions set token = token + 1 where number = %s returning token, step"
_FREE: Final = "update monitor_sessions set lease_until = null, seal = %s where number = %s"
_PATIENCE: Final = "set local idle_in_transaction_session_timeout = '60s'"
"""A process that freezes in the transaction holds up other owners for no longer than this."""


class SessionTarget:
    """A session in a database that is filled row by row: see `ImportTarget`."""

    def __init__(self, connection: Connection, name: str, place: tuple[int, int, int] | None = None) -> None:
        """`place`: the number, the token and the step of a session that is written anew."""
        self._connection = connection
        self._name = name
        self._place = place
        self._memory = Memory(seals=False)
        self._last: dict[str, int] = {}
        self._number = self._token = self._step = 0
        self._rows: StepRows
        self._table = ""

    def session(self, facts: dict[str, Any]) -> None:
        """Make the session, or empty the one that is written anew. Raises `StoreError` if the name
        or the id of a new one is there already.
        """
        if self._place is not None:
            self._number, self._token, self._step = self._place
            for part in PARTS:
                sql = f"delete from monitor_{part} where session = %s"  # noqa: S608 - a name of our own
                self._connection.execute(sql.encode(), (self._number,))
            self._begin()
            return
        values = (facts["id"], kept(self._name), int(facts.get("created_ms", 0)))
        found = self._connection.execute(_NEW, values).fetchone()
        if found is None:
            raise StoreError(
                f"the database has a session of the name {self._name!r} or of the id {facts['id']} already;"
                " nothing was changed"
            )
        self._number = found[0]
        self._begin()

    def _begin(self) -> None:
        self._rows = StepRows(Rows(self._connection, self._number, self._memory), self._memory, self._last)

    def _into(self, table: str) -> StepRows:
        """The rows that are gathered. Those of another table are written before."""
        if self._table not in ("", table) or len(self._rows.rows.get(table, ())) >= _MOST_ROWS:
            self._write()
        self._table = table
        return self._rows

    def _write(self) -> None:
        if self._rows.rows:
            sql, values = step_of(
                self._rows.rows, session=self._number, token=self._token, step=self._step, lease_s=LEASE_S, seal=None
            )
            self._connection.execute(sql, values)
            self._step += 1
        self._last = self._rows.last
        self._begin()

    def run(self, record: RunRecord) -> None:
        """Write a run."""
        self._into("runs").run(record)

    def node(self, node: Node) -> None:
        """Write a node as it is."""
        self._into("nodes").node(node)

    def head(self, branch: str, node: str | None) -> None:
        """Write the end of a branch."""
        self._into("heads").head(branch, node)

    def call(self, record: CallRecord) -> None:
        """Write a call."""
        self._into("calls").call(record)

    def approval(self, request: ApprovalRequest, answer: ApprovalAnswer | None) -> None:
        """Write a question, and its answer."""
        self._into("approvals").questions([request], [] if answer is None else [answer])

    def event(self, run: str | None, at_ms: int, event: Event) -> None:
        """Write an event."""
        self._into("events").event(run, event, at_ms)

    def chunks(self, some: TurnChunks) -> None:
        """Write some chunks."""
        self._into("chunks").chunks(some, 0)

    def problems(self) -> Iterator[TreeProblem]:
        """Write what is left, and return the faults of the tree."""
        self._write()
        seal = SessionSeal(sums_of(self._connection, self._number))
        self._connection.execute(_FREE, (seal.stored(), self._number))
        rows = Rows(self._connection, self._number)
        yield from verify(rows.nodes(), rows.heads())


@contextmanager
def new_session(address: str, name: str) -> Iterator[SessionTarget]:
    """A session of this name to fill. It is there when the block ends, whole or not at all."""
    database = Database(address)
    connection = database.prepared()
    try:
        with database.typing_errors(), connection.transaction():
            yield SessionTarget(connection, name)
    finally:
        connection.close()


@contextmanager
def rewriting(address: str, name: str) -> Iterator[tuple[PostgresReader, SessionTarget]]:
    """A session as it is, and the target that takes its place when the block ends. Raises
    `SessionBusy` while it has an owner, and `SessionNotFound` if there is no such session.
    """
    Database(address).prepared().close()  # tables of an older version are brought forward
    there = SessionsReader(address)
    try:
        with there.typing_errors(), there.connection.transaction():
            there.connection.execute(_PATIENCE)
            found = there.connection.execute(_LOCK, (kept(name),)).fetchone()
            if found is None:
                raise SessionNotFound(f"there is no session {name} in {without_password(address)}")
            number, holder, is_leased = found
            if is_leased:
                raise SessionBusy(name, owner_in(holder))
            token, step = there.connection.execute(_FENCE, (number,)).fetchone() or (0, 0)
            yield there.opened(name), SessionTarget(there.connection, name, (number, token, step))
    finally:
        there.close()
