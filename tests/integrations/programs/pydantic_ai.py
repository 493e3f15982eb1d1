"""Pydantic AI."""

from __future__ import annotations

from typing import Any

import openai
from pydantic_ai import Agent
from pydantic_ai.exceptions import AgentRunError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from monitor.guard.guard import Guard
from monitor.integrations.pydantic_ai import GuardedModel
from monitor.outcome import StoppedByGuard
from tests.integrations.drivers import Ending, Tool, stopped
from tests.integrations.programs.openai_client import client_of, client_of_sync


async def run(base_url: str, guard: Guard, tool: Tool) -> Ending:
    async with client_of(base_url) as client, guard:
        agent, model = agent_of(client, guard, tool)
        try:
            result = await agent.run("go", model=model)
        except AgentRunError as error:
            if not isinstance(error, StoppedByGuard):
                raise
            return stopped(error)
        return Ending(result.output, total_tokens=result.usage.total_tokens)


async def streamed(base_url: str, guard: Guard, tool: Tool) -> Ending:
    async with client_of(base_url) as client, guard:
        agent, model = agent_of(client, guard, tool)
        try:
            async with agent.run_stream("go", model=model) as result:
                text = "".join([piece async for piece in result.stream_text(delta=True, debounce_by=None)])
                return Ending(text, total_tokens=result.usage.total_tokens)
        except StoppedByGuard as error:
            return stopped(error)


def run_sync(base_url: str, guard: Guard, tool: Tool) -> Ending:
    with client_of_sync(base_url) as client, guard:
        agent, model = agent_of(client, guard, tool)
        try:
            result = agent.run_sync("go", model=model)
        except AgentRunError as error:
            if not isinstance(error, StoppedByGuard):
                raise
            return stopped(error)
        return Ending(result.output, total_tokens=result.usage.total_tokens)


def agent_of(client: openai.AsyncOpenAI, guard: Guard, tool: Tool) -> tuple[Any, Any]:
    model = OpenAIChatModel("local", provider=OpenAIProvider(openai_client=client))
    agent = Agent(model)
    agent.tool_plain(name="look")(tool)
    return agent, GuardedModel(model, guard)
