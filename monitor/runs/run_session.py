"""A run and its session: what the run finds there when it begins, and how it is left.

Failure answered: a process dies in the night, and the calls that it had made are not on record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakSet

from monitor.chunks import ToolCall, ToolResult
from monitor.context.history import History
from monitor.core.replay.inputs import LifeNote
from monitor.core.replay.recording import InputLog
from monitor.core.replay.resumed import ResumedRun
from monitor.errors import ConfigError
from monitor.events import RunStarted
from monitor.goal.goal import Goal
from monitor.messages import AssistantMessage, Message, Text, UserMessage
from monitor.outcome import Outcome
from monitor.runs.calls.run_calls import Calls, last_reply
from monitor.runs.context.requests import InitialHistory, ValidHistory
from monitor.runs.record.journal import PendingChanges
from monitor.runs.record.recorder import Recorder, known_in
from monitor.runs.record.session_reading import past_in, store_answers
from monitor.sessions.closed_runs import MAIN, RunStage, SessionStore, close_run, closed_call, withdrawn
from monitor.sessions.nodes import Node, NodeKind, Said, edit_of, said_of
from monitor.sessions.tree import ACTIVE


@dataclass(slots=True, frozen=True)
class TakenUp:
    """What a run goes on with: see `RunCore.take_up`."""

    past: ResumedRun
    decides: bool
    lost: bool


GO_ON = "Go on with the task. If it is finished, say so."
"""The message for a model whose answer has ended the run that is to go on."""
LEFT = "the session has left the path on which it was made"
"""Why a call is not made: `switch_node` was called before its run was resumed."""
_WRITTEN: WeakSet[SessionStore] = WeakSet()
"""Sessions whose own branch a run of this process writes to. Two runs would mix their messages."""


@dataclass(slots=True, kw_only=True, eq=False)
class RunSession:
    """The session of one run, from its first to its last step."""

    recorder: Recorder
    history: History
    valid_history: ValidHistory
    given: InitialHistory
    """What the history begins with, if the session is empty."""
    take_in: Callable[[Sequence[Message]], InitialHistory]
    """Repairs the messages of a session."""
    first: Sequence[UserMessage]
    """The first messages of the run."""
    may_go_on: bool
    """The session may hold messages."""
    refuses: bool
    """Each run of the session must have ended."""
    resumed: bool
    counts_on: bool
    """The limits count what the run has used before. Those of a run that had ended, e.g. by a
    limit, and is wanted to go on, count anew.
    """
    log: InputLog | None
    _writes: bool = False

    async def begin(self, goal: Goal, calls: Calls) -> TakenUp | None:
        """Fill the history, and store that the run begins. Returns what a run that goes on had done
        before. Raises `ConfigError` for a session that holds messages beside another history, and
        while another run writes to it.
        """
        store = self.recorder.store
        if self.recorder.branch == ACTIVE:
            if store in _WRITTEN:
                raise ConfigError("another run writes to this session: wait for its end, or use a session for each")
            _WRITTEN.add(store)
            self._writes = True
        try:
            if self.recorder.branch == ACTIVE:
                await store_answers(store)
            await self.recorder.open()
            past = await past_in(store, self.recorder.run) if self.counts_on else None
            taken = await self._begin(goal, calls, past)
        except BaseException:
            self._leave()
            raise
        for name in past.withdrawn if past is not None else ():
            calls.offered.withdraw(name)
        if past is not None and past.last_turn is not None:
            calls.offered.allow_only(past.last_turn.tools)
        return taken

    async def _begin(self, goal: Goal, calls: Calls, past: ResumedRun | None) -> TakenUp | None:
        if not self.resumed and self.recorder.branch == ACTIVE:
            await self._supersede()
        context = await self.recorder.store.context(self.recorder.branch)
        if context.entries and not self.may_go_on:
            raise ConfigError("this session holds a conversation: give it without history=, or give an empty one")
        self.valid_history.begin(self.take_in(context.messages) if context.entries else self.given)
        known = known_in(context, self.history.messages)
        if self.resumed:
            said = await self.recorder.store.active_path(self.recorder.branch, run=self.recorder.run)
            await self._take_up(_said_in(said), goal, calls)
            taken = self._taken(said, past, calls)
            first = self._go_on() if past is None else ()
        else:
            taken, first = None, self.first
        for message in first:
            self.valid_history.append(message)
        await self.recorder.begin(known, head=context.head, with_results=not calls.left_open, resumed=self.resumed)
        return taken

    async def _supersede(self) -> None:
        """Close the runs of the session that have not ended, or refuse to begin beside them."""
        store = self.recorder.store
        for run in await store.runs():
            if run.purpose != MAIN or run.state is RunStage.ENDED:
                continue
            if self.refuses:
                raise ConfigError(
                    f"the run {run.id} of this session has not ended: write await supervisor.resume(session,"
                    f" run={run.id!r})"
                )
            await close_run(store, run.id, "another run has gone on in this session")

    def _taken(self, said: Sequence[Node], past: ResumedRun | None, calls: Calls) -> TakenUp | None:
        """What the core goes on with. The tree decides whether the newest answer is stored."""
        if past is None:
            return None
        number = past.turn.number if past.turn is not None else None
        replies = (one for one in said if one.turn == number and one.kind is NodeKind.MESSAGE)
        is_stored = any(isinstance(said_of(one), AssistantMessage) for one in replies)
        return TakenUp(past, bool(calls.left_open) or (past.undecided and is_stored), past.undecided and not is_stored)

    def _go_on(self) -> Sequence[UserMessage]:
        """The message for a model whose answer has ended the run."""
        messages = self.history.messages
        answered = messages and isinstance(messages[-1], AssistantMessage) and not _calls_of(messages[-1])
        return [UserMessage((Text(GO_ON),), synthetic=True)] if answered else []

    async def end(self, outcome: Outcome) -> None:
        """Store the outcome with which the run ended."""
        try:
            await self.recorder.end(outcome)
        finally:
            self._leave()

    def _leave(self) -> None:
        if self._writes:
            _WRITTEN.discard(self.recorder.store)

    async def _take_up(self, said: Sequence[Said], goal: Goal, calls: Calls) -> None:
        """Bring the goal and the calls to where the run was."""
        store, run = self.recorder.store, self.recorder.run
        if self.log is not None:
            lives = sum(isinstance(one.event, RunStarted) for one in await store.events(run))
            self.log.note(LifeNote(lives))
        results = {one.id: one for one in _results_in(said)}
        made = [_calls_of(one) for one in said if isinstance(one, AssistantMessage)]
        settled = {call.id for call in made[-1] if self._is_settled(call, results)} if made else set()
        last: set[str] = set()
        if made and len(settled) < len(made[-1]):
            _, reply = last_reply(self.history.messages)
            shown = _calls_of(reply) if reply is not None else []
            if [_action(call) for call in shown] == [_action(call) for call in made[-1]]:
                calls.left_open = frozenset(call.id for call in shown)
                calls.settled = frozenset(
                    here.id for here, call in zip(shown, made[-1], strict=True) if call.id in settled
                )
                last = {call.id for call in made.pop()}
        before = [call for turn in made for call in turn]
        for call in before:
            if call.id in results and not results[call.id].is_error:
                goal.answer(call)
        calls.scheduler.calls.resumes = True
        calls.scheduler.remember(before)
        await calls.scheduler.recover(calls.left_open)
        waiting = await store.open_calls(run)
        left = [one for one in waiting if one.call_id not in last]
        for record in left:  # the session was switched to another path since
            await self.recorder.advance(closed_call(record, LEFT))
        for one in await store.approvals():
            if one.request.run != run:
                continue
            if one.answer is None and one.request.key in {record.key for record in left}:
                self.recorder.add(PendingChanges(answers=[withdrawn(one.request, LEFT)]))
            else:
                spent = bool(one.request.call_id) and one.request.key not in {record.key for record in waiting}
                calls.approvals.recall(one.request, one.answer, spent=spent)

    def _is_settled(self, call: ToolCall, results: Mapping[str, ToolResult]) -> bool:
        """Whether the tree has the result with which the call has ended. The ledger decides: a
        session of an older version may have a placeholder there.
        """
        result, record = results.get(call.id), self.recorder.latest(call.id)
        if result is None or record is None:
            return result is not None
        return not record.open and (not result.vetoed or (record.text is not None and record.text in result.text))


def _calls_of(message: Message) -> list[ToolCall]:
    return [part for part in message.content if isinstance(part, ToolCall)]


def _action(call: ToolCall) -> tuple[str, object]:
    return call.name, call.arguments


def _said_in(nodes: Sequence[Node]) -> list[Said]:
    """The messages in the nodes of a run, as they are shown now."""
    edits = {
        edit.target: edit.replacement for edit in (edit_of(one) for one in nodes if one.kind is NodeKind.CONTEXT_EDIT)
    }
    shown = (edits.get(one.id, said_of(one)) for one in nodes if one.kind is NodeKind.MESSAGE)
    return [one for one in shown if one is not None]


def _results_in(said: Sequence[Said]) -> list[ToolResult]:
    """The results that stand alone, and those that came with their message."""
    found: list[ToolResult] = []
    for one in said:
        if isinstance(one, ToolResult):
            found.append(one)
        elif isinstance(one, AssistantMessage):
            found += one.results
    return found
