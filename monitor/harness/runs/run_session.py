"""A run and its session: what the run finds there when it begins, and how it is left.

Failure answered: a process dies in the night, and the calls that it had made are not on record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import WeakSet

from monitor.chunks import ToolCall, ToolResult
from monitor.context.history import History
from monitor.core.past import Past
from monitor.core.tape import LIFE, Tape
from monitor.errors import ConfigError
from monitor.events import RunStarted
from monitor.goal.goal import Goal
from monitor.harness.context.requests import Given, Outgoing
from monitor.harness.record.journal import Stored
from monitor.harness.record.recorder import Recorder, same_reply
from monitor.harness.record.resumed import past_in
from monitor.harness.runs.run_calls import Calls, last_reply
from monitor.messages import AssistantMessage, Message, Text, UserMessage
from monitor.outcome import Outcome
from monitor.sessions.nodes import Node, NodeKind, Said, edit_of, said_of
from monitor.sessions.run_records import RunRecord, RunStage
from monitor.sessions.session_store import SessionStore
from monitor.sessions.tree import ACTIVE, Context

GO_ON = "Go on with the task. If it is finished, say so."
"""The message for a model that had answered before its process died."""
_WRITTEN: WeakSet[SessionStore] = WeakSet()
"""Sessions whose own branch a run of this process writes to. Two runs would mix their messages."""


class RunSession:
    """The session of one run, from its first to its last step."""

    def __init__(
        self,
        store: SessionStore,
        record: RunRecord,
        history: History,
        outgoing: Outgoing,
        *,
        reply: Callable[[], AssistantMessage | None],
        turn: Callable[[], int],
        given: Given,
        take_in: Callable[[Sequence[Message]], Given],
        first: Sequence[UserMessage],
        may_go_on: bool,
        resumed: bool,
        tape: Tape | None = None,
    ) -> None:
        """`reply`, `turn`, `tape`: see `Recorder`. `given`: what the history begins with, if the
        session is empty. `take_in`: repairs the messages of a session. `first`: what is said then.
        `may_go_on`: the session may hold messages.
        """
        self.recorder: Recorder = Recorder(store, history, record, reply=reply, turn=turn, tape=tape)
        self._tape = tape
        self._history = history
        self._outgoing = outgoing
        self._given = given
        self._take_in = take_in
        self._first = first
        self._may_go_on = may_go_on
        self._resumed = resumed
        self._counts_on = resumed and record.state is not RunStage.ENDED
        """A run that had ended, e.g. by a limit, is wanted to go on: its limits count anew."""
        self._writes = False

    async def begin(self, goal: Goal, calls: Calls) -> Past | None:
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
            await self.recorder.journal.open()
            past = await past_in(store, self.recorder.run) if self._counts_on else None
            await self._begin(goal, calls)
        except BaseException:
            self._leave()
            raise
        for name in past.withdrawn if past is not None else ():
            calls.withdraw(name)
        return past

    async def _begin(self, goal: Goal, calls: Calls) -> None:
        context = await self.recorder.store.context(self.recorder.branch)
        if context.entries and not self._may_go_on:
            raise ConfigError("this session holds a conversation: give it without history=, or give an empty one")
        self._outgoing.begin(self._take_in(context.messages) if context.entries else self._given)
        known = _known(context, self._history.messages)
        first = self._first if not self._resumed else await self._take_up(goal, calls)
        for message in first:
            self._outgoing.append(message)
        await self.recorder.begin(known, with_results=not calls.left_open)

    async def end(self, outcome: Outcome) -> None:
        """Store how the run ended."""
        try:
            await self.recorder.end(outcome)
        finally:
            self._leave()

    def _leave(self) -> None:
        if self._writes:
            _WRITTEN.discard(self.recorder.store)

    async def _take_up(self, goal: Goal, calls: Calls) -> Sequence[UserMessage]:
        """Bring the goal and the calls to where the run was. Answers with what is to be said."""
        store, run = self.recorder.store, self.recorder.run
        if self._tape is not None:
            lives = sum(isinstance(one.event, RunStarted) for one in await store.events(run))
            self._tape.note(LIFE, number=lives)
        path = await store.active_path(self.recorder.branch)
        said = _said_in([node for node in path if node.run == run])
        results = {one.id: one for one in _results_in(said)}
        replies = [one for one in said if isinstance(one, AssistantMessage)]
        made = [_calls_of(reply) for reply in replies]
        waiting = {record.call_id for record in await store.open_calls(run)}
        if made and any(call.id not in results or call.id in waiting for call in made[-1]):
            _, reply = last_reply(self._history.messages)
            shown = _calls_of(reply) if reply is not None else []
            if [_action(call) for call in shown] == [_action(call) for call in made[-1]]:
                calls.left_open = frozenset(call.id for call in shown)
                made.pop()
        before = [call for turn in made for call in turn]
        for call in before:
            if call.id in results and not results[call.id].is_error:
                goal.answer(call)
        asked = [one.request for one in await store.approvals(only_open=True) if one.request.run == run]
        calls.approvals.asked_before = {(one.call_id, one.bound_to): one.id for one in asked}
        calls.scheduler.resumes = True
        calls.scheduler.remember(before)
        await calls.scheduler.recover()
        messages = self._history.messages
        answered = messages and isinstance(messages[-1], AssistantMessage) and not _calls_of(messages[-1])
        return [UserMessage((Text(GO_ON),), synthetic=True)] if answered else []


def _known(context: Context, messages: Sequence[Message]) -> list[Stored]:
    """For each message of a history that was read from `context`, its node."""
    entries = context.entries
    compaction = context.compaction.id if context.compaction is not None else None
    known: list[Stored] = []
    at = 0
    for message in messages if entries else ():
        found = next(
            (n for n in range(at, len(entries)) if _is_or_was(entries[n].message, message)),
            None,
        )
        if found is None:
            known.append(Stored(message, None))
            continue
        at = found + 1
        entry = entries[found]
        results = entry.message.results if isinstance(entry.message, AssistantMessage) else ()
        known.append(Stored(message, entry.node if entry.node != compaction else None, len(results)))
    return known


def _is_or_was(stored: Message, message: Message) -> bool:
    return stored is message or same_reply(stored, message)


def _calls_of(message: Message) -> list[ToolCall]:
    return [part for part in message.content if isinstance(part, ToolCall)]


def _action(call: ToolCall) -> tuple[str, object]:
    return call.name, call.arguments


def _said_in(nodes: Sequence[Node]) -> list[Said]:
    """What the nodes of a run say, as it is shown now."""
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
