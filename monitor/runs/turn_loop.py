"""The turn loop of a run: call the model, read its stream, carry out its calls, ask the core what
comes next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from monitor.adapters.adapter import adapter_of
from monitor.chunks import Chunk, ToolCall, ToolResult
from monitor.context.history import History
from monitor.core.run import RunCore
from monitor.errors import CompactionReason, TerminateReason
from monitor.events import Nudged, RetryScheduled, ToolWithdrawn
from monitor.guard.streams.ask import Interruptible, JudgeTasks
from monitor.guard.streams.source_stream import SourceStream
from monitor.guard.streams.wait import Clock
from monitor.messages import AssistantMessage, Text, UserMessage
from monitor.models import ModelRequest
from monitor.outcome import Turn
from monitor.runs.budget_hold import BudgetHold
from monitor.runs.calls.run_calls import Calls
from monitor.runs.context.compaction_job import CompactionJob
from monitor.runs.context.requests import ValidHistory
from monitor.runs.context.run_context import RunContext
from monitor.runs.delivery import Delivery
from monitor.runs.outage_gate import LOOK_AGAIN_S, OutageGate
from monitor.runs.pausing import pause
from monitor.runs.steering import Steering
from monitor.runs.supervisor_options import RunOptions
from monitor.verdicts import Compact, Continue, Hold, LastTurn, Nudge, RefuseCall, Stop, Verdict, WithdrawTool

_HANDED_OVER: Final = Stop(
    TerminateReason.WORKER_STOPPING, "this process leaves the run between two turns; another goes on with it", "worker"
)


class TurnLoop:
    """Drives the turns of one run until the core ends it."""

    def __init__(
        self,
        supervisor: RunOptions,
        core: RunCore,
        *,
        clock: Clock,
        history: History,
        instructions: str | None,
        valid_history: ValidHistory,
        context: RunContext,
        judges: JudgeTasks,
        calls: Calls,
        work: Interruptible,
        delivery: Delivery,
        steering: Steering,
        budget_hold: BudgetHold | None = None,
        gate: OutageGate | None = None,
    ) -> None:
        """`budget_hold`: the part of a shared budget that this run may spend. `gate`: where the run
        waits for outages.
        """
        self._supervisor = supervisor
        self._core = core
        self._clock = clock
        self._now = clock.now
        self._history = history
        self._instructions = instructions
        self._valid_history = valid_history
        self._context = context
        self._judges = judges
        self._calls = calls
        self._work = work
        self._delivery = delivery
        self.steering: Steering = steering
        self.steering.accepted = self._make_room
        self._budget_hold = budget_hold
        self._gate = gate
        self._emit = delivery.emit
        self._streams_opened = 0
        self._edits = 0
        """The number of edits of the history that were seen."""
        self._reading: SourceStream[Any] | None = None
        self._backs_off = False
        """The run waits before another attempt at a turn."""
        self.leave_at: int | None = None
        """The process leaves the run at the first boundary behind this number of turns."""

    async def drive(self) -> None:
        """Check, call, read the stream, carry out the calls, report to the core, perform its
        verdict. Pauses whenever there may be events for the reader.
        """
        try:
            await self._calls.open()
            await self._calls.carry_out_answered(self._history)  # which a run before this one has left open
            await self._delivery.stored()
            self.steering.collect()
            while await self._perform(self._core.check(self._now())):
                await self._turn()
                self.steering.collect()
        finally:
            try:
                await self._judges.close()
            finally:
                try:
                    await self._calls.close()
                finally:
                    await self._context.close()

    async def _turn(self) -> None:
        """The attempts at one turn: the model call, and the calls of its answer."""
        core, events = self._core, self._delivery.queue
        tries = _TurnAttempts()
        while tries.again:
            self.steering.deliver()
            # Room for the request comes first: it may need a compaction, or end the run.
            await self._made_ready(tries)
            await self._before_call(tries)
            if core.stop is not None:
                return
            if events:
                await pause()
            self.steering.deliver()  # what has come meanwhile
            # The call, its stream, and the tool calls of its answer.
            stream = self._reading = self._open()
            results: dict[str, ToolResult] = {}
            try:
                async with stream:
                    async for _ in stream:
                        if events:
                            await pause()
                        if (held := self._budget_hold) is not None and held.grant.is_used_up:
                            await self._work.under_deadlines(held.more)
                await self._after_call(stream.turn)
                await pause()
                self._look_at_edits()
                calls = self._calls.begin(stream.turn, results)
                if events:
                    await pause()
                await self._carry_out(calls, results)
            finally:
                self._reading = None
                self._record(results)
            await self._after_turn()
            await pause()
            # A failed attempt is made again, if the core and the retries allow it.
            await self._before_another(stream.turn, tries)

    def _is_left_here(self, tries: _TurnAttempts) -> bool:
        """Whether this process leaves the run now, before another turn."""
        core = self._core
        if self.leave_at is None or core.turns < self.leave_at:
            return False
        return tries.number == 1 and core.stop is None and not core.in_last_turn

    def wake(self) -> None:
        """Make the pending read check the deadline of the run. May be called from any thread."""
        if (reading := self._reading) is not None:
            reading.wake()

    def _make_room(self) -> None:
        """A message to the run was accepted. It ends the wait before another attempt, and the
        present stream, if it is for now.
        """
        if self._backs_off:
            self._work.interrupt()
        elif self._core.spoken_over and self._reading is not None:
            self._reading.interrupt()

    def destroyed(self) -> None:
        """Leave the stream without closing it, because the task is destroyed with its event
        loop.
        """
        if self._reading is not None:
            self._reading.destroyed()

    def say(self, text: str) -> None:
        """Append one user message to the history. The provider's cached prefix stays valid."""
        self._history.append(UserMessage((Text(text),), synthetic=True))

    # ------------------------------------------------------------------ the core's verdict

    async def _perform(self, verdict: Verdict) -> bool:
        """Perform the core's verdicts until it says `Continue`. False: the run is over."""
        said: list[str] = []
        while not isinstance(verdict, Continue):
            match verdict:
                case Stop():
                    return False
                case Nudge(text) | RefuseCall(text=text):  # a call that is refused in time needs no message
                    self._emit(Nudged(self._at(), self._core.turns, text))
                    said.append(text)
                case WithdrawTool(name, _, otherwise) if otherwise and self._calls.offered.is_only(name):
                    self._emit(Nudged(self._at(), self._core.turns, otherwise))
                    said.append(otherwise)
                case WithdrawTool(name, text):
                    self._calls.offered.withdraw(name)
                    self._emit(ToolWithdrawn(self._at(), self._core.turns, name, text))
                    said.append(text)
                case Hold(detection):
                    await self._calls.hold(detection, said)
                case LastTurn(text, tools):
                    self._core.begin_last_turn(verdict, self._now())
                    self._context.last_turn()
                    self._calls.offered.allow_only(tools)
                    said = [text]
                case Compact():
                    self._context.press(CompactionReason.MANUAL)
            verdict = self._core.check(self._now())
        if said:
            self.say("\n\n".join(said))
        return True

    # ------------------------------------------------------------------ one model call

    def _open(self) -> SourceStream[Any]:
        """The next model call, as a stream that is opened by its first read."""
        supervisor = self._supervisor
        self._calls.offered.choose(self._core.turns + (not self._core.void))
        self._valid_history.before_call()
        request = ModelRequest(
            messages=self._history.messages,
            instructions=self._instructions,
            tools=tuple(self._calls.offered.specs()),
            tool_choice=supervisor.requests.tool_choice,
            settings=supervisor.model_settings,
        )
        self._delivery.retried_inside = False
        self._context.before_call()
        model = supervisor.model
        index = self._streams_opened
        self._streams_opened += 1
        return SourceStream(
            lambda: model.stream(request),
            self._core,
            clock=self._clock,
            adapter=adapter_of(model),
            close_grace_s=supervisor.close_grace_s,
            index=index,
            listener=self._heard if self._delivery.wants_chunks else None,
        )

    def _heard(self, chunk: Chunk) -> None:
        self._delivery.chunk(chunk, self._at(), self._core.turns)

    async def _before_call(self, tries: _TurnAttempts) -> None:
        """Reserve what the next call may use, and store what has happened. A shared budget that
        cannot pay the call ends the run. A process that hands the run over leaves it here.
        """
        if self._is_left_here(tries):
            await self._work.under_deadlines(self._judges.heard)
            if not await self._perform(self._core.check(self._now())):
                return
            if self._is_left_here(tries):  # what a judge has said may begin a last turn
                self._core.leave(_HANDED_OVER, None, self._now())
                return
        if self._core.stop is None and self._budget_hold is not None:
            budget_hold, refused = self._budget_hold, []

            async def ask() -> None:
                refused.append(await budget_hold.before_call(self._context.request_tokens()))

            if await self._work.under_deadlines(ask) and refused[0] is not None:
                self._core.leave(refused[0], None, self._now())
        await self.steering.stored(self._delivery.stored)

    async def _passed(self, calls: Sequence[ToolCall] | None, tries: _TurnAttempts | None = None) -> None:
        """Wait while the tools of `calls`, or the model (`None`), have an outage. Deadlines and
        aborts end the wait, and so does a hand-over before an attempt. Pauses whenever there are
        events for the reader.
        """
        gate = self._gate
        if gate is None or (calls is not None and not calls):
            return
        waits = True

        async def look() -> None:
            nonlocal waits
            waits = await gate.must_wait(calls)

        while await self._work.under_deadlines(look) and waits:
            if calls is not None:
                await self._delivery.announced(reply=True)
            if tries is not None and self.leave_at is not None:
                if self._is_left_here(tries):
                    break
                await self._delivery.stored()  # an outage takes long, and the results of the turn wait
            if self._delivery.queue:
                await pause()
            if not await self._work.until(self._now() + LOOK_AGAIN_S):
                break
        gate.leave()

    async def _after_turn(self) -> None:
        """Store the turn. A run that is handed over stores it in one step with what follows from
        it: no process may find only one of the two.
        """
        if self.leave_at is None:
            await self._delivery.stored()

    async def _after_call(self, turn: Turn) -> None:
        if self._gate is not None:
            await self._gate.model_ended(turn)
        if turn.number and self._context.after_call(turn, several=self._delivery.retried_inside):
            self._core.retract()

    def _record(self, results: Mapping[str, ToolResult]) -> None:
        """Append the model's message to the history, every call with its result."""
        content, turn = self._core.take_reply(self._supervisor.requests.looped_text), self._core.turn
        if content and turn is not None:
            self._look_at_edits()
            answered = (
                self._calls.shown(call, results.get(call.id) or self._calls.why_cut(call))
                for call in content
                if isinstance(call, ToolCall)
            )
            self._valid_history.append(AssistantMessage(content, tuple(answered), turn.finish_reason))
            self._context.turn_ended()

    def _look_at_edits(self) -> None:
        """Say if results have left the history, with the guidance beside them."""
        if (edits := len(self._history.edits)) != self._edits:
            self._edits = edits
            self._calls.history_was_edited()

    # ------------------------------------------------------------------ between two calls

    async def _made_ready(self, tries: _TurnAttempts) -> None:
        """Wait for the compactions that the next request needs, and for the model's outage. A run
        that is left here makes no request, so no outage is in its way.
        """
        stays = not self._is_left_here(tries)
        await self._served(self._needs(tries))
        if stays:
            await self._passed(None, tries)

    async def _carry_out(self, calls: Sequence[ToolCall], results: dict[str, ToolResult]) -> None:
        """Carry out the calls of a turn, after the outages of their tools."""
        await self._passed(calls)
        await self._calls.carry_out(calls, results)
        if self._gate is not None:
            await self._gate.calls_ended(calls, results)

    def _needs(self, tries: _TurnAttempts) -> Iterator[CompactionJob | Stop]:
        """The compactions that the next request needs. A run that is left here waits for one beside
        it as well, because its task ends with this process.
        """
        yield from self._context.make()
        if self._is_left_here(tries):
            yield from self._context.under_way()

    async def _served(self, needs: Iterator[CompactionJob | Stop], error: BaseException | None = None) -> None:
        """Wait for the compactions that the next request needs. If no compaction helps, the run
        ends, with `error`.

        Pauses whenever there are events for the reader, because a compaction may take minutes.
        """
        for need in needs:
            if isinstance(need, Stop):
                self._core.leave(need, error, self._now())
                return
            # a summary takes long, and the results or the events of the turn wait
            if self.leave_at is not None or self._delivery.holds:
                await self._delivery.stored()
            while not need.over:
                if self._delivery.queue:
                    await pause()
                    continue
                with self._delivery.news() as news:
                    need.tell(news.set)
                    if not await self._work.under_deadlines(news.wait):
                        return

    async def _before_another(self, turn: Turn, tries: _TurnAttempts) -> None:
        """After a failed attempt at a turn: make the request smaller, or wait, before the next
        attempt. `tries.again` says whether there is one.
        """
        core = self._core
        tries.begin()
        failure = core.failed_attempt
        if failure is None:
            return
        delay_s: float | None = 0.0
        if (refusal := self._context.refusal(turn)) is not None:
            await self._served(self._context.recover(refusal), turn.error)
        elif self._gate is not None and self._gate.spares:
            delay_s = 0.0  # the gate says when, and the attempt is not the run's own failure
        else:
            tries.failures += 1
            retries = self._supervisor.requests.retries
            delay_s = retries.delay_s(tries.failures, turn.model_error) if retries is not None else None
        if core.stop is not None or delay_s is None:
            return
        core.will_retry(delay_s)
        self._emit(
            RetryScheduled(at_s=self._at(), turn=turn.number, attempt=tries.number, after_s=delay_s, why=failure.detail)
        )
        due = self._now() + delay_s
        await self._delivery.stored()
        await pause()
        self._backs_off = True
        try:
            tries.again = await self._work.until(due)
        finally:
            self._backs_off = False

    def _at(self) -> float:
        return self._core.at(self._now())


@dataclass(slots=True)
class _TurnAttempts:
    """The attempts at one turn, with their delays."""

    number: int = 1
    failures: int = 0
    """Failed attempts, without requests that were refused for their size."""
    again: bool = True

    def begin(self) -> None:
        """Count the next attempt. It is made only if `again` becomes true."""
        self.number += 1
        self.again = False
