"""The calls of a run's turns: who carries out each call, and what its result changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.lowlevel

from monitor._util.text import foreign
from monitor.chunks import ToolCall, ToolResult
from monitor.context.history import History, HistoryEdit
from monitor.core.run import RunCore
from monitor.errors import TerminateReason, ToolErrorKind
from monitor.events import (
    ApprovalAnswered,
    ApprovalRequested,
    Event,
    Nudged,
    SandboxDecided,
    SandboxWarning,
    ToolCallChanged,
    ToolFinished,
    ToolOutput,
    ToolProgressed,
    ToolResultDropped,
    ToolStarted,
)
from monitor.goal.goal import Goal, preflight
from monitor.goal.outputs import TERMINATE
from monitor.guard.streams.ask import Interruptible
from monitor.guard.streams.wait import Clock
from monitor.messages import ApprovalAnswer, ApprovalRequest, AssistantMessage, CallRecord, CallState, Message
from monitor.outcome import Turn
from monitor.policy import stop_for
from monitor.runs.calls.offered_tools import GuidanceBook, OfferedTools
from monitor.runs.context.run_context import RunContext
from monitor.runs.delivery import Delivery
from monitor.runs.option_groups import Results, ToolCalls
from monitor.runs.pausing import in_task
from monitor.runs.record.journal import PendingChanges
from monitor.runs.record.recorder import Recorder
from monitor.runs.record.session_reading import or_by_mail, remove_answers
from monitor.tools.approvals.approval import Approvals, approval_of, approver_of, check_boxes
from monitor.tools.base import CallingRun, CallListener, GuidanceContext
from monitor.tools.calls.scheduler import Scheduler
from monitor.tools.registry import Registry, Toolset
from monitor.tools.results.kept_results import Summarise
from monitor.tools.sandbox.confinement import SandboxFound
from monitor.verdicts import VETO, Detection, Stop

T = TypeVar("T")


class Calls(CallListener):
    """Carries out the calls of one run. The core answers calls of the run's own tools, the
    scheduler the others.

    It hears the scheduler: an event is emitted for each step of a call and for each question to a
    person. With a session, that a tool is entered becomes an event when its record is stored.
    """

    def __init__(
        self,
        options: ToolCalls,
        results: Results,
        tools: Registry,
        *,
        core: RunCore,
        goal: Goal,
        context: RunContext,
        work: Interruptible,
        delivery: Delivery,
        clock: Clock,
        close_grace_s: float,
        run: CallingRun,
        run_id: str,
        deps: object = None,
        summary: Summarise | None = None,
        variables: Mapping[str, object] | None = None,
        agent: str = "",
    ) -> None:
        """`run`: the run as the tools see it. `summary`: summarises results that are too long.
        `variables`, `agent`: for the functions that choose guidance.
        """
        self._tools = tools
        self._core = core
        self._goal = goal
        self._context = context
        self._work = work
        self._delivery = delivery
        self._emit: Callable[[Event], None] = delivery.emit
        self._now = clock.now
        self._close_grace_s = close_grace_s
        self.offered: OfferedTools = OfferedTools(tools, goal, options.offer)
        self._keeper = results.keeper(run_id, context.shows, summary)
        self._guidance = GuidanceBook(
            lambda name: tools.entry(name).traits.guidance,
            results.guidance,
            lambda call: GuidanceContext(
                call=call, turn=core.turns, variables=variables or {}, agent=agent, run=run_id
            ),
        )
        self._finishes: Stop | None = None
        """A tool has ended the run: it ends behind this turn."""
        self.left_open: frozenset[str] = frozenset()
        """Ids of the newest calls of a run which goes on, if not all of them have their results."""
        self.settled: frozenset[str] = frozenset()
        """Ids of those among them that have."""
        self._shown: dict[str, ToolResult] = {}
        """The results of the turn's calls, as the model reads them."""
        self._recorder = options.ledger if isinstance(options.ledger, Recorder) else None
        self.listens = delivery.listened
        if self._recorder is not None:
            self._recorder.enters = self._tell_step
        self._opened: list[Toolset] = []
        self._approver = options.approver
        ask = approver_of(options.approver)
        mailbox = self._recorder.store.mailbox if self._recorder is not None else None
        self.approvals = Approvals(
            approval_of(options.approval),
            ask if ask is None or mailbox is None else or_by_mail(ask, mailbox, clock),
            run=run,
            run_id=run_id,
            listener=self,
            clock=clock,
        )
        check_boxes(approval_of(options.approval), (getattr(one, "sandbox", None) for one in tools.toolsets))
        self.scheduler = Scheduler(
            tools,
            run=run,
            run_id=run_id,
            ledger=options.ledger,
            gate=self.approvals,
            listener=self,
            clock=clock,
            at=core.at,
            limit=options.parallel,
            keeper=self._keeper,
            others=[spec.name for spec in goal.tools],
            why=self._why_over,
            deps=deps,
            defers=self._recorder is not None,
        )
        tools.check_deps(deps)

    def shown(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """`result` as the model reads it: under the name that it wrote, and with the guidance of
        its tool behind it, where that is new. A tool's text that imitates the monitor's is escaped.
        """
        if (known := self._shown.pop(call.id, None)) is not None:
            return known
        text = result.text if result.vetoed else foreign(result.text)
        if (guidance := self._guidance.new_for(self.offered.meant(call), result)) is not None:
            text = f"{text}\n\n{guidance}"
        name = self.offered.written(call)
        return result if (name, text) == (result.name, result.text) else replace(result, name=name, text=text)

    def _keep(self, call: ToolCall, result: ToolResult) -> None:
        """Store a result with the end of its call."""
        if self._recorder is not None:
            read = self.shown(call, result)
            self._shown[call.id] = read
            self._recorder.add_result(read)

    def history_was_edited(self) -> None:
        """Earlier results may have left the history, with the guidance beside them."""
        self._guidance.forget()

    # ------------------------------------------------------------------ the news of its calls

    def changed(self, record: CallRecord) -> None:
        if self._recorder is None or record.state is not CallState.RUNNING:
            self._tell_step(record)

    def _tell_step(self, record: CallRecord) -> None:
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
        """A person will be asked about a call. The session keeps the question as they see it."""
        if self._recorder is not None:
            self._recorder.add(PendingChanges(requests=[request]))
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

    # ------------------------------------------------------------------ the toolsets

    async def open(self) -> None:
        """Open the toolsets of the run."""
        for toolset in self._tools.toolsets:
            if self._approver is not None and callable(through := getattr(toolset, "ask_through", None)):
                through(self.approvals.elicit)
            await toolset.__aenter__()
            self._opened.append(toolset)
        boxes = [box for one in self._tools.toolsets if isinstance(box := getattr(one, "sandbox", None), SandboxFound)]
        for kind, opened in dict.fromkeys((box.kind, box.opened) for box in boxes if box.opened):
            self._emit(SandboxDecided(self._core.at(self._now()), kind, opened))
        for kind, detail in dict.fromkeys((box.kind, box.detail) for box in boxes if box.detail):
            self._emit(SandboxWarning(self._core.at(self._now()), kind, detail))
        preflight(None, None, tuple(self._tools))

    async def kept_text(self, text: str) -> str | None:
        """Keep `text` beside the results, and say how the model reads it, if it is kept."""
        return await self._keeper.kept_text(text) if self._keeper is not None else None

    async def close(self) -> None:
        """Close them, the last one first, each within `close_grace_s`. Say what came too late.

        Each is closed, whatever the others raise. The first error is raised then.
        """
        errors: list[Exception] = []
        while self._opened:
            toolset = self._opened.pop()
            try:
                with anyio.move_on_after(self._close_grace_s, shield=True):
                    await toolset.__aexit__(None, None, None)
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)
        self.scheduler.say_late()
        if self._keeper is not None:
            await self._keeper.close()
        if errors:
            raise errors[0]

    # ------------------------------------------------------------------ the calls of a turn

    def begin(self, turn: Turn, results: dict[str, ToolResult]) -> Sequence[ToolCall]:
        """Put the results of the run's own tools into `results`. Returns the other calls, which
        must still be carried out.
        """
        core = self._core
        if turn.number == 0 or core.void or not core.takes_own_calls:
            return ()
        # Outputs emitted in the same response count before `terminate` ends the run.
        made = [self.offered.meant(call) for call in turn.tool_calls]
        for call in sorted(made, key=lambda call: call.name == TERMINATE):
            result = self._answer(call)
            if result is not None:
                results[call.id] = result
        if core.stop is not None:
            return ()
        calls = [call for call in made if call.id not in results]
        for call in calls:
            self._emit(ToolStarted(core.at(self._now()), core.turns, call))
        return calls

    async def carry_out(self, calls: Sequence[ToolCall], results: dict[str, ToolResult]) -> None:
        """Carry out `calls` with the caller's tools. The end of the run interrupts them. Yields
        whenever there are events for the reader.
        """
        if not calls:
            # Other tasks and cancellations need a checkpoint, and this turn may have had none.
            await anyio.lowlevel.checkpoint()
            return
        await self._schedule(calls, self._finisher(calls, results))
        self._end_if_asked()

    async def _schedule(self, calls: Sequence[ToolCall], finished: Callable[[ToolResult, float], None]) -> None:
        await self._in_task(partial(self.scheduler.carry_out, calls, finished, turn=self._core.turns))

    async def _in_task(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T | None:
        return await in_task(work, limits=self._work, delivery=self._delivery, grace_s=self._close_grace_s)

    def _finisher(
        self, calls: Sequence[ToolCall], results: dict[str, ToolResult]
    ) -> Callable[[ToolResult, float], None]:
        """Takes in each result when it is there."""
        core = self._core
        started = self._now()
        number = core.turns
        by_id = {call.id: call for call in calls}

        def finished(result: ToolResult, _: float) -> None:
            results[result.id] = result
            self._keep(by_id[result.id], result)
            now = self._now()
            self._emit(ToolFinished(core.at(now), number, result, now - started))
            self._report(result, now)
            self._finish_with(result)
            if result.error_kind is not ToolErrorKind.CANCELLED:
                detection = self._context.observe(by_id[result.id], result)
                if detection is not None:
                    core.found(detection, now)
            if core.stop is not None:
                self.scheduler.abort(f"the run ends: {core.stop.detail}")
                self._work.interrupt()

        return finished

    async def carry_out_answered(self, history: History) -> None:
        """A run before this one was paused for approvals that are there now: carry out those calls,
        and put their results into the history, in the place of the ones that said so. The same for
        the calls in `left_open`. Pauses whenever there are events for the reader.
        """
        answered = self.left_open
        if not answered and self._recorder is None:  # a session says itself which calls are open
            answered = getattr(self._approver, "answered_calls", answered)
        if not answered:
            return
        at, message = last_reply(history.messages)
        if message is None:
            return
        made = [
            self.offered.meant(part) for part in message.content if isinstance(part, ToolCall) and part.id in answered
        ]
        if not made:
            return
        waiting = {call.id for call in self._core.open_calls} - self.settled
        results = self._own_answers(made, waiting)
        calls = [call for call in made if call.id not in results]
        take_in = self._finisher(calls, results)
        by_id = {call.id: call for call in calls}

        def finished(result: ToolResult, seconds: float) -> None:
            if result.id in waiting:
                take_in(result, seconds)
                return
            results[result.id] = result
            if result.id in self.settled:
                return
            self._keep(by_id[result.id], result)
            self._finish_with(result)
            if not self.left_open:  # else the process before has reported it, and the detectors have seen it again
                self._emit(ToolFinished(self._at(), self._core.turns, result, seconds))

        for call in calls:
            if not self.left_open or call.id in waiting:
                self._emit(ToolStarted(self._at(), self._core.turns, call))

        await self._schedule(calls, finished)
        news = {id: self.shown(by_id[id], one) if id in by_id else one for id, one in results.items()}
        self._put_in(history, at, message, news)
        self._end_if_asked()

    def _report(self, result: ToolResult, now: float) -> None:
        """Tell the core the result of a call."""
        self._core.tool_result(
            result.id, result.text, now, is_error=result.is_error, vetoed=result.vetoed, progress=result.progress
        )

    def _finish_with(self, result: ToolResult) -> None:
        """The run ends behind this turn, if the tool of `result` says so."""
        if result.ends_run is not None and self._finishes is None:
            detail = f"{result.name} ended the run with {result.ends_run}: {result.text}"
            self._finishes = Stop(TerminateReason.TERMINATED, detail, result.name, value=result.ends_run)

    def _end_if_asked(self) -> None:
        """End the run if a tool has ended it, or if an answer from outside is needed first."""
        if self._finishes is not None:
            stop, self._finishes = self._finishes, None
            self._core.leave(stop, None, self._now())
        self._pause_for_answers()

    def _put_in(self, history: History, at: int, message: AssistantMessage, news: Mapping[str, ToolResult]) -> None:
        """Put results in the place of those that `message`, number `at`, has for these calls."""
        new = {id: one for id, one in news.items() if id not in self.settled}
        kept = tuple(replace(new[one.id], name=one.name) if one.id in new else one for one in message.results)
        if kept == message.results:
            return
        kind, why = ("resume", "open calls were made") if self.left_open else ("approval", "approved calls were made")
        edit = HistoryEdit(history.version, at, at + 1, (replace(message, results=kept),), kind, why)
        history.commit(edit)

    def _own_answers(self, calls: Sequence[ToolCall], waiting: Collection[str]) -> dict[str, ToolResult]:
        """The results of the run's own tools, and of tools that it may not call any more, which
        another process has answered. The core takes those that are `waiting`.
        """
        results: dict[str, ToolResult] = {}
        for call in calls:
            if not self.offered.may_call(call.name):
                results[call.id] = self.offered.refused(call)
            elif (answer := self._goal.answer(call)) is not None:
                results[call.id] = ToolResult(call.id, call.name, answer.text, answer.is_error)
            else:
                continue
            if call.id in waiting:
                self._report(results[call.id], self._now())
        return results

    def _pause_for_answers(self) -> None:
        """End the run if a person has to answer first, or if a result comes later."""
        if pending := self.approvals.pending:
            self._core.pending = tuple(pending)
            what = "call waits" if len(pending) == 1 else "calls wait"
            detail = f"{len(pending)} {what} for an approval" if pending[0].call_id else f"held: {pending[0].why}"
            self._core.leave(Stop(TerminateReason.PAUSED, detail, "approval"), None, self._now())
        elif awaited := [*self.scheduler.calls.awaited.values()]:
            count = len(awaited)
            what = "a call waits for its result" if count == 1 else f"{count} calls wait for their results"
            stop = Stop(TerminateReason.PAUSED, f"{what}: {', '.join(awaited)}", "deferred")
            self._core.leave(stop, None, self._now())

    async def hold(self, detection: Detection, said: list[str]) -> None:
        """The run is frozen until a person says how it goes on. What they say to the model is added
        to `said`. Pauses whenever there are events for the reader.
        """
        answer = await self._in_task(partial(self.approvals.hold, detection))
        if answer is not None and answer.approved:
            if answer.reason:
                said.append(answer.reason)
                self._emit(Nudged(self._at(), self._core.turns, answer.reason))
            return
        if self.approvals.pending:
            self._pause_for_answers()
            return
        stop = stop_for(detection)
        if answer is None:
            why = "the run was held, and nobody can say how it goes on"
        else:
            why = "the run was held, and " + (
                "nobody answered" if answer.decision == "expired" else "was stopped by the person who was asked"
            )
        if answer is not None and answer.reason:
            why += f": {answer.reason}"
        self._core.leave(replace(stop, detail=f"{stop.detail}; {why}"), None, self._now())

    def _answer(self, call: ToolCall) -> ToolResult | None:
        """The result of a call that needs no tool of the caller's."""
        if self.offered.may_call(call.name):
            result = self._core.answer_call(call, self._now())
        else:
            result = self.offered.refused(call)
            self._report(result, self._now())
        if result is not None and result.is_error:  # an accepted call has an event of its own
            self._emit(ToolFinished(self._at(), self._core.turns, result, 0.0))
        return result

    def why_cut(self, call: ToolCall) -> ToolResult:
        """The result of a call that the end of the run cut off before it had one."""
        text = f"{VETO} This call was not carried out to its end"
        why = self._why_over()
        text = f"{text}: {why}." if why else f"{text}."
        if self._core.spoken_over:
            text = f"{VETO} This call was not made: a message came first."
        return ToolResult(call.id, call.name, text, is_error=True, vetoed=True, error_kind=ToolErrorKind.CANCELLED)

    def _why_over(self) -> str | None:
        """Why the run ends, for the model. `None`: it goes on, or the program was interrupted."""
        detail = self._core.why_over(self._now())
        return None if detail is None else f"the run ends: {detail}"

    def _at(self) -> float:
        return self._core.at(self._now())


def last_reply(messages: Sequence[Message]) -> tuple[int, AssistantMessage | None]:
    """The newest message of the model, and where it stands."""
    for at in range(len(messages) - 1, -1, -1):
        if isinstance(message := messages[at], AssistantMessage):
            return at, message
    return 0, None
