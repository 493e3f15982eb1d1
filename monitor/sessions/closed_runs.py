"""Closes a run that nobody will go on with: its calls, its questions and its record end together.

Failure answered: a run is begun beside one that has died. Its calls stay open, and a person is
asked for something that nobody waits for any more.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Protocol

from monitor._util.checked_words import checked
from monitor._util.codec import Codec
from monitor.chunks import Chunk, ToolCall, ToolResult
from monitor.errors import ConfigError, StoreError, ToolErrorKind
from monitor.events import Event, SteerAccepted, SteerDelivered, SteerReturned
from monitor.messages import (
    UNENTERED,
    ApprovalAnswer,
    ApprovalRequest,
    AssistantMessage,
    CallRecord,
    CallState,
    SteerMessage,
    stepped,
)
from monitor.sessions.mail.mailbox import Mailbox
from monitor.sessions.nodes import Draft, Node, NodeKind, context_edit, message, said_of
from monitor.sessions.tree import ACTIVE, Context, TreeProblem, new_ids
from monitor.verdicts import VETO

# --------------------------------------------------------------------------------------------------
# The records that a session holds beside its tree, and the changes of one step.


class RunStage(StrEnum):
    """The state of a run of a session."""

    RUNNING = "running"
    WAITING = "waiting"
    """The run waits for an approval, and its process may have ended."""
    ENDED = "ended"


MAIN: Final = "main"
"""The purpose of a run that was started from outside."""
SUBAGENT: Final = "subagent"
"""The purpose of a run that another run called as a tool."""
COMPACT: Final = "compact"
"""The purpose of a run that summarised the history of another one."""
HIDDEN: Final = frozenset({COMPACT})
"""Purposes of runs that listings do not show, because they serve another run."""


@dataclass(slots=True, frozen=True, kw_only=True)
@checked
class RunRecord:
    """A run of a session. Writing a record replaces the one with the same `id`."""

    id: str
    parent_run: str | None = None
    """The run that started it. `None`: it was started from outside."""
    agent: str = ""
    purpose: str = MAIN
    """`main`, `subagent`, `compact`, or a word of the caller's."""
    state: RunStage = RunStage.RUNNING
    started_at_s: float = 0.0
    """The time at which the run began, in seconds since 1970."""
    ended_at_s: float | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    """JSON data: how it ended, what it was given."""

    @property
    def hidden(self) -> bool:
        """Whether listings leave the run out."""
        return self.purpose in HIDDEN


run_codec: Codec[RunRecord] = Codec(RunRecord)


@dataclass(slots=True, frozen=True)
class StoredEvent:
    """An event of a run, as a session stores it."""

    seq: int
    run: str | None
    at_ms: int
    event: Event


@dataclass(slots=True, frozen=True)
class TurnChunks:
    """Some chunks of a turn in their order, each with the reading of the run's clock in seconds."""

    run: str | None
    turn: int
    chunks: tuple[tuple[float, Chunk], ...]
    inputs: tuple[Mapping[str, Any], ...] = ()
    """The other inputs of the run, as JSON data: see `monitor.core.replay.inputs`."""


@dataclass(slots=True, frozen=True)
class ApprovalState:
    """A question, and its answer. `answer` is `None` while the question is open."""

    request: ApprovalRequest
    answer: ApprovalAnswer | None = None


@dataclass(slots=True, frozen=True, kw_only=True)
class Changes:
    """The changes of one step. Either all of them are written, or none.

    A call that is `intended` is stored unless its key is known. Any other record of a call is its
    next step, which must be allowed, see `CallLedger.advance`. Runs are written first, so nodes and
    events may belong to a run of the same step.
    """

    nodes: Sequence[Draft] = ()
    branch: str = ACTIVE
    """The branch whose head the nodes follow. It is made by its first node."""
    runs: Sequence[RunRecord] = ()
    calls: Sequence[CallRecord] = ()
    requests: Sequence[ApprovalRequest] = ()
    answers: Sequence[ApprovalAnswer] = ()
    events: Sequence[Event] = ()
    events_run: str | None = None
    """The run that the events belong to."""
    chunks: Sequence[TurnChunks] = ()


@dataclass(slots=True, frozen=True)
class Committed:
    """The nodes that one step has stored."""

    nodes: tuple[Node, ...]
    head: str | None
    """The id of the newest node of the branch."""


# --------------------------------------------------------------------------------------------------
# The methods of every store of a session.


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


SUPERSEDED: Final = "superseded"
"""The reason in the record of a run that was closed: no process has ended it."""


async def close_run(store: SessionStore, run: str, why: str) -> None:
    """End the run with the id `run`, and the runs that it has called, without going on with it.

    Its record says `superseded`, and `why`. Its open questions are withdrawn. Each call that was
    left open ends, and the conversation says what is known of it: it was not made, or its effect is
    unknown. A run that has ended stays as it is. Raises `StoreError` if there is no such run, and
    `ConfigError` for an empty `why`.

    No process may carry out the run: its owner aborts it instead.
    """
    if not why.strip():
        raise ConfigError('say why the run is closed: write await close_run(session, run, "nobody needs it any more")')
    runs = await store.runs(hidden=True)
    found = next((one for one in runs if one.id == run), None)
    if found is None:
        raise StoreError(f"there is no run {run} to close")
    for child in runs:
        if child.parent_run == run and child.state is not RunStage.ENDED:
            await close_run(store, child.id, why)
    if found.state is not RunStage.ENDED:
        await store.commit(await _end(store, found, why))


