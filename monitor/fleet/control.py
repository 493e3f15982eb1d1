"""Aborts and answers that people give to runs which other processes carry out.

A session has one owner, who writes to it. So what is said from outside stands beside it, until the
owner reads it there.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypeVar

from anyio import to_thread

from monitor._util.codec import to_plain
from monitor.errors import PASSING_REASONS, SessionDamaged, SessionUnavailable, StoreError, TerminateReason
from monitor.events import RunTerminated
from monitor.fleet.jobs import (
    ATTEMPT,
    POSTPONED,
    RECEIPT,
    FleetJob,
    Sessions,
    check_name,
    enter,
    receipt_of,
    session_id,
)
from monitor.fleet.receipts import Receipt
from monitor.messages import ApprovalAnswer, answer_codec
from monitor.outcome import Outcome
from monitor.sessions.closed_runs import Changes, Committed, SessionStore
from monitor.sessions.nodes import Draft, Node, canonical, marker
from monitor.sessions.postgres.database import Database, database_at, leave
from monitor.sessions.postgres.postgres_reader import PostgresReader, SessionsReader
from monitor.sessions.postgres.postgres_session import PostgresSession
from monitor.sessions.tables.marked_folder import sync_folder, write_whole
from monitor.sessions.tree import ACTIVE
from monitor.sessions.writer import committed_in, note_committed

if TYPE_CHECKING:
    from monitor.sessions.postgres.database import Connection


_ABORT: Final = "abort"
_ANSWERS: Final = "answers"


class Control(Protocol):
    """Where aborts and answers stand. The methods are called in worker threads, and `answers` also
    in the event loop, when a run begins to wait for a person.
    """

    def abort(self, session: str, why: str, /) -> None:
        """Say that this session is to be aborted. Returns when that is stored."""
        ...

    def aborted(self, session: str, /) -> str | None:
        """Why this session is to be aborted. `None`: it is not."""
        ...

    def answer(self, session: str, answer: ApprovalAnswer, /) -> None:
        """Answer an open question of this session. Returns when that is stored."""
        ...

    def answers(self, session: str, /) -> Sequence[ApprovalAnswer]:
        """All answers that were given to questions of this session, the first one first. Of several
        answers to one question the first one counts.
        """
        ...


class FolderControl:
    """One small file for each thing that was said, in a folder that all workers share."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)

    def abort(self, session: str, why: str) -> None:
        """Store the abort. The first reason stays."""
        path = self._path(session, _ABORT)
        if not path.exists():
            self._write(path, {"why": why})

    def aborted(self, session: str) -> str | None:
        path = self._path(session, _ABORT)
        return str(_read(path).get("why", "")) if path.exists() else None

    def answer(self, session: str, answer: ApprovalAnswer) -> None:
        folder = self._path(session, _ANSWERS)
        name = f"{time.time_ns():020}-{secrets.token_hex(4)}.json"
        self._write(folder / name, to_plain(answer_codec.to_dict(answer)))

    def answers(self, session: str) -> Sequence[ApprovalAnswer]:
        folder = self._path(session, _ANSWERS)
        if not folder.is_dir():
            return ()
        return [answer_codec.from_dict(_read(path)) for path in sorted(folder.glob("*.json"))]

    def _path(self, session: str, what: str) -> Path:
        check_name(session)  # it becomes the name of a file
        return self._folder / f"{session}.{what}"

    def _write(self, path: Path, data: object) -> None:
        """Write the whole file or nothing, and let it survive a power cut."""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(path, canonical(data).encode())
            sync_folder(path.parent)
        except OSError as error:
            raise SessionUnavailable(f"{path} cannot be written: {error.strerror}") from error


def _read(path: Path) -> dict[str, object]:
    try:
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SessionUnavailable(f"{path} cannot be read: {error}") from error
    except ValueError as error:
        raise StoreError(f"{path} holds no JSON: {error}") from error
    if not isinstance(data, dict):
        raise StoreError(f"{path} holds no JSON object")
    return data


# --------------------------------------------------------------------------------------------------
# The session of one step: what it says of the step is written together with the turn itself.

_LOST: Final = frozenset({TerminateReason.CANCELLED, TerminateReason.CLOSED_BY_CALLER})
"""Ends that an engine makes, which has cancelled the step. The run has not ended by them."""


class StepPostponed(StoreError):
    """The shared budget of a run could not be had for too long. The run has not ended: its step is
    to be tried again.
    """


