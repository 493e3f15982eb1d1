"""Work in a task beside the reader of a run: the reader gets its events meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

import anyio

from monitor.harness.events.delivery import Delivery
from monitor.harness.runs.pausing import pause
from monitor.harness.streams.error_origin import current_task
from monitor.harness.streams.interrupt import Interruptible
from monitor.tools.event_loop import Background

TOOLS_GRACE: Final = 3
"""How many times `close_grace_s` the end of a run waits for its tools. A command has 2 seconds
between TERM and KILL (`ShellTools`), and what it wrote is its result.
"""


async def beside(
    work: Callable[[], Coroutine[Any, Any, None]], *, limits: Interruptible, delivery: Delivery, grace_s: float
) -> None:
    """Do `work` in a task of its own; the end of the run interrupts it, as `limits` says. Yields
    whenever there are events for a reader of the run. Left early, the task is cancelled and waited
    for, `TOOLS_GRACE` times `grace_s` seconds.
    """
    errors: list[BaseException] = []
    cancelled = anyio.get_cancelled_exc_class()

    async def keep() -> None:
        try:
            await work()
        except cancelled:
            raise
        except BaseException as error:  # noqa: BLE001 - raised again below, in the task that drives the run
            errors.append(error)

    delivery.waits = True
    task = Background(keep, "agent-monitor tools", then=delivery.wake)
    try:
        while not task.ended:
            if delivery.queue:
                await pause()
                continue
            with delivery.news() as news:
                if not await limits.under_deadlines(news.wait):
                    break
    finally:
        delivery.waits = False
        delivery.wake()
        if not task.ended and current_task() is not None:
            task.cancel()
            with anyio.move_on_after(TOOLS_GRACE * grace_s, shield=True):
                await task.wait()
            if not task.ended:
                task.give_up()
    if errors:
        raise errors[0]
    limits.is_over()
    if delivery.queue:
        await pause()
