"""The tool runner of anthropic: each stream that it yields is a turn of the guard, and the runner
does not notice.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("anthropic", reason="the SDK is not installed: anthropic")

from anthropic import AsyncAnthropic, beta_async_tool

import monitor
from monitor.testing import LocalAnthropic
from monitor.testing.anthropic_steps import call, finish, say, start
from tests.adapters.anthropic.sdk import ASKED, sdk

pytestmark = pytest.mark.asyncio


@beta_async_tool
async def look(q: str) -> str:
    """Looks."""
    return f"seen {q}"


def looks(number: int, q: str) -> list[Any]:
    return [start(), *say("I look."), *call("look", {"q": q}, index=1, id=f"c{number}"), *finish("tool_use")]


def runner(client: AsyncAnthropic) -> Any:
    return client.beta.messages.tool_runner(**ASKED, tools=[look], stream=True)


async def guarded(client: AsyncAnthropic, guard: monitor.Guard[Any]) -> list[str]:
    seen: list[str] = []
    running = runner(client)
    async with guard:
        async for stream in running:
            async with guard.watch(stream) as watched:
                seen += [event.type async for event in watched]
            if watched.turn.stopped:
                break
            answer = await running.generate_tool_call_response()
            for result in answer["content"] if answer else []:
                guard.tool_result(result["tool_use_id"], result["content"])
            if isinstance(guard.check(), monitor.Stop):
                break
    return seen


async def test_a_good_run_has_the_same_events_and_requests():
    scripts = [looks(1, "a"), looks(2, "b"), [start(), *say("It rains."), *finish()]]
    bare: list[str] = []
    guard: monitor.Guard[Any] = monitor.Guard()
    with LocalAnthropic([*scripts, *scripts]) as server:
        async with sdk(server) as client:
            async for stream in runner(client):
                bare += [event.type async for event in stream]
            assert await guarded(client, guard) == bare
        bodies = [request.body["messages"] for request in server.requests]
        assert bodies[:3] == bodies[3:]
    assert guard.outcome.ok
    assert guard.outcome.turns == 3
    assert {one.what: one.detail for one in guard.coverage()}["results"] == "2 of 2 calls have their result"


async def test_a_loop_of_calls_is_seen_and_the_runner_asks_no_more():
    guard: monitor.Guard[Any] = monitor.Guard()
    with LocalAnthropic([looks(number, "a") for number in range(20)]) as server:
        async with sdk(server) as client:
            await guarded(client, guard)
        assert len(server.requests) == 5
    assert guard.outcome.reason is monitor.TerminateReason.LOOP_DETECTED
