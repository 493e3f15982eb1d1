"""Ask a model one thing and wait for its whole answer, under a deadline, with the connection closed
afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from monitor.adapters.adapter import adapter_of
from monitor.conditions import Timeout
from monitor.context.measure.tokens import sizes_by_source
from monitor.core.run import RunCore
from monitor.errors import AdapterError
from monitor.events import Event
from monitor.harness.streams.clock import Clock
from monitor.harness.streams.source_stream import SourceStream
from monitor.models import Model, ModelRequest
from monitor.outcome import Turn
from monitor.policy import ObserveOnly
from monitor.reasons import TerminateReason
from monitor.usage import AskCost, Usage
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
