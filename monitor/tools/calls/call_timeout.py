"""Enters the tool of a call, under its deadlines: seconds without progress, and seconds in all."""

from __future__ import annotations

import math
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from monitor.chunks import ToolResult
from monitor.errors import ToolError, ToolErrorKind, leaves_of
from monitor.messages import CallState
from monitor.tools.base import Background, Clock, ToolContext
from monitor.tools.calls.call_job import CallJob, state_of
from monitor.tools.results.call_results import ToolAnswer, failed, failed_by, result_of


async def run_tool(
    job: CallJob, context: ToolContext, clock: Clock | None, group: TaskGroup | None, grace_s: float
) -> tuple[CallState, ToolResult]:
    """Run the tool of a call. Raises the exceptions that are no results: a cancellation from
    outside, and an exception that ends programs.

    Without a `clock`, deadlines are tasks of `group`, by the time of the event loop. `grace_s`: the
    seconds after its deadline until a tool that has not ended is abandoned.
    """
    traits = job.entry.traits
    if traits.timeout_s is None and traits.hard_timeout_s is None:
        answer, _ = await _call(job, context)
        return state_of(answer), answer
    job.timed_out = False
    job.idle_due = job.begun_at + (traits.timeout_s or math.inf)
    job.hard_due = job.begun_at + (traits.hard_timeout_s or math.inf)
    said: tuple[ToolResult, bool] | None = None
    try:
        with anyio.CancelScope() as scope:
            _arm(job, scope, clock, group)
            said = await _AbandonableCall(job, context).answer(grace_s)
    finally:
        if job.alarm is not None:
            job.alarm.cancel()
            job.alarm = None
    if said is not None and not job.timed_out:
        return state_of(said[0]), said[0]
    result, last_words = said or (None, False)
    return _timed_out(job, result, last_words=last_words)


class _AbandonableCall:
    """A call in a task of its own. If it ignores its cancellation, nobody waits for it."""

    def __init__(self, job: CallJob, context: ToolContext) -> None:
        self._job = job
        self._context = context
        self._scope = anyio.CancelScope()
        self._said: tuple[ToolResult, bool] | None = None
        self._raised: BaseException | None = None

    async def answer(self, grace_s: float) -> tuple[ToolResult, bool]:
        """See `_call`. A cancellation ends the call; `grace_s` seconds later it is abandoned."""
        task = Background(self._work, f"tool {self._job.call.name}", then=self._has_ended)
        try:
            await task.wait()
        except anyio.get_cancelled_exc_class():
            await self._end(task, grace_s)
            # A cancelled tool may have worded an answer. A scope raises its cancellation again,
            # a task does not.
            if self._said is None or anyio.current_effective_deadline() > -math.inf:
                raise
        if self._raised is not None:
            raise self._raised
        assert self._said is not None  # noqa: S101 - it has ended without an exception
        return self._said

    async def _end(self, task: Background, grace_s: float) -> None:
        self._scope.cancel()
        try:
            with anyio.move_on_after(grace_s, shield=True):
                await task.wait()
        except BaseException:  # cancelled once more: at once, then
            task.cancel()
            raise
        if not task.ended:
            self._job.left_thread = True
            task.give_up()

    async def _work(self) -> None:
        with self._scope:
            try:
                self._said = await _call(self._job, self._context)
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:  # noqa: BLE001 - raised again in the task that waits
                self._raised = error

    def _has_ended(self) -> None:
        if self._job.left_thread and self._job.result is not None:
            self._job.thread_ended()


async def _call(job: CallJob, context: ToolContext) -> tuple[ToolResult, bool]:
    """The answer of the tool, and whether the tool itself has worded it. A cancelled tool may word
    an answer too.
    """
    tool = job.entry.tool
    assert tool is not None  # noqa: S101 - a call of no tool was answered before
    try:
        value = await tool.call(job.arguments, context)
        job.status, job.reference, job.deferred = None, None, None
        if isinstance(value, ToolAnswer):
            job.status, job.reference = value.status, value.reference
            job.deferred = value.text if value.deferred else None
        return result_of(job.call, value), isinstance(value, ToolAnswer)
    except Exception as error:  # noqa: BLE001 - a tool may raise anything
        return failed_by(job.call, error, anyio.get_cancelled_exc_class()), isinstance(error, ToolError)
    except BaseException as error:
        cancelled = anyio.get_cancelled_exc_class()
        leaves = list(leaves_of(error))
        if not all(isinstance(leaf, Exception | cancelled) for leaf in leaves):
            raise
        ends = [leaf for leaf in leaves if isinstance(leaf, cancelled)]
        if ends and anyio.current_effective_deadline() == -math.inf:  # this task itself is cancelled
            raise ends[0] from None
        return failed_by(job.call, error, cancelled), False


def _timed_out(job: CallJob, said: ToolResult | None, *, last_words: bool) -> tuple[CallState, ToolResult]:
    """The end of a call that took too long. `said`: the tool's answer to its cancellation.
    `last_words`: the tool itself has worded that answer, so the model reads it.
    """
    text = f"Error: {_too_late(job)}"
    if said is not None and last_words:
        text = f"{text}\n{said.text}"
    elif said is not None and not said.is_error:
        job.runtime.listener.dropped(job.call, text)
    state = CallState.UNKNOWN if job.left_thread else CallState.FAILED
    return state, failed(job.call, text, ToolErrorKind.TIMEOUT)


def _arm(job: CallJob, scope: anyio.CancelScope, clock: Clock | None, group: TaskGroup | None) -> None:
    """Cancel `scope` when a deadline of the call is reached. If the deadline has moved when the
    alarm rings, the alarm is set again.
    """
    due = min(job.idle_due, job.hard_due)

    def ring() -> None:
        if job.runtime.now() < min(job.idle_due, job.hard_due):
            _arm(job, scope, clock, group)
        else:
            job.timed_out = True
            scope.cancel()

    if clock is not None:
        job.alarm = clock.call_at(due, ring)
    else:
        assert group is not None  # noqa: S101 - calls run in it
        job.alarm = sleeper = _Sleeper(due, ring)
        group.start_soon(sleeper.sleep, name="deadline of a tool")


def _too_late(job: CallJob) -> str:
    """For the model: the deadline that was reached, and the limits."""
    name, traits = job.call.name, job.entry.traits
    if traits.hard_timeout_s is None:
        return f"{name} did not answer within {traits.timeout_s:g} s"
    if traits.timeout_s is None:
        return f"{name} did not answer within {traits.hard_timeout_s:g} s"
    limits = f"its limits are {traits.timeout_s:g} s without progress and {traits.hard_timeout_s:g} s in all"
    if job.hard_due <= job.idle_due:
        return f"{name} did not end within {traits.hard_timeout_s:g} s; {limits}"
    return f"{name} made no progress for {traits.timeout_s:g} s; {limits}"


class _Sleeper:
    """An alarm by the time of the event loop, as a task of the batch."""

    def __init__(self, due: float, ring: Callable[[], object]) -> None:
        self._due = due
        self._ring = ring
        self._scope = anyio.CancelScope()

    async def sleep(self) -> None:
        with self._scope:
            await anyio.sleep_until(self._due)
            self._ring()

    def cancel(self) -> None:
        self._scope.cancel()