def branch_of(run: RunRecord) -> str:
    """The branch that a run writes to."""
    return ACTIVE if run.purpose == MAIN else f"run-{run.id}"


async def _end(store: SessionStore, run: RunRecord, why: str) -> Changes:
    """The end of a run as one step."""
    asked = [one for one in await store.approvals() if one.request.run == run.id]
    approved = {one.request.call_id for one in asked if one.answer is not None and one.answer.approved}
    ends = [closed_call(one, why, approved=one.call_id in approved) for one in await store.open_calls(run.id)]
    data = {**run.data, "reason": SUPERSEDED, "detail": why, "ok": False}
    return Changes(
        nodes=await _told(store, run, ends, why),
        branch=branch_of(run),
        runs=[replace(run, state=RunStage.ENDED, ended_at_s=time.time(), data=data)],
        calls=ends,
        answers=[withdrawn(one.request, why) for one in asked if one.answer is None],
        events=await _returned(store, run.id, why),
        events_run=run.id,
    )


async def return_late(store: SessionStore, why: str) -> dict[str, list[SteerMessage]]:
    """Return the messages in the mailbox to runs that have ended: they came while the end was being
    stored. Each is an event of its run then. Returns them by the ids of their runs.
    """
    if store.mailbox is None:
        return {}
    await store.mailbox.look()
    letters = store.mailbox.letters()
    ended = {one.id for one in await store.runs(hidden=True) if one.state is RunStage.ENDED} if letters else set()
    late: dict[str, list[SteerMessage]] = {}
    for run in ended.intersection(one.run for one in letters):
        of_run = [one for one in letters if one.run == run]
        events = await _returned(store, run, why, [one.message for one in of_run])
        await store.commit(Changes(events=events, events_run=run))
        store.mailbox.remove(of_run)
        late[run] = [event.message for event in events]
    return late


async def _returned(store: SessionStore, run: str, why: str, late: Sequence[SteerMessage] = ()) -> list[SteerReturned]:
    """The return of the messages that the run has not delivered. `late`: of which its events may
    know nothing.
    """
    waiting = {message.id: message for message in late}
    at_s, turn = 0.0, 0
    for stored in await store.events(run):
        event = stored.event
        at_s = max(at_s, event.at_s)
        if isinstance(event, SteerAccepted):
            waiting[event.message.id], turn = event.message, event.turn
        elif isinstance(event, SteerDelivered | SteerReturned):
            waiting.pop(event.message.id, None)
    return [SteerReturned(at_s, turn, message, why) for message in waiting.values()]


def withdrawn(request: ApprovalRequest, why: str) -> ApprovalAnswer:
    """The end of a question whose answer nobody needs any more."""
    return ApprovalAnswer(
        id=request.id, decision="withdrawn", reason=why, bound_to=request.bound_to, by="agent-monitor"
    )


def closed_call(record: CallRecord, why: str, *, approved: bool = False) -> CallRecord:
    """The end of a call that nobody goes on with."""
    if record.state in UNENTERED:
        state = CallState.CANCELLED
        text = f"{VETO} This call was not made{', although it was approved' if approved else ''}: {why}."
    else:
        state = CallState.UNKNOWN
        text = f"{VETO} The outcome of this call is unknown: it was begun, and its end was not recorded, because {why}."
    return stepped(record, state=state, text=text, is_error=True, error_kind=ToolErrorKind.CANCELLED, vetoed=True)


async def _told(store: SessionStore, run: RunRecord, ends: Sequence[CallRecord], why: str) -> list[Draft]:
    """Drafts of the results of the calls that were left open, if the branch ends with them."""
    context = await store.context(branch_of(run))
    entry = next((one for one in reversed(context.entries) if isinstance(one.message, AssistantMessage)), None)
    node = await store.find_node(entry.node) if entry is not None else None
    if entry is None or node is None or node.run != run.id or node.kind is not NodeKind.MESSAGE:
        return []
    original, shown = said_of(node), entry.message
    if not isinstance(original, AssistantMessage) or not isinstance(shown, AssistantMessage):
        return []
    stored = {new: old for old, new in new_ids(original, shown).items()}
    known = {one.call_id: one for one in await store.calls(run.id)} | {one.call_id: one for one in ends}
    before = {one.id: one for one in shown.results}
    results = dict(before)
    for call in (part for part in shown.content if isinstance(part, ToolCall)):
        record = known.get(stored.get(call.id, call.id))
        if call.id not in before or record in ends:
            text = f"{VETO} This call was not made: {why}." if record is None else record.text
            results[call.id] = _result(call, record, text or "")
    new = [one for id, one in results.items() if before.get(id) is not one]
    if new and (stored or any(one.id in before for one in new)):
        return [context_edit(node.id, replace(shown, results=(*results.values(),)), run=run.id, turn=node.turn)]
    return [message(one, run=run.id, turn=node.turn) for one in new]


def _result(call: ToolCall, record: CallRecord | None, text: str) -> ToolResult:
    if record is None or record.vetoed:
        kind = ToolErrorKind.CANCELLED if record is None else record.error_kind
        return ToolResult(call.id, call.name, text, is_error=True, vetoed=True, error_kind=kind)
    return ToolResult(call.id, call.name, text, record.is_error, error_kind=record.error_kind, artifact=record.artifact)
