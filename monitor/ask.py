"""Ask a model one thing and wait for its whole answer, under a deadline, with the connection closed afterwards."""

from __future__ import annotations

from typing import Any

from monitor._wait import Clock
from monitor.conditions import Timeout
from monitor.errors import AdapterError
from monitor.events import Event
from monitor.judging import ModelReply
from monitor.models import Model, ModelRequest
from monitor.policy import ObserveOnly
from monitor.reasons import TerminateReason
from monitor.run import RunCore
from monitor.stream import SourceStream


async def ask(model: Model, request: ModelRequest, *, timeout_s: float, clock: Clock, close_grace_s: float) -> ModelReply:
    """What `model` answers to `request`.

    Raises what the model raises, `TimeoutError`, or `AdapterError` for an answer that did not come to its end.
    """
    core = RunCore(stop_when=Timeout(timeout_s), policy=ObserveOnly(), emit=_nobody)
    core.begin(clock.now())
    stream: SourceStream[Any] = SourceStream(
        lambda: model.stream(request), core, clock=clock, adapter=getattr(model, "adapter", None), close_grace_s=close_grace_s
    )
    async with stream:
        async for _ in stream:
            pass
    outcome = core.terminate(clock.now())
    if outcome.error is not None:
        raise outcome.error
    if outcome.reason is TerminateReason.TIMEOUT:
        raise TimeoutError(f"{model.name} did not answer within {timeout_s:g} s")
    if not outcome.ok:
        raise AdapterError(f"{model.name}: {outcome.detail}")
    return ModelReply(outcome.text, outcome.usage)


def _nobody(event: Event) -> None:
    """Nobody wants to hear of it."""
