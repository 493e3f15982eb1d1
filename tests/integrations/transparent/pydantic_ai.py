"""Pydantic AI."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import monitor
from monitor.integrations.pydantic_ai import GuardedModel
from tests.integrations.programs.openai_client import client_of
from tests.integrations.transparent.scenes import Scene, behind, raised, seen


class Report(BaseModel):
    """A declared output."""

    summary: str
    risk: float


def model_of(client: Any, guard: Any) -> Any:
    model = OpenAIChatModel("local", provider=OpenAIProvider(openai_client=client))
    return behind(guard, GuardedModel, model)


def results(result: Any) -> Any:
    messages = ModelMessagesTypeAdapter.dump_python(result.all_messages(), mode="json")
    return seen(result.output, result.usage, messages)


async def plain(url: str, guard: Any, output: Any = str, tool: Any = None) -> Any:
    events: list[Any] = []

    async def heard(_: Any, stream: Any) -> None:
        events.extend([type(event).__name__ async for event in stream])

    async with client_of(url) as client:
        model = model_of(client, guard)
        agent = Agent(model, output_type=output)
        if tool is not None:
            agent.tool_plain(name="look")(tool)
        whole = await agent.run("go")
        told = await agent.run("go", event_stream_handler=heard)
        return results(whole), results(told), events, model.model_name, model.system


async def streaming(url: str, guard: Any) -> Any:
    async with client_of(url) as client:
        agent = Agent(model_of(client, guard))
        async with agent.run_stream("go") as result:
            pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
        return pieces, results(await _whole(result)), seen(result.response.finish_reason)


async def _whole(result: Any) -> Any:
    result.output = await result.get_output()
    return result


async def structured(url: str, guard: Any) -> Any:
    return await plain(url, guard, Report)


async def tools(url: str, guard: Any) -> Any:
    def look(q: str) -> str:
        return f"nothing about {q}"

    return await plain(url, guard, tool=look)


async def failing_tool(url: str, guard: Any) -> Any:
    def look(q: str) -> str:
        raise ValueError(f"no archive has {q}")

    return await raised(plain(url, guard, tool=look))


async def failing_service(url: str, guard: Any) -> Any:
    return await raised(plain(url, guard))


async def early_break(url: str, guard: Any) -> Any:
    async with client_of(url) as client:
        agent = Agent(model_of(client, guard))
        async with agent.run_stream("go") as result:
            async for piece in result.stream_text(delta=True, debounce_by=None):
                return piece, seen(result.usage)
    raise AssertionError


async def kept(url: str, guard: Any) -> Any:
    guarding = None if guard is None else monitor.guard.guarding()
    async with client_of(url) as client:
        agent = Agent(model_of(client, guarding))

        async def one(number: int) -> Any:
            if guarding is None:
                return results(await agent.run(f"go {number}"))
            async with guarding():
                return results(await agent.run(f"go {number}"))

        return await asyncio.gather(*map(one, range(4)))


SCENES: dict[str, Scene] = {
    "plain": plain,
    "streaming": streaming,
    "structured": structured,
    "tools": tools,
    "kept agent, four runs at once": kept,
    "early break": early_break,
    "cancellation": plain,
    "failing tool": failing_tool,
    "failing service": failing_service,
}
