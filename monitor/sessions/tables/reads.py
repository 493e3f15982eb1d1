"""The methods that read a session, for its owner and for readers, in any database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Self, TypeVar

from monitor.messages import CallRecord
from monitor.sessions.closed_runs import ApprovalState, RunRecord, StoredEvent, TurnChunks
from monitor.sessions.nodes import Node
from monitor.sessions.tables.rows import Rows
from monitor.sessions.tree import ACTIVE, Context, TreeProblem

T = TypeVar("T")


class OwnerReads(ABC):
    """What the owner of a session reads, beside its writing."""

    @abstractmethod
    async def _read(self, read: Callable[[Rows], T]) -> T:
        """Read behind everything that was written before."""

    async def context(self, branch: str = ACTIVE) -> Context:
        """The messages that the model gets of a branch."""
        return await self._read(lambda rows: rows.context(branch))

    async def active_path(
        self, branch: str = ACTIVE, *, last: int | None = None, run: str | None = None
    ) -> tuple[Node, ...]:
        """The nodes of a branch, oldest first; see `SessionStore.active_path`."""
        return await self._read(lambda rows: rows.active_path(branch, last=last, run=run))

    async def nodes(self) -> tuple[Node, ...]:
        """All nodes, in the order of writing."""
        return await self._read(lambda rows: rows.nodes())

    async def find_node(self, id: str) -> Node | None:
        """The node with the id `id`, or `None`."""
        return await self._read(lambda rows: rows.find_node(id))

    async def heads(self) -> dict[str, str | None]:
        """The newest node of each branch."""
        return await self._read(lambda rows: rows.heads())

    async def runs(self, *, hidden: bool = False) -> tuple[RunRecord, ...]:
        """The runs. `hidden`: also those that serve another run, such as compactions."""
        return tuple(run for run in await self._read(lambda rows: rows.runs()) if hidden or not run.hidden)

    async def calls(self, run: str | None = None) -> tuple[CallRecord, ...]:
        """The calls of a run, or of all runs, in the order in which they were intended."""
        return await self._read(lambda rows: rows.calls(run))

    async def approvals(self, *, only_open: bool = False) -> tuple[ApprovalState, ...]:
        """The questions and their answers, in the order in which they were asked."""
        return await self._read(lambda rows: rows.approvals(only_open=only_open))

    async def events(self, run: str | None = None) -> tuple[StoredEvent, ...]:
        """The events of a run, or of all."""
        return await self._read(lambda rows: rows.events(run))

    async def chunks(self, run: str | None = None) -> tuple[TurnChunks, ...]:
        """The chunks of a run, or of all."""
        return await self._read(lambda rows: rows.chunks(run))

    async def find(self, key: str) -> CallRecord | None:
        """See `CallLedger.find`."""
        return await self._read(lambda rows: rows.find(key))

    async def open_calls(self, run: str) -> Sequence[CallRecord]:
        """See `CallLedger.open_calls`."""
        return await self._read(lambda rows: rows.open_calls(run))

    async def verify(self) -> tuple[TreeProblem, ...]:
        """The faults of the stored data; empty, if it is as it was written."""
        return await self._read(lambda rows: tuple(rows.verify()))


class Reads(ABC):
    """What everybody reads of a session, also while its owner writes."""

    @abstractmethod
    def _read(self, read: Callable[[Rows], T]) -> T:
        """Read what is stored at one moment."""

    @abstractmethod
    def close(self) -> None:
        """Close the file, or the connection."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def context(self, branch: str = ACTIVE) -> Context:
        """The messages that the model gets of a branch."""
        return self._read(lambda rows: rows.context(branch))

    def active_path(self, branch: str = ACTIVE, *, last: int | None = None, run: str | None = None) -> tuple[Node, ...]:
        """The nodes of a branch, oldest first; see `SessionStore.active_path`."""
        return self._read(lambda rows: rows.active_path(branch, last=last, run=run))

    def nodes(self) -> tuple[Node, ...]:
        """All nodes, in the order of writing."""
        return self._read(lambda rows: rows.nodes())

    def count(self) -> int:
        """The number of nodes."""
        return self._read(lambda rows: rows.last_seq())

    def first_nodes(self, number: int) -> tuple[Node, ...]:
        """The `number` nodes that were written first, or all if there are fewer."""
        return self._read(lambda rows: rows.nodes(number))

    def find_node(self, id: str) -> Node | None:
        """The node with the id `id`, or `None`."""
        return self._read(lambda rows: rows.find_node(id))

    def heads(self) -> dict[str, str | None]:
        """The newest node of each branch."""
        return self._read(lambda rows: rows.heads())

    def runs(self, *, hidden: bool = False) -> tuple[RunRecord, ...]:
        """The runs. `hidden`: also those that serve another run, such as compactions."""
        return tuple(run for run in self._read(lambda rows: rows.runs()) if hidden or not run.hidden)

    def calls(self, run: str | None = None) -> tuple[CallRecord, ...]:
        """The calls of a run, or of all runs, in the order in which they were intended."""
        return self._read(lambda rows: rows.calls(run))

    def approvals(self) -> tuple[ApprovalState, ...]:
        """The questions and their answers, in the order in which they were asked."""
        return self._read(lambda rows: rows.approvals())

    def events(self, run: str | None = None, after: int = 0) -> tuple[StoredEvent, ...]:
        """The events of a run, or of all, whose numbers are greater than `after`."""
        return self._read(lambda rows: rows.events(run, after))

    def chunks(self, run: str | None = None) -> tuple[TurnChunks, ...]:
        """The chunks of a run, or of all."""
        return self._read(lambda rows: rows.chunks(run))

    def verify(self) -> tuple[TreeProblem, ...]:
        """The faults of the stored data; empty, if it is as it was written."""
        return self._read(lambda rows: tuple(rows.verify()))
