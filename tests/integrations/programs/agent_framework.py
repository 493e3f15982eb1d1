"""Microsoft Agent Framework."""

from __future__ import annotations

from typing import Any

from agent_framework import Agent
from agent_framework import tool as made
from agent_framework.openai import OpenAIChatCompletionClient

from monitor.guard.guard import Guard
from monitor.integrations.agent_framework import GuardMiddleware
from monitor.outcome import StoppedByGuard
from tests.integrations.drivers import Ending, Tool, stopped
from tests.integrations.programs.openai_client import client_of


async def run(base_url: str, guard: Guard, tool: Tool) -> Ending:
    async with client_of(base_url) as client, guard:
        try:
            result = await agent_of(client, guard, tool).run("go")
        except StoppedByGuard as error:
            return stopped(error)
        return Ending(result.text, total_tokens=(result.usage_details or {}).get("total_token_count"))


async def streamed(base_url: str, guard: Guard, tool: Tool) -> Ending:
    async with client_of(base_url) as client, guard:
        try:
            result = agent_of(client, guard, tool).run("go", stream=True)
            async for _ in result:
                pass
            final = await result.get_final_response()
        except StoppedByGuard as error:
            return stopped(error)
        return Ending(final.text, total_tokens=(final.usage_details or {}).get("total_token_count"))


def agent_of(client: Any, guard: Guard, tool: Tool) -> Agent:
    look = made(tool, name="look", description="Looks.")
    chat = OpenAIChatCompletionClient(model="local", async_client=client)
    chat.function_invocation_configuration["max_iterations"] = 100
    return Agent(client=chat, tools=[look], middleware=[GuardMiddleware(guard)])
