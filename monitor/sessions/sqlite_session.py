"""A session that is kept in one SQLite file."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import sqlite3
import threading
import time
import weakref
from abc import abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import anyio

from monitor._util.explained_options import explained
from monitor.errors import SessionBusy, SessionLost, SessionNotFound, StoreError
from monitor.messages import CallRecord
from monitor.sessions import faults
from monitor.sessions.closed_runs import Changes, Committed, close_run
from monitor.sessions.faults import not_text
from monitor.sessions.lock import OwnerLock, lock_path, owner_of
from monitor.sessions.mail.mailbox import Mailbox, mailbox_of
from monitor.sessions.nodes import ID_CHANCE_BYTES, Draft, Node, new_id
from monitor.sessions.reader import (
    FileRows,
    SessionReader,
    check_file,
    check_names,
    check_pages,
    connect_writer,
    facts_of,
    made,
    resolved,
    write_facts,
)
from monitor.sessions.tables import older
from monitor.sessions.tables.marked_folder import Blobs, blobs_of
from monitor.sessions.tables.memory import Memory
from monitor.sessions.tables.reads import OwnerReads
from monitor.sessions.tables.rows import Rows
from monitor.sessions.tables.schema import FORMAT, ONLY, SQLITE, SqlConnection, check_sqlite, make_file, prepare_writer
from monitor.sessions.tables.step import StepRows, insert
from monitor.sessions.tree import ACTIVE
from monitor.sessions.writer import Work, Writer

# --------------------------------------------------------------------------------------------------
# The methods of a session in any database.

T = TypeVar("T")


class SqlSession(OwnerReads):
    """A session as tables of a database. What differs is where a step is carried out."""

    id: str = ""
    """128 bits as 32 hexadecimal digits, once the session is open."""
    keeps_chunks: bool
    """Whether runs store their chunks as well, so that they can be replayed."""
    mailbox: Mailbox | None = None
    """Where other processes leave messages for the runs. `None`: no other process can."""

    def __init__(self, *, clock: Callable[[], float], chunks: bool) -> None:
        self._clock = clock
        self.keeps_chunks = chunks

    @abstractmethod
    async def _step(self, fill: Callable[[StepRows], T]) -> T:
        """Carry out a step, and return when it is stored."""

    # -------------------------------------------------------------- the tree

    async def commit(self, changes: Changes) -> Committed:
        """Write one step: all of it, or nothing. Returns when it is stored."""
        at_ms = round(self._clock() * 1000)
        return await self._step(lambda step: step.fill(changes, at_ms=at_ms, new_id=partial(id_at, at_ms)))

    async def append(self, *drafts: Draft, branch: str = ACTIVE) -> tuple[Node, ...]:
        """Write nodes behind the head of a branch."""
        return (await self.commit(Changes(nodes=drafts, branch=branch))).nodes

    async def switch_node(self, node: str | None, *, branch: str = ACTIVE) -> None:
        """Make `node` the end of a branch; the next nodes follow it. Nothing is summarised, and
        nothing of the path that is left is copied. `None`: the branch begins anew, with a new root.

        With a new name as `branch`, this makes a branch of that name.
        """
        await self._step(lambda step: step.switch(branch, node))

    # -------------------------------------------------------------- runs, calls, events

    async def close_run(self, run: str, why: str) -> None:
        """See `monitor.sessions.close_run`."""
        await close_run(self, run, why)

    async def intend(self, records: Sequence[CallRecord]) -> Sequence[CallRecord]:
        """See `CallLedger.intend`."""
        return await self._step(lambda step: [step.intend(record) for record in records])

    async def advance(self, record: CallRecord) -> bool:
        """See `CallLedger.advance`."""
        return await self._step(lambda step: step.advance(record))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @abstractmethod
    async def aclose(self) -> None:
        """Close the session. After that nothing can be written."""


class _SqliteSession(SqlSession):
    """A session in an SQLite, in a file or in memory. What differs is who carries out a
    transaction.
    """

    def __init__(self, *, clock: Callable[[], float], chunks: bool, memory: Memory, blobs: Blobs | None) -> None:
        super().__init__(clock=clock, chunks=chunks)
        self._memory = memory
        self._blobs = blobs

    @abstractmethod
    async def _run(self, work: Work[Any], *, writes: bool) -> Any:
        """Carry out `work`, in a transaction if it `writes`."""

    async def _read(self, read: Callable[[Rows], T]) -> T:
        found: T = await self._typed(lambda one: read(FileRows(one, blobs=self._blobs)), writes=False)
        return found

    async def _step(self, fill: Callable[[StepRows], T]) -> T:
        def write(connection: SqlConnection) -> T:
            try:
                step = StepRows(Rows(connection, memory=self._memory, blobs=self._blobs))
                result = fill(step)
                if step.rows:
                    seal = step.seal()
                    insert(connection, step, ONLY, SQLITE)
                    connection.execute("update monitor_sessions set step = step + 1, seal = ?", (seal,))
            except BaseException:
                self._memory.forget()
                raise
            return result

        done: T = await self._typed(write, writes=True)
        return done

    async def _typed(self, work: Work[Any], *, writes: bool) -> Any:
        try:
            return await self._run(work, writes=writes)
        except UnicodeEncodeError as error:
            raise StoreError(not_text(error)) from None


def id_at(at_ms: int) -> str:
    """A new id, in the order of time."""
    return new_id(at_ms, secrets.token_bytes(ID_CHANCE_BYTES))


_POLL_S: Final = 0.02
"""Seconds between two attempts to get the lock. The lock of a dead owner is taken within 100 ms."""


@explained(example="monitor.sessions.SQLiteSession('work.session')")
class SQLiteSession(_SqliteSession):
    """A session in one file. Everything that was acknowledged survives a power cut.

        async with SQLiteSession("work.session") as session:
            await session.append(message(UserMessage((Text("hello"),))))
            print((await session.context()).messages)

    One owner writes; any number of readers may look at the file meanwhile. A second owner gets
    `SessionBusy`. When an awaited write returns, it is committed and synced to the disk.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        create: bool = True,
        wait_s: float | None = None,
        takeover: bool = False,
        chunks: bool = False,
        blobs: Blobs | None = None,
        clock: Callable[[], float] = time.time,
        connect: Callable[[Path], SqlConnection] | None = None,
    ) -> None:
        """`create`: make the file if it is not there. `wait_s`: how long to wait for an owner that
        is alive. `takeover`: take the session from a live owner, which then loses it. `chunks`:
        runs store their chunks as well, so that they can be replayed.

        `blobs`: keeps bodies above 64 KiB; by default a folder beside the file. `clock`: returns
        seconds since 1970. `connect`: opens another SQLite.
        """
        check_sqlite()
        self.path: Path = resolved(path)
        blobs = blobs if blobs is not None else blobs_of(self.path)
        memory = Memory()
        super().__init__(clock=clock, chunks=chunks, memory=memory, blobs=blobs)
        self.mailbox = mailbox_of(self.path)
        self._wait_s = wait_s
        self._lock = OwnerLock(lock_path(self.path), self.path.stem)
        self._rules = _OwnerRules(
            self.path,
            connect=connect or connect_writer,
            create=create,
            takeover=takeover,
            clock=clock,
            memory=memory,
            blobs=blobs,
        )
        self._writer: Writer | None = None

    async def __aenter__(self) -> Self:
        if self._writer is not None:
            raise StoreError("the session is open already")
        await self._own()
        self._writer = Writer(self._rules, self.path.stem)
        try:
            self.id = (await self._writer.run(facts_of, writes=False))["id"]
        except BaseException:
            await self.aclose()
            raise
        return self

    async def aclose(self) -> None:
        """Write the steps that wait, copy the log into the file, and release the lock."""
        writer, self._writer = self._writer, None
        try:
            if writer is not None:
                await writer.close()
        finally:
            self._lock.release()

    async def _own(self) -> None:
        until = anyio.current_time() + (self._wait_s or 0)
        while True:
            try:
                self._lock.acquire(takeover=self._rules.takeover)
            except SessionBusy:
                if anyio.current_time() >= until:
                    raise
                await anyio.sleep(_POLL_S)
            else:
                return

    async def _run(self, work: Work[Any], *, writes: bool) -> Any:
        if self._writer is None:
            raise StoreError("the session is not open: use it as `async with`")
        return await self._writer.run(work, writes=writes)

    # -------------------------------------------------------------- the file

    def reader(self) -> SessionReader:
        """A reader of the same file. It sees what is stored."""
        return SessionReader(self.path, blobs=self._blobs)

    @property
    def commits(self) -> int:
        """Transactions of this owner so far. Several steps may share one."""
        return self._writer.commits if self._writer else 0

    @property
    def pending_migration(self) -> tuple[int, int] | None:
        """The format of the file, and the format that it gets with the first write. `None`: it has
        the newest format.
        """
        return self._rules.pending


