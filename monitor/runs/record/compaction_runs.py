"""A compaction in the session of its run: a node on the branch, and a hidden run that has what its
model was asked.

Failure answered: a summary replaces half a conversation, and nobody can see who wrote it from what.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import anyio

from monitor.context.compaction.hooks import CompactionRecord
from monitor.core.replay.inputs import LifeNote, split
from monitor.core.replay.recording import InputLog
from monitor.errors import CompactionFailure
from monitor.events import CompactionFailed, CompactionFinished, CompactionStarted, Event
from monitor.messages import AssistantMessage, Text
from monitor.models import ModelRequest
from monitor.outcome import Turn
from monitor.runs.record.journal import Journal, PendingChanges, StoredCompaction, StoredMessage
from monitor.sessions.closed_runs import COMPACT, Changes, RunRecord, RunStage, TurnChunks
from monitor.sessions.nodes import Compacted, Draft, Node, compaction, marker, message
from monitor.sessions.writer import committed_in
from monitor.tools.masking import Secrets

REQUEST = "request"
"""The name of the marker before the messages of a request: its instructions and its model."""
USAGE = "usage"
"""The key, in the data of a compaction's run, of the tokens that its event counts."""
CUT_OFF = "its process ended before the compaction was done"
"""The detail of a compaction that a dead process has left open."""


@dataclass(slots=True)
class SummaryExchange:
    """One request to the model of a compaction, and its answer."""

    model: str
    request: ModelRequest
    log: InputLog | None = None
    """The inputs of the core that watched the answer. `None`: the session keeps no chunks."""
    events: list[Event] = field(default_factory=list)
    turn: Turn | None = None
    """`None`: no answer came."""
    over: bool = False
    """The answer has come, or will not come."""


class CompactionNumbers:
    """The compactions of a run without a session: they have numbers, and nothing is stored."""

    def __init__(self) -> None:
        self._last = 0

    def next_number(self) -> int:
        """The number of the next compaction, from 1."""
        self._last += 1
        return self._last

    def place(self) -> Node | None:
        """The newest stored node. A compaction that begins now covers nothing behind it."""
        return None

    async def store(self, number: int, record: CompactionRecord, place: Node | None) -> bool:
        """Store the compaction. False: while it was made, the session has left the path that it
        covers, or a newer compaction has covered it. It is stored as stale.
        """
        return True

    def exchange(self, number: int, model: str, request: ModelRequest) -> SummaryExchange:
        """A request that the compaction makes now. It is stored with the next step."""
        return SummaryExchange(model, request)


