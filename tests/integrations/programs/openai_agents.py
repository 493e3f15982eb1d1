"""The OpenAI Agents SDK."""

from __future__ import annotations

from typing import Any

import openai
from agents import Agent, AgentsException, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool

from monitor.guard.guard import Guard
from monitor.integrations.openai_agents import GuardedModel
from monitor.outcome import StoppedByGuard
from tests.integrations.drivers import Ending, Tool, stopped
from tests.integrations.programs.openai_client import client_of, client_of_sync


async def run(base_url: str, guard: Guard, tool: Tool) -> Ending:
    async with client_of(base_url) as client, guard:
        agent, config = agent_of(client, guard, tool)
        try:
            result = await Runner.run(agent, "go", run_config=config)
        except AgentsException as error:
            return _stopped(error)
        return Ending(result.final_output, total_tokens=result.context_wrapper.usage.total_tokens)


async def streamed(base_url: str, guard: Guard, tool: Tool) -> Ending:
    async with client_of(base_url) as client, guard:
        agent, config = agent_of(client, guard, tool)
        result = Runner.run_streamed(agent, "go", run_config=config)
        try:
            async for _ in result.stream_events():
                pass
        except AgentsException as error:
            return _stopped(error)
        return Ending(result.final_output, total_tokens=result.context_wrapper.usage.total_tokens)


def run_sync(base_url: str, guard: Guard, tool: Tool) -> Ending:
    with client_of_sync(base_url) as client, guard:
        agent, config = agent_of(client, guard, tool)
        try:
            result = Runner.run_sync(agent, "go", run_config=config)
        except AgentsException as error:
            return _stopped(error)
        return Ending(result.final_output, total_tokens=result.context_wrapper.usage.total_tokens)


def _stopped(error: AgentsException) -> Ending:
    if not isinstance(error, StoppedByGuard) or error.run_data is None:  # the SDK's own account
        raise error
    return stopped(error)


def agent_of(client: openai.AsyncOpenAI, guard: Guard, tool: Tool) -> tuple[Any, Any]:
    model = GuardedModel(OpenAIChatCompletionsModel("local", client), guard)
    look = function_tool(tool, name_override="look")
    return Agent(name="one", tools=[look]), RunConfig(model=model, tracing_disabled=True)
