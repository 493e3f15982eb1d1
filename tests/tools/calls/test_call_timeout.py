"""Tools that do not end when their call ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import monitor
from monitor.chunks import ToolCall, ToolResult
from monitor.errors import TerminateReason, ToolErrorKind
from monitor.messages import CallState
from monitor.testing import FakeClock, ScriptedModel, call
from monitor.tools.calls.call import InMemoryLedger
from monitor.tools.calls.scheduler import Scheduler

pytestmark = [pytest.mark.anyio, pytest.mark.feature("GT-11")]


async def shields(go_on: anyio.Event) -> str:
    with anyio.CancelScope(shield=True):
        await go_on.wait()
    return "late"


async def swallows(go_on: anyio.Event) -> str:
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await go_on.wait()
    return "late"


STUBBORN = pytest.mark.parametrize("stubborn", [shields, swallows])


async def in_background(work: Callable[[], Awaitable[Any]], then: Callable[[], object]) -> Any:
    """The result of `work`. `then` is called when nothing else can go on."""
    made: list[Any] = []

    async def keep() -> None:
        made.append(await work())

    async with anyio.create_task_group() as group:
        group.start_soon(keep)
        await anyio.wait_all_tasks_blocked()
        then()
    return made[0]


@STUBBORN
async def test_a_tool_that_ignores_its_cancellation_is_abandoned_at_its_deadline(stubborn: Any):
    clock, go_on, ledger = FakeClock(), anyio.Event(), InMemoryLedger()
    tools = {
        "stuck": monitor.tools.FunctionTool(partial(stubborn, go_on), name="stuck", timeout_s=5),
        "look": monitor.tools.FunctionTool(lambda: "here", name="look"),
    }
    scheduler = Scheduler(tools, run_id="r", ledger=ledger, clock=clock, grace_s=0)
    calls = [ToolCall("1", "stuck", {}), ToolCall("2", "look", {})]
    results: list[ToolResult] = await in_background(partial(scheduler.carry_out, calls), partial(clock.advance, 5))
    assert [(one.text, one.error_kind) for one in results] == [
        ("Error: stuck did not answer within 5 s", ToolErrorKind.TIMEOUT),
        ("here", None),
    ]
    key = next(key for key, record in ledger._records.items() if record.tool == "stuck")
    record = await ledger.find(key)
    assert record is not None
    assert record.state is CallState.UNKNOWN
    go_on.set()
    await anyio.wait_all_tasks_blocked()
    assert [job.call.id for job in scheduler.calls.late] == ["1"]


@STUBBORN
async def test_a_run_whose_limit_is_reached_does_not_wait_for_a_tool_that_ignores_it(stubborn: Any):
    clock, go_on = FakeClock(), anyio.Event()
    tool = monitor.tools.FunctionTool(partial(stubborn, go_on), name="stuck")
    supervisor = monitor.Supervisor(
        ScriptedModel(call("stuck"), "never said"),
        tools=[tool],
        stop_when=monitor.Timeout(5),
        last_turn=None,
        close_grace_s=0.001,
        clock=clock,
    )
    outcome = await in_background(lambda: supervisor.run("go"), partial(clock.advance, 5))
    assert outcome.reason is TerminateReason.TIMEOUT
    go_on.set()
    await anyio.wait_all_tasks_blocked()


async def test_a_tool_that_cleans_up_is_waited_for():
    clock = FakeClock()
    cleaned: list[str] = []

    async def tidy() -> str:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                for _ in range(20):
                    await anyio.lowlevel.checkpoint()
            cleaned.append("all")
        raise AssertionError

    tools = {"tidy": monitor.tools.FunctionTool(tidy, timeout_s=5)}
    scheduler = Scheduler(tools, clock=clock)
    (result,) = await in_background(
        partial(scheduler.carry_out, [ToolCall("1", "tidy", {})]), partial(clock.advance, 5)
    )
    assert (result.error_kind, cleaned) == (ToolErrorKind.TIMEOUT, ["all"])


async def test_a_cancellation_from_outside_reaches_a_tool_with_a_deadline_and_goes_on():
    seen: list[str] = []

    async def waits() -> str:
        try:
            await anyio.sleep_forever()
        finally:
            seen.append("cancelled")
        raise AssertionError

    scheduler = Scheduler({"waits": monitor.tools.FunctionTool(waits, timeout_s=5)}, clock=FakeClock())
    with anyio.CancelScope() as scope:
        await in_background(partial(scheduler.carry_out, [ToolCall("1", "waits", {})]), scope.cancel)
        raise AssertionError
    assert scope.cancelled_caught
    assert seen == ["cancelled"]


@pytest.mark.asyncio
async def test_a_task_of_asyncio_that_is_cancelled_is_cancelled_though_its_tool_has_worded_an_answer():
    import asyncio

    async def words() -> str:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            return "half"
        raise AssertionError

    scheduler = Scheduler({"words": monitor.tools.FunctionTool(words, timeout_s=5)}, clock=FakeClock())
    task = asyncio.create_task(scheduler.carry_out([ToolCall("1", "words", {})]))
    await anyio.wait_all_tasks_blocked()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_exception_that_ends_programs_leaves_a_tool_with_a_deadline():
    def end() -> str:
        raise SystemExit(3)

    async def ends() -> str:
        return end()

    scheduler = Scheduler({"ends": monitor.tools.FunctionTool(ends, timeout_s=5)}, clock=FakeClock())
    with pytest.raises(SystemExit):
        await scheduler.carry_out([ToolCall("1", "ends", {})])
