"""One call on its way to its result, and the calls of one response."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from monitor.calls import CallRecord, CallState
from monitor.chunks import ToolCall, ToolResult
from monitor.tools.event_loop import Alarm
from monitor.tools.protocols import CallListener
from monitor.tools.registry import ToolEntry

if TYPE_CHECKING:
    from monitor.tools.artifacts.artifact_store import Reference

WRITES = ("edit", "execute")
"""Kinds of tools whose calls run one after the other, in their order."""


class CallRuntime(Protocol):
    """The parts of a scheduler that a call uses while its tool runs."""

    listener: CallListener
    now: Callable[[], float]
    late: deque[CallJob]

    def in_loop(self, do: Callable[[], None]) -> None:
        """Call `do` in the event loop's thread."""
        ...


@dataclass(slots=True, eq=False)
class CallJob:
    """One call on its way to its result. It is the `CallReporter` of its tool."""

    runtime: CallRuntime
    call: ToolCall
    entry: ToolEntry
    run_id: str
    key: str
    """The identity of the action, see `monitor.calls.call_key`."""
    turn: int
    index: int
    kept_record: CallRecord | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    outcome: tuple[CallState, ToolResult] | None = None
    """The end of the call, before it is stored and the listener is informed."""
    result: ToolResult | None = None
    stored: CallState | None = None
    """The state that stands in the ledger. `None`: nothing stands there yet."""
    owned: bool = True
    """Whether this process stores the end of the call. False: another process carries the call out,
    or has done so.
    """
    scope: anyio.CancelScope | None = None
    after: Sequence[CallJob] = ()
    """The calls before it that it waits for."""
    ended: anyio.Event | None = None
    why: str | None = None
    """The reason why this scheduler cancels the call. A cancellation from outside has none."""
    status: str | None = None
    """The line of the result that is never cut."""
    reference: Reference | None = None
    """Where the text of the result came from, if its tool says so."""
    deferred: str | None = None
    """What the call waits for, if its tool has deferred its result."""
    timed_out: bool = False
    left_thread: bool = False
    entered: bool = False
    begun_at: float = 0.0
    idle_due: float = math.inf
    hard_due: float = math.inf
    alarm: Alarm | None = None

    @property
    def record(self) -> CallRecord:
        """The record of the call, made when it is first needed: most runs have no ledger and no
        listener.
        """
        if self.kept_record is None:
            self.kept_record = CallRecord(
                run=self.run_id,
                call_id=self.call.id,
                tool=self.call.name,
                arguments=self.call.arguments,
                key=self.key,
                turn=self.turn,
                index=self.index,
                idempotent=self.entry.traits.idempotent,
            )
        return self.kept_record

    @record.setter
    def record(self, record: CallRecord) -> None:
        self.kept_record = record

    async def output(self, text: str, stream: str) -> None:
        if self.result is None:
            await self.runtime.listener.output(self.call, stream, text)

    def progress(self, done: float | None, total: float | None, note: str) -> None:
        def note_it() -> None:
            if self.result is None:
                timeout_s = self.entry.traits.timeout_s
                if timeout_s is not None and self.hard_due < math.inf:
                    self.idle_due = self.runtime.now() + timeout_s
                self.runtime.listener.progressed(self.call, done, total, note)

        self.runtime.in_loop(note_it)

    def process_started(self, pid: int) -> None:
        self.runtime.in_loop(lambda: self.runtime.listener.process_started(self.call, pid))

    def thread_left(self) -> None:
        self.left_thread = True

    def thread_ended(self) -> None:
        self.runtime.late.append(self)


@dataclass(slots=True, eq=False)
class CallBatch:
    """The calls of one response of the model."""

    jobs: list[CallJob]
    finished: Callable[[ToolResult, float], object] | None
    scope: anyio.CancelScope | None = None
    """The scope of its task group, or of the wait for its turn. `None`: it has not begun to wait.
    """
    fatal: list[BaseException] = field(default_factory=list)
    begun: bool = False
    aborted: bool = False
    why: str | None = None
    """Why the batch was ended. `None`: nobody has said."""


def set_order(jobs: Sequence[CallJob]) -> None:
    """Set for each call the calls that it waits for. Calls that have their end already wait for
    none.
    """
    barrier: list[CallJob] = []
    writer: list[CallJob] = []
    readers: list[CallJob] = []
    since: list[CallJob] = []
    for job in jobs:
        if job.outcome is not None:
            continue
        traits = job.entry.traits
        if traits.alone:
            job.after = [*barrier, *since]
            barrier, writer, readers, since = [job], [], [], []
        else:
            job.after = barrier
            if traits.kind in WRITES:
                job.after = [*barrier, *writer, *readers]
                writer, readers = [job], []
            elif traits.kind == "read":
                job.after = [*barrier, *writer]
                readers.append(job)
            since.append(job)
        for other in job.after:
            if other.ended is None:
                other.ended = anyio.Event()
