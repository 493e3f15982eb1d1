"""Carries out the calls of one model response in their order, with one result for each call.

- **Order.** All calls are checked before any runs. A call starts as soon as it is allowed.
  Calls run side by side, at most `limit` at once. A call that is `alone` waits for all calls before
  it, and all calls after it wait for it. Reads run beside reads. An edit or an execution waits for
  the reads, edits and executions before it, and those after it wait for it.
- **Results.** Each call gets exactly one result, in the order of the calls, whatever happens. It is
  set in one place (`_settle`). A later answer of a tool is dropped, and `dropped` is called.
- **Records.** Each step of a call is stored before it happens, see `CallRecords`.
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
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import anyio
import anyio.from_thread
import anyio.lowlevel
from anyio.abc import TaskGroup

from monitor._util.hashing import canonical_json
from monitor.chunks import ToolCall, ToolResult
from monitor.errors import ConfigError, ToolError, ToolErrorKind, describe
from monitor.messages import ApprovalRequest, CallLedger, CallRecord, CallState, key_of, stepped
from monitor.tools.base import NO_RUN, CallingRun, Clock, Tool, ToolContext
from monitor.tools.calls.call_job import AskedTries, CallBatch, CallJob, cut_off, set_order, taken
from monitor.tools.calls.call_records import CallRecords
from monitor.tools.calls.call_timeout import run_tool
from monitor.tools.protocols import NO_LISTENER, AdmissionControl, CallListener
from monitor.tools.registry import NO_TOOL, Registry
from monitor.tools.results.call_results import arguments_of, failed, failed_by, unknown_tool
from monitor.tools.results.truncation import ResultStore

MAX_PARALLEL: Final = 16
"""The most calls that run at once. Plain functions need worker threads, of which anyio has 40."""
CALL_GRACE_S: Final = 5.0
"""The seconds that a tool gets to end after its deadline: as long as the ledger gets for that."""
_INTERRUPTED: Final = "it was interrupted"
RETRIES: Final = 1
"""How often a failed call of an idempotent tool is made again."""
RETRIED: Final = frozenset({ToolErrorKind.UNHANDLED, ToolErrorKind.TIMEOUT})
"""Failures after which a call of an idempotent tool is made again."""


class Scheduler:
    """Carries out calls, batch by batch. One scheduler serves one run."""

    def __init__(
        self,
        tools: Mapping[str, Tool] | Registry,
        *,
        run: CallingRun | None = None,
        run_id: str = "",
        ledger: CallLedger | None = None,
        gate: AdmissionControl | None = None,
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
        self.listener = listener
        self.late: deque[CallJob] = deque()
        """Calls whose abandoned threads have ended since `say_late` was called."""
        self._run = run if run is not None else NO_RUN
        self._run_id = run_id
        self.records: CallRecords = CallRecords(ledger, listener, run_id=run_id, at=at, defers=defers)
        self._gate = gate
        self._clock = clock
        self.now: Callable[[], float] = clock.now if clock is not None else anyio.current_time
        self._limit = limit
        self._keeper = keeper
        self._artifacts = keeper.store if keeper is not None else None
        self._others = others
        self._why = why
        self._deps = deps
        self._grace_s = grace_s
        self._tries = AskedTries()
        self._made: Counter[tuple[str, str]] = Counter()
        self._lock = anyio.Lock(fast_acquire=True)
        self._batches: list[CallBatch] = []
        self._thread = 0
        self._token: Any = None
        self._slots: anyio.Semaphore | None = None
        self._group: TaskGroup | None = None

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
                await self.records.store_rest(batch.jobs if batch.begun else (), self.now())
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
        job.outcome = cut_off(job, job.why or _INTERRUPTED)
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
        return await self.records.recover(comes)

    def say_late(self) -> None:
        """Report the calls whose abandoned threads have ended meanwhile."""
        while self.late:
            job = self.late.popleft()
            self.listener.dropped(job.call, job.result.text if job.result is not None else "it has no result yet")

    def in_loop(self, do: Callable[[], None]) -> None:
        """Call `do` in the event loop's thread. After the end of the loop nothing is called."""
        if threading.get_ident() == self._thread:
            do()
        else:
            with contextlib.suppress(RuntimeError):  # the loop is over
                anyio.from_thread.run_sync(do, token=self._token)

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
        return CallJob(self, call, entry, self._run_id, key_of(self._run_id, *action, made), turn, index)

    async def _perform(self, batch: CallBatch) -> None:
        jobs = [job for job in batch.jobs if job.result is None]
        batch.begun = True
        if self._token is None:
            self._thread = threading.get_ident()
            self._token = anyio.lowlevel.current_token()
        self._slots = anyio.Semaphore(self._limit, fast_acquire=True) if len(jobs) > self._limit else None
        await self.records.intended(jobs)
        for job in jobs:
            if job.outcome is None:
                self._check(job)
        if len(jobs) > 1:
            set_order(jobs)
        if batch.aborted:
            return
        async with anyio.create_task_group() as group:
            self._group, batch.scope = group, group.cancel_scope
            for job in jobs:
                group.start_soon(self._go, job, batch, name=f"tool {job.call.name}")

    def _check(self, job: CallJob) -> None:
        """Check the arguments. If they do not fit, the call is answered without its tool."""
        try:
            if job.entry is NO_TOOL:
                raise unknown_tool(job.call.name, {*self.tools, *self._others})
            job.arguments = arguments_of(job.call.arguments)
            if job.entry.check is not None:
                job.entry.check(job.arguments)
        except Exception as error:  # noqa: BLE001 - a check may raise anything
            job.outcome = CallState.FAILED, failed_by(job.call, error, anyio.get_cancelled_exc_class())

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
                    await self.records.store(job, self.now())
            if job.outcome is None:
                job.outcome = cut_off(job, self._reason(job, batch))
                await self.records.store(job, self.now())
            self._settle(job, batch)
            if len(batch.jobs) > 1:
                if job.ended is not None:
                    job.ended.set()  # the calls that wait for it begin meanwhile
                await self.listener.ended()
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
        if self._keeper is None or job.outcome is None or job.outcome[1].vetoed:
            return
        state, whole = job.outcome
        keep = job.entry.traits.keep
        try:
            kept = await self._keeper.kept(whole, keep=keep, status=job.status, reference=job.reference)
            job.outcome = state, kept
        except BaseException:  # it is cancelled while the text is kept
            job.outcome = state, self._keeper.cut(whole, keep=keep, status=job.status)
            raise

    async def _answer(self, job: CallJob) -> tuple[CallState, ToolResult]:
        context = ToolContext(job.call, self._run, job.key, self._artifacts, job, self._deps)
        if self._gate is not None and (refused := await self._refused(job, self._gate, context)) is not None:
            return refused
        for other in job.after:
            if other.ended is not None:
                await other.ended.wait()
        if (
            job.after
            and self._gate is not None
            and (refused := await self._refused(job, self._gate, context)) is not None
        ):
            return refused  # the calls before it may have changed what was shown
        async with self._slots or contextlib.nullcontext():
            state, result = await self._attempts(job, context)
        return state, self._tries.counted(job, result)

    async def _refused(
        self, job: CallJob, gate: AdmissionControl, context: ToolContext
    ) -> tuple[CallState, ToolResult] | None:
        """The end of the call, if it may not be made. `None`: it may be made."""
        admission = gate.admit(job.entry, job.arguments, context)
        if isinstance(admission, ApprovalRequest):
            if not await self.records.awaits_approval(job, admission):
                return taken(job)
            admission = await gate.ask(admission, job.entry, job.arguments)
        if admission.approval is not None:
            job.record = stepped(job.record, approval=admission.approval)
        if admission.state is not None:
            return admission.state, failed(job.call, admission.text, ToolErrorKind.DENIED, vetoed=True)
        if admission.arguments is not None:
            job.arguments = dict(admission.arguments)
            job.record = stepped(job.record, arguments=job.arguments)
            try:
                if job.entry.check is not None:
                    job.entry.check(job.arguments)
            except ToolError as error:
                return CallState.FAILED, failed_by(job.call, error, anyio.get_cancelled_exc_class())
        return None

    async def _attempts(self, job: CallJob, context: ToolContext) -> tuple[CallState, ToolResult]:
        tries = 1 + (RETRIES if job.entry.traits.idempotent else 0)
        while True:
            tries -= 1
            now = self.now()
            if not await self.records.running(job, now):
                return taken(job)
            job.stored, job.begun_at, job.entered = CallState.RUNNING, now, True
            state, result = await run_tool(job, context, self._clock, self._group, self._grace_s)
            if job.deferred is not None and not result.is_error:
                return await self.records.awaits_result(job)
            if not tries or result.error_kind not in RETRIED or job.why is not None:
                return state, result

    # ------------------------------------------------------------------ the ends of calls

    def _reason(self, job: CallJob, batch: CallBatch) -> str:
        """Why a call was cut off, in words."""
        return job.why or batch.why or self._why() or _INTERRUPTED

    def _with_reason(
        self, job: CallJob, batch: CallBatch, outcome: tuple[CallState, ToolResult]
    ) -> tuple[CallState, ToolResult]:
        """`outcome`; if the tool has answered its cancellation, its status line says the reason."""
        state, result = outcome
        was_cut = anyio.current_effective_deadline() == -math.inf
        if not was_cut or result.error_kind is not ToolErrorKind.CANCELLED or result.vetoed:
            return outcome
        text = result.text.removeprefix(job.status).removeprefix("\n") if job.status else result.text
        job.status = f"{job.status or 'cancelled'}; the reason: {self._reason(job, batch)}"
        return state, replace(result, text=f"{job.status}\n{text}")

    def _settle(self, job: CallJob, batch: CallBatch) -> None:
        """The one place where a call gets its result."""
        assert job.outcome is not None  # noqa: S101 - the callers see to it
        result, now = job.outcome[1], self.now()
        seconds = now - job.begun_at if job.entered else 0.0
        job.result = result
        object.__setattr__(result, "duration_s", seconds)  # this object was made here, and nobody has seen it yet
        self.records.settled(job, now)
        if batch.finished is not None:
            batch.finished(result, seconds)

    def _settle_rest(self, batch: CallBatch) -> None:
        """After an interruption: every call that has no result yet gets one."""
        for job in batch.jobs:
            if job.result is None:
                if job.outcome is None:
                    job.outcome = cut_off(job, self._reason(job, batch))
                try:
                    self._settle(job, batch)
                except BaseException as error:  # noqa: BLE001 - raised when all calls have their results
                    batch.fatal.append(error)


async def carry_out(call: ToolCall, tools: Mapping[str, Tool], run: CallingRun | None = None) -> ToolResult:
    """The result of one call. Errors of the tool are results, too."""
    (result,) = await Scheduler(tools, run=run).carry_out([call])
    return result
