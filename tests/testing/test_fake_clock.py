"""A clock that goes only when it is told to."""

from __future__ import annotations

import anyio
import pytest

from monitor.testing import FakeClock


def test_it_says_when_the_next_alarm_is_due() -> None:
    clock, rung = FakeClock(), list[str]()
    late, early = clock.call_at(5, lambda: rung.append("late")), clock.call_at(2, lambda: rung.append("early"))
    due = [clock.next_due]
    early.cancel()
    due.append(clock.next_due)
    clock.advance(5)
    due.append(clock.next_due)
    assert due == [2, 5, None]
    assert rung == ["late"]
    late.cancel()
    assert clock.pending == 0


@pytest.mark.anyio
async def test_a_clock_that_jumps_wakes_sleepers_in_order() -> None:
    clock, woken = FakeClock(), list[tuple[str, float]]()

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.now()))

    async with clock.autojump(), anyio.create_task_group() as group:
        for name, seconds in (("late", 3_600.0), ("early", 60.0)):
            group.start_soon(sleep, name, seconds)
    assert woken == [("early", 60.0), ("late", 3_600.0)]
    assert clock.pending == 0


@pytest.mark.anyio
async def test_a_sleeper_that_is_cancelled_leaves_no_alarm() -> None:
    clock = FakeClock()
    async with anyio.create_task_group() as group:
        group.start_soon(clock.sleep, 5.0)
        await anyio.wait_all_tasks_blocked()
        assert clock.pending == 1
        group.cancel_scope.cancel()
    assert clock.pending == 0