class CompactionRuns(CompactionNumbers):
    """The compactions of a run that has a session. Each is a run of its own, with the purpose
    `compact` and an id of its own.
    """

    def __init__(
        self, journal: Journal, *, sync: Callable[[], Awaitable[None]], stored: Callable[[], Sequence[StoredMessage]]
    ) -> None:
        """`sync`: stores what the history holds. `stored`: the original messages of the run."""
        super().__init__()
        self._store = journal.store
        self._run = journal.run
        self._journal = journal
        self._sync = sync
        self._stored = stored
        self._children: dict[int, RunRecord] = {}
        self._exchanges: list[tuple[int, SummaryExchange]] = []
        """The exchanges that are not stored yet, each with the number of its compaction."""
        self._lives: dict[int, int] = {}
        """The number of exchanges of each compaction."""
        self._left = False
        """The session has left the path of this run."""
        self._writing = anyio.Lock()
        self._secrets = Secrets()

    async def take_up(self) -> None:
        """The run goes on in this process: count on from its compactions, and end those that its
        last process has left open.
        """
        events = [one.event for one in await self._store.events(self._run)]
        self._last = max((one.compaction for one in events if isinstance(one, CompactionStarted)), default=0)
        for child in await self._store.runs(hidden=True):
            if child.parent_run == self._run and child.purpose == COMPACT and child.state is RunStage.RUNNING:
                data = {**child.data, "ok": False, "failure": CompactionFailure.ABORTED.value, "detail": CUT_OFF}
                ended = replace(child, state=RunStage.ENDED, ended_at_s=time.time(), data=data)
                self._journal.add(PendingChanges(runs={child.id: ended}))

    # ------------------------------------------------------------------ its run

    def heard(self, event: Event) -> None:
        """Bring the run of a compaction to where its event says that it is."""
        if isinstance(event, CompactionStarted):
            self._put(event.compaction)
        elif isinstance(event, CompactionFinished | CompactionFailed):
            data: dict[str, Any] = {"after_s": event.after_s, USAGE: asdict(event.cost.usage)}
            if isinstance(event, CompactionFailed):
                data |= {"ok": False, "failure": event.failure.value, "detail": event.detail}
            else:
                data |= {"ok": True, "tokens_before": event.tokens_before, "tokens_after": event.tokens_after}
            self._put(event.compaction, state=RunStage.ENDED, ended_at_s=time.time(), data=data)

    def _put(self, number: int, **changes: Any) -> None:
        child = self._children.get(number) or RunRecord(
            id=uuid.uuid4().hex, parent_run=self._run, purpose=COMPACT, started_at_s=time.time()
        )
        self._children[number] = child = replace(child, **changes)
        self._journal.add(PendingChanges(runs={child.id: child}))

    # ------------------------------------------------------------------ its node

    def place(self) -> Node | None:
        return self._journal.head

    async def store(self, number: int, record: CompactionRecord, place: Node | None) -> bool:
        is_stored = False
        with anyio.CancelScope(shield=True):
            await self._sync()
            is_stored = await self._stored_with_its_node(number, record, place)
        return is_stored  # noqa: RET504 - to a type checker a scope may swallow the assignment

    async def _stored_with_its_node(self, number: int, record: CompactionRecord, place: Node | None) -> bool:
        stored = self._stored()
        covered = next((one for one in reversed(stored[: record.first_kept]) if one.node), None)
        base = place.id if place is not None else None
        if covered is not None and covered.seq > (place.seq if place is not None else 0):
            base = covered.node
        node = StoredCompaction()
        draft = compaction(
            Compacted(
                summary=record.summary,
                shown=record.shown,
                first_kept_node_id=next((one.node for one in stored[record.first_kept :] if one.node), None),
                tokens_before=record.tokens_before,
                tokens_after=record.tokens_after,
                details=asdict(record.details),
                preset=record.preset,
                reason=record.reason.value,
                summarised_by=record.summarised_by,
                base=base,
            ),
            run=self._run,
            turn=self._journal.turn(),
        )
        self._journal.add_nodes([(draft, node)])
        done = {"ok": True, "tokens_before": record.tokens_before, "tokens_after": record.tokens_after}
        self._put(number, state=RunStage.ENDED, ended_at_s=time.time(), data=done)
        await self._flush(node)
        if node.stale and not self._left:
            self._left = True
            return False
        # A run whose path the session has left goes on for itself: its later compactions are of its
        # own history alone.
        self._left = node.stale
        return True

    async def _flush(self, node: StoredCompaction) -> None:
        """Return when the compaction is stored. A task that is cancelled takes it back, or waits if
        another task writes it now.
        """
        while node.node is None:
            try:
                await self._journal.flush()
            except anyio.get_cancelled_exc_class():
                if self._journal.drop(node):
                    raise
            except BaseException:
                self._journal.drop(node)
                raise

    # ------------------------------------------------------------------ what its model was asked

    def exchange(self, number: int, model: str, request: ModelRequest) -> SummaryExchange:
        made = SummaryExchange(model, request, InputLog() if self._store.keeps_chunks else None)
        if made.log is not None:
            made.log.note(LifeNote(self._lives.get(number, 0)))
        self._lives[number] = self._lives.get(number, 0) + 1
        self._exchanges.append((number, made))
        return made

    async def sync(self) -> None:
        """Store the exchanges that are over, each in the run of its compaction."""
        if not self._exchanges:
            return
        async with self._writing:
            for number, made in [one for one in self._exchanges if one[1].over]:
                try:
                    await self._store.commit(self._changes(self._children[number], made))
                except BaseException as error:
                    if committed_in(error) is not None:
                        self._exchanges.remove((number, made))
                    raise
                self._exchanges.remove((number, made))

    def _changes(self, child: RunRecord, made: SummaryExchange) -> Changes:
        """An exchange as one step: a branch of the child's own, its events and its chunks."""
        request, turn = made.request, made.turn
        begins = marker(REQUEST, {"model": made.model, "instructions": request.instructions}, run=child.id, turn=1)
        nodes: list[Draft] = [replace(begins, parent=None)]
        nodes += [message(one, run=child.id, turn=1) for one in request.messages]
        if turn is not None and turn.text:
            answer = AssistantMessage((Text(turn.text),), (), turn.finish_reason)
            nodes.append(message(answer, run=child.id, turn=1))
        logged = made.log.take() if made.log is not None else []
        return Changes(
            nodes=nodes,
            branch=f"run-{child.id}",
            runs=[child],
            events=[self._secrets.event(event) for event in made.events],
            events_run=child.id,
            chunks=[TurnChunks(child.id, 1, *split(logged))] if logged else (),
        )
