"""Reads sessions in PostgreSQL without being their owner, also while the owner writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

from monitor.errors import SessionBusy, SessionNotFound, SessionOwner, StoreError
from monitor.sessions.mail.mailbox import Mailbox
from monitor.sessions.postgres.database import Database, Plain
from monitor.sessions.postgres.letters import MailTable
from monitor.sessions.postgres.statements import FORMAT
from monitor.sessions.reader import SessionReader
from monitor.sessions.tables.reads import Reads
from monitor.sessions.tables.rows import Rows, given, kept
from monitor.sessions.tables.schema import COLUMNS, POSTGRES
from monitor.sessions.tables.step import Filling
from monitor.sessions.tree import TreeProblem

if TYPE_CHECKING:
    from monitor.sessions.postgres.database import Connection


T = TypeVar("T")

_IS_MADE: Final = "select to_regclass('monitor_sessions') is not null"
_FORMAT: Final = "select max(format) from monitor_sessions_format"
_FIND: Final = """select number, id, created_ms, token, forked_from, extract(epoch from changed)::double precision,
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
        self._rows = Rows(Plain(self._connection), self._found.number)
        self.mailbox: Mailbox = MailTable(name, self._sessions.asked)
        """Where other processes leave messages for the runs."""
        self.path = f"{self._sessions.shown}#{name}"
        """The address, without its password."""

    @property
    def id(self) -> str:
        """128 bits as 32 hexadecimal digits."""
        return self._found.id

    @property
    def meta(self) -> dict[str, Any]:
        """Facts about the session, such as its id."""
        facts = {"id": self._found.id, "created_ms": self._found.created_ms, "epoch": self._found.token}
        return facts if self._found.forked_from is None else {**facts, "forked_from": self._found.forked_from}

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

    @contextmanager
    def snapshot(self) -> Iterator[Self]:
        """All reads in this block are of one moment. A block in a block is the outer one."""
        if self._connection.info.transaction_status.name != "IDLE":
            yield self
            return
        with self._connection.transaction():
            self._connection.execute("set transaction isolation level repeatable read, read only")
            yield self

    def _read(self, read: Callable[[Rows], T]) -> T:
        return self._sessions.asked(lambda _: read(self._rows))

    def size(self) -> int:
        """The number of bytes of all that the session holds, without indexes."""
        bodies = {table: "body" for table, columns in COLUMNS.items() if "body" in columns}
        bodies["approvals"] = "request || coalesce(answer, '')"
        of = (
            f"(select coalesce(sum(octet_length({body})), 0) from monitor_{table} where session = one)"  # noqa: S608 - names of our own
            for table, body in bodies.items()
        )
        sql = f"select {' + '.join(of)} from (select %s::bigint as one) mine"  # noqa: S608 - as above
        found = self._sessions.asked(lambda one: one.execute(sql.encode(), (self._found.number,)).fetchone())
        return int(found[0]) if found else 0

    def verify(self) -> tuple[TreeProblem, ...]:
        with self.snapshot():
            return super().verify()


AnyReader: TypeAlias = SessionReader | PostgresReader


@dataclass(slots=True, frozen=True)
class _Found:
    number: int
    id: str
    created_ms: int
    token: int
    forked_from: str | None
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
        if self._is_made and self.asked(lambda one: one.execute(_FORMAT).fetchone()) != (FORMAT,):
            self._database.prepared().close()  # tables of an older version are brought forward

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
        number, id, created_ms, token, forked_from, changed_s, holder = row
        return _Found(number, id, created_ms, token, forked_from, changed_s, owner_in(holder))

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
# A whole session is written in one transaction: an imported one, or one anew.

_NEW: Final = """insert into monitor_sessions (id, name, created_ms, forked_from) values (%s, %s, %s, %s)
    on conflict do nothing returning number"""
_LOCK: Final = """select number, holder, coalesce(lease_until > clock_timestamp(), false)
    from monitor_sessions where name = %s for update"""
_FENCE: Final = "update monitor_sessions set token = token + 1, seal = null, step = 0 where number = %s"
_SEAL: Final = """update monitor_sessions set step = step + 1, lease_until = null, seal = %s,
    changed = clock_timestamp() where number = %s"""
_PATIENCE: Final = "set local idle_in_transaction_session_timeout = '60s'"
"""A process that freezes in the transaction holds up other owners for no longer than this."""

Begin: TypeAlias = Callable[[Mapping[str, Any]], Filling]
"""Makes a session, of the facts about it, and returns what fills it."""


def _sealed(connection: Connection, number: int) -> None:
    seal = Rows(Plain(connection), number).seal()
    connection.execute(_SEAL, (seal.stored(), number))


@contextmanager
def new_session(address: str, name: str) -> Iterator[Begin]:
    """A session of this name to fill. It is there when the block ends, whole or not at all."""
    database = Database(address)
    connection = database.prepared()
    numbers: list[int] = []

    def begin(facts: Mapping[str, Any]) -> Filling:
        values = (facts["id"], kept(name), int(facts.get("created_ms", 0)), facts.get("forked_from"))
        found = connection.execute(_NEW, values).fetchone()
        if found is None:
            raise StoreError(
                f"the database has a session of the name {name!r} or of the id {facts['id']} already;"
                " nothing was changed"
            )
        numbers.append(found[0])
        return Filling(Rows(Plain(connection), found[0]), POSTGRES)

    try:
        with database.typing_errors(), connection.transaction():
            yield begin
            for number in numbers:
                _sealed(connection, number)
    finally:
        connection.close()


@contextmanager
def rewriting(address: str, name: str) -> Iterator[tuple[PostgresReader, Begin]]:
    """A session as it is, and what makes the one that takes its place when the block ends. Raises
    `SessionBusy` while it has an owner, and `SessionNotFound` if there is no such session.
    """
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

            def begin(_: Mapping[str, Any]) -> Filling:
                for part in COLUMNS:
                    sql = f"delete from monitor_{part} where session = %s"  # noqa: S608 - a name of our own
                    there.connection.execute(sql.encode(), (number,))
                return Filling(Rows(Plain(there.connection), number), POSTGRES)

            there.connection.execute(_FENCE, (number,))
            yield there.opened(name), begin
            _sealed(there.connection, number)
    finally:
        there.close()
