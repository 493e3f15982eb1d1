"""AutoGen."""

from __future__ import annotations

import asyncio
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken
from autogen_core.models import ModelInfo
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient

from monitor.guard.guard import Guard
from monitor.integrations.autogen import GuardedClient, GuardTermination
from monitor.outcome import StoppedByGuard
from tests.integrations.drivers import Ending, Tool, stopped

INFO = ModelInfo(vision=False, function_calling=True, json_output=True, family="unknown", structured_output=False)


async def run(base_url: str, guard: Guard, tool: Tool) -> Ending:
    async with guard:
        client = client_of(base_url, guard)
        try:
            return _ending(await agent_of(client, tool).run(task="go"))
        except StoppedByGuard as error:
            return stopped(error)
        finally:
            await client.close()


async def team(base_url: str, guard: Guard, tool: Tool, *, stream: bool = False, agents: int = 1) -> Ending:
    async with guard:
        client = client_of(base_url, guard)
        ours = GuardTermination(client)
        members: list[Any] = [agent_of(client, tool, f"agent_{n}", stream=stream) for n in range(agents)]
        ends = ours | TextMentionTermination("done.") | MaxMessageTermination(200)
        token = CancellationToken()
        run = asyncio.ensure_future(
            RoundRobinGroupChat(members, termination_condition=ends).run(task="go", cancellation_token=token)
        )
        try:
            result = await asyncio.shield(run)
        except asyncio.CancelledError:  # a team that is cancelled without its token waits for the model
            token.cancel()
            await run
            raise
        finally:
            await client.close()
        ending = _ending(result)
        if ours.stop is None:
            return ending
        reason, _, detail = (result.stop_reason or "").partition(": ")
        assert detail.strip() == ours.stop.detail
        return Ending(ending.text, reason, ending.total_tokens)


async def team_streamed(base_url: str, guard: Guard, tool: Tool) -> Ending:
    return await team(base_url, guard, tool, stream=True)


def run_sync(base_url: str, guard: Guard, tool: Tool) -> Ending:
    """AutoGen has no synchronous entry point: a script calls `asyncio.run`."""
    return asyncio.run(run(base_url, guard, tool))


def client_of(base_url: str, guard: Guard) -> GuardedClient:
    model = OpenAIChatCompletionClient(model="local", api_key="none", base_url=base_url, max_retries=0, model_info=INFO)
    return GuardedClient(model, guard)


def agent_of(client: GuardedClient, tool: Tool, name: str = "one", *, stream: bool = False) -> AssistantAgent:
    look = FunctionTool(tool, description="Looks.", name="look")
    return AssistantAgent(name, client, tools=[look], max_tool_iterations=30, model_client_stream=stream)


def _ending(result: TaskResult) -> Ending:
    used = [one.models_usage for one in result.messages if one.models_usage is not None]
    total = sum(one.prompt_tokens + one.completion_tokens for one in used)
    return Ending(str(getattr(result.messages[-1], "content", "")), total_tokens=total)
