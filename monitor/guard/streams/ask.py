"""Ask a model one thing and wait for its whole answer, under a deadline, with the connection closed
afterwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import anyio

from monitor.adapters.adapter import adapter_of
from monitor.chunks import AskCost, Usage
from monitor.conditions import Timeout
from monitor.context.tokens import sizes_by_source
from monitor.core.run import RunCore
from monitor.errors import AdapterError, TerminateReason
from monitor.events import Event
from monitor.guard.streams.source_stream import SourceStream
from monitor.guard.streams.wait import Clock, ErrorOrigin, ReadWait, make_wait
from monitor.models import Model, ModelRequest
from monitor.outcome import Turn
from monitor.policy import ObserveOnly
from monitor.verdicts import Stop

REPLY_CHARS = 50_000
"""How much of an answer is kept. A judge's answer has a few hundred characters, a summary a few
thousand.
"""


async def ask_turn(
    model: Model,
    request: ModelRequest,
    *,
    timeout_s: float,
    clock: Clock,
    close_grace_s: float,
    charge: Callable[[AskCost], None],
    emit: Callable[[Event], None] | None = None,
    core_of: Callable[..., RunCore] = RunCore,
) -> Turn:
    """The turn in which `model` answers `request`, also if it failed or was cut off. `charge` gets
    the cost of the call, also of a cancelled one. `emit` gets the events of the call. `core_of`
    makes the core that watches it.

    Raises `TimeoutError`, and any exception that comes before the answer begins.
    """
    core = core_of(
        stop_when=Timeout(timeout_s), policy=ObserveOnly(), emit=emit or _nobody, keep_text_chars=REPLY_CHARS
    )
    core.begin(clock.now())
    stream: SourceStream[Any] = SourceStream(
        lambda: model.stream(request),
        core,
        clock=clock,
        adapter=adapter_of(model),
        close_grace_s=close_grace_s,
    )
    try:
        async with stream:
            async for _ in stream:
                pass
    finally:
        outcome = core.terminate(clock.now())
        charge(
            AskCost(
                _with_input(outcome.usage, request) if outcome.usage_estimated else outcome.usage,
                outcome.usage_estimated,
            )
        )
    if outcome.reason is TerminateReason.TIMEOUT:
        raise TimeoutError(f"{model.name} did not answer within {timeout_s:g} s")
    return replace(
        stream.turn,
        stopped=None if outcome.ok else Stop(outcome.reason, outcome.detail, outcome.source),
        error=outcome.error,
    )


async def ask(
    model: Model,
    request: ModelRequest,
    *,
    timeout_s: float,
    clock: Clock,
    close_grace_s: float,
    charge: Callable[[AskCost], None],
) -> str:
    """The text that `model` answers to `request`. `charge` gets the cost of the call, also if the
    call fails or is cancelled.

    Raises what the model raises, `TimeoutError`, or `AdapterError` for an incomplete answer.
    """
    turn = await ask_turn(model, request, timeout_s=timeout_s, clock=clock, close_grace_s=close_grace_s, charge=charge)
    if turn.error is not None:
        raise turn.error
    if turn.stopped is not None:
        raise AdapterError(f"{model.name}: {turn.stopped.detail}")
    return turn.text


def _with_input(usage: Usage, request: ModelRequest) -> Usage:
    """`usage`, with an estimate of the input if the provider did not report it. A question beside a
    run is long, and its answer short.
    """
    if usage.input_tokens:
        return usage
    tokens = sum(size.tokens for size in sizes_by_source(request).values())
    return replace(usage, input_tokens=tokens, total_tokens=usage.total_tokens + tokens)


def _nobody(event: Event) -> None:
    """A listener that ignores every event."""


# --------------------------------------------------------------------------------------------------
# Awaits work of a run other than its stream. The end of the run interrupts it.


class Interruptible:
    """Awaits work (tools, a delay, a compaction) under the deadlines and the abort of one run."""

    def __init__(self, core: RunCore, clock: Clock) -> None:
        self._core = core
        self._clock = clock
        self._waiting: ReadWait | None = None
        self._asides: set[ReadWait] = set()
        """Waits in the caller's block, while no task drives the run."""

    async def under_deadlines(self, work: Callable[[], Awaitable[object]]) -> bool:
        """Await `work` as the task that drives the run. False: the run ended, and `work` was
        interrupted.
        """
        # The wait is made before the limits are checked, so that an abort from another thread finds
        # it.
        wait = self._waiting = make_wait(self._core, self._clock)
        self._core.replanned = wait.follow
        try:
            await self._await(wait, work)
        finally:
            self._waiting = None
            self._core.replanned = _nothing
        return not self.is_over()

    async def aside(self, work: Callable[[], Awaitable[object]]) -> None:
        """Await `work` in the caller's block. The end of the run interrupts `work`."""
        wait = make_wait(self._core, self._clock)
        self._asides.add(wait)
        try:
            await self._await(wait, work)
        finally:
            self._asides.discard(wait)

    async def until(self, due: float) -> bool:
        """Sleep until the clock shows `due`. False: the run ended before."""
        return self._clock.now() >= due or await self.under_deadlines(lambda: _sleep(self._clock, due))

    def is_over(self) -> bool:
        """Whether the run must end now. The deadline is checked first, because that is cheap."""
        now = self._clock.now()
        return now >= self._core.deadline and self._core.must_stop(now)

    def interrupt(self) -> None:
        """End the work of the driving task, if there is any."""
        if self._waiting is not None:
            self._waiting.interrupt()

    def wake(self) -> None:
        """Make each pending wait check the deadline of the run. May be called from any thread or
        signal handler.
        """
        for pending in (self._waiting, *tuple(self._asides)):
            if pending is not None:
                pending.wake()

    async def _await(self, wait: ReadWait, work: Callable[[], Awaitable[object]]) -> None:
        try:
            if self.is_over():
                return
            wait.follow()
            wait.enter()
            try:
                await work()
            except BaseException as error:
                if wait.leave(error) is not ErrorOrigin.OURS:
                    raise
            else:
                wait.leave(None)
        finally:
            wait.close()


async def _sleep(clock: Clock, until: float) -> None:
    rung = anyio.Event()
    alarm = clock.call_at(until, rung.set)
    try:
        await rung.wait()
    finally:
        alarm.cancel()


def _nothing() -> None:
    """Does nothing: no wait follows the deadline."""
