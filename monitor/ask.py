"""Ask a model one thing and wait for its whole answer, under a deadline, with the connection closed afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from monitor._wait import Clock
from monitor.conditions import Timeout
from monitor.errors import AdapterError
from monitor.events import Event
from monitor.judging import JudgeCost
from monitor.models import Model, ModelRequest
from monitor.policy import ObserveOnly
from monitor.reasons import TerminateReason
from monitor.run import RunCore
from monitor.stream import SourceStream

REPLY_CHARS = 50_000
"""More than this of an answer is not kept: what was asked for is a few hundred."""


async def ask(
    model: Model, request: ModelRequest, *, timeout_s: float, clock: Clock, close_grace_s: float, charge: Callable[[JudgeCost], None]
) -> str:
    """The text that `model` answers to `request`. `charge` is told what it took, also where it fails or is cancelled.

    Raises what the model raises, `TimeoutError`, or `AdapterError` for an answer that did not come to its end.
    """
    core = RunCore(stop_when=Timeout(timeout_s), policy=ObserveOnly(), emit=_nobody, keep_text_chars=REPLY_CHARS)
    core.begin(clock.now())
    stream: SourceStream[Any] = SourceStream(
        lambda: model.stream(request), core, clock=clock, adapter=getattr(model, "adapter", None), close_grace_s=close_grace_s
    )
    try:
        async with stream:
            async for _ in stream:
                pass
    finally:
        outcome = core.terminate(clock.now())
        charge(JudgeCost(outcome.usage, outcome.usage_estimated))
    if outcome.error is not None:
        raise outcome.error
    if outcome.reason is TerminateReason.TIMEOUT:
        raise TimeoutError(f"{model.name} did not answer within {timeout_s:g} s")
    if not outcome.ok:
        raise AdapterError(f"{model.name}: {outcome.detail}")
    return outcome.text


def _nobody(event: Event) -> None:
    """Nobody wants to hear of it."""
