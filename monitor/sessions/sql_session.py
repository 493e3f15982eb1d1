"""The methods of a session that is kept in an SQLite, in a file or in memory."""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self, TypeVar

from monitor.calls import CallRecord
from monitor.errors import StoreError
from monitor.sessions.beside.mailbox import Mailbox
from monitor.sessions.closed_runs import close_run
from monitor.sessions.faults import not_text
from monitor.sessions.nodes import ID_CHANCE_BYTES, Draft, Node, new_id
from monitor.sessions.run_records import (
    Changes,
    Committed,
)
from monitor.sessions.tables import rows, writing
from monitor.sessions.tables.blobs import Blobs
from monitor.sessions.tables.owner_memory import Memory
from monitor.sessions.tables.schema import SqlConnection
from monitor.sessions.tables.session_reads import OwnerReads, SessionRows
from monitor.sessions.tables.stored_rows import StoredRows
from monitor.sessions.tree import ACTIVE
from monitor.sessions.writer import Work

T = TypeVar("T")


class SqlSession(OwnerReads):
    """A session as tables of an SQLite. What differs is where a transaction is carried out."""

    id: str
    """128 bits as 32 hexadecimal digits, once the session is open."""
    keeps_chunks: bool
    """Whether runs store their chunks as well, so that they can be replayed."""
    mailbox: Mailbox | None = None
    """Where other processes leave messages for the runs. `None`: no other process can."""

    def __init__(self, *, blobs: Blobs, clock: Callable[[], float], memory: Memory) -> None:
        self._blobs = blobs
        self._clock = clock
        self._memory = memory

    @abstractmethod
    async def _run(self, work: Work[Any], *, writes: bool) -> Any:
        """Carry out `work`, in a transaction if it `writes`."""

    async def _read(self, read: Callable[[SessionRows], T]) -> T:
        found: T = await self._typed(lambda one: read(StoredRows(one, self._blobs)), writes=False)
        return found

    async def _write(self, work: Work[Any]) -> Any:
        def write(connection: SqlConnection) -> Any:
            try:
                return work(connection)
            except BaseException:
                self._memory.forget()
                raise

        return await self._typed(write, writes=True)

    async def _typed(self, work: Work[Any], *, writes: bool) -> Any:
        try:
            return await self._run(work, writes=writes)
        except UnicodeEncodeError as error:
            raise StoreError(not_text(error)) from None

    # -------------------------------------------------------------- the tree

    async def commit(self, changes: Changes) -> Committed:
        """Write one step: all of it, or nothing. Returns when it is on the disk."""

        def write(connection: SqlConnection) -> Committed:
            at_ms = round(self._clock() * 1000)
            return writing.commit(
                connection, changes, self._blobs, at_ms=at_ms, new_id=partial(id_at, at_ms), memory=self._memory
            )

        done: Committed = await self._write(write)
        return done

    async def append(self, *drafts: Draft, branch: str = ACTIVE) -> tuple[Node, ...]:
        """Write nodes behind the head of a branch."""
        return (await self.commit(Changes(nodes=drafts, branch=branch))).nodes

    async def switch_node(self, node: str | None, *, branch: str = ACTIVE) -> None:
        """Make `node` the end of a branch; the next nodes follow it. Nothing is summarised, and
        nothing of the path that is left is copied. `None`: the branch begins anew, with a new root.

        With a new name as `branch`, this makes a branch of that name.
        """

        def write(connection: SqlConnection) -> None:
            self._memory.heads.pop(branch, None)
            rows.write_head(connection, branch, node, seal=self._memory.seal(connection))
            writing.write_seal(connection, self._memory)

        await self._write(write)

    # -------------------------------------------------------------- runs, calls, events

    async def close_run(self, run: str, why: str) -> None:
        """See `monitor.sessions.close_run`."""
        await close_run(self, run, why)

    async def intend(self, records: Sequence[CallRecord]) -> Sequence[CallRecord]:
        """See `CallLedger.intend`."""

        def write(connection: SqlConnection) -> list[CallRecord]:
            return [writing.intend(connection, record, self._blobs, self._memory) for record in records]

        found: list[CallRecord] = await self._write(write)
        return found

    async def advance(self, record: CallRecord) -> bool:
        """See `CallLedger.advance`."""
        done: bool = await self._write(lambda one: writing.advance(one, record, self._blobs, self._memory))
        return done

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @abstractmethod
    async def aclose(self) -> None:
        """Close the session. After that nothing can be written."""


def id_at(at_ms: int) -> str:
    """A new id, in the order of time."""
    return new_id(at_ms, secrets.token_bytes(ID_CHANCE_BYTES))
