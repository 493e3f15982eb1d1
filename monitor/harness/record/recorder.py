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
from dataclasses import asdict, replace
from typing import Any

from monitor.calls import CallRecord
from monitor.compaction.pinned import head_of_messages
from monitor.context.history import CommittedEdit, History
from monitor.context.turns import COMPACTION
from monitor.core.recording import InputLog
from monitor.events import (
    ApprovalAnswered,
    ApprovalRequested,
    ChunkReceived,
    CompactionFailed,
    CompactionFinished,
    CompactionStarted,
    Event,
    HistoryReduced,
    OutputEmitted,
    PlanUpdated,
    RunTerminated,
    ToolCallChanged,
    ToolFinished,
    ToolOutput,
    ToolResultDropped,
    ToolStarted,
    TurnEnded,
)
from monitor.harness.record.journal import Journal, NewNode, StoredMessage
from monitor.messages import AssistantMessage, Message, Text
from monitor.outcome import Outcome
from monitor.reasons import RESUMABLE, TerminateReason
from monitor.sessions.nodes import Compacted, Draft, compaction, context_edit, message
from monitor.sessions.run_records import COMPACT, MAIN, RunRecord, RunStage
from monitor.sessions.session_store import SessionStore
from monitor.sessions.tree import ACTIVE

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
    ToolCallChanged,
    ToolFinished,
    ToolResultDropped,
    ToolStarted,
    TurnEnded,
)
"""Events that announce an effect, or a message that stays. They are handed out after their commit.
"""
NOTHING_SAID = "(nothing was said)"
"""The summary of a compaction that shows no text: a session stores none without one."""
_STATES = {TerminateReason.PAUSED: RunStage.WAITING, TerminateReason.WORKER_STOPPING: RunStage.RUNNING}
"""The state of a run that this process leaves, by the reason. Else the run has ended."""
TASK = "task"
"""The key of a run's task in the data of its record."""


