"""Writes a run into its session, in the order that keeps it safe: a call is stored before its
effect, and what is announced has been stored before.

1. The user's message, and the run.
2. The model's message with its calls, which are `intended`.
3. A call becomes `running`, then its tool is entered, then it ends. The session is the ledger.
4. The results of the turn, its events, and whatever has changed the context.

A process that dies between two steps leaves a session that `Supervisor.resume` can go on with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from monitor.chunks import ToolCall, ToolResult
from monitor.context.history import COMPACTION, CommittedEdit, History
from monitor.core.replay.recording import InputLog
from monitor.errors import TerminateReason
from monitor.events import (
    ApprovalAnswered,
    ApprovalRequested,
    ChunkReceived,
    CompactionFinished,
    Event,
    HistoryReduced,
    OutputEmitted,
    PlanUpdated,
    RunTerminated,
    SteerAccepted,
    SteerDelivered,
    SteerReturned,
    ToolCallChanged,
    ToolFinished,
    ToolOutput,
    ToolResultDropped,
    ToolStarted,
    TurnEnded,
)
from monitor.messages import AssistantMessage, CallRecord, Message
from monitor.outcome import Outcome
from monitor.runs.record.compaction_runs import CompactionRuns
from monitor.runs.record.journal import Journal, NewNode, PendingChanges, StoredMessage, StoredResult
from monitor.sessions.closed_runs import RunRecord, RunStage, SessionStore, branch_of
from monitor.sessions.nodes import Draft, context_edit, message
from monitor.sessions.tree import Context, new_ids

NOT_STORED = (ChunkReceived, ToolOutput)
"""Events that are for the eye. What they show stands in a message or a result as well."""
EFFECTS = (
    ApprovalAnswered,
    ApprovalRequested,
    CompactionFinished,
    HistoryReduced,
    OutputEmitted,
    PlanUpdated,
    RunTerminated,
    SteerAccepted,
    SteerDelivered,
    SteerReturned,
    ToolCallChanged,
    ToolFinished,
    ToolResultDropped,
    ToolStarted,
    TurnEnded,
)
"""Events that announce an effect, or a message that stays. They are handed out after their commit.
"""
_STATES = {TerminateReason.PAUSED: RunStage.WAITING, TerminateReason.WORKER_STOPPING: RunStage.RUNNING}
"""The state of a run that this process leaves, by the reason. Else the run has ended."""
TASK = "task"
"""The key of a run's task in the data of its record."""


