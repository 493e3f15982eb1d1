"""The steps of a run that its session gets together, and the moment when each is on the disk.

A sync to the disk costs more than everything else, so steps are gathered. `flush` writes all that
were gathered, in one commit, and the steps of tasks that arrive meanwhile join it. The recorder
calls it where something must not happen before it is stored: an effect, a question to a person, a
request to the model, an announcement.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, TypeAlias

import anyio

from monitor.chunks import NO_COST, AskCost, ToolResult
from monitor.context.compaction.hooks import CompactionRecord
from monitor.core.replay.inputs import LifeNote, split
from monitor.core.replay.recording import InputLog
from monitor.core.replay.resumed import ResumedRun, resumed_run
from monitor.errors import CompactionFailure
from monitor.events import (
    ApprovalAnswered,
    ApprovalRequested,
    CompactionFailed,
    CompactionFinished,
    CompactionStarted,
    Event,
    RunTerminated,
    TurnEnded,
)
from monitor.guard.streams.wait import Alarm, Clock
from monitor.messages import (
    ApprovalAnswer,
    ApprovalRequest,
    AssistantMessage,
    CallRecord,
    CallState,
    Message,
    Text,
    comes_after,
)
from monitor.models import ModelRequest
from monitor.outcome import Outcome, Turn
from monitor.sessions.beside.mailbox import Mailbox
from monitor.sessions.closed_runs import (
    COMPACT,
    SUBAGENT,
    Changes,
    Committed,
    RunRecord,
    RunStage,
    SessionStore,
    TurnChunks,
    withdrawn,
)
from monitor.sessions.nodes import Compacted, Draft, Node, compacted_of, compaction, marker, message
from monitor.sessions.writer import committed_in
from monitor.tools.approvals.approval import AskFunction
from monitor.tools.masking import Secrets


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
class _PendingChanges:
    """The changes that the next commit writes."""

    nodes: list[NewNode] = field(default_factory=list)
    runs: dict[str, RunRecord] = field(default_factory=dict)
    calls: list[CallRecord] = field(default_factory=list)
    requests: list[ApprovalRequest] = field(default_factory=list)
    answers: list[ApprovalAnswer] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def before(self, later: _PendingChanges) -> _PendingChanges:
        """Both as one step: these changes first, then those of `later`."""
        return _PendingChanges(
            [*self.nodes, *later.nodes],
            self.runs | later.runs,
            [*self.calls, *later.calls],
            [*self.requests, *later.requests],
            [*self.answers, *later.answers],
            [*self.events, *later.events],
        )


class Journal:
    """Gathers the steps of one run and writes them into `store`."""

    def __init__(
        self, store: SessionStore, *, run: str, branch: str, turn: Callable[[], int], log: InputLog | None = None
    ) -> None:
        """`turn`: the number of the running turn. `log`: of the run's core, if it is stored."""
        self.store = store
        self.run = run
        self.branch = branch
        self.told: Callable[[int], object] | None = None
        """Is called with the number of events that are stored by now."""
        self._turn = turn
        self._log = log
        self.head: Node | None = None
        """The newest node of the branch that is known to be stored."""
        self._step = _PendingChanges()
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

    def add_nodes(self, nodes: Sequence[NewNode]) -> None:
        """Add nodes behind those that are gathered."""
        if nodes:
            self._step.nodes += nodes
            self._added += 1

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

    def add_run(self, run: RunRecord) -> None:
        """Add a run, or the new state of a run."""
        self._step.runs[run.id] = run
        self._added += 1

    def add_requests(self, requests: Sequence[ApprovalRequest]) -> None:
        """Add questions that stay open."""
        if requests:
            self._step.requests += requests
            self._added += 1

    def withdraw(self, request: ApprovalRequest, why: str) -> None:
        """Withdraw an open question."""
        self._step.answers.append(withdrawn(request, why))
        self._added += 1

    def add_event(self, event: Event) -> int:
        """Add an event, and return its number."""
        self._step.events.append(event)
        if isinstance(event, ApprovalRequested):
            self._step.requests.append(event.request)
        elif isinstance(event, ApprovalAnswered):
            self._step.answers.append(event.answer)
        self._added += 1
        self._events += 1
        return self._events

    # ------------------------------------------------------------------ the calls

    def intend(self, records: Sequence[CallRecord]) -> Sequence[CallRecord]:
        """See `CallLedger.intend`. Nothing is stored yet."""
        for record in records:
            if self._known(record.key) is None:
                self._open[record.key] = record
                self._step.calls.append(record)
                self._added += 1
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
        self._step.calls.append(record)
        self._added += 1
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
        step, self._step = self._step, _PendingChanges()
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
            chunks=[TurnChunks(self.run, self._turn(), *split(inputs))] if inputs else (),
        )
        try:
            committed = await self.store.commit(changes)
        except BaseException as error:
            done = committed_in(error)
            if done is None:
                self._step = step.before(self._step)
                if self._log is not None:
                    self._log.put_back(inputs)
            else:  # the task was cancelled while it waited for a step that is stored
                self._is_stored(step, done, added, events)
            raise
        self._is_stored(step, committed, added, events)

    def _is_stored(self, step: _PendingChanges, committed: Committed, added: int, events: int) -> None:
        self._stored = added
        for node, (_, said) in zip(committed.nodes, step.nodes, strict=True):
            if said is not None:
                said.written(node)
            if node.id == committed.head:
                self.head = node
        if self.told is not None:
            self.told(events)


