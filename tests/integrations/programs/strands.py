"""Strands Agents."""

from __future__ import annotations

from typing import Any

import strands
from strands.models import Model

from monitor.guard.guard import Guard
from monitor.integrations.strands import GuardPlugin
from monitor.outcome import StoppedByGuard
from tests.integrations.drivers import Ending, Tool, stopped


async def run(base_url: str, guard: Guard, tool: Tool) -> Ending:
    async with guard:
        return _ending(await agent_of(openai_model(base_url), guard, tool).invoke_async("go"))


async def streamed(base_url: str, guard: Guard, tool: Tool) -> Ending:
    async with guard:
        result: Any = None
        async for event in agent_of(openai_model(base_url), guard, tool).stream_async("go"):
            result = event.get("result", result)
        return _ending(result)


async def raising(base_url: str, guard: Guard, tool: Tool) -> Ending:
    model = anthropic_model(base_url)
    async with guard, model.client:  # the framework closes no client of Anthropic
        agent = agent_of(model, guard, tool, exit_behavior="error")
        try:
            return _ending(await agent.invoke_async("go"))
        except StoppedByGuard as error:
            return stopped(error)


def run_sync(base_url: str, guard: Guard, tool: Tool) -> Ending:
    with guard:
        return _ending(agent_of(openai_model(base_url), guard, tool)("go"))


def openai_model(base_url: str) -> Model:
    from strands.models.openai import OpenAIModel

    arguments = {"api_key": "none", "base_url": base_url, "max_retries": 0}
    return OpenAIModel(client_args=arguments, model_id="local")


def anthropic_model(base_url: str) -> Any:
    from strands.models.anthropic import AnthropicModel

    arguments = {"api_key": "none", "base_url": base_url, "max_retries": 0}
    return AnthropicModel(client_args=arguments, model_id="local", max_tokens=1000)


def agent_of(model: Model, guard: Guard, tool: Tool, **options: Any) -> strands.Agent:
    look = strands.tool(name="look", description="Looks.")(tool)
    return strands.Agent(model, tools=[look], plugins=[GuardPlugin(guard, **options)], callback_handler=None)


def _ending(result: Any) -> Ending:
    said = result.state.get("agent_monitor", {})
    assert bool(said) == (result.stop_reason == "cancelled")
    return Ending(
        result.message["content"][0]["text"], said.get("reason"), result.metrics.accumulated_usage["totalTokens"]
    )