class _UseMark(Enum):
    """Whether the file itself, without its log, says that it is in use."""

    NONE = 0
    IN_LOG = 1
    """The mark is committed, and a reader may keep the log from being copied into the file."""
    IN_FILE = 2


_IN_USE: Final = "update monitor_sessions set closed_at = null"
_CLOSED: Final = "update monitor_sessions set closed_at = step"


class _OwnerRules:
    """The checks before and after each transaction of an owner; see `writer.Rules`."""

    def __init__(
        self,
        path: Path,
        *,
        connect: Callable[[Path], SqlConnection],
        create: bool,
        takeover: bool,
        clock: Callable[[], float],
        memory: Memory,
        blobs: Blobs,
    ) -> None:
        """`memory`: the facts that the thread of the writer knows of the file."""
        self._path = path
        self._name = str(path)
        self._connect = connect
        self._create = create
        self._clock = clock
        self.takeover = takeover
        self._epoch: int | None = None
        self._raised: int | None = None
        self._file: os.stat_result | None = None
        self._format = 0
        self._use_mark = _UseMark.NONE
        self._lost = False
        self._memory = memory
        self._blobs = blobs
        self._unsettled = False

    def connect(self) -> SqlConnection:
        found = check_file(self._path, owns=True)
        if found is None:
            if not self._create:
                raise SessionNotFound(f"there is no session {self._path}")
            self._make()
        else:
            check_names(self._path)
            check_pages(self._path)
        connection = self._connect(self._path)
        try:
            prepare_writer(connection)
            self._file = self._path.stat()
            self._format = FORMAT if found is None else found
            older.show(connection)
            if self.takeover:  # now, and not at the first write: the old owner may wake up before that
                self._transaction(connection, self.begin)
        except BaseException:
            connection.close()
            raise
        return connection

    def _make(self) -> None:
        at_ms = round(self._clock() * 1000)
        with made(self._path, connect=self._connect, name=os.replace) as rows:
            write_facts(rows.connection, {"id": id_at(at_ms), "created_ms": at_ms})
        self._epoch = 1

    def _transaction(self, connection: SqlConnection, work: Callable[[SqlConnection], None]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            work(connection)
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(Exception):
                connection.execute("ROLLBACK")
            raise
        self.committed()

    def prepare(self, connection: SqlConnection) -> None:
        """Let the file say that it is in use, before the first step is in its log. Later calls do
        nothing, unless a reader has kept the log from being copied into the file.
        """
        if self._use_mark is _UseMark.IN_FILE:
            return
        if self._use_mark is _UseMark.NONE:
            self._transaction(connection, partial(self._mark, in_use=True))
            self._use_mark = _UseMark.IN_LOG
        _, pages, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if pages == copied:
            self._use_mark = _UseMark.IN_FILE

    def _mark(self, connection: SqlConnection, *, in_use: bool) -> None:
        self.begin(connection)
        connection.execute(_IN_USE if in_use else _CLOSED)

    def begin(self, connection: SqlConnection) -> None:
        if self._unsettled:  # the transaction before this one has failed
            self._memory.forget()
        self._unsettled = True
        found = connection.execute("select token from monitor_sessions").fetchone()[0]
        if self._epoch is None:
            if older.is_older(connection):
                older.bring_forward(connection, self._blobs)
            self._raised = found + 1
            connection.execute("update monitor_sessions set token = ?", (self._raised,))
        elif found != self._epoch:
            self._lost = True
            raise SessionLost(
                f"the session {self._path.stem} was taken over by {owner_of(lock_path(self._path)) or 'another owner'}."
                " This owner has written nothing since; what was acknowledged before is stored."
            )

    def committed(self) -> None:
        self._unsettled = False
        if self._raised is not None:
            self._epoch, self._raised = self._raised, None
            self._format = FORMAT

    def check_file(self) -> None:
        try:
            same = self._file is not None and os.path.samestat(self._file, os.stat(self._name))  # noqa: PTH116 - quicker
        except OSError:
            same = False
        if not same:
            self._lost = True
            raise SessionLost(
                f"the file {self._path.name} was replaced or removed while it was open. This step is not stored in it;"
                " what was acknowledged before is in the file that was replaced."
            )

    def close(self, connection: SqlConnection) -> None:
        if self._lost or not self._is_left_whole(connection):
            # Closing the connection would copy its log into a file that another owner writes, and
            # remove that owner's log, which has the same name. Or it would remove the log of a file
            # that says that it is in use. So it stays open until the end.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        else:
            connection.close()

    def _is_left_whole(self, connection: SqlConnection) -> bool:
        """Take back the mark that the file is in use, also that of an owner who died, and copy the
        log into the file. False: a fault keeps the file from being written.
        """
        try:
            if facts_of(connection)["in_use"]:
                self._transaction(connection, partial(self._mark, in_use=False))
        except Exception:  # noqa: BLE001 - whatever it is, the next owner finds the log, and copies it
            return False
        with contextlib.suppress(Exception):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return True

    def typed(self, error: BaseException) -> StoreError:
        return faults.typed(error, self._path)

    def is_lasting(self, error: BaseException) -> bool:
        return faults.is_lasting(error)

    @property
    def pending(self) -> tuple[int, int] | None:
        return (self._format, FORMAT) if self._format < FORMAT else None


# --------------------------------------------------------------------------------------------------
# A session that lasts as long as the program.


class InMemorySession(_SqliteSession):
    """A session that lasts as long as the program, with the same methods as `SQLiteSession`. It has
    the same tables too, in an SQLite without a file.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time, chunks: bool = False) -> None:
        """`clock`: returns seconds since 1970. `chunks`: runs store their chunks as well, so that
        they can be replayed.
        """
        check_sqlite()
        super().__init__(clock=clock, chunks=chunks, memory=Memory(), blobs=None)
        at_ms = round(clock() * 1000)
        self.id = id_at(at_ms)
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA foreign_keys=ON")
        make_file(self._connection)
        write_facts(self._connection, {"id": self.id, "created_ms": at_ms})
        weakref.finalize(self, self._connection.close)
        self._lock = threading.Lock()
        self._open = True

    async def _run(self, work: Work[Any], *, writes: bool) -> Any:
        with self._lock:  # a program may use it from several threads
            try:
                return self._written(work) if writes else work(self._connection)
            except sqlite3.Error as error:
                raise faults.typed(error, Path("the session in memory")) from error

    def _written(self, work: Work[Any]) -> Any:
        if not self._open:
            raise StoreError("the session is closed")
        self._connection.execute("BEGIN")
        try:
            result = work(self._connection)
            self._connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise
        return result

    async def aclose(self) -> None:
        """Close the session. After that nothing can be written, and everything can be read."""
        self._open = False
