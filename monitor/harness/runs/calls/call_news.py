"""The news of calls as events of the run."""

from __future__ import annotations

from monitor.calls import ApprovalAnswer, ApprovalRequest, CallRecord, CallState
from monitor.chunks import ToolCall
from monitor.core.run import RunCore
from monitor.events import (
    ApprovalAnswered,
    ApprovalRequested,
    ToolCallChanged,
    ToolOutput,
    ToolProgressed,
    ToolResultDropped,
)
from monitor.harness.events.delivery import Delivery
from monitor.harness.record.mailed_answers import remove_answers
from monitor.harness.record.recorder import Recorder
from monitor.harness.streams.clock import Clock
from monitor.tools.protocols import CallListener


class CallNews(CallListener):
    """Emits an event for each step of a call and for each question to a person.

    With a `recorder`, that a tool is entered becomes an event when its record is stored.
    """

    def __init__(self, core: RunCore, clock: Clock, delivery: Delivery, recorder: Recorder | None) -> None:
        self._core = core
        self._now = clock.now
        self._delivery = delivery
        self._emit = delivery.emit
        self._recorder = recorder
        self.listens = delivery.listened
        if recorder is not None:
            recorder.journal.enters = self._changed

    def changed(self, record: CallRecord) -> None:
        if self._recorder is None or record.state is not CallState.RUNNING:
            self._changed(record)

    def _changed(self, record: CallRecord) -> None:
        if self.listens:
            self._emit(ToolCallChanged(self._at(), record.turn, record))

    async def output(self, call: ToolCall, stream: str, text: str) -> None:
        self._emit(ToolOutput(self._at(), self._core.turns, call.id, stream, text))
        await self._delivery.room()

    def progressed(self, call: ToolCall, done: float | None, total: float | None, note: str) -> None:
        self._emit(
            ToolProgressed(at_s=self._at(), turn=self._core.turns, call_id=call.id, done=done, total=total, note=note)
        )

    def process_started(self, call: ToolCall, pid: int) -> None:
        self._emit(ToolProgressed(at_s=self._at(), turn=self._core.turns, call_id=call.id, pid=pid))

    def dropped(self, call: ToolCall, why: str) -> None:
        self._emit(ToolResultDropped(self._at(), self._core.turns, call.id, call.name, why))

    async def requested(self, request: ApprovalRequest) -> None:
        """A person will be asked about a call."""
        self._emit(ApprovalRequested(self._at(), self._core.turns, request))
        await self._delivery.announced()

    async def answered(self, answer: ApprovalAnswer) -> None:
        """The question to a person has its answer."""
        self._emit(ApprovalAnswered(self._at(), self._core.turns, answer))
        await self._delivery.announced()
        if self._recorder is not None and (mailbox := self._recorder.store.mailbox) is not None:
            remove_answers(mailbox, answer.id)

    async def ended(self) -> None:
        await self._delivery.announced(beside_open_calls=True)

    def _at(self) -> float:
        return self._core.at(self._now())
