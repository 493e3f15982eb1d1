"""Strands Agents."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel
from strands import Agent, tool
from strands.hooks import AfterModelCallEvent, AfterToolCallEvent, BeforeModelCallEvent, BeforeToolCallEvent
from strands.models.openai import OpenAIModel
from strands.multiagent import Swarm

import monitor
from monitor.integrations.strands import GuardPlugin
from tests.integrations.transparent.scenes import Scene, guards, raised, seen


class Report(BaseModel):
    """A declared output."""

    summary: str
    risk: float


@tool
def look(q: str) -> str:
    """Looks."""
    return f"nothing about {q}"


@tool(name="look")
def fail(q: str) -> str:
    """Looks."""
    raise ValueError(f"no archive has {q}")


def agent_of(url: str, guard: Any, tools: Any = (), heard: list[str] | None = None, **options: Any) -> Any:
    model = OpenAIModel(client_args={"api_key": "none", "base_url": url, "max_retries": 0}, model_id="local")
    plugins = [GuardPlugin(one, name=f"guard_{at}") for at, one in enumerate(guards(guard))]
    agent = Agent(model, tools=[*tools], plugins=plugins, callback_handler=None, retry_strategy=None, **options)
    for event in (BeforeModelCallEvent, AfterModelCallEvent, BeforeToolCallEvent, AfterToolCallEvent):
        agent.hooks.add_callback(event, lambda told: (heard or []).append(type(told).__name__))
    return agent


def results(result: Any, agent: Any) -> Any:
    usage = result.metrics.accumulated_usage
    return seen(result.stop_reason, _without_times(result.message), usage, _without_times(agent.messages))


async def plain(url: str, guard: Any, tools: Any = (), **options: Any) -> Any:
    heard = ["begin"]
    agent = agent_of(url, guard, tools, heard)
    result = await agent.invoke_async("go", **options)
    return results(result, agent), heard, seen(result.structured_output)


async def streaming(url: str, guard: Any) -> Any:
    agent = agent_of(url, guard)
    told = [sorted(event) if "event" not in event else event["event"] async for event in agent.stream_async("go")]
    return seen(_without_times(told), _without_times(agent.messages))


def _without_times(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_times(one) for one in value]
    if isinstance(value, dict):
        return {name: _without_times(one) for name, one in value.items() if name != "metrics"}
    return value


async def structured(url: str, guard: Any) -> Any:
    return await plain(url, guard, structured_output_model=Report)


async def tools(url: str, guard: Any) -> Any:
    return await plain(url, guard, [look])


async def failing_tool(url: str, guard: Any) -> Any:
    return await raised(plain(url, guard, [fail]))


async def failing_service(url: str, guard: Any) -> Any:
    return await raised(plain(url, guard))


async def early_break(url: str, guard: Any) -> Any:
    stream = agent_of(url, guard).stream_async("go")
    async for event in stream:
        if "data" in event:
            await stream.aclose()
            return seen(event["data"])
    raise AssertionError


async def hand_off(url: str, guard: Any) -> Any:
    agents = [agent_of(url, guard, name=name, system_prompt=f"AGENT:{name}") for name in ("first", "second")]
    result = await Swarm(agents, entry_point=agents[0]).invoke_async("go")
    ended = {name: _without_times(node.result.message) for name, node in result.results.items()}
    return seen(result.status, [node.node_id for node in result.node_history], ended, result.accumulated_usage)


async def kept(url: str, guard: Any) -> Any:
    guarding = None if guard is None else monitor.guard.guarding()

    async def one(number: int) -> Any:
        agent = agent_of(url, guarding)  # an agent of Strands has a history, and refuses a second run at once
        if guarding is None:
            return results(await agent.invoke_async(f"go {number}"), agent)
        async with guarding():
            return results(await agent.invoke_async(f"go {number}"), agent)

    return await asyncio.gather(*map(one, range(4)))


SCENES: dict[str, Scene] = {
    "plain": plain,
    "streaming": streaming,
    "structured": structured,
    "tools": tools,
    "hand-off": hand_off,
    "kept agent, four runs at once": kept,
    "early break": early_break,
    "cancellation": plain,
    "failing tool": failing_tool,
    "failing service": failing_service,
}
