"""The same supervised runs over every wire format, through the real SDKs: nobody's dialect shows in
how a run goes and ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

import monitor
from monitor.models import Model
from monitor.testing import anthropic_steps, gemini_steps, openai_steps
from monitor.testing._server import LocalServer, Scripts
from monitor.testing._steps import Reply, Script, Stall
from monitor.testing.anthropic_server import LocalAnthropic
from monitor.testing.gemini_server import LocalGemini
from monitor.testing.openai_server import LocalOpenAI
from tests.adapters.anthropic import sdk as anthropic_sdk
from tests.adapters.google import sdk as google_sdk
from tests.adapters.openai import sdk as openai_sdk

pytestmark = google_sdk.sdk_warnings

Reason = monitor.TerminateReason


@dataclass(frozen=True)
class Wire:
    """One provider's wire format."""

    name: str
    server: Callable[[Scripts], LocalServer]
    client: Callable[[Any], AbstractAsyncContextManager[Any]]
    turn: Callable[..., list[dict[str, Any]]]
    """A model turn: its text, and its calls."""
    overflow: Callable[[], Reply]
    rate_limited: Callable[[float | None], Reply]


WIRES = [
    Wire(
        "google", LocalGemini, google_sdk.sdk, gemini_steps.events_of, gemini_steps.overflow, gemini_steps.rate_limited
    ),
    Wire(
        "anthropic",
        LocalAnthropic,
        anthropic_sdk.sdk,
        anthropic_steps.events_of,
        anthropic_steps.overflow,
        anthropic_steps.rate_limited,
    ),
    Wire(
        "openai", LocalOpenAI, openai_sdk.sdk, openai_steps.events_of, openai_steps.overflow, openai_steps.rate_limited
    ),
    Wire(
        "openai-responses",
        LocalOpenAI,
        openai_sdk.sdk,
        openai_steps.response_events_of,
        openai_steps.overflow,
        openai_steps.rate_limited,
    ),
]
on_every_wire = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
sdk_test = pytest.mark.asyncio


@asynccontextmanager
async def served(wire: Wire, *scripts: Script) -> AsyncIterator[tuple[Model, LocalServer]]:
    with wire.server(scripts) as server:
        async with wire.client(server) as client:
            yield monitor.model(f"{wire.name}:local", client=client), server


def look(q: str) -> str:
    """Look it up."""
    return f"nothing about {q}"


def emit(value: str) -> tuple[str, dict[str, Any]]:
    return "emit_value", {"name": "city", "value": value}


@sdk_test
@on_every_wire
async def test_a_goal_is_reached_by_way_of_a_tool(wire: Wire):
    turns = [wire.turn("I look.", [("look", {"q": "é"})]), wire.turn("", [emit("Paris")])]
    async with served(wire, *turns) as (model, server):
        outcome = await monitor.Supervisor(model, tools=[look], outputs={"city": str}).run("Which city?")
    assert (outcome.reason, outcome.emitted, outcome.turns) == (Reason.GOAL, {"city": "Paris"}, 2), outcome
    assert outcome.usage.input_tokens > 0
    assert not outcome.usage_estimated
    assert "nothing about é" in str(server.requests[1].body)


@sdk_test
@on_every_wire
async def test_a_model_that_stops_too_early_is_nudged(wire: Wire):
    async with served(wire, wire.turn("I think it is Paris."), wire.turn("", [emit("Paris")])) as (model, server):
        outcome = await monitor.Supervisor(model, outputs={"city": str}).run("Which city?")
    assert (outcome.reason, outcome.emitted, outcome.turns) == (Reason.GOAL, {"city": "Paris"}, 2), outcome
    assert "city" in str(server.requests[1].body)
    assert "I think it is Paris." in str(server.requests[1].body)


@sdk_test
@on_every_wire
async def test_a_run_out_of_turns_gets_a_last_one(wire: Wire):
    async with served(wire, wire.turn("", [("look", {"q": "a"})]), wire.turn("", [emit("Paris")])) as (model, server):
        supervisor = monitor.Supervisor(model, tools=[look], outputs={"city": str}, stop_when=monitor.MaxTurns(1))
        outcome = await supervisor.run("Which city?")
    assert (outcome.reason, outcome.recovered_from, outcome.emitted) == (
        Reason.GOAL,
        Reason.MAX_TURNS,
        {"city": "Paris"},
    ), outcome
    assert "'look'" not in str(server.requests[1].body["tools"]), "a last turn is left with the run's own tools"


@sdk_test
@on_every_wire
async def test_a_call_repeated_over_the_turns_is_a_loop(wire: Wire):
    async with served(wire, wire.turn("", [("look", {"q": "a"})])) as (model, _):
        supervisor = monitor.Supervisor(
            model, tools=[look], last_turn=None, policy=monitor.StopAtFirstLoop(), stop_when=monitor.MaxTurns(20)
        )
        outcome = await supervisor.run("Look.")
    assert outcome.reason is Reason.LOOP_DETECTED, outcome
    assert outcome.source == "tool_call_repetition"
    assert outcome.turns == 5


@sdk_test
@on_every_wire
async def test_a_prompt_that_does_not_fit_is_no_matter_of_trying_again(wire: Wire):
    async with served(wire, [wire.overflow()]) as (model, server):
        outcome = await monitor.Supervisor(model, last_turn=None).run("Go.")
        assert len(server.requests) == 1
    assert outcome.reason is Reason.PROMPT_TOO_LONG, outcome


@sdk_test
@on_every_wire
async def test_a_rate_limit_is_waited_for(wire: Wire):
    async with served(wire, [wire.rate_limited(0.01)], wire.turn("Paris.")) as (model, server):
        outcome = await monitor.Supervisor(model).run("Which city?")
        assert len(server.requests) == 2
    assert (outcome.reason, outcome.text) == (Reason.GOAL, "Paris."), outcome


@sdk_test
@on_every_wire
async def test_an_abort_closes_the_connection(wire: Wire):
    async with served(wire, [*wire.turn("Paris.")[:1], Stall()], wire.turn("fine")) as (model, server):
        supervisor = monitor.Supervisor(model)
        async with supervisor.stream("Which city?") as run, anyio.create_task_group() as group:

            async def abort() -> None:
                await anyio.to_thread.run_sync(server.wait_request)
                await anyio.sleep(0.02)
                run.abort("enough")

            group.start_soon(abort)
            async for _ in run:
                pass
        await server.wait_closed_async(0, timeout_s=0.5)
        assert (run.outcome.reason, run.outcome.closed) == (Reason.ABORTED, True), run.outcome
        assert (await supervisor.run("Again.")).text == "fine"
