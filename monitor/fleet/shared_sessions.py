"""The sessions of a fleet in PostgreSQL, and what people say to them: for workers on many hosts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from anyio import to_thread

from monitor._util.codec import to_plain
from monitor.calls import ApprovalAnswer, answer_codec
from monitor.errors import StoreError
from monitor.fleet.supervisors import check_name
from monitor.sessions.nodes import Node, canonical
from monitor.sessions.postgres.database import Database, database_at, leave
from monitor.sessions.postgres.postgres_reader import PostgresReader, SessionsReader
from monitor.sessions.postgres.postgres_session import PostgresSession
from monitor.sessions.session_store import SessionStore

if TYPE_CHECKING:
    from monitor.sessions.postgres.database import Connection

T = TypeVar("T")

_SAY: Final = "insert into monitor_said (session, what, body) values (%s, %s, %s)"
_SAID: Final = "select body from monitor_said where session = %s and what = %s order by number"


class _Shared:
    """The connections to one database, kept until `close`."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._database: Database | None = None

    def _open(self) -> Database:
        if self._database is None:
            self._database = database_at(self._address)
        return self._database

    def _asked(self, work: Callable[[Connection], T]) -> T:
        return self._open().run(work)

    def close(self) -> None:
        """Close the connections, unless others in this process use them."""
        database, self._database = self._database, None
        if database is not None:
            leave(self._address, database)


class PostgresSessions(_Shared):
    """One session in the database at `address` for each run. See `FolderSessions`."""

    def __init__(self, address: str, *, prefix: str = "fleet/", wait_s: float | None = None) -> None:
        """`prefix`: stands before the id of a run in the name of its session. `wait_s`: see
        `PostgresSession`. A step whose session is in use is tried again, so it need not wait.
        """
        super().__init__(address)
        self._prefix = prefix
        self._wait_s = wait_s

    @asynccontextmanager
    async def open(self, id: str, *, create: bool = False) -> AsyncIterator[SessionStore]:
        check_name(id)
        await to_thread.run_sync(self._open)
        async with PostgresSession(self._address, self._prefix + id, create=create, wait_s=self._wait_s) as session:
            yield session

    async def look(self, id: str) -> Sequence[Node]:
        check_name(id)

        def read() -> Sequence[Node]:
            with SessionsReader(self._address) as there:
                if self._prefix + id not in there:
                    return ()
                return PostgresReader(there, self._prefix + id).active_path()

        return await to_thread.run_sync(read)


class PostgresControl(_Shared):
    """Aborts and answers as rows of the database at `address`. See `FolderControl`."""

    def abort(self, session: str, why: str) -> None:
        """Store the abort. The first reason stays."""
        self._say(session, "abort", {"why": why})

    def aborted(self, session: str) -> str | None:
        said = self._said(session, "abort")
        return str(said[0].get("why", "")) if said else None

    def answer(self, session: str, answer: ApprovalAnswer) -> None:
        self._say(session, "answer", to_plain(answer_codec.to_dict(answer)))

    def answers(self, session: str) -> Sequence[ApprovalAnswer]:
        return [answer_codec.from_dict(one) for one in self._said(session, "answer")]

    def _say(self, session: str, what: str, data: object) -> None:
        check_name(session)
        self._asked(lambda one: one.execute(_SAY, (session, what, canonical(data))))

    def _said(self, session: str, what: str) -> list[dict[str, object]]:
        check_name(session)
        rows = self._asked(lambda one: one.execute(_SAID, (session, what)).fetchall())
        found = [json.loads(body) for (body,) in rows]
        if not all(isinstance(one, dict) for one in found):
            raise StoreError(f"what was said to the session {session} cannot be read")
        return found
