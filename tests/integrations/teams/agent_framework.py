"""Programs of Microsoft Agent Framework."""

from __future__ import annotations

import asyncio
from typing import Any

from agent_framework import Agent, WorkflowBuilder, tool
from agent_framework.openai import OpenAIChatCompletionClient

from monitor.integrations.agent_framework import GuardMiddleware
from tests.integrations.programs.openai_client import client_of


@tool
async def look(q: str) -> str:
    """Looks."""
    return f"nothing about {q} was found"


async def boss(url: str, guard: Any) -> str:
    """Two agents as tools of a third."""
    async with client_of(url) as client:
        return (await _boss(client, guard).run("go")).text


async def streamed(url: str, guard: Any) -> str:
    """The same, streamed."""
    async with client_of(url) as client:
        result = _boss(client, guard).run("go", stream=True)
        return "".join([update.text async for update in result])


async def gathered(url: str, guard: Any) -> str:
    """Two runs at once, without an agent above them."""
    async with client_of(url) as client:
        agents = [_agent(client, guard, name, [look]) for name in "ab"]
        return ", ".join([one.text for one in await asyncio.gather(*[agent.run("go") for agent in agents])])


async def graph(url: str, guard: Any) -> str:
    """A workflow whose first agent is followed by two at once."""
    async with client_of(url) as client:
        first, a, b = (_agent(client, guard, name, [look]) for name in ("first", "a", "b"))
        workflow = WorkflowBuilder(start_executor=first, output_from=[a, b])
        result = await workflow.add_fan_out_edges(first, [a, b]).build().run("go")
        return str(sorted(one.text for one in result.get_outputs()))


def _boss(client: Any, guard: Any) -> Agent:
    tools = [_agent(client, guard, name, [look]).as_tool(name=f"ask_{name}", arg_name="q") for name in "ab"]
    return _agent(client, guard, "boss", tools)


def _agent(client: Any, guard: Any, name: str, tools: Any = ()) -> Agent:
    chat = OpenAIChatCompletionClient(model="local", async_client=client)
    middleware = [] if guard is None else [GuardMiddleware(guard)]
    return Agent(
        client=chat, name=name, description=name, instructions=f"AGENT:{name}", tools=[*tools], middleware=middleware
    )


PROGRAMS = {"boss": boss, "streamed": streamed, "gathered": gathered, "graph": graph}
