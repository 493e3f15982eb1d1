"""The steps of a run that its session gets together, and the moment when each is on the disk.

A sync to the disk costs more than everything else, so steps are gathered. `flush` writes all that
were gathered, in one commit, and the steps of tasks that arrive meanwhile join it. The recorder
calls it where something must not happen before it is stored: an effect, a question to a person, a
request to the model, an announcement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import anyio

from monitor.chunks import ToolResult
from monitor.core.replay.inputs import split
from monitor.core.replay.recording import InputLog
from monitor.events import ApprovalAnswered, ApprovalRequested, Event
from monitor.messages import ApprovalAnswer, ApprovalRequest, CallRecord, CallState, Message, comes_after
from monitor.sessions.closed_runs import Changes, Committed, RunRecord, SessionStore, TurnChunks
from monitor.sessions.nodes import Draft, Node, compacted_of
from monitor.sessions.writer import committed_in


@dataclass(slots=True)
class StoredMessage:
    """An original message of the history, and where it stands in the session."""

    message: Message
    node: str | None
    """`None`: it has no node of its own, because a compaction or a repair shows it."""
    results: dict[str, ToolResult] = field(default_factory=dict)
    """The stored results of the run, by the ids that the history has for their calls."""
    ids: dict[str, str] = field(default_factory=dict)
    """The stored ids of its calls, by those of the history, where a repair has changed them."""
    seq: int = 0
    """The number of the node. 0: this process did not write it."""

    def written(self, node: Node) -> None:
        """The message is stored as `node`."""
        self.node, self.seq = node.id, node.seq


@dataclass(slots=True)
class StoredResult:
    """A result that is written with the end of its call."""

    message: StoredMessage
    """The message that has the call."""

    def written(self, node: Node) -> None:
        """The result is stored as `node`, which is never named again."""


@dataclass(slots=True)
class StoredCompaction:
    """A compaction, and where it stands in the session."""

    node: str | None = None
    stale: bool = False

    def written(self, node: Node) -> None:
        """The compaction is stored as `node`. The session has decided whether it is stale."""
        self.node, self.stale = node.id, compacted_of(node).stale


NewNode: TypeAlias = tuple[Draft, StoredMessage | StoredResult | StoredCompaction | None]
"""A node to be written, and what it is of."""


@dataclass(slots=True)
class PendingChanges:
    """Changes that one commit writes."""

    nodes: list[NewNode] = field(default_factory=list)
    runs: dict[str, RunRecord] = field(default_factory=dict)
    calls: list[CallRecord] = field(default_factory=list)
    requests: list[ApprovalRequest] = field(default_factory=list)
    """Questions that stay open."""
    answers: list[ApprovalAnswer] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def add(self, later: PendingChanges) -> None:
        """Make both one step: these changes first, then those of `later`."""
        self.nodes += later.nodes
        self.runs |= later.runs
        self.calls += later.calls
        self.requests += later.requests
        self.answers += later.answers
        self.events += later.events


class Journal:
    """Gathers the steps of one run and writes them into `store`."""

    def __init__(
        self, store: SessionStore, *, run: str, branch: str, turn: Callable[[], int], log: InputLog | None = None
    ) -> None:
        """`turn`: the number of the running turn. `log`: of the run's core, if it is stored."""
        self.store = store
        self.run = run
        self.branch = branch
        self.turn = turn
        self.told: Callable[[int], object] | None = None
        """Is called with the number of events that are stored by now."""
        self._log = log
        self.head: Node | None = None
        """The newest node of the branch that is known to be stored."""
        self._step = PendingChanges()
        self._added = 0
        self._stored = 0
        """The number of additions that are stored, of the `_added` ones that were gathered."""
        self._events = 0
        """The number of events that were added."""
        self._open: dict[str, CallRecord] = {}
        """The calls of the run that have not ended, by key."""
        self._ended: dict[str, CallRecord] = {}
        """The calls of the run that have ended, by key."""
        self.enters: Callable[[CallRecord], object] | None = None
        """Is called with each call that becomes `running`, before that is stored."""
        self._lock = anyio.Lock()

    async def open(self) -> None:
        """Learn which calls the session knows of this run."""
        for record in await self.store.calls(self.run):
            (self._open if record.open else self._ended)[record.key] = record

    # ------------------------------------------------------------------ what is gathered

    def add(self, changes: PendingChanges) -> None:
        """Add changes behind those that are gathered."""
        self._step.add(changes)
        self._added += 1

    def add_nodes(self, nodes: Sequence[NewNode]) -> None:
        """Add nodes behind those that are gathered."""
        if nodes:
            self.add(PendingChanges(nodes=[*nodes]))

    def drop(self, said: StoredMessage | StoredCompaction) -> bool:
        """Take `said` back, with its results. False: it is stored, or is written now."""
        kept = [
            (draft, stored)
            for draft, stored in self._step.nodes
            if stored is not said and not (isinstance(stored, StoredResult) and stored.message is said)
        ]
        dropped = len(kept) < len(self._step.nodes)
        self._step.nodes = kept
        return dropped

    def add_event(self, event: Event) -> int:
        """Add an event, and return its number."""
        changes = PendingChanges(events=[event])
        if isinstance(event, ApprovalRequested):
            changes.requests = [event.request]
        elif isinstance(event, ApprovalAnswered):
            changes.answers = [event.answer]
        self.add(changes)
        self._events += 1
        return self._events

    # ------------------------------------------------------------------ the calls

    async def intend(self, records: Sequence[CallRecord]) -> Sequence[CallRecord]:
        """See `CallLedger.intend`. Nothing is stored yet."""
        for record in records:
            if self._known(record.key) is None:
                self._open[record.key] = record
                self.add(PendingChanges(calls=[record]))
        return [self._known(record.key) or record for record in records]

    def waits(self, call_id: str) -> bool:
        """Whether the call with this id has not ended. Its result is not known yet."""
        return any(record.call_id == call_id for record in self._open.values())

    def latest(self, call_id: str) -> CallRecord | None:
        """The newest call of the run with this id."""
        found = [one for one in (*self._ended.values(), *self._open.values()) if one.call_id == call_id]
        return max(found, key=lambda one: one.turn, default=None)

    def _known(self, key: str) -> CallRecord | None:
        return self._open.get(key) or self._ended.get(key)

    async def advance(self, record: CallRecord) -> bool:
        """See `CallLedger.advance`.

        `running` is stored when this returns. The other states are stored together with the events
        that announce them, see `flush`.
        """
        if not comes_after(record, self._known(record.key)):
            return False
        self.add(PendingChanges(calls=[record]))
        self._open.pop(record.key, None)
        (self._open if record.open else self._ended)[record.key] = record
        if record.state is CallState.RUNNING:
            if self.enters is not None:
                self.enters(record)
            await self.flush()
        return True

    async def find(self, key: str) -> CallRecord | None:
        """See `CallLedger.find`."""
        return self._known(key) or await self.store.find(key)

    async def open_calls(self, run: str) -> Sequence[CallRecord]:
        """See `CallLedger.open_calls`."""
        await self.flush()
        return await self.store.open_calls(run)

    # ------------------------------------------------------------------ the commit

    async def flush(self, *, beside_open_calls: bool = False) -> None:
        """Return when everything that was gathered before is stored.

        `beside_open_calls`: nothing is stored if no call is open then. The results of the turn
        follow at once, in the same commit.
        """
        wanted = self._added
        if self._stored >= wanted:
            return
        async with self._lock:  # taking it lets other tasks run, whose steps join this commit
            if self._stored < wanted and (self._open or not beside_open_calls):
                await self._commit()

    async def _commit(self) -> None:
        step, self._step = self._step, PendingChanges()
        added, events = self._added, self._events
        inputs = self._log.take() if self._log is not None else []
        changes = Changes(
            nodes=[draft for draft, _ in step.nodes],
            branch=self.branch,
            runs=[*step.runs.values()],
            calls=step.calls,
            requests=step.requests,
            answers=step.answers,
            events=step.events,
            events_run=self.run,
            chunks=[TurnChunks(self.run, self.turn(), *split(inputs))] if inputs else (),
        )
        try:
            committed = await self.store.commit(changes)
        except BaseException as error:
            done = committed_in(error)
            if done is None:
                step.add(self._step)
                self._step = step
                if self._log is not None:
                    self._log.put_back(inputs)
            else:  # the task was cancelled while it waited for a step that is stored
                self._is_stored(step, done, added, events)
            raise
        self._is_stored(step, committed, added, events)

    def _is_stored(self, step: PendingChanges, committed: Committed, added: int, events: int) -> None:
        self._stored = added
        for node, (_, said) in zip(committed.nodes, step.nodes, strict=True):
            if said is not None:
                said.written(node)
            if node.id == committed.head:
                self.head = node
        if self.told is not None:
            self.told(events)
