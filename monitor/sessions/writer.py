"""One thread that owns the connection, and writes the steps of many tasks in one commit.

The sync to the disk is the cost of a commit. So all steps that wait are written in one
transaction, and steps that arrive meanwhile join it. A task goes on when its step is on the disk,
or when it is known that the step is not stored.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

import anyio
from anyio.lowlevel import current_token

from monitor.errors import SessionLost, StoreError
from monitor.sessions.closed_runs import Committed
from monitor.sessions.tables.pacing import one_at_a_time
from monitor.sessions.tables.schema import SqlConnection

T = TypeVar("T")
Work = Callable[[SqlConnection], T]

_COMMITTED: Final = "agent_monitor_committed"
"""The attribute of a cancellation with the result of the step that was stored all the same."""

MOST_STEPS: Final = 512
"""Steps in one transaction: enough for one commit of 200 runs, and some milliseconds of work."""


class TransactionRules(Protocol):
    """The rules of the session for its transactions."""

    def connect(self) -> SqlConnection:
        """The connection, opened in the thread that will use it."""
        ...

    def check_file(self) -> None:
        """Raise `SessionLost` if the file is not the one that was opened."""
        ...

    def prepare(self, connection: SqlConnection) -> None:
        """Called before each transaction, outside of it."""
        ...

    def begin(self, connection: SqlConnection) -> None:
        """The first statements of each transaction. Raises `SessionLost` if this process is not the
        owner any more.
        """
        ...

    def committed(self) -> None:
        """The transaction in which `begin` was called is on the disk."""
        ...

    def close(self, connection: SqlConnection) -> None:
        """Close the connection. This is the last step of the thread."""
        ...

    def typed(self, error: BaseException) -> StoreError:
        """The typed error for what SQLite or the system raised."""
        ...

    def is_lasting(self, error: BaseException) -> bool:
        """Whether nothing more may be written after `error`."""
        ...


class Ticket:
    """A step that a task waits for until it is stored."""

    __slots__ = ("done", "ends", "error", "result", "soon", "work", "writes")

    def __init__(self, work: Work[Any], *, writes: bool) -> None:
        native: Any = current_token().native_token
        self.work = work
        self.writes = writes
        self.ends = False
        self.soon: Callable[..., object] = getattr(native, "call_soon_threadsafe", None) or native.run_sync_soon
        self.done = anyio.Event()
        self.result: Any = None
        self.error: BaseException | None = None


class Writer:
    """The thread, and the queue of steps for it."""

    def __init__(self, rules: TransactionRules, name: str) -> None:
        self._rules = rules
        self._queue: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=f"session {name}", daemon=True)
        self._connection: SqlConnection | None = None
        self._broken: BaseException | None = None
        self._pid = os.getpid()
        self._open = True
        self.commits = 0
        """Transactions that were committed so far."""
        self._thread.start()

    async def run(self, work: Work[T], *, writes: bool = True) -> T:
        """Run `work` in the thread. Returns its result when the transaction is on the disk.

        A cancellation waits until it is known whether the step is stored. Then it is raised with a
        note that says so. If a scope of anyio was cancelled, the result is returned all the same.
        """
        if not self._open:
            raise StoreError("the session is closed")
        if os.getpid() != self._pid:
            raise SessionLost("the session was opened before this process was forked: open it again here")
        ticket = Ticket(work, writes=writes)
        self._queue.put(ticket)
        await settled(ticket)
        if ticket.error is not None:
            raise ticket.error
        result: T = ticket.result
        return result

    async def close(self) -> None:
        """Write the steps that wait, close the connection and end the thread."""
        if not self._open:
            return
        self._open = False
        if os.getpid() != self._pid:  # a fork has no such thread, and the connection is not its own
            return
        ticket = Ticket(self._rules.close, writes=False)
        ticket.ends = True
        self._queue.put(ticket)
        self._queue.put(None)
        try:
            await settled(ticket)
        finally:
            self._thread.join()
        if ticket.error is not None:
            raise ticket.error

    # -------------------------------------------------------------- in the thread

    def _serve(self) -> None:
        ticket = self._queue.get()
        while ticket is not None:
            following: Ticket | None = None
            if ticket.writes:
                following = self._write([ticket])
            else:
                self._read(ticket)
                hand_back([ticket])
            ticket = following or self._queue.get()
        self._refuse_the_rest()

    def _refuse_the_rest(self) -> None:
        """Refuse the steps that other threads have sent while the session was closed."""
        with contextlib.suppress(queue.Empty):
            while True:
                late = self._queue.get_nowait()
                if late is not None:
                    late.error = StoreError("the session is closed")
                    hand_back([late])

    def _read(self, ticket: Ticket) -> None:
        try:
            if not ticket.ends:
                ticket.result = ticket.work(self._connected())
            elif self._connection is not None:  # it could be opened
                ticket.work(self._connection)
        except Exception as error:  # noqa: BLE001 - it is raised in the task that waits
            ticket.error = self._typed(error)

    def _connected(self) -> SqlConnection:
        if self._connection is None:
            self._connection = self._rules.connect()
        return self._connection

    def _write(self, group: list[Ticket]) -> Ticket | None:
        """Write `group`, and all steps that wait in the queue, in one transaction.

        Returns the first ticket of the queue that cannot join it, as a read cannot.
        """
        following: Ticket | None = None
        try:
            if self._broken is not None:
                raise self._broken
            following = self._transact(self._connected(), group)
        except Exception as error:  # noqa: BLE001 - it is raised in the tasks that wait
            if self._rules.is_lasting(error):
                self._broken = error
            for ticket in group:
                ticket.error = self._rules.typed(error)
        hand_back(group)
        return following

    def _transact(self, connection: SqlConnection, group: list[Ticket]) -> Ticket | None:
        """Carry out the transaction of `_write`."""
        self._rules.check_file()
        self._rules.prepare(connection)
        connection.execute("BEGIN IMMEDIATE")
        try:
            with one_at_a_time():
                self._rules.begin(connection)
                _carry_out(connection, group[0])
                if group[0].error is not None:  # nothing else is in the transaction yet
                    connection.execute("ROLLBACK")
                    return None
                following = self._join(connection, group)
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(Exception):  # SQLite may have rolled back by itself
                connection.execute("ROLLBACK")
            raise
        self._rules.check_file()
        self._rules.committed()
        self.commits += 1
        return following

    def _join(self, connection: SqlConnection, group: list[Ticket]) -> Ticket | None:
        """Add the steps that wait already to the transaction. For the result see `_write`."""
        while len(group) < MOST_STEPS:
            try:
                ticket = self._queue.get_nowait()
            except queue.Empty:
                return None
            if ticket is None or not ticket.writes:
                if ticket is None:  # the end of the queue: it is read again after this transaction
                    self._queue.put(None)
                return ticket
            group.append(ticket)
            connection.execute("SAVEPOINT step")
            _carry_out(connection, ticket)
            if ticket.error is not None:  # the others stay as they are
                connection.execute("ROLLBACK TO step")
            connection.execute("RELEASE step")
        return None

    def _typed(self, error: Exception) -> BaseException:
        return self._rules.typed(error) if isinstance(error, sqlite3.Error | OSError) else error


def _carry_out(connection: SqlConnection, ticket: Ticket) -> None:
    """One step of a transaction. An error that is not of the disk concerns this step alone."""
    try:
        ticket.result = ticket.work(connection)
    except (sqlite3.Error, OSError):
        raise
    except Exception as error:  # noqa: BLE001 - it is raised in the task that waits
        ticket.error = error


async def settled(ticket: Ticket) -> None:
    """Return when it is known whether the step is stored, even if the task is cancelled before."""
    cancelled: BaseException | None = None
    while not ticket.done.is_set():
        try:
            with anyio.CancelScope(shield=True):
                await ticket.done.wait()
        except anyio.get_cancelled_exc_class() as error:  # asyncio's own, which no scope can delay
            cancelled = error
    if cancelled is not None:
        cancelled.add_note("session: the step was not stored" if ticket.error else "session: the step is stored")
        if ticket.error is None:
            note_committed(cancelled, ticket.result)
        raise cancelled


def note_committed(error: BaseException, committed: Committed) -> None:
    """Say in the cancellation `error` which step was stored before it."""
    setattr(error, _COMMITTED, committed)


def committed_in(error: BaseException) -> Committed | None:
    """The step that was stored before the cancellation `error` was raised. `None`: none was."""
    found = getattr(error, _COMMITTED, None)
    return found if isinstance(found, Committed) else None


_returning: Final[dict[Callable[..., object], list[Ticket]]] = {}
"""For each event loop that was woken: the tickets that it has not seen yet."""
_returning_lock = threading.Lock()


def hand_back(tickets: list[Ticket]) -> None:
    """Wake the tasks. A loop is woken once for the tickets of all sessions that come meanwhile."""
    for ticket in tickets:
        with _returning_lock:
            waiting = _returning.get(ticket.soon)
            if waiting is not None:
                waiting.append(ticket)
                continue
            _returning[ticket.soon] = [ticket]
        try:
            ticket.soon(_wake, ticket.soon)
        except Exception:  # noqa: BLE001 - the loop has ended, and nobody waits
            _returning.pop(ticket.soon, None)


def _wake(soon: Callable[..., object]) -> None:
    with _returning_lock:
        tickets = _returning.pop(soon, [])
    for ticket in tickets:
        ticket.done.set()


def _forked() -> None:
    """The thread that held the lock is not in this process, so nobody would release it."""
    global _returning_lock  # noqa: PLW0603 - every process has its own
    _returning_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
