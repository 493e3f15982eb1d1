"""Reads sessions in PostgreSQL without being their owner, also while the owner writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

from monitor.calls import ApprovalAnswer
from monitor.errors import SessionBusy, SessionNotFound, SessionOwner
from monitor.messages import SteerMessage
from monitor.sessions.beside.mailbox import AnswerLetter, Letter, made, new_file
from monitor.sessions.postgres import letters
from monitor.sessions.postgres.database import Database
from monitor.sessions.postgres.session_rows import Rows, given, kept
from monitor.sessions.postgres.statements import FORMAT
from monitor.sessions.reader import SessionReader
from monitor.sessions.tables.session_reads import Reads, SessionRows
from monitor.sessions.tree import TreeProblem

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
