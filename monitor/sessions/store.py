"""The methods of every store of a session, and the store that lasts as long as the program."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Protocol, Self, TypeVar

from monitor.calls import (
    ApprovalAnswer,
    CallRecord,
    CallState,
    answer_codec,
    comes_after,
    record_codec,
    request_codec,
)
from monitor.chunks import chunk_codec
from monitor.errors import StoreError
from monitor.events import event_codec
from monitor.sessions.nodes import ID_CHANCE_BYTES, Draft, Node, canonical, new_id
from monitor.sessions.records import (
    ApprovalState,
    Changes,
    Committed,
    RunRecord,
    StoredEvent,
    TurnChunks,
    run_codec,
)
from monitor.sessions.tree import ACTIVE, Context, Problem, Tip, context_of, plan, verify

T = TypeVar("T")


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

    async def active_path(self, branch: str = ACTIVE, /) -> tuple[Node, ...]:
        """The nodes of a branch, oldest first."""
        ...

    async def nodes(self) -> tuple[Node, ...]:
        """All nodes, in the order of writing."""
        ...

    async def find_node(self, id: str, /) -> Node | None:
        """The node with this id."""
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
        """The calls of a run, or of all."""
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

    async def verify(self) -> tuple[Problem, ...]:
        """The faults of the stored data; empty, if it is as it was written."""
        ...

    async def aclose(self) -> None:
        """Close the session. After that nothing can be written."""
        ...


@dataclass(slots=True)
class _State:
    """Everything that a session holds."""

    nodes: dict[str, Node] = field(default_factory=dict)
    heads: dict[str, str | None] = field(default_factory=dict)
    runs: dict[str, RunRecord] = field(default_factory=dict)
    calls: dict[str, CallRecord] = field(default_factory=dict)
    approvals: dict[str, ApprovalState] = field(default_factory=dict)
    events: list[StoredEvent] = field(default_factory=list)
    chunks: list[TurnChunks] = field(default_factory=list)


class InMemorySession:
    """A session that lasts as long as the program, with the same methods as `SQLiteSession`."""

    def __init__(self, *, clock: Callable[[], float] = time.time, chunks: bool = False) -> None:
        """`clock`: returns seconds since 1970. `chunks`: runs store their chunks as well, so that
        they can be replayed.
        """
        self.keeps_chunks: bool = chunks
        self._clock = clock
        self.id = new_id(self._now_ms(), secrets.token_bytes(ID_CHANCE_BYTES))
        self._state = _State()
        self._undo: list[Callable[[], object]] = []
        self._open = True

    def _now_ms(self) -> int:
        return round(self._clock() * 1000)

    def _check_open(self) -> None:
        if not self._open:
            raise StoreError("the session is closed")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the session. After that nothing can be written, and everything can be read."""
        self._open = False

    # -------------------------------------------------------------- the tree, as `View`

    def tip(self, id: str) -> Tip | None:
        """See `tree.View`."""
        node = self._state.nodes.get(id)
        return Tip(node.id, node.digest) if node else None

    def head(self, branch: str) -> Tip | None:
        """See `tree.View`."""
        id = self._state.heads.get(branch)
        return self.tip(id) if id else None

    def upwards(self, id: str | None) -> Iterator[Node]:
        """See `tree.View`."""
        while id is not None:
            node = self._state.nodes.get(id)
            if node is None:
                return
            yield node
            id = node.parent

    def last_seq(self) -> int:
        """See `tree.View`."""
        return len(self._state.nodes)

    async def commit(self, changes: Changes) -> Committed:
        """See `SessionStore.commit`."""
        self._check_open()
        self._undo.clear()
        try:
            return self._commit(changes)
        except BaseException:
            while self._undo:
                self._undo.pop()()
            raise

    def _commit(self, changes: Changes) -> Committed:
        at_ms = self._now_ms()
        for run in changes.runs:
            _put(self._state.runs, run.id, run_codec.from_dict(run_codec.to_dict(run)), self._undo)
        planned = plan(
            self,
            changes.nodes,
            branch=changes.branch,
            at_ms=at_ms,
            new_id=lambda: new_id(at_ms, secrets.token_bytes(ID_CHANCE_BYTES)),
        )
        for node in planned.nodes:
            self._check_run(node.run)
            _put(self._state.nodes, node.id, node, self._undo)
        if planned.nodes:
            _put(self._state.heads, changes.branch, planned.head, self._undo)
        for record in changes.calls:
            if record.state is CallState.INTENDED:
                self._intend(record)
            elif not self._advance(record):
                raise StoreError(
                    f"the call {record.call_id} cannot become {record.state}: another has taken or ended it"
                )
        self._write_approvals(changes)
        for event in changes.events:
            self._check_run(changes.events_run)
            kept = event_codec.from_dict(event_codec.to_dict(event))
            _add(
                self._state.events,
                StoredEvent(len(self._state.events) + 1, changes.events_run, at_ms, kept),
                self._undo,
            )
        for chunks in changes.chunks:
            self._check_run(chunks.run)
            pieces = tuple((at_s, chunk_codec.from_dict(chunk_codec.to_dict(one))) for at_s, one in chunks.chunks)
            inputs = tuple(json.loads(canonical([dict(one) for one in chunks.inputs])))
            _add(self._state.chunks, replace(chunks, chunks=pieces, inputs=inputs), self._undo)
        return Committed(planned.nodes, planned.head)

    def _check_run(self, run: str | None) -> None:
        if run is not None and run not in self._state.runs:
            raise StoreError(f"the run {run} is not in the session: write its RunRecord first")

    def _write_approvals(self, changes: Changes) -> None:
        for request in changes.requests:
            if request.id not in self._state.approvals:
                asked = ApprovalState(request_codec.from_dict(request_codec.to_dict(request)))
                _put(self._state.approvals, request.id, asked, self._undo)
        for answer in changes.answers:
            self._answer(answer)

    def _answer(self, answer: ApprovalAnswer) -> None:
        asked = self._state.approvals.get(answer.id)
        if asked is None:
            raise StoreError(f"there is no question {answer.id} to answer")
        if asked.answer is not None:
            raise StoreError(f"the question {answer.id} has its answer already")
        answered = replace(asked, answer=answer_codec.from_dict(answer_codec.to_dict(answer)))
        _put(self._state.approvals, answer.id, answered, self._undo)

    async def append(self, *drafts: Draft, branch: str = ACTIVE) -> tuple[Node, ...]:
        """See `SessionStore.append`."""
        return (await self.commit(Changes(nodes=drafts, branch=branch))).nodes

    async def context(self, branch: str = ACTIVE) -> Context:
        """See `SessionStore.context`."""
        return context_of(self.upwards(self._state.heads.get(branch)))

    async def active_path(self, branch: str = ACTIVE) -> tuple[Node, ...]:
        """See `SessionStore.active_path`."""
        return tuple(self.upwards(self._state.heads.get(branch)))[::-1]

    async def nodes(self) -> tuple[Node, ...]:
        """See `SessionStore.nodes`."""
        return tuple(self._state.nodes.values())

    async def find_node(self, id: str) -> Node | None:
        """See `SessionStore.find_node`."""
        return self._state.nodes.get(id)

    async def heads(self) -> dict[str, str | None]:
        """See `SessionStore.heads`."""
        return dict(sorted(self._state.heads.items()))

    async def switch_node(self, node: str | None, *, branch: str = ACTIVE) -> None:
        """See `SessionStore.switch_node`."""
        self._check_open()
        if node is not None and node not in self._state.nodes:
            raise StoreError(f"there is no node {node}")
        self._state.heads[branch] = node

    # -------------------------------------------------------------- runs, calls, events

    async def runs(self, *, hidden: bool = False) -> tuple[RunRecord, ...]:
        """See `SessionStore.runs`."""
        return tuple(run for run in self._state.runs.values() if hidden or not run.hidden)

    async def calls(self, run: str | None = None) -> tuple[CallRecord, ...]:
        """See `SessionStore.calls`."""
        return tuple(one for one in self._state.calls.values() if run is None or one.run == run)

    async def approvals(self, *, only_open: bool = False) -> tuple[ApprovalState, ...]:
        """See `SessionStore.approvals`."""
        return tuple(one for one in self._state.approvals.values() if not only_open or one.answer is None)

    async def events(self, run: str | None = None) -> tuple[StoredEvent, ...]:
        """See `SessionStore.events`."""
        return tuple(one for one in self._state.events if run is None or one.run == run)

    async def chunks(self, run: str | None = None) -> tuple[TurnChunks, ...]:
        """See `SessionStore.chunks`."""
        return tuple(one for one in self._state.chunks if run is None or one.run == run)

    async def intend(self, records: Sequence[CallRecord]) -> Sequence[CallRecord]:
        """See `CallLedger.intend`."""
        self._check_open()
        for record in records:
            self._intend(record)
        return [self._state.calls[record.key] for record in records]

    async def advance(self, record: CallRecord) -> bool:
        """See `CallLedger.advance`."""
        self._check_open()
        return self._advance(record)

    def _intend(self, record: CallRecord) -> None:
        if record.key not in self._state.calls:
            _put(self._state.calls, record.key, record_codec.from_dict(record_codec.to_dict(record)), self._undo)

    def _advance(self, record: CallRecord) -> bool:
        if not comes_after(record, self._state.calls.get(record.key)):
            return False
        _put(self._state.calls, record.key, record_codec.from_dict(record_codec.to_dict(record)), self._undo)
        return True

    async def find(self, key: str) -> CallRecord | None:
        """See `CallLedger.find`."""
        return self._state.calls.get(key)

    async def open_calls(self, run: str) -> Sequence[CallRecord]:
        """See `CallLedger.open_calls`."""
        return [one for one in self._state.calls.values() if one.run == run and one.open]

    async def verify(self) -> tuple[Problem, ...]:
        """See `SessionStore.verify`."""
        return tuple(verify(self._state.nodes.values(), self._state.heads))


def _put(table: dict[str, T], key: str, value: T, undo: list[Callable[[], object]]) -> None:
    """Set a value, and add to `undo` how to set it back."""
    if key in table:
        undo.append(partial(table.__setitem__, key, table[key]))
    else:
        undo.append(partial(table.pop, key))
    table[key] = value


def _add(rows: list[T], row: T, undo: list[Callable[[], object]]) -> None:
    rows.append(row)
    undo.append(rows.pop)
