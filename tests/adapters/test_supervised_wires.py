"""The same supervised runs over every wire format, through the real SDKs: nobody's dialect shows in how a run ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

import monitor
from monitor.adapters.google_model import GoogleModel
from monitor.adapters.openai_model import OpenAIModel, OpenAIResponsesModel
from monitor.models import Model
from monitor.testing import gemini_steps, openai_steps
from monitor.testing._server import LocalServer, Scripts
from monitor.testing._steps import Pause, Script, Stall
from monitor.testing.gemini_server import LocalGemini
from monitor.testing.openai_server import LocalOpenAI
from tests.adapters import google_sdk, openai_sdk

pytestmark = [pytest.mark.asyncio, google_sdk.sdk_warnings]

Reason = monitor.TerminateReason
Calls = Iterable[tuple[str, Mapping[str, Any]]]


@dataclass
class Wire:
    name: str
    server: Callable[[Scripts], LocalServer]
    turn: Callable[..., list[Any]]
    """Of an answer and calls: what the service sends."""
    overflow: Callable[[], Any]
    model: Callable[[Any], AbstractAsyncContextManager[Model]]
    text_sent: Callable[[Any], str]
    """All that a request's body says, as one text."""


@asynccontextmanager
async def _google(server: Any) -> AsyncIterator[Model]:
    async with google_sdk.sdk(server) as client:
        yield GoogleModel("m", client=client)


@asynccontextmanager
async def _chat(server: Any) -> AsyncIterator[Model]:
    async with openai_sdk.sdk(server) as client:
        yield OpenAIModel("m", client=client)


@asynccontextmanager
async def _responses(server: Any) -> AsyncIterator[Model]:
    async with openai_sdk.sdk(server) as client:
        yield OpenAIResponsesModel("m", client=client)


WIRES = [
    Wire("google", LocalGemini, gemini_steps.events_of, gemini_steps.overflow, _google, lambda body: str(body["contents"])),
    Wire("openai chat", LocalOpenAI, openai_steps.events_of, openai_steps.overflow, _chat, lambda body: str(body["messages"])),
    Wire(
        "openai responses", LocalOpenAI, openai_steps.response_events_of, openai_steps.overflow, _responses, lambda body: str(body["input"])
    ),
]
each_wire = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)

EMIT: Calls = [("emit_value", {"name": "summary", "value": "Paris"})]
DONE: Calls = [("terminate", {"status": "success", "summary": "It is Paris."})]


def search(q: str) -> str:
    """Search.

    Args:
        q: What for.

    """
    return f"nothing about {q[:1]}"


async def supervised(wire: Wire, *scripts: Script, **options: Any) -> tuple[monitor.Outcome, list[str]]:
    """How the run ends, and what each request said."""
    with wire.server(scripts) as server:
        async with wire.model(server) as model:
            supervisor = monitor.Supervisor(model, tools=[search], outputs={"summary": str}, **options)
            outcome = await supervisor.run("Which city?")
        return outcome, [wire.text_sent(request.body) for request in server.requests]


@each_wire
async def test_a_goal_is_reached_and_every_result_goes_back(wire: Wire):
    outcome, sent = await supervised(
        wire, wire.turn("", [("search", {"q": "a"})], reasoning="hm"), wire.turn("", EMIT), wire.turn("", DONE)
    )
    assert (outcome.reason, outcome.output) == (Reason.GOAL, {"summary": "Paris"})
    assert len(sent) == outcome.turns == 3
    assert "nothing about a" in sent[1]
    assert "nothing about a" in sent[2]


@each_wire
async def test_a_model_that_stops_without_its_output_is_told(wire: Wire):
    outcome, sent = await supervised(wire, wire.turn("It is Paris."), wire.turn("", EMIT), wire.turn("", DONE))
    assert outcome.reason is Reason.GOAL
    assert "It is Paris." in sent[1]
    assert "these outputs are missing" in sent[1]


@each_wire
async def test_a_last_turn_saves_what_there_is(wire: Wire):
    scripts = [wire.turn("", [("search", {"q": one})]) for one in "ab"]
    outcome, sent = await supervised(wire, *scripts, wire.turn("", [*EMIT, *DONE]), stop_when=monitor.MaxTurns(2))
    assert outcome.reason is Reason.GOAL
    assert len(sent) == 3
    assert "last turn" in sent[2]


@each_wire
async def test_a_loop_of_calls_ends_the_run(wire: Wire):
    outcome, _ = await supervised(wire, wire.turn("", [("search", {"q": "a"})]), last_turn=None)
    assert outcome.reason is Reason.LOOP_DETECTED


@each_wire
async def test_a_loop_in_the_text_ends_the_run(wire: Wire):
    outcome, _ = await supervised(wire, wire.turn("I will look at the file again to be sure. " * 200), last_turn=None)
    assert outcome.reason is Reason.LOOP_DETECTED


@each_wire
async def test_a_prompt_that_does_not_fit_ends_the_run(wire: Wire):
    outcome, sent = await supervised(wire, [wire.overflow()], last_turn=None)
    assert outcome.reason is Reason.PROMPT_TOO_LONG
    assert len(sent) == 1


@each_wire
async def test_an_abort_closes_the_connection(wire: Wire):
    with wire.server([[*wire.turn("Well")[:-1], Pause(0.001), Stall()]]) as server:
        async with wire.model(server) as model:
            run = monitor.Supervisor(model).stream("Which city?")

            async def abort() -> None:
                await anyio.to_thread.run_sync(server.wait_request)
                await anyio.sleep(0.03)
                run.abort("enough")

            async with anyio.create_task_group() as group, run:
                group.start_soon(abort)
                async for _ in run:
                    pass
            await server.wait_closed_async(0, timeout_s=0.5)
    assert run.outcome.reason is Reason.ABORTED
