"""Carries out the calls of one model response in their order, with one result for each call.

- **Order.** All calls are checked before any runs. A call starts as soon as it is allowed.
  Calls run side by side, at most `limit` at once. A call that is `alone` waits for all calls before
  it, and all calls after it wait for it. Reads run beside reads. An edit or an execution waits for
  the reads, edits and executions before it, and those after it wait for it.
- **Results.** Each call gets exactly one result, in the order of the calls, whatever happens. It is
  set in one place (`CallJob.settle`). A later answer of a tool is dropped, and `dropped` is called.
- **Records.** Each step of a call is stored before it happens, see `monitor.tools.calls.call`.
- **Some exceptions** are no results, and go on to the caller: a cancellation from outside, an
  exception that ends programs (`KeyboardInterrupt`, `SystemExit`), an exception of the ledger or of
  the caller's own `finished`. The calls get their results before that.

Every call runs in a task of its own. A cancellation from outside reaches that task by its group. An
`asyncio.CancelledError` may also leak out of something that the tool awaited. That is an error of
the tool, and must not pass for the end of the run. A tool's context variables stay its own, too.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import anyio
import anyio.lowlevel

from monitor._util.hashing import canonical_json
from monitor.chunks import ToolCall, ToolResult
from monitor.errors import ConfigError, ToolErrorKind, describe
from monitor.messages import ApprovalRequest, CallLedger, CallRecord, CallState, key_of
from monitor.tools.approvals.approval import Approvals
from monitor.tools.base import (
    ADMITTED,
    NO_LISTENER,
    NO_RUN,
    Admission,
    CallingRun,
    CallListener,
    Clock,
    LoopClock,
    Tool,
    ToolContext,
)
from monitor.tools.calls.call import TAKEN, CallEnd, CallJob, CallsOfRun, run_tool
from monitor.tools.registry import NO_TOOL, Registry
from monitor.tools.results.call_results import arguments_of, failed, failed_by, unknown_tool
from monitor.tools.results.kept_results import ResultStore

MAX_PARALLEL: Final = 16
"""The most calls that run at once. Plain functions need worker threads, of which anyio has 40."""
CALL_GRACE_S: Final = 5.0
"""The seconds that a tool gets to end after its deadline: as long as the ledger gets for that."""
_INTERRUPTED: Final = "it was interrupted"
RETRIES: Final = 1
"""How often a failed call of an idempotent tool is made again."""
RETRIED: Final = frozenset({ToolErrorKind.UNHANDLED, ToolErrorKind.TIMEOUT})
"""Failures after which a call of an idempotent tool is made again."""
WAITS_FOR: Final = {
    "alone": ("alone", "edit", "execute", "read", "other"),
    "edit": ("alone", "edit", "execute", "read"),
    "execute": ("alone", "edit", "execute", "read"),
    "read": ("alone", "edit", "execute"),
    "other": ("alone",),
}
"""Kinds of calls, and the kinds of the calls before them for which they wait."""


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
    before: dict[str, list[CallJob]] = {kind: [] for kind in WAITS_FOR}
    for job in jobs:
        if job.outcome is not None:
            continue
        kind = "alone" if job.entry.traits.alone else job.entry.traits.kind
        kind = kind if kind in WAITS_FOR else "other"
        job.after = [other for one in WAITS_FOR[kind] for other in before[one]]
        for other in job.after:
            other.ended = other.ended or anyio.Event()
        if kind == "alone":  # what comes later waits for this one
            before = {one: [] for one in WAITS_FOR}
        before[kind].append(job)


class Scheduler:
    """Carries out calls, batch by batch. One scheduler serves one run."""

    def __init__(
        self,
        tools: Mapping[str, Tool] | Registry,
        *,
        run: CallingRun | None = None,
        run_id: str = "",
        ledger: CallLedger | None = None,
        gate: Approvals | None = None,
        listener: CallListener = NO_LISTENER,
        clock: Clock | None = None,
        at: Callable[[float], float] = lambda now: now,
        limit: int = MAX_PARALLEL,
        keeper: ResultStore | None = None,
        others: Collection[str] = (),
        why: Callable[[], str | None] = lambda: None,
        deps: object = None,
        defers: bool = False,
        grace_s: float = CALL_GRACE_S,
    ) -> None:
        """`ledger`: `None` keeps no records. `keeper`: bounds the results, and keeps their full
        texts. Without a keeper, results are as long as the tools give them. `at`: turns a time of
        the clock into seconds since the run began. `others`: names of tools that are carried out
        elsewhere. The answer to a call of an unknown tool names them too. `why`: asked why calls
        were interrupted from outside, for the results of these calls. `deps`: what the tools get as
        `context.deps`.
        `defers`: the ledger keeps a call whose result comes later, until it is there.
        `grace_s`: the seconds after its deadline until a tool that has not ended is abandoned.
        """
        if limit < 1:
            raise ConfigError(f"max_parallel_tools={limit!r}: give 1 or more")
        self.tools = tools if isinstance(tools, Registry) else Registry(tools)
        self.calls: CallsOfRun = CallsOfRun(ledger, listener, clock or LoopClock(), run_id, at, defers, grace_s)
        self._run = run if run is not None else NO_RUN
        self._gate = gate
        self._limit = limit
        self._keeper = keeper
        self._others = others
        self._why = why
        self._deps = deps
        self._tries = AskedTries()
        self._made: Counter[tuple[str, str]] = Counter()
        self._lock = anyio.Lock(fast_acquire=True)
        self._batches: list[CallBatch] = []
        self._slots: anyio.Semaphore | None = None

    # ------------------------------------------------------------------ from outside

    async def carry_out(
        self,
        calls: Sequence[ToolCall],
        finished: Callable[[ToolResult, float], object] | None = None,
        *,
        turn: int = 0,
    ) -> list[ToolResult]:
        """The results of `calls`, in their order. If another batch is running, this one waits for
        its turn.

        `finished` is called with each result when it is there, and with the seconds that the call
        took.
        """
        self.say_late()
        batch = CallBatch([self._job(call, index, turn) for index, call in enumerate(calls)], finished)
        self._batches.append(batch)
        destroyed = False
        try:
            # trio's task group misses a cancellation that comes just as its last task ends
            await anyio.lowlevel.checkpoint_if_cancelled()
            if self._lock.locked():
                begins = await self._turn_of(batch)
            else:
                self._lock.acquire_nowait()
                begins = True
            if begins:
                try:
                    await self._perform(batch)
                finally:
                    self._lock.release()
        except GeneratorExit:
            destroyed = True
            raise
        finally:
            self._batches.remove(batch)
            self._settle_rest(batch)
            if not destroyed:
                await self.calls.store_rest(batch.jobs if batch.begun else ())
            if batch.fatal:
                raise batch.fatal[0]
        return [job.result for job in batch.jobs if job.result is not None]

    async def _turn_of(self, batch: CallBatch) -> bool:
        """Wait until no other batch runs. False: `batch` was removed from the queue."""
        with anyio.CancelScope() as batch.scope:
            await self._lock.acquire()
            return True
        return False

    def abort(self, why: str) -> None:
        """End every batch, also those that wait. Each open call gets its result: cancelled."""
        for batch in tuple(self._batches):
            batch.why = why
            batch.aborted = True
            if batch.scope is not None:
                batch.scope.cancel()

    def cancel(self, call_id: str, why: str = "it was cancelled") -> bool:
        """Cancel one call, before it starts or while it runs; the others go on. False: there is no
        such open call.
        """
        for batch in self._batches:
            for job in batch.jobs:
                if job.call.id == call_id and job.result is None:
                    job.why = why
                    if job.scope is not None:
                        job.scope.cancel()
                    elif not batch.begun:
                        self._leave_queue(job, batch)
                    return True
        return False

    def _leave_queue(self, job: CallJob, batch: CallBatch) -> None:
        """Answer a cancelled call at once, whose batch waits behind another one."""
        job.outcome = job.cut_off(job.why or _INTERRUPTED)
        self._settle(job, batch)
        if batch.scope is not None and all(one.result is not None for one in batch.jobs):
            batch.scope.cancel()

    def remember(self, calls: Iterable[ToolCall]) -> None:
        """Count calls that the run has made before, in another process. If the model makes one of
        them again, that is a new call with another key.
        """
        for call in calls:
            self._made[self._action(call)] += 1

    async def recover(self, comes: Collection[str] = ()) -> Sequence[CallRecord]:
        """Set the calls that were running at a crash to `unknown`, and return them. The caller must
        be sure that no other process carries out calls of this run.

        `comes`: ids of calls that are carried out next. They get their state then, with their
        results.
        """
        return await self.calls.recover(comes)

    def say_late(self) -> None:
        """Report the calls whose abandoned threads have ended meanwhile."""
        while self.calls.late:
            job = self.calls.late.popleft()
            self.calls.listener.dropped(job.call, job.result.text if job.result is not None else "it has no result yet")

    # ------------------------------------------------------------------ a batch

    def _action(self, call: ToolCall) -> tuple[str, str]:
        """The tool and its arguments, as the tool itself reads them if it can say so."""
        arguments = call.arguments
        normalised = getattr(self.tools.entry(call.name).tool, "normalised", None)
        if callable(normalised):
            with contextlib.suppress(Exception):  # they do not fit, so they stand as they were written
                arguments = normalised(arguments_of(call.arguments))
        return call.name, canonical_json(arguments)

    def _job(self, call: ToolCall, index: int, turn: int) -> CallJob:
        entry = self.tools.entry(call.name)
        action = self._action(call)
        made = self._made.get(action, 0)
        self._made[action] = made + 1
        return CallJob(self.calls, call, entry, key_of(self.calls.run_id, *action, made), turn, index)

    async def _perform(self, batch: CallBatch) -> None:
        jobs = [job for job in batch.jobs if job.result is None]
        batch.begun = True
        self._slots = anyio.Semaphore(self._limit, fast_acquire=True) if len(jobs) > self._limit else None
        await self.calls.intended(jobs)
        for job in jobs:
            if job.outcome is None:
                job.outcome = self._misfit(job, job.call.arguments)
        if len(jobs) > 1:
            set_order(jobs)
        if batch.aborted:
            return
        async with anyio.create_task_group() as group:
            batch.scope = group.cancel_scope
            for job in jobs:
                group.start_soon(self._go, job, batch, name=f"tool {job.call.name}")

    def _misfit(self, job: CallJob, arguments: Any) -> CallEnd | None:
        """The end of a call whose arguments do not fit: it is answered without its tool."""
        try:
            if job.entry is NO_TOOL:
                raise unknown_tool(job.call.name, {*self.tools, *self._others})
            job.arguments = arguments_of(arguments)
            if job.entry.check is not None:
                job.entry.check(job.arguments)
        except Exception as error:  # noqa: BLE001 - a check may raise anything
            return CallState.FAILED, failed_by(job.call, error, anyio.get_cancelled_exc_class())
        return None

    # ------------------------------------------------------------------ a call

    async def _go(self, job: CallJob, batch: CallBatch) -> None:
        """Carry out one call. Raises a cancellation from outside, and nothing else."""
        try:
            # a batch of one call is cancelled with its call
            with contextlib.nullcontext(batch.scope) if len(batch.jobs) == 1 else anyio.CancelScope() as job.scope:
                if job.outcome is None and job.why is None:
                    job.outcome = self._with_reason(job, batch, await self._answer(job))
                if job.outcome is not None:
                    await self._bound(job)
                    await job.store()
            if job.outcome is None:
                job.outcome = job.cut_off(self._reason(job, batch))
                await job.store()
            self._settle(job, batch)
            if len(batch.jobs) > 1:
                if job.ended is not None:
                    job.ended.set()  # the calls that wait for it begin meanwhile
                await self.calls.listener.ended()
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001 - raised again outside of the group, so it stands alone
            batch.fatal.append(error)
            batch.why = batch.why or f"another call of the same answer raised {describe(error)}"
            if batch.scope is not None:
                batch.scope.cancel()
        finally:
            if job.ended is not None:
                job.ended.set()

    async def _bound(self, job: CallJob) -> None:
        """Cut the result if it is too long, and keep its full text, before it is stored."""
        if job.outcome is None or job.outcome[1].vetoed:
            return
        state, whole = job.outcome
        if job.reference is not None:
            whole = replace(whole, reference=job.reference.line())
            job.outcome = state, whole
        if self._keeper is None:
            return
        keep = job.entry.traits.keep
        try:
            kept = await self._keeper.kept(whole, keep=keep, status=job.status, reference=job.reference)
            job.outcome = state, kept
        except BaseException:  # it is cancelled while the text is kept
            job.outcome = state, self._keeper.cut(whole, keep=keep, status=job.status)
            raise

    async def _answer(self, job: CallJob) -> CallEnd:
        artifacts = self._keeper.store if self._keeper is not None else None
        context = ToolContext(job.call, self._run, job.key, artifacts, job, self._deps)
        for other in job.after:
            if other.ended is not None:
                await other.ended.wait()  # so a person is shown what is there when the call is made
        admission = await self._admitted(job, context)
        if not isinstance(admission, Admission):
            return admission
        opened = self._gate.opened if self._gate is not None else frozenset[str]()
        if admission.overruled or opened:
            context = replace(context, overruled=admission.overruled, opened=opened)
        async with self._slots or contextlib.nullcontext():
            state, result = await self._attempts(job, context)
        return state, self._tries.counted(job, result)

    async def _admitted(self, job: CallJob, context: ToolContext) -> Admission | CallEnd:
        """The admission of a call; or its end, if it may not be made."""
        if self._gate is None:
            return ADMITTED
        admission = self._gate.admit(job.entry, job.arguments, context)
        if isinstance(admission, ApprovalRequest):
            if not await job.asked(admission):
                return job.end(TAKEN)
            admission = await self._gate.ask(admission, job.entry, job.arguments)
        if admission.approval is not None:
            job.change(approval=admission.approval)
        if admission.state is not None:
            return admission.state, failed(job.call, admission.text, ToolErrorKind.DENIED, vetoed=True)
        if admission.arguments is not None:
            job.change(arguments=dict(admission.arguments))
            return self._misfit(job, admission.arguments) or admission
        return admission

    async def _attempts(self, job: CallJob, context: ToolContext) -> CallEnd:
        tries = 1 + (RETRIES if job.entry.traits.idempotent else 0)
        while True:
            tries -= 1
            if not await job.enter():
                return job.end(TAKEN)
            state, result = await run_tool(job, context)
            if job.kept_from and self._gate is not None and job.why is None:
                opened, note = await self._gate.outside(job.entry, job.arguments, context, job.kept_from)
                if opened:
                    if not await job.enter():
                        return job.end(TAKEN)
                    state, result = await run_tool(job, replace(context, opened=opened))
                result = replace(result, text=f"{result.text}\n{note}") if note else result
            if job.deferred is not None and not result.is_error:
                return await job.defer()
            if not tries or result.error_kind not in RETRIED or job.why is not None:
                return state, result

    # ------------------------------------------------------------------ the ends of calls

    def _reason(self, job: CallJob, batch: CallBatch) -> str:
        """Why a call was cut off, in words."""
        return job.why or batch.why or self._why() or _INTERRUPTED

    def _with_reason(self, job: CallJob, batch: CallBatch, outcome: CallEnd) -> CallEnd:
        """`outcome`; if the tool has answered its cancellation, its status line says the reason."""
        state, result = outcome
        was_cut = anyio.current_effective_deadline() == -math.inf
        if not was_cut or result.error_kind is not ToolErrorKind.CANCELLED or result.vetoed:
            return outcome
        text = result.text.removeprefix(job.status).removeprefix("\n") if job.status else result.text
        job.status = f"{job.status or 'cancelled'}; the reason: {self._reason(job, batch)}"
        return state, replace(result, text=f"{job.status}\n{text}")

    def _settle(self, job: CallJob, batch: CallBatch) -> None:
        seconds = job.settle()
        if batch.finished is not None and job.result is not None:
            batch.finished(job.result, seconds)

    def _settle_rest(self, batch: CallBatch) -> None:
        """After an interruption: every call that has no result yet gets one."""
        for job in batch.jobs:
            if job.result is None:
                if job.outcome is None:
                    job.outcome = job.cut_off(self._reason(job, batch))
                try:
                    self._settle(job, batch)
                except BaseException as error:  # noqa: BLE001 - raised when all calls have their results
                    batch.fatal.append(error)


class AskedTries:
    """The tries that tools have asked for with `ToolRetry`, in one run. The calls of one response
    count once, because the model has made them all before it read the first answer.
    """

    def __init__(self) -> None:
        self._asked: dict[str, int] = {}
        self._last: dict[str, int] = {}
        """The turn in which the tool has asked last."""

    def counted(self, job: CallJob, result: ToolResult) -> ToolResult:
        """`result`. If its tool has asked for another try, it says how many are left."""
        name = job.call.name
        if result.error_kind is not ToolErrorKind.RETRY:
            if not result.is_error:
                self._asked.pop(name, None)
            return result
        if name not in self._asked or self._last[name] != job.turn or job.turn == 0:
            self._asked[name] = self._asked.get(name, 0) + 1
        self._last[name] = job.turn
        left = job.entry.traits.model_retries - self._asked[name] + 1
        if left > 0:
            times = "once" if left == 1 else f"{left} times"
            return replace(result, text=f"{result.text}\nCorrect the call and make it again; you may do so {times}.")
        said = "It has asked for other calls too often: do not call it in this way again, and go on without it."
        return replace(result, text=f"{result.text}\n{said}", error_kind=ToolErrorKind.EXECUTION_FAILED)


async def carry_out(call: ToolCall, tools: Mapping[str, Tool], run: CallingRun | None = None) -> ToolResult:
    """The result of one call. Errors of the tool are results, too."""
    (result,) = await Scheduler(tools, run=run).carry_out([call])
    return result
