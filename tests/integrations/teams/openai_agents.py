"""Programs of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
from typing import Any

from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool

from monitor.integrations.openai_agents import GuardedModel
from tests.integrations.programs.openai_client import client_of

OFF = RunConfig(tracing_disabled=True)


@function_tool
async def look(q: str) -> str:
    """Looks."""
    return f"nothing about {q} was found"


async def boss(url: str, guard: Any) -> str:
    """Two agents as tools of a third."""
    async with client_of(url) as client:
        return str((await Runner.run(_boss(client, guard), "go", run_config=OFF)).final_output)


async def streamed(url: str, guard: Any) -> str:
    """The same, streamed."""
    async with client_of(url) as client:
        result = Runner.run_streamed(_boss(client, guard), "go", run_config=OFF)
        async for _ in result.stream_events():
            pass
        return str(result.final_output)


async def gathered(url: str, guard: Any) -> str:
    """Two runs at once, without an agent above them."""
    async with client_of(url) as client:
        model = _model(client, guard)
        agents = [Agent(name=name, instructions=f"AGENT:{name}", model=model, tools=[look]) for name in "ab"]
        results = await asyncio.gather(*[Runner.run(agent, "go", run_config=OFF) for agent in agents])
        return ", ".join([str(one.final_output) for one in results])


def _boss(client: Any, guard: Any) -> Agent[Any]:
    model = _model(client, guard)
    a, b = (Agent(name=name, instructions=f"AGENT:{name}", model=model, tools=[look]) for name in "ab")
    tools: list[Any] = [a.as_tool("ask_a", "asks a"), b.as_tool("ask_b", "asks b")]
    return Agent(name="boss", instructions="AGENT:boss", model=model, tools=tools)


def _model(client: Any, guard: Any) -> Any:
    model = OpenAIChatCompletionsModel("local", client)
    return model if guard is None else GuardedModel(model, guard)


PROGRAMS = {"boss": boss, "streamed": streamed, "gathered": gathered}