class Recorder(Journal):
    """Writes one run into `store`. It is the ledger of the run, and hears its events.

    A nested run has a branch of its own, so that the conversation of its caller stays whole.
    """

    def __init__(
        self,
        store: SessionStore,
        history: History,
        record: RunRecord,
        *,
        reply: Callable[[], AssistantMessage | None],
        turn: Callable[[], int],
        log: InputLog | None = None,
        branch: str | None = None,
    ) -> None:
        """`reply`: the message that the model has just made, without results, or `None`. `log`: of
        the run's core, if its chunks are stored. `branch`: by default the session's own for a run
        that was started from outside, and another one for a nested run.
        """
        super().__init__(store, run=record.id, branch=branch or branch_of(record), turn=turn, log=log)
        self._history = history
        self._record = record
        self._reply = reply
        self._messages: list[StoredMessage] = []
        self._written: StoredMessage | None = None
        """The reply that was stored before its calls were made, until the history has it."""
        self._edits = 0
        self.compactions: CompactionRuns = CompactionRuns(self, sync=self.sync, stored=self._stored_so_far)

    def emit(self, event: Event) -> int:
        """Take an event; the next step writes it. Returns its number; 0: it is not stored."""
        self.compactions.heard(event)
        if isinstance(event, NOT_STORED):
            return 0
        if self._log is not None:
            self._log.stores()
        return self.add_event(event)

    # ------------------------------------------------------------------ the run

    async def begin(
        self, known: Sequence[StoredMessage], *, head: str | None, with_results: bool, resumed: bool
    ) -> None:
        """Store the run and its first messages. `known`: the messages at the beginning of the
        history that the session has already, and `head` the last node of its branch.
        `with_results`: the last of them may have results that are not stored, and gets them now.
        """
        if head is not None:
            self.head = await self.store.find_node(head)
        if resumed:
            await self.compactions.take_up()
        self._record = replace(
            self._record, state=RunStage.RUNNING, started_at_s=self._record.started_at_s or time.time()
        )
        self._messages = [*known]
        self._edits = len(self._history.edits)
        self.add(PendingChanges(runs={self.run: self._record}))
        if with_results and known and known[-1].node:
            self.add_nodes([*self._changed(known[-1], known[-1].message)])
        self.add_nodes(self._new())
        await self.flush()

    async def sync(self) -> None:
        """Store what has been added to the history since the last step, and what happened."""
        await self.compactions.sync()
        self.add_nodes(self._new())
        if edits := self._history.edits[self._edits :]:
            self._edits = len(self._history.edits)
            await self.flush()  # an edit names the nodes that it changes
            self._add_edits(edits)
        await self.flush()

    def add_messages(self) -> None:
        """Take what has been added to the history, for the same commit as the events so far."""
        self.add_nodes(self._new())

    async def end(self, outcome: Outcome) -> None:
        """Store the outcome with which the run ended."""
        state = _STATES.get(outcome.reason, RunStage.ENDED)
        self.add(PendingChanges(requests=[*outcome.pending]))
        await self.end_with(state, reason=outcome.reason.value, detail=outcome.detail, ok=outcome.ok)

    async def end_with(self, state: RunStage = RunStage.ENDED, **data: Any) -> None:
        """Store that this process leaves the run in this state, with these facts."""
        ended_at_s = time.time() if state is RunStage.ENDED else None
        record = replace(self._record, state=state, ended_at_s=ended_at_s, data={**self._record.data, **data})
        self.add(PendingChanges(runs={self.run: record}))
        await self.sync()

    # ------------------------------------------------------------------ the ledger

    async def intend(self, records: Sequence[CallRecord]) -> Sequence[CallRecord]:
        """Take the calls together with the message that makes them. They are stored before any of
        them becomes `running`.
        """
        self.add_reply()
        return await super().intend(records)

    def add_reply(self) -> None:
        """Take the message that the model has just made, before its calls are made."""
        if self._written is None and (reply := self._reply()) is not None:
            self.add_nodes(self._new())
            self._written = StoredMessage(reply, None)
            self.add_nodes([(self._draft(reply), self._written)])

    # ------------------------------------------------------------------ what is written

    def _stored_so_far(self) -> Sequence[StoredMessage]:
        """The originals, and the reply that is stored before the history has it."""
        return self._messages if self._written is None else [*self._messages, self._written]

    def _draft(self, said: Message) -> Draft:
        return message(said, run=self.run, turn=self.turn())

    def _new(self) -> list[NewNode]:
        """Drafts of the originals that are not stored. Of the reply that is, its results."""
        drafts: list[NewNode] = []
        for said in self._history.originals[len(self._messages) :]:
            before, self._written = self._written, None
            if before is None or before.node is None:
                if before is not None:
                    self.drop(before)  # it is written with its results
                stored = StoredMessage(said, None)
                drafts.append((self._draft(self._known_of(stored, said)), stored))
            elif isinstance(said, AssistantMessage):
                stored = before
                drafts += self._changed(stored, said)
            else:  # the reply did not become part of the history
                stored = StoredMessage(said, None)
                drafts.append((context_edit(before.node, None, run=self.run, turn=self.turn()), None))
                drafts.append((self._draft(said), stored))
            self._messages.append(stored)
        return drafts

    def _known_of(self, stored: StoredMessage, said: Message) -> Message:
        """`said` with the results of the calls that have ended. The others have none to store."""
        stored.ids = {new: stored.ids.get(old, old) for old, new in new_ids(stored.message, said).items()} or stored.ids
        stored.message = said
        if not isinstance(said, AssistantMessage) or not said.results:
            return said
        results = tuple(one for one in said.results if not self.waits(stored.ids.get(one.id, one.id)))
        stored.results = {one.id: one for one in results}
        return said if len(results) == len(said.results) else replace(said, results=results)

    def _changed(self, stored: StoredMessage, said: Message) -> Iterator[NewNode]:
        """Drafts that make a stored message what the history says now."""
        assert stored.node is not None  # noqa: S101 - the callers see to it
        before, were = stored.message, stored.results
        known = self._known_of(stored, said)
        results = known.results if isinstance(known, AssistantMessage) else ()
        same = same_reply(before, said) and all(were.get(one.id) in (None, one) for one in results)
        if not same:
            yield context_edit(stored.node, known, run=self.run, turn=self.turn()), None
            return
        for one in results:
            if one.id not in were:
                yield self._result(stored, one), None

    def _result(self, stored: StoredMessage, result: ToolResult) -> Draft:
        id = stored.ids.get(result.id, result.id)
        return message(result if id == result.id else replace(result, id=id), run=self.run, turn=self.turn())

    def add_result(self, result: ToolResult) -> None:
        """Take the result of a call that has just ended: both are stored in one commit."""
        stored = self._written or next(
            (one for one in reversed(self._messages) if isinstance(one.message, AssistantMessage)), None
        )
        if stored is None or self.waits(stored.ids.get(result.id, result.id)):
            return
        if result.id not in stored.results:
            draft = self._result(stored, result)
        elif stored.node is not None and isinstance(stored.message, AssistantMessage):
            results = (*(one for one in stored.results.values() if one.id != result.id), result)
            draft = context_edit(stored.node, replace(stored.message, results=results), run=self.run, turn=self.turn())
        else:
            return
        stored.results[result.id] = result
        self.add_nodes([(draft, StoredResult(stored))])

    def _add_edits(self, edits: Sequence[CommittedEdit]) -> None:
        """A compaction has its node already. Any other edit is one of the messages it changed."""
        self.add_nodes([new for one in edits if one.edit.kind != COMPACTION for new in self._edited(one)])

    def _edited(self, edit: CommittedEdit) -> Iterator[NewNode]:
        """Drafts for an edit that puts messages in the place of as many others."""
        if len(edit.replaced) != len(edit.edit.replacement):
            return
        for before, after in zip(edit.replaced, edit.edit.replacement, strict=True):
            stored = next((one for one in reversed(self._messages) if one.message is before), None)
            if stored is not None and stored.node and after is not before:
                yield from self._changed(stored, after)


