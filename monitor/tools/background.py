"""Something that goes on beside the caller, in the same event loop, until it ends or is
cancelled.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import anyio


class Background:
    """Something that goes on beside the caller, in the same event loop, until it ends or is
    cancelled.

    `work` sees to its own errors: one that it raises is a bug, and ends up where the event loop
    reports those. `then` is called when it has ended, also where it was cancelled before it began.
    """

    def __init__(
        self,
        work: Callable[[], Coroutine[Any, Any, None]],
        name: str,
        *,
        then: Callable[[], object] = lambda: None,
        context: contextvars.Context | None = None,
    ) -> None:
        """`context`: of the context variables that `work` sees; by default a copy of the
        caller's.
        """
        self._work = work
        self._then = then
        self._done = anyio.Event()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            import trio  # noqa: PLC0415 - only a program that runs on trio needs it

            self._scope = trio.CancelScope()
            self._cancel: Callable[[], object] = self._scope.cancel
            spawn = partial(
                trio.lowlevel.spawn_system_task,
                self._in_scope,
                name=name,
                context=context or contextvars.copy_context(),
            )
            if context is None:
                spawn()
            else:  # it may be the caller's own, which is in use just now
                trio.lowlevel.current_trio_token().run_sync_soon(spawn)
            self._forget: Callable[[], object] = lambda: None
        else:
            self._task = loop.create_task(self._work(), name=name, context=context)
            self._task.add_done_callback(lambda _: self._has_ended())  # also of one that is cancelled before it begins
            self._cancel = self._task.cancel
            self._forget = lambda: asyncio.tasks._unregister_task(self._task)  # noqa: SLF001 - documented, for custom schedulers

    def cancel(self) -> None:
        """End it. `wait()` says when it has ended."""
        self._cancel()

    def give_up(self) -> None:
        """It has swallowed its cancellation: it is cancelled once more, and nobody waits for it any
        longer.

        On asyncio the loop closes without it. On trio one that heeds no cancellation at all keeps
        the loop open, as any task of trio does.
        """
        self._cancel()
        self._forget()

    def forget(self) -> None:
        """Nobody waits for it any longer, and it goes on: on asyncio the loop closes without it."""
        self._forget()

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._done.is_set()

    async def wait(self) -> None:
        """Return when it has ended."""
        await self._done.wait()

    async def _in_scope(self) -> None:
        try:
            with self._scope:
                await self._work()
        finally:
            self._has_ended()

    def _has_ended(self) -> None:
        self._done.set()
        self._then()
