"""The calls of a run's turns: which tools the model may call, and who carries out each call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import anyio.lowlevel

from monitor.calls import ApprovalAnswer, ApprovalRequest, CallRecord
from monitor.chunks import ToolCall, ToolResult
from monitor.core.run import RunCore
from monitor.events import (
    ApprovalAnswered,
    ApprovalRequested,
    Event,
    ToolCallChanged,
    ToolFinished,
    ToolOutput,
    ToolProgressed,
    ToolResultDropped,
    ToolStarted,
)
from monitor.goal.goal import Goal
from monitor.goal.outputs import TERMINATE
from monitor.harness.context import RunContext
from monitor.harness.delivery import Delivery
from monitor.harness.options import RunOptions
from monitor.harness.streams.clock import Clock
from monitor.harness.streams.interrupt import Interruptible
from monitor.models import ToolSpec
from monitor.outcome import Turn
from monitor.reasons import ToolErrorKind
from monitor.tools.base import CallingRun
from monitor.tools.guidance import GuidanceBook
from monitor.tools.masking import masked
from monitor.tools.registry import Registry
from monitor.tools.scheduler import Gate, Listener, Scheduler
from monitor.verdicts import VETO


class Calls(Listener):
    """Carries out the calls of one run: those of the run's own tools by the core, the others by the
    scheduler, whose news it makes events of.
    """

    def __init__(
        self,
        supervisor: RunOptions,
        tools: Registry,
        *,
        core: RunCore,
        goal: Goal,
        context: RunContext,
        work: Interruptible,
        delivery: Delivery,
        clock: Clock,
        run: CallingRun,
        run_id: str,
        gate: Gate | None,
    ) -> None:
        """`run`: the run as the tools see it."""
        self._tools = tools
        self._core = core
        self._goal = goal
        self._context = context
        self._work = work
        self._delivery = delivery
        self._emit: Callable[[Event], None] = delivery.emit
        self._now = clock.now
        self._withdrawn: set[str] = set()
        self._only: tuple[str, ...] | None = None
        self._keeper = supervisor.calls.keeper(run_id)
        self._guidance = GuidanceBook(lambda name: tools.entry(name).traits.guidance, supervisor.guidance)
        self.scheduler = Scheduler(
            tools,
            run=run,
            run_id=run_id,
            ledger=supervisor.calls.ledger,
            gate=gate,
            listener=self,
            clock=clock,
            at=core.at,
            limit=supervisor.calls.max_parallel,
            keeper=self._keeper,
            others=[spec.name for spec in goal.tools],
        )

    async def close(self) -> None:
        """The run has ended."""
        if self._keeper is not None:
            await self._keeper.close()

    def beside(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """`result` with the guidance of its tool behind it, where that is new to the model."""
        guidance = self._guidance.beside(call, result)
        return result if guidance is None else replace(result, text=f"{result.text}\n\n{guidance}")

    def history_was_edited(self) -> None:
        """Earlier results may have left the history, with the guidance beside them."""
        self._guidance.forget()

    def withdraw(self, name: str) -> None:
        """The model may not call the tool `name` any more."""
        self._withdrawn.add(name)

    def allow_only(self, names: tuple[str, ...]) -> None:
        """The model may call no tools but `names`. `()`: those by which it reaches its goal."""
        self._only = names or tuple(spec.name for spec in self._goal.last_tools)

    def offered(self) -> Iterator[ToolSpec]:
        """The tools of the next model call: the run's own and the caller's, without those that the
        model may not call.
        """
        specs = [*self._goal.tools, *(entry.spec for entry in self._tools.entries().values())]
        return (spec for spec in specs if self._may_call(spec.name))

    def begin(self, turn: Turn, results: dict[str, ToolResult]) -> Sequence[ToolCall]:
        """Put the results of the run's own tools into `results`. Returns the calls that are left to
        carry out.
        """
        core = self._core
        if turn.number == 0 or core.void or not core.takes_own_calls:
            return ()
        # Outputs emitted in the same response count before `terminate` ends the run.
        for call in sorted(turn.tool_calls, key=lambda call: call.name == TERMINATE):
            result = self._answer(call)
            if result is not None:
                results[call.id] = result
        if core.stop is not None:
            return ()
        calls = [call for call in turn.tool_calls if call.id not in results]
        for call in calls:
            self._emit(ToolStarted(core.at(self._now()), core.turns, call))
        return calls

    async def carry_out(self, calls: Sequence[ToolCall], results: dict[str, ToolResult]) -> None:
        """Carry out `calls` by the caller's tools, until the run ends at the latest."""
        if not calls:
            # Other tasks and cancellations need a checkpoint, and this turn may have had none.
            await anyio.lowlevel.checkpoint()
            return
        core = self._core
        started = self._now()
        number = core.turns
        by_id = {call.id: call for call in calls}

        def finished(result: ToolResult, _: float) -> None:
            results[result.id] = result
            now = self._now()
            self._emit(ToolFinished(core.at(now), number, result, now - started))
            core.tool_result(
                result.id,
                result.text,
                now,
                is_error=result.is_error,
                vetoed=result.vetoed,
                progress=result.progress,
            )
            if result.error_kind is not ToolErrorKind.CANCELLED:
                detection = self._context.observe(by_id[result.id], result)
                if detection is not None:
                    core.found(detection, now)
            if core.stop is not None:
                self._work.interrupt()

        await self._work.under_deadlines(lambda: self.scheduler.carry_out(calls, finished, turn=number))

    # ------------------------------------------------------------------ what the scheduler tells

    def changed(self, record: CallRecord) -> None:
        if self._delivery.listened:
            record = replace(record, arguments=masked(record.arguments))
            self._emit(ToolCallChanged(self._at(), record.turn, record))

    async def output(self, call: ToolCall, stream: str, text: str) -> None:
        self._emit(ToolOutput(self._at(), self._core.turns, call.id, stream, text))
        await self._delivery.room()

    def progressed(self, call: ToolCall, done: float | None, total: float | None, note: str) -> None:
        self._emit(
            ToolProgressed(at_s=self._at(), turn=self._core.turns, call_id=call.id, done=done, total=total, note=note)
        )

    def dropped(self, call: ToolCall, why: str) -> None:
        self._emit(ToolResultDropped(self._at(), self._core.turns, call.id, call.name, why))

    def requested(self, request: ApprovalRequest) -> None:
        """A person is asked."""
        self._emit(ApprovalRequested(self._at(), self._core.turns, request))

    def answered(self, answer: ApprovalAnswer) -> None:
        """The question has its answer."""
        self._emit(ApprovalAnswered(self._at(), self._core.turns, answer))

    # ------------------------------------------------------------------ helpers

    def _answer(self, call: ToolCall) -> ToolResult | None:
        """The result of a call that needs no tool of the caller's."""
        if self._may_call(call.name):
            result = self._core.answer(call, self._now())
        else:
            text = f"{VETO} This call was not made: {call.name} is not available any more."
            self._core.tool_result(call.id, text, self._now(), is_error=True, vetoed=True)
            result = ToolResult(
                call.id, call.name, text, is_error=True, vetoed=True, error_kind=ToolErrorKind.UNKNOWN_TOOL
            )
        if result is not None and result.is_error:  # an accepted call has an event of its own
            self._emit(ToolFinished(self._at(), self._core.turns, result, 0.0))
        return result

    def _may_call(self, name: str) -> bool:
        return name not in self._withdrawn and (self._only is None or name in self._only)

    def _at(self) -> float:
        return self._core.at(self._now())