class StepStore:
    """`store`, for one attempt at one step.

    The first commit of the attempt says that it began. The commit that holds the end of the step
    holds its receipt as well. A step that was cancelled from outside leaves the run as a worker
    leaves it that was killed.
    """

    def __init__(self, store: SessionStore, attempt: Mapping[str, int]) -> None:
        """`attempt`: what its marker says."""
        self._store = store
        self.attempt = attempt
        self._begun = False
        self.receipt: Callable[[Outcome[Any]], Receipt] | None = None
        """Makes the receipt of the step, without its newest node."""
        self.stored: Receipt | None = None
        """The receipt, when it is stored."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def add(self, receipt: Receipt) -> Receipt:
        """Store the receipt of a step that carries nothing out."""
        (node,) = await self._store.append(self._draft(receipt))
        self.stored = stored = receipt_of(node)
        if stored is None:
            raise SessionDamaged(f"node {node.id} holds no receipt")
        return stored

    async def commit(self, changes: Changes) -> Committed:
        if changes.branch != ACTIVE:  # of a nested run
            return await self._store.commit(changes)
        own: list[Draft] = []
        if not self._begun:
            own.append(marker(ATTEMPT, self.attempt))
        end = _end_in(changes)
        if end is not None and end.outcome.reason in _LOST:
            raise StoreError("the step was cancelled: what it did since the last commit is not stored")
        if end is not None and end.outcome.reason in PASSING_REASONS:
            await self._store.append(marker(POSTPONED, end.outcome.reason.value))
            raise StepPostponed(f"the step is tried again: {end.outcome.reason.value}: {end.outcome.detail}")
        if end is not None and self.receipt is not None:
            own.append(self._draft(self.receipt(end.outcome)))
        try:
            done = await self._store.commit(replace(changes, nodes=[*changes.nodes, *own]))
        except BaseException as error:
            if (stored := committed_in(error)) is not None:
                note_committed(error, self._took(stored, len(own)))
            raise
        return self._took(done, len(own))

    def _took(self, done: Committed, own: int) -> Committed:
        """`done`, without the nodes that the run does not know of."""
        self._begun = True
        for node in done.nodes[len(done.nodes) - own :]:
            self.stored = receipt_of(node) or self.stored
        return replace(done, nodes=done.nodes[: len(done.nodes) - own])

    def _draft(self, receipt: Receipt) -> Draft:
        return marker(RECEIPT, receipt.to_json(), run=None, turn=receipt.turns)


def _end_in(changes: Changes) -> RunTerminated | None:
    """The end of the run that these changes hold. Those of nested runs are written elsewhere."""
    return next((one for one in changes.events if isinstance(one, RunTerminated)), None)


# --------------------------------------------------------------------------------------------------
# The part of a fleet's client that is equal in all engines: enter a job, answer, abort.

RUN: Final = "agent_monitor.run"
"""The name of a run in an engine's database, which knows it for years."""
TURN: Final = "agent_monitor.turn"
"""The name of a turn in an engine's database, which knows it for years."""


RunState: TypeAlias = Literal["queued", "running", "waits", "parked", "ended", "failed"]
"""`waits`: for a person. `failed`: the engine has given its workflow up; `go_on` tries it again."""


@dataclass(slots=True, frozen=True, kw_only=True)
class FleetRun:
    """A run of a fleet, as its engine knows it."""

    session: str
    state: RunState
    queue: str
    """The queue of the engine. On DBOS it names the supervisor and its version."""
    worker: str | None
    """The worker that carries it out, or has last done so. `None`: none has begun it, or the engine
    does not say it.
    """
    since_s: float
    """The time of the last change of its workflow, in seconds since 1970."""
    receipt: Receipt | None
    """The last receipt of a run that waits, is parked or has ended, where the engine lists it."""


class FleetClient:
    """Stores what people say to the runs of a fleet before an engine hears of it."""

    def __init__(self, sessions: Sessions, control: Control) -> None:
        self._sessions = sessions
        self._control = control

    async def answer(self, id: str, answer: ApprovalAnswer) -> None:
        """Answer a question of a run that waits, and let the run go on."""
        await to_thread.run_sync(self._control.answer, id, answer)
        await self._wake(id)

    async def abort(self, id: str, why: str = "aborted") -> None:
        """Abort a run: a turn that is under way ends within a second or so, with its reason."""
        await to_thread.run_sync(self._control.abort, id, why)
        await self._wake(id)

    async def _enter(self, supervisor: str, task: str, *, version: str, key: str | None) -> str:
        """Store what is to be done, and return the id of the run."""
        id = session_id(key)
        await enter(self._sessions, id, FleetJob(supervisor=supervisor, version=version, task=task))
        return id

    async def _wake(self, id: str) -> None:
        """Let the run go on, after something was said to it. Most engines need no signal."""


# --------------------------------------------------------------------------------------------------
# The sessions of a fleet in PostgreSQL, and what people say to them: for workers on many hosts.

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
