"""Reads sessions in PostgreSQL without being their owner, also while the owner writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

from monitor.errors import SessionBusy, SessionNotFound, SessionOwner, StoreError
from monitor.events import Event
from monitor.messages import (
    ApprovalAnswer,
    ApprovalRequest,
    CallRecord,
    CallState,
    SteerMessage,
    answer_codec,
    call_codec,
    may_follow,
    request_codec,
)
from monitor.sessions.closed_runs import Changes, Committed, RunRecord, TurnChunks, run_codec
from monitor.sessions.mail.mailbox import AnswerLetter, Letter, made, new_file
from monitor.sessions.nodes import Node
from monitor.sessions.postgres import letters
from monitor.sessions.postgres.database import LEASE_S, Database
from monitor.sessions.postgres.session_rows import Rows, given, id_of, kept
from monitor.sessions.postgres.session_seal import SessionSeal, sums_of
from monitor.sessions.postgres.statements import COLUMNS, FORMAT, PARTS, step_of
from monitor.sessions.reader import SessionReader
from monitor.sessions.tables.packing import Memory, Packing, escaped
from monitor.sessions.tables.schema import Reads, SessionRows
from monitor.sessions.tables.writing import NOWHERE, stepped
from monitor.sessions.tree import TreeProblem, plan, verify

if TYPE_CHECKING:
    from monitor.sessions.postgres.database import Connection


T = TypeVar("T")

_IS_MADE: Final = "select to_regclass('monitor_sessions') is not null"
_FIND: Final = """select number, id, created_ms, token, extract(epoch from changed)::double precision,
    case when lease_until > clock_timestamp() then holder else '' end
    from monitor_sessions where name = %s"""
_LIST: Final = """select name, extract(epoch from changed)::double precision
    from monitor_sessions order by changed, name"""
_REMOVE: Final = """delete from monitor_sessions
    where name = %s and (lease_until is null or lease_until < clock_timestamp()) returning number"""


def owner_in(holder: str) -> SessionOwner | None:
    """The owner in the row of a session. `None`: it has none, or the row cannot be read."""
    try:
        data = json.loads(holder)
        data.pop("nonce", None)
        data.pop("boot", None)
        return SessionOwner(**data)
    except (ValueError, TypeError, AttributeError):
        return None


class PostgresReader(Reads):
    """The session `name` in the database at `address`, as it is at the moment. It has the methods
    of a `SessionReader`.

    Raises `SessionNotFound` where there is no such session.
    """

    format = FORMAT

    def __init__(self, address: str | SessionsReader, name: str) -> None:
        self.name = name
        self._sessions = SessionsReader(address) if isinstance(address, str) else address
        try:
            self._found = self._sessions.find(name)
        except BaseException:
            if self._sessions is not address:
                self._sessions.close()
            raise
        self._connection = self._sessions.connection
        self._rows = Rows(self._connection, self._found.number)
        self.path = f"{self._sessions.shown}#{name}"
        """The address, without its password."""

    @property
    def id(self) -> str:
        """128 bits as 32 hexadecimal digits."""
        return self._found.id

    @property
    def meta(self) -> dict[str, Any]:
        """Facts about the session, such as its id."""
        return {"id": self._found.id, "created_ms": self._found.created_ms, "epoch": self._found.token}

    @property
    def owner(self) -> SessionOwner | None:
        """The owner whose lease had not ended when the session was opened here."""
        return self._found.owner

    @property
    def changed_s(self) -> float:
        """The time of the last write, in seconds since 1970 by the server's clock."""
        return self._found.changed_s

    def close(self) -> None:
        """Close the connection."""
        self._sessions.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def snapshot(self) -> Iterator[Self]:
        """All reads in this block are of one moment. A block in a block is the outer one."""
        if self._connection.info.transaction_status.name != "IDLE":
            yield self
            return
        with self._connection.transaction():
            self._connection.execute("set transaction isolation level repeatable read, read only")
            yield self

    def _read(self, read: Callable[[SessionRows], T]) -> T:
        return self._sessions.asked(lambda _: read(self._rows))

    def size(self) -> int:
        """The number of bytes of all that the session holds, without indexes."""
        return self._sessions.asked(lambda _: self._rows.size())

    def verify(self) -> tuple[TreeProblem, ...]:
        with self.snapshot():
            return super().verify()

    def letters(self) -> list[Letter]:
        """The messages of other processes that the session's owner has not stored yet."""
        return [one for one in self._mail() if isinstance(one, Letter)]

    def answers(self) -> list[AnswerLetter]:
        """The answers of other processes that the session's owner has not stored yet."""
        return [one for one in self._mail() if isinstance(one, AnswerLetter)]

    def _mail(self) -> list[Letter | AnswerLetter]:
        return self._sessions.asked(lambda one: letters.read(one, kept(self.name)))

    def put_answer(self, answer: ApprovalAnswer) -> AnswerLetter:
        """Leave an answer for the session's owner. It is stored when this returns."""
        letter = AnswerLetter(answer=answer, file=new_file())
        self._sessions.asked(lambda one: letters.put(one, kept(self.name), letter))
        return letter

    def put_letter(self, run: str, message: SteerMessage) -> Letter:
        """Leave `message` for the run with the id `run`. It is stored when this returns."""
        letter = made(run, message, new_file())
        self._sessions.asked(lambda one: letters.put(one, kept(self.name), letter))
        return letter


