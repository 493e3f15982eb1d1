"""A session that is kept in PostgreSQL."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import anyio
from anyio import to_thread

from monitor.calls import CallRecord
from monitor.errors import SessionBusy, SessionLost, SessionNotFound, StoreError
from monitor.sessions.closed_runs import close_run
from monitor.sessions.faults import not_text
from monitor.sessions.lock import this_process
from monitor.sessions.nodes import Draft, Node
from monitor.sessions.postgres.database import LEASE_S, Database, database_at, leave
from monitor.sessions.postgres.letters import Letters
from monitor.sessions.postgres.owner_proof import OwnerProof, has_died
from monitor.sessions.postgres.postgres_reader import owner_in
from monitor.sessions.postgres.session_rows import Rows, kept
from monitor.sessions.postgres.session_seal import SessionSeal, seal_of, sums_of
from monitor.sessions.postgres.statements import step_of
from monitor.sessions.postgres.step_rows import StepRows
from monitor.sessions.run_records import Changes, Committed
from monitor.sessions.sql_session import id_at
from monitor.sessions.tables.owner_memory import Memory
from monitor.sessions.tables.session_reads import OwnerReads, SessionRows
from monitor.sessions.tree import ACTIVE
from monitor.sessions.writer import Ticket, hand_back, settled

if TYPE_CHECKING:
    from monitor.sessions.postgres.database import Connection

T = TypeVar("T")

_POLL_S: Final = 0.2
"""Seconds between two attempts to take a session whose lease has not ended."""
_TAKE: Final = """update monitor_sessions
    set token = token + 1, holder = %(holder)s, lease_until = clock_timestamp() + %(lease_s)s * interval '1 second'
    where name = %(name)s
        and (lease_until is null or lease_until < clock_timestamp() or holder = %(holder)s or holder = %(dead)s
            or %(takeover)s)
    returning number, id, token, step, seal"""
_LEASE: Final = """select holder, extract(epoch from lease_until - clock_timestamp())::double precision
    from monitor_sessions where name = %s"""
_MAKE: Final = "insert into monitor_sessions (id, name, created_ms) values (%s, %s, %s) on conflict (name) do nothing"
_NOW: Final = "select token, step, holder from monitor_sessions where number = %s"
_RELEASE: Final = "update monitor_sessions set lease_until = null where number = %s and token = %s"


class PostgresSession(OwnerReads):
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
        self.address = address
        self.name = name
        self.keeps_chunks: bool = chunks
        self.id: str = ""
        self.mailbox: Letters = Letters(name)
        """Where other processes leave messages for the runs."""
        self._create = create
        self._wait_s = wait_s
        self._takeover = takeover
        self._clock = clock
        self._waits = waits
        self._proof = OwnerProof()
        self._holder = ""
        self._database: Database | None = None
        self._memory = Memory()
        self._last: dict[str, int] = {}
        self._number = self._token = self._step = 0
        self._seal: SessionSeal | None = None
        """The digests of the session. `None`: the first step takes them."""
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
            self.mailbox.connect(self._database)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Write the steps that wait, and give the session back."""
        if not self._is_open or self._database is None:
            return
        database = self._database
        self.mailbox.connect(None)
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

        self._number, self.id, self._token, self._step, seal = self._asked(take)
        self._seal = None if seal is None else seal_of(seal)
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

    async def _read(self, read: Callable[[SessionRows], T]) -> T:
        return await self._run(lambda: self._asked(lambda one: read(Rows(one, self._number, self._memory))))

    async def _write(self, fill: Callable[[StepRows], T]) -> T:
        def write() -> T:
            if self._broken is not None:
                raise type(self._broken)(*self._broken.args)
            try:
                step, result = self._asked(partial(self._filled, fill))
                if step.rows:
                    seal = self._asked(partial(self._sealed, step))
                    self._asked(partial(self._store, step.rows, seal))
                    self._step += 1
                    self._seal = seal
            except BaseException:
                self._memory.forget()
                raise
            self._last = step.last
            step.note_stored()
            return result

        return await self._run(write)

    def _filled(self, fill: Callable[[StepRows], T], connection: Connection) -> tuple[StepRows, T]:
        step = StepRows(Rows(connection, self._number, self._memory), self._memory, self._last)
        try:
            return step, fill(step)
        except BaseException:
            self._memory.forget()  # nodes that are not stored are in it
            raise

    def _sealed(self, step: StepRows, connection: Connection) -> SessionSeal:
        """The digests of the session after `step`."""
        before = self._seal or SessionSeal(sums_of(connection, self._number))
        return before.after(step.rows, connection, self._number, new=step.new)

    def _store(
        self, rows: Mapping[str, Sequence[Mapping[str, Any]]], seal: SessionSeal, connection: Connection
    ) -> None:
        """Write one step, unless an attempt whose answer was lost has written it."""
        sql, values = step_of(
            rows, session=self._number, token=self._token, step=self._step, lease_s=LEASE_S, seal=seal.stored()
        )
        if connection.execute(sql, values).fetchone() is not None:
            return
        found = connection.execute(_NOW, (self._number,)).fetchone()
        if found is not None and found[:2] == (self._token, self._step + 1):
            return
        who = "removed" if found is None else f"taken over by {owner_in(found[2]) or 'another owner'}"
        self._broken = SessionLost(
            f"the session {self.name} was {who}. What was acknowledged before is stored; this step is not acknowledged."
        )
        raise self._broken

    # -------------------------------------------------------------- the tree

    async def commit(self, changes: Changes) -> Committed:
        """Write one step: all of it, or nothing. Returns when the server has committed it."""
        at_ms = round(self._clock() * 1000)
        return await self._write(lambda step: step.fill(changes, at_ms=at_ms, new_id=partial(id_at, at_ms)))

    async def append(self, *drafts: Draft, branch: str = ACTIVE) -> tuple[Node, ...]:
        """Write nodes behind the head of a branch."""
        return (await self.commit(Changes(nodes=drafts, branch=branch))).nodes

    async def switch_node(self, node: str | None, *, branch: str = ACTIVE) -> None:
        """Make `node` the end of a branch; see `SessionStore.switch_node`."""

        def switch(step: StepRows) -> None:
            step.switch(branch, node)

        await self._write(switch)

    # -------------------------------------------------------------- runs, calls, events

    async def close_run(self, run: str, why: str) -> None:
        """See `monitor.sessions.close_run`."""
        await close_run(self, run, why)

    async def intend(self, records: Sequence[CallRecord]) -> Sequence[CallRecord]:
        """See `CallLedger.intend`."""

        def intend(step: StepRows) -> None:
            for record in records:
                step.intend(record)

        await self._write(intend)
        found = await self._read(lambda rows: [rows.find(record.key) for record in records])
        return [record for record in found if record is not None]

    async def advance(self, record: CallRecord) -> bool:
        """See `CallLedger.advance`."""
        return await self._write(lambda step: step.advance(record))
