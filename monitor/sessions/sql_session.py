"""The methods of a session that is kept in an SQLite, in a file or in memory."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from monitor.calls import CallRecord
from monitor.errors import StoreError
from monitor.sessions.beside.mailbox import Mailbox
from monitor.sessions.closed_runs import close_run
from monitor.sessions.faults import not_text
from monitor.sessions.nodes import ID_CHANCE_BYTES, Draft, Node, new_id
from monitor.sessions.reader import problems
from monitor.sessions.run_records import (
    ApprovalState,
    Changes,
    Committed,
    RunRecord,
    StoredEvent,
    TurnChunks,
)
from monitor.sessions.tables import read_records, rows, writing
from monitor.sessions.tables.blobs import Blobs
from monitor.sessions.tables.owner_memory import Memory
from monitor.sessions.tables.schema import SqlConnection
from monitor.sessions.tree import ACTIVE, Context, TreeProblem, context_of
from monitor.sessions.writer import Work

T = TypeVar("T")


class SqlSession(ABC):
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

    async def _read(self, work: Work[Any]) -> Any:
        return await self._typed(work, writes=False)

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

    async def context(self, branch: str = ACTIVE) -> Context:
        """The messages that the model gets of a branch."""

        def read(connection: SqlConnection) -> Context:
            return context_of(rows.upwards(connection, branch, self._blobs))

        found: Context = await self._read(read)
        return found

    async def active_path(
        self, branch: str = ACTIVE, *, last: int | None = None, run: str | None = None
    ) -> tuple[Node, ...]:
        """The nodes of a branch, oldest first; see `SessionStore.active_path`."""
        found: tuple[Node, ...] = await self._read(lambda one: rows.path(one, branch, self._blobs, last=last, run=run))
        return found

    async def nodes(self) -> tuple[Node, ...]:
        """All nodes, in the order of writing."""
        found: tuple[Node, ...] = await self._read(lambda one: tuple(rows.nodes(one, self._blobs)))
        return found

    async def find_node(self, id: str) -> Node | None:
        """The node with the id `id`, or `None`."""
        found: Node | None = await self._read(lambda one: rows.find_node(one, id, self._blobs))
        return found

    async def heads(self) -> dict[str, str | None]:
        """The newest node of each branch."""
        found: dict[str, str | None] = await self._read(rows.heads)
        return found

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

    async def runs(self, *, hidden: bool = False) -> tuple[RunRecord, ...]:
        """The runs. `hidden`: also those that serve another run, such as compactions."""
        found: Sequence[RunRecord] = await self._read(lambda one: read_records.runs(one, self._blobs))
        return tuple(run for run in found if hidden or not run.hidden)

    async def calls(self, run: str | None = None) -> tuple[CallRecord, ...]:
        """The calls of a run, or of all runs."""
        return tuple(await self._read(lambda one: read_records.calls(one, self._blobs, run)))

    async def approvals(self, *, only_open: bool = False) -> tuple[ApprovalState, ...]:
        """The questions and their answers."""
        return tuple(await self._read(lambda one: read_records.approvals(one, self._blobs, only_open=only_open)))

    async def events(self, run: str | None = None) -> tuple[StoredEvent, ...]:
        """The events of a run, or of all."""
        return tuple(await self._read(lambda one: read_records.events(one, self._blobs, run)))

    async def chunks(self, run: str | None = None) -> tuple[TurnChunks, ...]:
        """The chunks of a run, or of all."""
        return tuple(await self._read(lambda one: read_records.chunks(one, self._blobs, run)))

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

    async def find(self, key: str) -> CallRecord | None:
        """See `CallLedger.find`."""
        found: CallRecord | None = await self._read(lambda one: read_records.find_call(one, self._blobs, key))
        return found

    async def open_calls(self, run: str) -> Sequence[CallRecord]:
        """See `CallLedger.open_calls`."""
        found: list[CallRecord] = await self._read(lambda one: read_records.open_calls(one, self._blobs, run))
        return found

    async def verify(self) -> tuple[TreeProblem, ...]:
        """The faults of the stored data; empty, if it is as it was written."""
        return tuple(await self._read(lambda one: list(problems(one, self._blobs))))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @abstractmethod
    async def aclose(self) -> None:
        """Close the session. After that nothing can be written."""


def id_at(at_ms: int) -> str:
    """A new id, in the order of time."""
    return new_id(at_ms, secrets.token_bytes(ID_CHANCE_BYTES))
