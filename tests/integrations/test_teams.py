"""Programs of several agents under one guard. They do the same as without it; and when one agent
loops, all of them end.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

import pytest

import monitor
from monitor.testing.openai_steps import Step
from tests.integrations.drivers import DRIVERS, OPEN, Driver
from tests.integrations.teams.service import Service

PROGRAMS = {
    "pydantic-ai": ("boss", "gathered", "threads", "swallowed"),
    "openai-agents": ("boss", "streamed", "gathered"),
    "langchain": ("boss", "gathered", "graph", "batch"),
    "autogen": ("boss", "gathered", "graph"),
    "adk": ("boss", "parallel", "sequential", "transfer"),
    "agent-framework": ("boss", "streamed", "gathered", "graph"),
    "strands": ("boss", "threaded", "as_tool", "gathered", "graph"),
}
ONE_AFTER_THE_OTHER = {"sequential", "transfer"}


def _programs(*, at_once: bool) -> list[Any]:
    return [
        pytest.param((framework, name), marks=_ignoring(framework), id=f"{framework}-{name}")
        for framework, names in PROGRAMS.items()
        for name in names
        if not at_once or name not in ONE_AFTER_THE_OTHER
    ]


def _ignoring(framework: str) -> list[Any]:
    """The warnings of the frameworks themselves."""
    warnings = (*DRIVERS[framework].warnings, *OPEN, "::DeprecationWarning", "::UserWarning")
    return [pytest.mark.filterwarnings(f"ignore{one}") for one in warnings]


def _loaded(chosen: tuple[str, str]) -> tuple[Driver, Any]:
    driver = DRIVERS[chosen[0]]
    for package in driver.packages:
        pytest.importorskip(package, reason=f"the framework is not installed: {package}")
    module = importlib.import_module(f"tests.integrations.teams.{chosen[0].replace('-', '_')}")
    return driver, module.PROGRAMS[chosen[1]]


def _service(driver: Driver, framework: str, name: str, **first: list[Step]) -> Service:
    service = Service(driver.wire)
    given = "task" if framework == "autogen" else "request" if framework == "adk" else "q"
    field = "input" if framework == "openai-agents" or name == "as_tool" else given
    prefix = "" if framework == "autogen" else "ask_"
    look = service.calls(("look", {"q": "x"}))
    service.first = {
        "boss": service.calls((f"{prefix}a", {field: "1"}), (f"{prefix}b", {field: "2"})),
        "lead": service.calls(("transfer_to_agent", {"agent_name": "a"})),
    }
    if framework != "langchain" or name not in {"graph", "batch"}:
        service.first |= {"a": look, "b": look}
    service.first |= first
    return service


@pytest.mark.asyncio
@pytest.mark.parametrize("chosen", _programs(at_once=False))
async def test_a_good_program_gives_the_same_with_the_guard_as_without(chosen: tuple[str, str]):
    driver, program = _loaded(chosen)
    with driver.wire.server(_service(driver, *chosen)) as server:
        bare = await program(server.base_url, None)
        requests = len(server.requests)
        sink = monitor.sinks.MemorySink()
        async with monitor.Guard(stop_when=monitor.MaxTurns(requests), sinks=[sink]) as guard:
            guarded = await program(server.base_url, guard)
    assert guarded == bare
    assert len(server.requests) == 2 * requests
    assert guard.outcome.ok
    assert guard.outcome.turns == requests
    assert guard.outcome.usage.total_tokens == 10 * requests
    assert [one for one in guard.coverage() if not one.guarded] == []


@pytest.mark.asyncio
@pytest.mark.parametrize("chosen", _programs(at_once=True))
async def test_a_loop_of_one_agent_ends_all_of_them_and_no_request_follows(chosen: tuple[str, str]):
    driver, program = _loaded(chosen)
    service = _service(driver, *chosen)
    service.first |= {"a": service.chants(), "b": service.slow()}
    guard = monitor.Guard()
    with driver.wire.server(service) as server:
        async with asyncio.timeout(20):
            try:
                async with guard:
                    ended = str(await program(server.base_url, guard))
            except Exception as error:  # noqa: BLE001 - each framework has its own
                ended = repr(error)
        own = [number for number, one in enumerate(server.requests) if one.events_sent > 5]
        assert len(own) == 2
        for number in own:
            await server.wait_closed_async(number)
        assert max(one.events_sent for one in server.requests) < 350
        first = 1 if any("boss" in str(one.body) for one in server.requests) or chosen[1] == "graph" else 0
        assert len(server.requests) <= 2 + first
    assert "loop_detected" in ended
    assert guard.outcome.reason is monitor.TerminateReason.LOOP_DETECTED
    assert guard.outcome.closed
