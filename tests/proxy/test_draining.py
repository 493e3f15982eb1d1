"""A proxy that shuts down waits for the requests that it is answering."""

from __future__ import annotations

import anyio
import pytest

from monitor.proxy.admin import Draining

pytestmark = pytest.mark.anyio


async def test_without_a_request_nothing_is_waited_for() -> None:
    assert await Draining().until_idle(None)


async def test_it_waits_for_the_last_request() -> None:
    draining, over = Draining(), [anyio.Event(), anyio.Event()]
    idle: list[bool] = []

    async def answered(event: anyio.Event) -> None:
        with draining.request():
            await event.wait()

    async def waits() -> None:
        idle.append(await draining.until_idle(None))

    async with anyio.create_task_group() as group:
        for event in over:
            group.start_soon(answered, event)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(waits)
        for event in over:
            await anyio.wait_all_tasks_blocked()
            assert idle == []
            event.set()
    assert idle == [True]


async def test_after_its_time_it_says_that_something_goes_on() -> None:
    draining = Draining()
    with draining.request():
        assert not await draining.until_idle(0)
