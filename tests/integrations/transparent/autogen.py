"""AutoGen."""

from __future__ import annotations

import asyncio
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.teams import Swarm
from autogen_core import CancellationToken
from autogen_core.models import ModelInfo
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient
from pydantic import BaseModel

import monitor
from monitor.integrations.autogen import GuardedClient
from tests.integrations.transparent.scenes import Scene, behind, raised, seen

INFO = ModelInfo(vision=False, function_calling=True, json_output=True, family="unknown", structured_output=True)


class Report(BaseModel):
    """A declared output."""

    summary: str
    risk: float


def client_of(url: str, guard: Any) -> Any:
    model = OpenAIChatCompletionClient(model="local", api_key="none", base_url=url, max_retries=0, model_info=INFO)
    return behind(guard, GuardedClient, model)


def results(result: Any) -> Any:
    return seen([(type(one).__name__, one.model_dump(exclude={"id", "created_at"})) for one in result.messages])


async def plain(url: str, guard: Any, **options: Any) -> Any:
    client = client_of(url, guard)
    try:
        result = await AssistantAgent("one", client, **options).run(task="go")
        return results(result), result.stop_reason, seen(client.actual_usage(), client.total_usage(), client.model_info)
    finally:
        await client.close()


async def streaming(url: str, guard: Any) -> Any:
    client = client_of(url, guard)
    try:
        agent = AssistantAgent("one", client, model_client_stream=True)
        stream: Any = agent.run_stream(task="go")
        said = [
            (type(one).__name__, results(one) if hasattr(one, "messages") else one.to_text()) async for one in stream
        ]
        return seen(said)
    finally:
        await client.close()


async def structured(url: str, guard: Any) -> Any:
    return await plain(url, guard, output_content_type=Report)


async def tools(url: str, guard: Any) -> Any:
    async def look(q: str) -> str:
        return f"nothing about {q}"

    return await plain(url, guard, tools=[FunctionTool(look, description="Looks.")], reflect_on_tool_use=True)


async def failing_tool(url: str, guard: Any) -> Any:
    async def look(q: str) -> str:
        raise ValueError(f"no archive has {q}")

    return await plain(url, guard, tools=[FunctionTool(look, description="Looks.")], reflect_on_tool_use=True)


async def failing_service(url: str, guard: Any) -> Any:
    return await raised(plain(url, guard))


async def handed_over(url: str, guard: Any) -> Any:
    client = client_of(url, guard)
    try:
        one = AssistantAgent("one", client, handoffs=["second"], system_message="AGENT:one")
        second = AssistantAgent("second", client, system_message="AGENT:second")
        team = Swarm([one, second], termination_condition=TextMentionTermination("9", sources=["second"]))
        result = await team.run(task="go")
        return results(result), result.stop_reason
    finally:
        await client.close()


async def early_break(url: str, guard: Any) -> Any:
    client = client_of(url, guard)
    token = CancellationToken()
    stream: Any = AssistantAgent("one", client, model_client_stream=True).run_stream(
        task="go", cancellation_token=token
    )
    try:
        async for one in stream:
            if type(one).__name__ == "ModelClientStreamingChunkEvent":
                return seen(one.to_text())
    finally:
        await stream.aclose()
        await client.close()


async def kept(url: str, guard: Any) -> Any:
    guarding = None if guard is None else monitor.guard.guarding()
    client = client_of(url, guarding)

    async def one(number: int) -> Any:
        agent = AssistantAgent("one", client)  # an agent of AutoGen has a history, the client is kept
        if guarding is None:
            return results(await agent.run(task=f"go {number}"))
        async with guarding():
            return results(await agent.run(task=f"go {number}"))

    try:
        return await asyncio.gather(*map(one, range(4)))
    finally:
        await client.close()


SCENES: dict[str, Scene] = {
    "plain": plain,
    "streaming": streaming,
    "structured": structured,
    "tools": tools,
    "hand-off": handed_over,
    "kept agent, four runs at once": kept,
    "early break": early_break,
    "cancellation": plain,
    "failing tool": failing_tool,
    "failing service": failing_service,
}
