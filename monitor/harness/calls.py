"""The calls of a run's turns: which tools the model may call, and who carries out each call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import anyio.lowlevel

from monitor.chunks import ToolCall, ToolResult
from monitor.core.run import RunCore
from monitor.events import Event, ToolFinished, ToolStarted
from monitor.goal.goal import Goal
from monitor.goal.outputs import TERMINATE
from monitor.harness.context import RunContext
from monitor.harness.streams.clock import Clock
from monitor.harness.streams.interrupt import Interruptible
from monitor.models import ToolSpec
from monitor.outcome import Turn
from monitor.tools.base import CallingRun, Tool, carry_out_all
from monitor.verdicts import VETO


class Calls:
    """Carries out the calls of one run: the core answers calls of the run's own tools, `tools` the
    others.
    """

    def __init__(
        self,
        tools: Mapping[str, Tool],
        *,
        core: RunCore,
        goal: Goal,
        context: RunContext,
        work: Interruptible,
        emit: Callable[[Event], None],
        clock: Clock,
        run: CallingRun,
    ) -> None:
        """`run`: the run as the tools see it."""
        self._tools = tools
        self._core = core
        self._goal = goal
        self._context = context
        self._work = work
        self._emit = emit
        self._now = clock.now
        self._run = run
        self._withdrawn: set[str] = set()
        self._only: tuple[str, ...] | None = None

    def withdraw(self, name: str) -> None:
        """The model may not call the tool `name` any more."""
        self._withdrawn.add(name)

    def allow_only(self, names: tuple[str, ...]) -> None:
        """The model may call only the tools `names`. `()`: only the tools with which it reaches its
        goal.
        """
        self._only = names or tuple(spec.name for spec in self._goal.last_tools)

    def offered(self) -> Iterator[ToolSpec]:
        """The tools of the next model call: the run's own and the caller's, without those that the
        model may not call.
        """
        specs = [*self._goal.tools, *(tool.spec for tool in self._tools.values())]
        return (spec for spec in specs if self._may_call(spec.name))

    def begin(self, turn: Turn, results: dict[str, ToolResult]) -> Sequence[ToolCall]:
        """Put the results of the run's own tools into `results`. Returns the other calls, which
        must still be carried out.
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
        """Carry out `calls` with the caller's tools. The end of the run interrupts them."""
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
            core.tool_result(result.id, result.text, now, is_error=result.is_error)
            detection = self._context.observe(by_id[result.id], result)
            if detection is not None:
                core.found(detection, now)
            if core.stop is not None:
                self._work.interrupt()

        own = [spec.name for spec in self._goal.tools]
        await self._work.under_deadlines(lambda: carry_out_all(calls, self._tools, self._run, finished, others=own))

    def _answer(self, call: ToolCall) -> ToolResult | None:
        """The result of a call that needs no tool of the caller's."""
        if self._may_call(call.name):
            result = self._core.answer(call, self._now())
        else:
            text = f"{VETO} This call was not made: {call.name} is not available any more."
            self._core.tool_result(call.id, text, self._now(), is_error=True, vetoed=True)
            result = ToolResult(call.id, call.name, text, is_error=True, vetoed=True)
        if result is not None and result.is_error:  # an accepted call has its own event
            self._emit(ToolFinished(self._core.at(self._now()), self._core.turns, result, 0.0))
        return result

    def _may_call(self, name: str) -> bool:
        return name not in self._withdrawn and (self._only is None or name in self._only)
