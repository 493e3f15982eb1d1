"""The methods of every store of a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from monitor.calls import CallRecord
from monitor.sessions.beside.mailbox import Mailbox
from monitor.sessions.nodes import Draft, Node
from monitor.sessions.run_records import (
    ApprovalState,
    Changes,
    Committed,
    RunRecord,
    StoredEvent,
    TurnChunks,
)
from monitor.sessions.tree import ACTIVE, Context, TreeProblem


class SessionStore(Protocol):
    """A session: a tree of nodes, and the runs, calls, approvals and events around it.

    When an awaited write returns, it is stored as safely as this kind of store can. Each store is a
    `CallLedger` as well.
    """

    @property
    def id(self) -> str:
        """128 bits as 32 hexadecimal digits."""
        ...

    @property
    def keeps_chunks(self) -> bool:
        """Whether runs store their chunks as well, so that they can be replayed."""
        ...

    @property
    def mailbox(self) -> Mailbox | None:
        """Where other processes leave messages for the runs. `None`: no other process can."""
        ...

    async def commit(self, changes: Changes, /) -> Committed:
        """Write one step: all of it, or nothing. Raises `StoreError` for a step that does not fit
        the session.
        """
        ...

    async def append(self, *drafts: Draft, branch: str = ACTIVE) -> tuple[Node, ...]:
        """Write nodes behind the head of a branch."""
        ...

    async def context(self, branch: str = ACTIVE, /) -> Context:
        """The messages that the model gets of a branch."""
        ...

    async def active_path(
        self, branch: str = ACTIVE, /, *, last: int | None = None, run: str | None = None
    ) -> tuple[Node, ...]:
        """The nodes of a branch, oldest first. `run`: only those of the run with this id. `last`:
        at most this many, the newest ones. No more of the branch is read than that needs.
        """
        ...

    async def nodes(self) -> tuple[Node, ...]:
        """All nodes, in the order of writing."""
        ...

    async def find_node(self, id: str, /) -> Node | None:
        """The node with the id `id`, or `None`."""
        ...

    async def heads(self) -> dict[str, str | None]:
        """The newest node of each branch."""
        ...

    async def switch_node(self, node: str | None, /, *, branch: str = ACTIVE) -> None:
        """Let a branch end at `node`; what is appended goes on from there. Nothing is summarised,
        and nothing is taken over from the path that is left. `None`: before the first node.

        With a new name as `branch`, this makes a branch of that name.
        """
        ...

    async def runs(self, *, hidden: bool = False) -> tuple[RunRecord, ...]:
        """The runs. `hidden`: also those that serve another run, such as compactions."""
        ...

    async def calls(self, run: str | None = None, /) -> tuple[CallRecord, ...]:
        """The calls of a run, or of all runs."""
        ...

    async def approvals(self, *, only_open: bool = False) -> tuple[ApprovalState, ...]:
        """The questions and their answers."""
        ...

    async def events(self, run: str | None = None, /) -> tuple[StoredEvent, ...]:
        """The events of a run, or of all."""
        ...

    async def chunks(self, run: str | None = None, /) -> tuple[TurnChunks, ...]:
        """The chunks of a run, or of all."""
        ...

    async def intend(self, records: Sequence[CallRecord], /) -> Sequence[CallRecord]:
        """See `CallLedger.intend`."""
        ...

    async def advance(self, record: CallRecord, /) -> bool:
        """See `CallLedger.advance`."""
        ...

    async def find(self, key: str, /) -> CallRecord | None:
        """See `CallLedger.find`."""
        ...

    async def open_calls(self, run: str, /) -> Sequence[CallRecord]:
        """See `CallLedger.open_calls`."""
        ...

    async def verify(self) -> tuple[TreeProblem, ...]:
        """The faults of the stored data; empty, if it is as it was written."""
        ...

    async def aclose(self) -> None:
        """Close the session. After that nothing can be written."""
        ...