AnyReader: TypeAlias = SessionReader | PostgresReader


@dataclass(slots=True, frozen=True)
class _Found:
    number: int
    id: str
    created_ms: int
    token: int
    changed_s: float
    owner: SessionOwner | None


class SessionsReader:
    """The sessions in the database at `address`, without owning one."""

    def __init__(self, address: str) -> None:
        self.shown = without_password(address)
        """The address, without its password."""
        self._database = Database(address)
        self.connection: Connection = self._database.connected()
        self._is_made: bool = self.asked(lambda one: one.execute(_IS_MADE).fetchone() == (True,))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def asked(self, work: Callable[[Connection], T]) -> T:
        """Do `work` with the connection. Raises `StoreError`."""
        with self.typing_errors():
            return work(self.connection)

    def typing_errors(self) -> AbstractContextManager[None]:
        """Errors of the server in this block are raised as a `StoreError`."""
        return self._database.typing_errors()

    def changed(self) -> dict[str, float]:
        """The names of all sessions, and the time of the last write of each, in seconds since 1970
        by the server's clock. The newest is at the end.
        """
        if not self._is_made:
            return {}
        return self.asked(lambda one: {given(name): at_s for name, at_s in one.execute(_LIST).fetchall()})

    def names(self) -> list[str]:
        """The names of all sessions, the one that was written last at the end."""
        return [*self.changed()]

    def __contains__(self, name: str) -> bool:
        return self._row(name) is not None

    def _row(self, name: str) -> tuple[Any, ...] | None:
        if not self._is_made:
            return None
        return self.asked(lambda one: one.execute(_FIND, (kept(name),)).fetchone())

    def find(self, name: str) -> _Found:
        """The facts about a session. Raises `SessionNotFound` if there is none of this name."""
        row = self._row(name)
        if row is None:
            raise SessionNotFound(f"there is no session {name} in {self.shown}")
        number, id, created_ms, token, changed_s, holder = row
        return _Found(number, id, created_ms, token, changed_s, owner_in(holder))

    def opened(self, name: str) -> PostgresReader:
        """A reader of one session, over this connection."""
        return PostgresReader(self, name)

    def remove(self, name: str) -> None:
        """Remove a session with everything in it. Raises `SessionBusy` while it has an owner."""
        found = self.find(name)
        if self.asked(lambda one: one.execute(_REMOVE, (kept(name),)).fetchone()) is None:
            raise SessionBusy(name, found.owner)


def without_password(address: str) -> str:
    """The address of a database as people may read it."""
    scheme, sign, rest = address.partition("://")
    before, at, after = rest.rpartition("@")
    return f"{scheme}{sign}{before.partition(':')[0]}{at}{after}" if at else address


# --------------------------------------------------------------------------------------------------
# One step of a session as the rows of one statement.


