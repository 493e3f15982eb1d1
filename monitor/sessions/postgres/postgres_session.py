"""A session that is kept in PostgreSQL."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import cache, partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeGuard, TypeVar, runtime_checkable

import anyio
from anyio import to_thread

from monitor.errors import ConfigError, SessionBusy, SessionLost, SessionNotFound, SessionUnavailable, StoreError
from monitor.sessions.faults import not_text
from monitor.sessions.lock import OwnerLock, this_process
from monitor.sessions.postgres.database import LEASE_S, Database, Plain, database_at, leave
from monitor.sessions.postgres.letters import Letters
from monitor.sessions.postgres.postgres_reader import (
    AnyReader,
    PostgresReader,
    SessionsReader,
    owner_in,
    without_password,
)
from monitor.sessions.postgres.statements import step_of
from monitor.sessions.reader import SessionReader, default_folder, sessions_in
from monitor.sessions.sqlite_session import SQLiteSession, SqlSession, id_at
from monitor.sessions.tables.memory import Memory
from monitor.sessions.tables.rows import Rows, kept
from monitor.sessions.tables.step import StepRows
from monitor.sessions.writer import Ticket, hand_back, settled

if TYPE_CHECKING:
    from monitor.sessions.postgres.database import Connection


# --------------------------------------------------------------------------------------------------
# Whether the owner of a leased session has died on this machine, so that its lease need not end.
#
# Each owner holds the lock of a file of its own. The system releases the lock when the process
# ends. The file is asked about only under the kernel that has locked it: the owner's row says its
# boot id. No process number and no host name decides. Another machine waits for the end of the
# lease.

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
"""Linux's id of the running kernel. Elsewhere there is none, and leases are waited for."""


_FAULTS: Final = (OSError, RuntimeError, SessionUnavailable, SessionBusy)
"""The lock file cannot be used, or the user has no home. Then the lease alone holds."""


@cache
def this_boot() -> str:
    """The id of the running kernel; empty where the system has none."""
    try:
        return _BOOT.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _path(nonce: str) -> Path:
    return default_folder() / ".owners" / f"{nonce}.lock"


class OwnerProof:
    """The lock file of one owner. Where none can be made, the owner has just its lease."""

    def __init__(self) -> None:
        self._nonce = secrets.token_hex(16)
        self._lock: OwnerLock | None = None

    @property
    def fields(self) -> dict[str, str]:
        """The part of the owner's row that names the lock file."""
        return {"nonce": self._nonce, "boot": this_boot() if self._lock is not None else ""}

    def hold(self) -> None:
        """Make the file and lock it, until `give_up`."""
        if self._lock is not None or not this_boot():
            return
        with contextlib.suppress(*_FAULTS):
            path = _path(self._nonce)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = OwnerLock(path, "")
            lock.acquire()
            self._lock = lock

    def give_up(self) -> None:
        """Unlock the file and remove it."""
        lock, self._lock = self._lock, None
        if lock is not None and lock.held:  # else this process was forked, and the file is its parent's
            lock.release()
            with contextlib.suppress(OSError):
                _path(self._nonce).unlink()


def has_died(holder: str) -> bool:
    """Whether the owner in the row of a session is known to have died. Its file is removed then."""
    try:
        named = json.loads(holder)
        nonce, boot = named["nonce"], named["boot"]
        name = f"{int(nonce, 16):032x}"
    except (ValueError, TypeError, KeyError):
        return False
    if not boot or boot != this_boot():
        return False
    try:
        path = _path(name)
        if not path.is_file():
            return False
        with OwnerLock(path, ""):
            path.unlink(missing_ok=True)
    except _FAULTS:
        return False
    return True


T = TypeVar("T")

_POLL_S: Final = 0.2
"""Seconds between two attempts to take a session whose lease has not ended."""
_TAKE: Final = """update monitor_sessions
    set token = token + 1, holder = %(holder)s, lease_until = clock_timestamp() + %(lease_s)s * interval '1 second'
    where name = %(name)s
        and (lease_until is null or lease_until < clock_timestamp() or holder = %(holder)s or holder = %(dead)s
            or %(takeover)s)
    returning number, id, token, step"""
_LEASE: Final = """select holder, extract(epoch from lease_until - clock_timestamp())::double precision
    from monitor_sessions where name = %s"""
_MAKE: Final = "insert into monitor_sessions (id, name, created_ms) values (%s, %s, %s) on conflict (name) do nothing"
_NOW: Final = "select token, step, holder from monitor_sessions where number = %s"
_RELEASE: Final = "update monitor_sessions set lease_until = null where number = %s and token = %s"