# --------------------------------------------------------------------------------------------------
# A compaction in the session of its run: a node on the branch, and a hidden run that has what its
# model was asked.
#
# Failure answered: a summary replaces half a conversation, and nobody can see who wrote it from
# what.

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
        self,
        store: SessionStore,
        run: str,
        journal: Journal,
        *,
        turn: Callable[[], int],
        sync: Callable[[], Awaitable[None]],
        stored: Callable[[], Sequence[StoredMessage]],
    ) -> None:
        """`sync`: stores what the history holds. `stored`: the original messages of the run."""
        super().__init__()
        self._store = store
        self._run = run
        self._journal = journal
        self._turn = turn
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
                self._journal.add_run(replace(child, state=RunStage.ENDED, ended_at_s=time.time(), data=data))

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
        self._children[number] = replace(child, **changes)
        self._journal.add_run(self._children[number])

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
            turn=self._turn(),
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


# --------------------------------------------------------------------------------------------------
# Answers of other processes to the questions of a session, from its mailbox.
#
# Failure answered: the program of a paused run has its session open, so nobody else can store the
# answer that the run waits for.

LOOK_S: Final = 0.5
"""Seconds between two looks into the mailbox while a person is asked."""


async def store_answers(store: SessionStore) -> None:
    """Store the answers in the mailbox of `store` to its open questions. Any other answer came too
    late, and is removed.
    """
    mailbox = store.mailbox
    if mailbox is None:
        return
    await mailbox.look()
    if not (letters := mailbox.answers()):
        return
    asked = {one.request.id for one in await store.approvals(only_open=True)}
    answers = {one.answer.id: one.answer for one in reversed(letters) if one.answer.id in asked}  # the first counts
    if answers:
        await store.commit(Changes(answers=[*answers.values()]))
    mailbox.remove(letters)


def remove_answers(mailbox: Mailbox, question: str) -> None:
    """Remove the answers to a question whose answer is on record."""
    if letters := [one for one in mailbox.answers() if one.answer.id == question]:
        mailbox.remove(letters)


def or_by_mail(ask: AskFunction, mailbox: Mailbox, clock: Clock) -> AskFunction:
    """`ask`, which ends as soon as the answer of another process is in the mailbox."""

    async def asked(request: ApprovalRequest) -> Any:
        found: list[Any] = []
        raised: list[Exception] = []
        alarm: Alarm | None = None

        async def of_approver() -> None:
            try:
                found.append(await ask(request))
            except Exception as error:  # noqa: BLE001 - raised below, outside of the group
                raised.append(error)
            group.cancel_scope.cancel()

        def look() -> None:
            nonlocal alarm
            if (answer := _answer_in(mailbox, request)) is not None:
                found.append(answer)
                group.cancel_scope.cancel()
            else:
                alarm = clock.call_at(clock.now() + LOOK_S, look)

        try:
            async with anyio.create_task_group() as group:
                look()
                if not found:
                    group.start_soon(of_approver)
        finally:
            if alarm is not None:
                alarm.cancel()
        if raised and not found:
            raise raised[0]
        return found[0]

    return asked


def _answer_in(mailbox: Mailbox, request: ApprovalRequest) -> ApprovalAnswer | None:
    return next((one.answer for one in mailbox.answers() if one.answer.id == request.id), None)


# --------------------------------------------------------------------------------------------------
# The past and the nested runs of a run that goes on, read from its session.

CALL = "call"
"""The key, in the data of a nested run's record, of the call that began it."""


async def past_in(store: SessionStore, run: str) -> ResumedRun:
    """The past of a run. A nested run that has not ended goes on by itself, and counts then."""
    past = resumed_run([stored.event for stored in await store.events(run)])
    of_run = [one for one in await store.runs(hidden=True) if one.parent_run == run]
    outcomes = [await outcome_in(store, one.id) for one in of_run if not one.hidden and one.state is RunStage.ENDED]
    past.nested = [(one.usage, one.cost_usd) for one in outcomes if one is not None]
    for child in of_run:
        if child.purpose == COMPACT and USAGE not in child.data:  # the process ended before its event was stored
            turns = (one.event.turn for one in await store.events(child.id) if isinstance(one.event, TurnEnded))
            past.compaction_cost += sum((AskCost(turn.usage, turn.usage_estimated) for turn in turns), NO_COST)
    return past


async def outcome_in(store: SessionStore, run: str) -> Outcome | None:
    """How a run has ended. `None`: the session does not say."""
    ends = [one.event.outcome for one in await store.events(run) if isinstance(one.event, RunTerminated)]
    return ends[-1] if ends else None


async def nested_in(store: SessionStore, caller: str, call: str) -> RunRecord | None:
    """The nested run that the call with the key `call` began before the process died."""
    began = (one for one in await store.runs() if one.parent_run == caller and one.purpose == SUBAGENT)
    return next((one for one in began if one.data.get(CALL) == call), None)