class Recorder:
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
    ) -> None:
        """`reply`: the message that the model has just made, without results, or `None`. `log`: of
        the run's core, if its chunks are stored.
        """
        self.store = store
        self.branch: str = ACTIVE if record.purpose == MAIN else f"run-{record.id}"
        self._history = history
        self._record = record
        self._reply = reply
        self._turn = turn
        self._log = log
        self._stored: list[StoredMessage] = []
        self._written: StoredMessage | None = None
        """The reply that was stored before its calls were made, until the history has it."""
        self._edits = 0
        self._compacted: CompactionFinished | None = None
        self._children: dict[int, RunRecord] = {}
        """The runs of compactions that are under way."""
        self.journal: Journal = Journal(store, run=record.id, branch=self.branch, turn=turn, log=log)

    @property
    def run(self) -> str:
        """The id of the run that is recorded."""
        return self._record.id

    def emit(self, event: Event) -> int:
        """Take an event; the next step writes it. Returns its number; 0: it is not stored."""
        if isinstance(event, CompactionStarted | CompactionFinished | CompactionFailed):
            self.journal.add_run(self._child(event))
        if isinstance(event, CompactionFinished):
            self._compacted = event
        if isinstance(event, NOT_STORED):
            return 0
        if self._log is not None:
            self._log.stores()
        return self.journal.add_event(event)

    def is_early(self, event: Event) -> bool:
        """Whether `event` may be handed out before it is stored: it announces no effect, or an
        effect that is stored.
        """
        if isinstance(event, ToolCallChanged):
            return self.journal.is_stored(event.record)
        return not isinstance(event, EFFECTS)

    # ------------------------------------------------------------------ the run

    async def begin(self, known: Sequence[StoredMessage], *, with_results: bool) -> None:
        """Store the run and its first messages. `known`: the messages at the beginning of the
        history that the session has already. `with_results`: the last of them may have results that
        are not stored, and gets them now.
        """
        self._record = replace(
            self._record, state=RunStage.RUNNING, started_at_s=self._record.started_at_s or time.time()
        )
        self._stored = [*known]
        self._edits = len(self._history.edits)
        self.journal.add_run(self._record)
        if with_results and known and known[-1].node and not known[-1].results:
            self.journal.add_nodes(self._results_of(known[-1]))
        self.journal.add_nodes(self._new())
        await self.journal.flush()

    async def sync(self) -> None:
        """Store what has been added to the history since the last step, and what happened."""
        self.journal.add_nodes(self._new())
        if edits := self._history.edits[self._edits :]:
            self._edits = len(self._history.edits)
            await self.journal.flush()  # an edit names the nodes that it changes
            self._add_edits(edits)
        await self.journal.flush()

    async def end(self, outcome: Outcome) -> None:
        """Store the outcome with which the run ended."""
        goes_on = outcome.reason in RESUMABLE
        ended = replace(
            self._record,
            state=_STATES.get(outcome.reason, RunStage.ENDED),
            ended_at_s=None if goes_on else time.time(),
            data={**self._record.data, "reason": outcome.reason.value, "detail": outcome.detail, "ok": outcome.ok},
        )
        self.journal.add_run(ended)
        self.journal.add_requests(outcome.pending)
        await self.sync()

    # ------------------------------------------------------------------ the ledger

    async def intend(self, records: Sequence[CallRecord]) -> Sequence[CallRecord]:
        """Take the calls together with the message that makes them. They are stored before any of
        them becomes `running`.
        """
        self.add_reply()
        return self.journal.intend(records)

    def add_reply(self) -> None:
        """Take the message that the model has just made, before its calls are made."""
        if self._written is None and (reply := self._reply()) is not None:
            self.journal.add_nodes(self._new())
            self._written = StoredMessage(reply, None)
            self.journal.add_nodes([(self._draft(reply), self._written)])

    async def advance(self, record: CallRecord) -> bool:
        """See `CallLedger.advance`."""
        return await self.journal.advance(record)

    async def find(self, key: str) -> CallRecord | None:
        """See `CallLedger.find`."""
        return await self.journal.find(key)

    async def open_calls(self, run: str) -> Sequence[CallRecord]:
        """See `CallLedger.open_calls`."""
        return await self.journal.open_calls(run)

    # ------------------------------------------------------------------ what is written

    def _draft(self, said: Message) -> Draft:
        return message(said, run=self.run, turn=self._turn())

    def _new(self) -> list[NewNode]:
        """Drafts of the originals that are not stored. Of the reply that is, its results."""
        drafts: list[NewNode] = []
        for said in self._history.originals[len(self._stored) :]:
            before, self._written = self._written, None
            stored = StoredMessage(said, None)
            if before is None or before.node is None:
                if before is not None:
                    self.journal.drop(before)  # it is written with its results
                drafts.append((self._draft(said), stored))
            elif not isinstance(said, AssistantMessage):  # the reply did not become part of the history
                drafts.append((context_edit(before.node, None, run=self.run, turn=self._turn()), None))
                drafts.append((self._draft(said), stored))
            elif same_reply(before.message, said):
                stored.node = before.node
                drafts += self._results_of(stored)
            else:  # it was repaired on its way into the history
                stored.node = before.node
                drafts.append((context_edit(before.node, said, run=self.run, turn=self._turn()), None))
            stored.results = len(said.results) if isinstance(said, AssistantMessage) else 0
            self._stored.append(stored)
        return drafts

    def _results_of(self, stored: StoredMessage) -> list[NewNode]:
        """A draft for each result of a message that is stored without them."""
        said = stored.message
        results = said.results if isinstance(said, AssistantMessage) else ()
        stored.results = len(results)
        return [(message(result, run=self.run, turn=self._turn()), None) for result in results]

    def _add_edits(self, edits: Sequence[CommittedEdit]) -> None:
        """A compaction is a node of its own, any other edit an edit of the messages it changed."""
        if any(one.edit.kind == COMPACTION for one in edits):
            self._add_compaction()
        drafts = [draft for one in edits if one.edit.kind != COMPACTION for draft in self._edited(one)]
        self.journal.add_nodes([(draft, None) for draft in drafts])

    def _add_compaction(self) -> None:
        """The head of the history stands for everything before the first message that is kept."""
        messages = self._history.messages
        head = head_of_messages(messages)
        if not head:
            return
        first = self._history.originals_before(head)
        kept = next((one.node for one in self._stored[first:] if one.node), None)
        said = self._compacted
        summary = "\n\n".join(part.text for one in messages[:head] for part in one.content if isinstance(part, Text))
        done = Compacted(
            summary=summary or NOTHING_SAID,
            shown=messages[:head],
            first_kept_node_id=kept,
            tokens_before=said.tokens_before if said is not None else 0,
            tokens_after=said.tokens_after if said is not None else 0,
            reason=said.reason.value if said is not None else "",
            summarised_by=said.summarised_by if said is not None else "",
        )
        self.journal.add_nodes([(compaction(done, run=self.run, turn=self._turn()), None)])

    def _child(self, event: CompactionStarted | CompactionFinished | CompactionFailed) -> RunRecord:
        """The run of a compaction: that of a stale one stays in the session too."""
        id = f"{self.run}-compact-{event.compaction}"
        if isinstance(event, CompactionStarted):
            child = RunRecord(id=id, parent_run=self.run, purpose=COMPACT, started_at_s=time.time())
            self._children[event.compaction] = child
            return child
        data: dict[str, Any] = {"after_s": event.after_s, "usage": asdict(event.cost.usage)}
        if isinstance(event, CompactionFailed):
            data |= {"ok": False, "failure": event.failure.value, "detail": event.detail}
        else:
            data |= {"ok": True, "tokens_before": event.tokens_before, "tokens_after": event.tokens_after}
        begun = self._children.pop(event.compaction, None) or RunRecord(id=id, parent_run=self.run, purpose=COMPACT)
        return replace(begun, state=RunStage.ENDED, ended_at_s=time.time(), data=data)

    def _edited(self, edit: CommittedEdit) -> Iterator[Draft]:
        """Drafts for an edit that puts messages in the place of as many others."""
        if len(edit.replaced) != len(edit.edit.replacement):
            return
        for before, after in zip(edit.replaced, edit.edit.replacement, strict=True):
            stored = next((one for one in reversed(self._stored) if one.message is before), None)
            if stored is None or not stored.node or after is before:
                continue
            stored.message = after
            if same_reply(before, after) and not stored.results:
                yield from (draft for draft, _ in self._results_of(stored))
            else:
                yield context_edit(stored.node, after, run=self.run, turn=self._turn())


def same_reply(stored: Message, said: Message) -> bool:
    """Whether `said` is the message that was stored, with its results."""
    both = isinstance(stored, AssistantMessage) and isinstance(said, AssistantMessage)
    return both and stored.content == said.content