class PostgresSession(SqlSession):
    """The session `name` in the database at `address`. An acknowledged step is as safe as the
    server keeps it.

        async with PostgresSession("postgresql://user@host/db", "work") as session:
            await session.append(message(UserMessage((Text("hello"),))))

    One owner writes: it has a lease, by the clock of the server, and a token that each write
    checks. An owner that has lost its lease to another one writes nothing more.
    """

    def __init__(
        self,
        address: str,
        name: str,
        *,
        create: bool = True,
        wait_s: float | None = None,
        takeover: bool = False,
        chunks: bool = False,
        clock: Callable[[], float] = time.time,
        waits: Callable[[SessionBusy], object] = lambda _: None,
    ) -> None:
        """`create`: make the session if it is not there. `wait_s`: how long to wait for an owner
        that may be alive. An owner that has died on this machine is not waited for; of any other
        one the lease has ended after 15 seconds. `takeover`: take the session from a live owner,
        which then loses it. `chunks`: runs store their chunks as well, so that they can be
        replayed. `clock`: returns seconds since 1970, for the times of nodes; leases follow the
        clock of the server. `waits`: is called with the reason when the waiting begins.
        """
        super().__init__(clock=clock, chunks=chunks)
        self.address = address
        self.name = name
        self.mailbox = self._letters = Letters(name)
        self._create = create
        self._wait_s = wait_s
        self._takeover = takeover
        self._waits = waits
        self._proof = OwnerProof()
        self._holder = ""
        self._database: Database | None = None
        self._memory = Memory()
        self._number = self._token = self._steps = 0
        self._broken: StoreError | None = None
        self._waiting: deque[Ticket] = deque()
        self._lock = threading.Lock()
        self._drains = False
        self._is_open = False

    # -------------------------------------------------------------- opening and closing

    async def __aenter__(self) -> Self:
        if self._is_open:
            raise StoreError("the session is open already")
        self._database = await to_thread.run_sync(database_at, self.address)
        self._is_open = True
        try:
            await self._own()
            self._letters.connect(self._database)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def aclose(self) -> None:
        """Write the steps that wait, and give the session back."""
        if not self._is_open or self._database is None:
            return
        database = self._database
        self._letters.connect(None)
        with anyio.CancelScope(shield=True):
            try:
                if self._token and database.pid == os.getpid():
                    database.let_go(self._number)
                    await self._run(self._release)
            finally:
                self._is_open = False
                self._proof.give_up()
                await to_thread.run_sync(leave, self.address, database)

    def _release(self) -> None:
        if self._broken is None:
            try:
                self._asked(lambda one: one.execute(_RELEASE, (self._number, self._token)), patience_s=0)
            except StoreError:
                return  # the lease ends by itself

    async def _own(self) -> None:
        until = anyio.current_time() + (self._wait_s or 0)
        told = False
        while True:
            try:
                await self._run(self._take)
            except SessionBusy as busy:
                if anyio.current_time() >= until:
                    raise
                if not told:
                    told = True
                    self._waits(busy)
                await anyio.sleep(_POLL_S)
            else:
                return

    def _take(self) -> None:
        self._proof.hold()
        if not self._holder:
            self._holder = json.dumps({**asdict(this_process()), **self._proof.fields})
        values = {"name": kept(self.name), "holder": self._holder, "lease_s": LEASE_S, "takeover": self._takeover}
        values["dead"] = ""

        def take(connection: Connection) -> tuple[Any, ...]:
            if self._create:
                at_ms = round(self._clock() * 1000)
                connection.execute(_MAKE, (id_at(at_ms), values["name"], at_ms))
            if (found := connection.execute(_TAKE, values).fetchone()) is not None:
                return found
            lease = connection.execute(_LEASE, (values["name"],)).fetchone()
            if lease is None:
                raise SessionNotFound(f"there is no session {self.name} in the database")
            if has_died(lease[0]):
                values["dead"] = lease[0]
                if (found := connection.execute(_TAKE, values).fetchone()) is not None:
                    return found
            why = f"its lease ends in {max(0.0, lease[1] or 0.0):.0f} seconds, unless it is renewed"
            raise SessionBusy(self.name, owner_in(lease[0]), why)

        self._number, self.id, self._token, self._steps = self._asked(take)
        self._memory.forget()  # another owner may have written since
        self._held().hold(self._number, self._token)

    # -------------------------------------------------------------- one thing after another

    async def _run(self, work: Callable[[], T]) -> T:
        """Do `work` in a worker thread, behind everything that was asked before. A cancellation
        waits until it is known whether a step is stored.
        """
        if not self._is_open or self._database is None:
            raise StoreError("the session is not open: use it as `async with`")
        if self._database.pid != os.getpid():
            raise SessionLost("the session was opened before this process was forked: open it again here")
        ticket = Ticket(lambda _: work(), writes=True)
        with self._lock:
            self._waiting.append(ticket)
            begins, self._drains = not self._drains, True
        if begins:
            self._database.workers.submit(self._drain)
        await settled(ticket)
        if ticket.error is not None:
            raise ticket.error
        result: T = ticket.result
        return result

    def _drain(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._drains = False
                    return
                ticket = self._waiting.popleft()
            try:
                ticket.result = ticket.work(None)  # type: ignore[arg-type]
            except UnicodeEncodeError as error:
                ticket.error = StoreError(not_text(error))
            except Exception as error:  # noqa: BLE001 - it is raised in the task that waits
                ticket.error = error
            hand_back([ticket])

    def _held(self) -> Database:
        assert self._database is not None  # noqa: S101 - it is open
        return self._database

    def _asked(self, work: Callable[[Connection], T], **options: float) -> T:
        return self._held().run(work, **options)

    def _rows(self, connection: Connection) -> Rows:
        return Rows(Plain(connection), self._number, memory=self._memory)

    async def _read(self, read: Callable[[Rows], T]) -> T:
        return await self._run(lambda: self._asked(lambda one: read(self._rows(one))))

    async def _step(self, fill: Callable[[StepRows], T]) -> T:
        def write() -> T:
            if self._broken is not None:
                raise type(self._broken)(*self._broken.args)
            try:
                step, seal, result = self._asked(partial(self._filled, fill))
                if step.rows:
                    self._asked(partial(self._store, step.rows, seal))
                    self._steps += 1
            except BaseException:
                self._memory.forget()
                raise
            step.note_stored()
            return result

        return await self._run(write)

    def _filled(self, fill: Callable[[StepRows], T], connection: Connection) -> tuple[StepRows, str, T]:
        step = StepRows(self._rows(connection))
        try:
            result = fill(step)
            return step, step.seal() if step.rows else "", result
        except BaseException:
            self._memory.forget()  # nodes that are not stored are in it
            raise

    def _store(self, rows: Mapping[str, Sequence[Mapping[str, Any]]], seal: str, connection: Connection) -> None:
        """Write one step, unless an attempt whose answer was lost has written it."""
        sql, values = step_of(
            rows, session=self._number, token=self._token, step=self._steps, lease_s=LEASE_S, seal=seal
        )
        if connection.execute(sql, values).fetchone() is not None:
            return
        found = connection.execute(_NOW, (self._number,)).fetchone()
        if found is not None and found[:2] == (self._token, self._steps + 1):
            return
        who = "removed" if found is None else f"taken over by {owner_in(found[2]) or 'another owner'}"
        self._broken = SessionLost(
            f"the session {self.name} was {who}. What was acknowledged before is stored; this step is not acknowledged."
        )
        raise self._broken


# --------------------------------------------------------------------------------------------------
# A session by its address, which is opened while somebody uses it.

POSTGRES: Final = ("postgresql://", "postgres://")
"""How the address of a PostgreSQL database begins."""
WAIT_S: Final = LEASE_S + 2
"""Seconds that a run waits for its session: the lease of a dead owner has ended then."""


@runtime_checkable
class OpenedByUse(Protocol):
    """A session that is open while it is used."""

    async def use(self) -> None:
        """Open the session, unless somebody uses it already."""
        ...

    async def leave(self) -> None:
        """Close the session with its last use."""
        ...


@asynccontextmanager
async def in_use(store: object) -> AsyncIterator[None]:
    """Hold a session open in this block, if it is opened by its use."""
    if not isinstance(store, OpenedByUse):
        yield
        return
    await store.use()
    try:
        yield
    finally:
        await store.leave()


class AddressedSession(PostgresSession):
    """A session in PostgreSQL that its runs open and close."""

    def __init__(self, address: str, name: str) -> None:
        super().__init__(address, name, wait_s=WAIT_S)
        self._users = 0
        self._turn = anyio.Lock()

    async def use(self) -> None:
        async with self._turn:
            if not self._users:
                await self.__aenter__()
            self._users += 1

    async def leave(self) -> None:
        with anyio.CancelScope(shield=True):
            async with self._turn:
                self._users -= 1
                if not self._users:
                    await self.aclose()


def reader_at(place: str | PathLike[str]) -> AnyReader:
    """A reader of the session at `place`: its file, or `postgresql://user@host/db#name`."""
    return PostgresReader(*parts_of(place)) if is_database(place) else SessionReader(place)


def owner_at(place: str | PathLike[str], *, create: bool = True) -> SQLiteSession | PostgresSession:
    """The session at `place`, to be opened by its owner. `create`: it may be made."""
    if is_database(place):
        return PostgresSession(*parts_of(place), create=create)
    return SQLiteSession(place, create=create)


def sessions_at(where: str | PathLike[str]) -> list[tuple[str | Path, float]]:
    """The sessions in a folder, or in the database at `postgresql://user@host/db`: the file or the
    address of each, and the time of its last write in seconds since 1970. The newest is at the end.
    """
    if not is_database(where):
        return [(one.path, one.changed_s) for one in sessions_in(Path(where))]
    database = where.partition("#")[0]
    with SessionsReader(database) as there:
        return [(f"{database}#{name}", changed_s) for name, changed_s in there.changed().items()]


def is_database(address: object) -> TypeGuard[str]:
    """Whether it is the address of a database, and not the path of a file."""
    return isinstance(address, str) and address.startswith(POSTGRES)


def session_at(address: str) -> AddressedSession:
    """The session at `postgresql://user@host/db#name`. Raises `ConfigError` for another address."""
    return AddressedSession(*parts_of(address))


def parts_of(address: str) -> tuple[str, str]:
    """The address of the database, and the name of the session. Raises `ConfigError`."""
    where, _, name = address.partition("#")
    if not is_database(where) or not name:
        raise ConfigError(
            f"{without_password(address)!r} names no session: write postgresql://user@host/db#name, with the name of"
            " the session"
        )
    return where, name
