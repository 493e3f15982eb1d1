"""Programs of AutoGen."""

from __future__ import annotations

import asyncio
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow
from autogen_agentchat.tools import AgentTool
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient

from monitor.integrations.autogen import GuardedClient, GuardTermination
from tests.integrations.programs.autogen import INFO


async def look(q: str) -> str:
    return f"nothing about {q} was found"


async def boss(url: str, guard: Any) -> str:
    """Two agents as tools of a third."""
    client = _client(url, guard)
    a, b = (_agent(name, client) for name in "ab")
    tools: Any = [AgentTool(a), AgentTool(b)]
    lead = AssistantAgent("boss", client, system_message="AGENT:boss", tools=tools, max_tool_iterations=5)
    try:
        return _last(await lead.run(task="go"))
    finally:
        await client.close()


async def gathered(url: str, guard: Any) -> str:
    """Two runs at once, without an agent above them."""
    client = _client(url, guard)
    try:
        results = await asyncio.gather(*[_agent(name, client).run(task="go") for name in "ab"])
        return ", ".join(map(_last, results))
    finally:
        await client.close()


async def graph(url: str, guard: Any) -> str:
    """A graph in which two agents follow one at once."""
    client = _client(url, guard)
    s, a, b = (_agent(name, client) for name in "sab")
    made = DiGraphBuilder()
    for agent in (s, a, b):
        made.add_node(agent)
    made.add_edge(s, a)
    made.add_edge(s, b)
    ends: Any = MaxMessageTermination(20)
    if guard is not None:
        ends |= GuardTermination(client)
    try:
        result = await GraphFlow([s, a, b], graph=made.build(), termination_condition=ends).run(task="go")
        said = sorted(f"{one.source}: {getattr(one, 'content', '')}" for one in result.messages if one.source in "ab")
        return ", ".join([*said, str(result.stop_reason)])
    finally:
        await client.close()


def _agent(name: str, client: Any) -> AssistantAgent:
    tools: Any = [FunctionTool(look, description="Looks.", name="look")]
    return AssistantAgent(name, client, system_message=f"AGENT:{name}", tools=tools, max_tool_iterations=5)


def _client(url: str, guard: Any) -> Any:
    client = OpenAIChatCompletionClient(model="local", api_key="none", base_url=url, max_retries=0, model_info=INFO)
    return client if guard is None else GuardedClient(client, guard)


def _last(result: Any) -> str:
    return str(result.messages[-1].content)


PROGRAMS = {"boss": boss, "gathered": gathered, "graph": graph}