class StepRows:
    """The rows that one step writes, by the table."""

    def __init__(self, rows: Rows, memory: Memory, last: dict[str, int]) -> None:
        """`last`: the newest number of the events and of the chunks, as far as it is known."""
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.new: set[tuple[str, str]] = set()
        """The tables and keys of rows that are not there yet."""
        self._read = rows
        self._packing = Packing(rows.pointers)
        self._memory = memory
        self._last = dict(last)
        self._calls: list[CallRecord] = []
        self._new_runs: set[str] = set()

    def fill(self, changes: Changes, *, at_ms: int, new_id: Callable[[], str]) -> Committed:
        """Take all changes. Raises `StoreError` for a step that does not fit the session."""
        for run in changes.runs:
            self.run(run)
        planned = plan(self._read, changes.nodes, branch=changes.branch, at_ms=at_ms, new_id=new_id)
        for node in planned.nodes:
            self.node(node)
        if planned.nodes:
            self.head(changes.branch, planned.head)
            self._memory.take(planned.nodes, changes.branch, planned.head)  # what fails forgets everything
        for record, _ in stepped(changes.calls, self._standing):
            self.call(record)
        self.questions(changes.requests, changes.answers)
        for event in changes.events:
            self.event(changes.events_run, event, at_ms)
        for chunks in changes.chunks:
            self.chunks(chunks, at_ms)
        return Committed(planned.nodes, planned.head)

    def intend(self, record: CallRecord) -> None:
        """Take a call unless its key is known."""
        if self._standing(record.key) == NOWHERE:
            self.call(record)

    def advance(self, record: CallRecord) -> bool:
        """Take the next step of a call, if it is allowed. Whether it was."""
        allowed = may_follow(record, *self._standing(record.key))
        if allowed:
            self.call(record)
        return allowed

    def switch(self, branch: str, node: str | None) -> None:
        """Let a branch end at `node`. Raises `StoreError` if there is no such node."""
        if node is not None and self._read.tip(node) is None:
            raise StoreError(f"there is no node {node}")
        self._memory.heads.pop(branch, None)
        self.head(branch, node)

    def head(self, branch: str, node: str | None) -> None:
        """Take the end of a branch."""
        self.rows["heads"] = [one for one in self.rows.get("heads", []) if one["name"] != kept(branch)]
        self._add("heads", name=kept(branch), node=None if node is None else id_of(node))

    @property
    def last(self) -> dict[str, int]:
        """The newest numbers once the step is stored."""
        return self._last

    # -------------------------------------------------------------- the parts

    def _add(self, table: str, **row: Any) -> None:
        self.rows.setdefault(table, []).append(row)

    def _of_run(self, run: str | None) -> str | None:
        if run is None:
            return None
        if run not in self._memory.runs and run not in self._new_runs:
            if not self._read.has_run(run):
                raise StoreError(f"the run {run} is not in the session: write its RunRecord first")
            self._memory.runs[run] = 0
        return kept(run)

    def run(self, run: RunRecord) -> None:
        """Take a run."""
        self.rows["runs"] = [one for one in self.rows.get("runs", []) if one["id"] != kept(run.id)]
        for text in (run.agent, run.purpose, run.parent_run or ""):
            kept(text)
        self._add("runs", id=kept(run.id), state=run.state.value, body=escaped(run_codec.to_dict(run)))
        self._new_runs.add(run.id)

    def node(self, node: Node) -> None:
        """Take a node as it is."""
        columns = {name: getattr(node, name) for name in COLUMNS["nodes"]}
        self._add("nodes", **{**columns, "kind": node.kind.value, "run": self._of_run(node.run)})

    def _standing(self, key: str) -> tuple[CallState | None, int]:
        for record in reversed(self._calls):
            if record.key == key:
                return record.state, record.attempt
        if key in self._memory.calls:
            return self._memory.calls[key]
        found = self._read.find(key)
        if found is None:
            self.new.add(("calls", kept(key)))
            return NOWHERE
        return found.state, found.attempt

    def call(self, record: CallRecord) -> None:
        """Take a call as it is."""
        body = self._packing.packed(call_codec.to_brief(record), record.run, record.turn)
        kept(record.call_id)
        self.rows["calls"] = [one for one in self.rows.get("calls", []) if one["key"] != kept(record.key)]
        self._add("calls", run=kept(record.run), key=kept(record.key), state=record.state.value, body=body)
        self._calls.append(record)

    def questions(self, requests: Sequence[ApprovalRequest], answers: Sequence[ApprovalAnswer]) -> None:
        """Take questions, and answers to open ones. Raises `StoreError` for any other answer."""
        asked: dict[str, tuple[str, str | None]] = {}
        for request in requests:
            if request.id not in asked and self._read.approval(request.id) is None:
                kept(request.run or "")
                self.new.add(("approvals", kept(request.id)))
                asked[request.id] = escaped(request_codec.to_dict(request)), None
        for answer in answers:
            found = asked.get(answer.id) or self._read.approval(answer.id)
            if found is None:
                raise StoreError(f"there is no question {answer.id} to answer")
            if found[1] is not None:
                raise StoreError(f"the question {answer.id} has its answer already")
            asked[answer.id] = found[0], escaped(answer_codec.to_dict(answer))
        for id, (question, said) in asked.items():
            self._add("approvals", id=kept(id), request=question, answer=said)

    def event(self, run: str | None, event: Event, at_ms: int) -> None:
        """Take an event."""
        kind, body = self._packing.event(run, event)
        self._add("events", seq=self._next("events"), run=self._of_run(run), at_ms=at_ms, type=kind, body=body)

    def chunks(self, chunks: TurnChunks, at_ms: int) -> None:
        """Take some chunks."""
        body, run = self._packing.chunks(chunks), self._of_run(chunks.run)
        self._add("chunks", seq=self._next("chunks"), run=run, turn=chunks.turn, at_ms=at_ms, body=body)

    def _next(self, table: str) -> int:
        if table not in self._last:
            self._last[table] = self._read.newest(table)
        self._last[table] += 1
        return self._last[table]

    def note_stored(self) -> None:
        """The step is stored: remember what the owner knows now."""
        for run in self._new_runs:
            self._memory.runs[run] = 0
        for record in self._calls:
            self._memory.take_call(record)


# --------------------------------------------------------------------------------------------------
# Writes a whole session into a database in one transaction: an imported one, or one anew.

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
