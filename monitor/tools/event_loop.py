"""The clock of a run, and tasks beside the caller. Tools need them, and so does the harness."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

import anyio


class Alarm(Protocol):
    """A callback that `Clock.call_at` has scheduled."""

    def cancel(self) -> object:
        """Do not call the callback."""
        ...


class Clock(Protocol):
    """The clock of a run, which times its streams and its calls."""

    def now(self) -> float:
        """The time in seconds, which never goes back."""
        ...

    def call_at(self, when: float, callback: Callable[[], object], /) -> Alarm:
        """Call `callback` in the event loop's thread when `now()` has reached `when`."""
        ...


class Background:
    """A task beside the caller, in the same event loop, until it ends or is cancelled.

    `work` handles its own errors: an exception that it raises is a bug, which the event loop
    reports. `then` is called when the task has ended, also if it was cancelled before it began.
    """

    def __init__(
        self,
        work: Callable[[], Coroutine[Any, Any, None]],
        name: str,
        *,
        then: Callable[[], object] = lambda: None,
        context: contextvars.Context | None = None,
    ) -> None:
        """`context`: the context variables that `work` sees; by default a copy of the caller's."""
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
            else:  # the context may be the caller's own, which is in use now
                trio.lowlevel.current_trio_token().run_sync_soon(spawn)
            self._forget: Callable[[], object] = lambda: None
        else:
            self._task = loop.create_task(self._work(), name=name, context=context)
            self._task.add_done_callback(lambda _: self._has_ended())  # also if it is cancelled before it begins
            self._cancel = self._task.cancel
            self._forget = lambda: asyncio.tasks._unregister_task(self._task)  # noqa: SLF001 - documented, for custom schedulers

    def cancel(self) -> None:
        """Cancel the task. `wait()` returns when it has ended."""
        self._cancel()

    def give_up(self) -> None:
        """Abandon the task, which has swallowed its cancellation: cancel it once more, and stop
        waiting for it.

        asyncio closes its loop without the task. trio waits for a task that ignores every
        cancellation, as for any other.
        """
        self._cancel()
        self._forget()

    def forget(self) -> None:
        """Let the task run on without waiting for it. asyncio closes its loop without the task."""
        self._forget()

    @property
    def ended(self) -> bool:
        """Whether the task has come to its end."""
        return self._done.is_set()

    async def wait(self) -> None:
        """Return when the task has ended."""
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