def same_reply(stored: Message, said: Message) -> bool:
    """Whether `said` is the message that was stored, with its results."""
    both = isinstance(stored, AssistantMessage) and isinstance(said, AssistantMessage)
    return both and stored.content == said.content


def known_in(context: Context, messages: Sequence[Message]) -> list[StoredMessage]:
    """For each message of a history that was read from `context`, its node."""
    entries = context.entries
    compaction = context.compaction.id if context.compaction is not None else None
    known: list[StoredMessage] = []
    at = 0
    for said in messages if entries else ():
        found = next(
            (n for n in range(at, len(entries)) if _is_or_was(entries[n].message, said)),
            None,
        )
        if found is None:
            known.append(StoredMessage(said, None))
            continue
        at = found + 1
        entry = entries[found]
        results = entry.message.results if isinstance(entry.message, AssistantMessage) else ()
        node = entry.node if entry.node != compaction else None
        renamed = new_ids(entry.message, said)
        stored = {(id := renamed.get(one.id, one.id)): replace(one, id=id) for one in results}
        known.append(StoredMessage(said, node, stored, {new: old for old, new in renamed.items()}))
    return known


def _is_or_was(stored: Message, message: Message) -> bool:
    """Whether `message` is the stored one, perhaps with other ids of its calls."""
    both = isinstance(stored, AssistantMessage) and isinstance(message, AssistantMessage)
    return stored is message or (both and [*map(_bare, stored.content)] == [*map(_bare, message.content)])


def _bare(part: object) -> object:
    return (part.name, part.arguments) if isinstance(part, ToolCall) else part
