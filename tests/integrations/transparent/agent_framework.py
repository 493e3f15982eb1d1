"""Microsoft Agent Framework."""

from __future__ import annotations

import asyncio
from typing import Any

from agent_framework import Agent, FunctionMiddleware, tool
from agent_framework.openai import OpenAIChatCompletionClient
from pydantic import BaseModel

import monitor
from monitor.integrations.agent_framework import GuardMiddleware
from tests.integrations.programs.openai_client import client_of
from tests.integrations.transparent.scenes import Scene, guards, raised, seen


class Report(BaseModel):
    """A declared output."""

    summary: str
    risk: float


class Heard(FunctionMiddleware):
    """Notes which tools are called."""

    def __init__(self) -> None:
        self.words: list[str] = []

    async def process(self, context: Any, call_next: Any) -> None:
        self.words.append(f"{context.function.name} starts")
        await call_next()
        self.words.append(f"{context.function.name} ends")


@tool
def look(q: str) -> str:
    """Looks."""
    return f"nothing about {q}"


@tool(name="look")
def fail(q: str) -> str:
    """Looks."""
    raise ValueError(f"no archive has {q}")


def agent_of(client: Any, guard: Any, tools: Any = (), heard: Any = None) -> Agent:
    chat = OpenAIChatCompletionClient(model="local", async_client=client)
    middleware = [*map(GuardMiddleware, guards(guard))]
    return Agent(client=chat, name="one", tools=[*tools], middleware=[*middleware, *([heard] if heard else [])])


def results(result: Any) -> Any:
    messages = [_without_ids(one.to_dict()) for one in result.messages]
    return seen(result.text, messages, result.usage_details, result.response_id, str(result.finish_reason))


def _without_ids(value: Any) -> Any:
    """The framework's own ids of a call are made anew each time, and its pieces are numbered."""
    if isinstance(value, list):
        return [_without_ids(one) for one in value]
    if isinstance(value, dict):
        made = {"id", "message_id", "additional_properties", "merge_mode"}
        return {name: _without_ids(one) for name, one in value.items() if name not in made}
    return value


async def plain(url: str, guard: Any, tools: Any = (), **options: Any) -> Any:
    heard = Heard()
    async with client_of(url) as client:
        result = await agent_of(client, guard, tools, heard).run("go", **options)
        return results(result), heard.words, seen(result.value)


async def streaming(url: str, guard: Any) -> Any:
    async with client_of(url) as client:
        result = agent_of(client, guard).run("go", stream=True)
        updates = [_without_ids(update.to_dict()) async for update in result]
        return seen(updates), results(await result.get_final_response())


async def structured(url: str, guard: Any) -> Any:
    return await plain(url, guard, options={"response_format": Report})


async def tools(url: str, guard: Any) -> Any:
    return await plain(url, guard, [look])


async def failing_tool(url: str, guard: Any) -> Any:
    return await raised(plain(url, guard, [fail]))


async def failing_service(url: str, guard: Any) -> Any:
    return await raised(streaming(url, guard))


async def early_break(url: str, guard: Any) -> Any:
    async with client_of(url) as client:
        result = agent_of(client, guard).run("go", stream=True)
        async for update in result:
            await result.close()
            return seen(update.text)
    raise AssertionError


async def kept(url: str, guard: Any) -> Any:
    guarding = None if guard is None else monitor.guard.guarding()
    async with client_of(url) as client:
        agent = agent_of(client, guarding)

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
