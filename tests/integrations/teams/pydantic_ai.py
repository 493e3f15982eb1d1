"""Programs of Pydantic AI."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic_ai import Agent, RunContext
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from monitor.integrations.pydantic_ai import GuardedModel
from tests.integrations.programs.openai_client import client_of


async def boss(url: str, guard: Any, task: str = "go") -> str:
    """Two agents behind tools of a third."""
    async with client_of(url) as client:
        model = _model(client, guard)
        a, b = (Agent(model, name=name, instructions=f"AGENT:{name}") for name in "ab")
        lead = Agent(model, name="boss", instructions="AGENT:boss")
        for agent in (a, b):
            _look(agent)

        @lead.tool
        async def ask_a(context: RunContext, q: str) -> str:
            return (await a.run(q, usage=context.usage)).output

        @lead.tool
        async def ask_b(context: RunContext, q: str) -> str:
            return (await b.run(q, usage=context.usage)).output

        return (await lead.run(task)).output


async def gathered(url: str, guard: Any) -> str:
    """Two runs at once, without an agent above them."""
    async with client_of(url) as client:
        model = _model(client, guard)
        agents = [Agent(model, name=name, instructions=f"AGENT:{name}") for name in "ab"]
        for agent in agents:
            _look(agent)
        return ", ".join([one.output for one in await asyncio.gather(*[agent.run("go") for agent in agents])])


async def threads(url: str, guard: Any) -> str:
    """Two runs at once, each in a thread with an event loop of its own."""

    async def one(name: str) -> str:
        async with client_of(url) as client:
            agent = Agent(_model(client, guard), name=name, instructions=f"AGENT:{name}")
            _look(agent)
            return (await agent.run("go")).output

    return ", ".join(await asyncio.gather(*[asyncio.to_thread(asyncio.run, one(name)) for name in "ab"]))


async def swallowed(url: str, guard: Any) -> str:
    """Tools that try their agent again, whatever it raises, and then answer with the error."""
    async with client_of(url) as client:
        model = _model(client, guard)
        agents = {name: Agent(model, name=name, instructions=f"AGENT:{name}") for name in "ab"}
        lead = Agent(model, name="boss", instructions="AGENT:boss", retries=3)

        async def asked(name: str, q: str) -> str:
            said = ""
            for _ in range(3):
                try:
                    return (await agents[name].run(q)).output
                except Exception as error:  # noqa: BLE001 - as programs do
                    said = f"sorry: {error!r}"
            return said

        @lead.tool_plain
        async def ask_a(q: str) -> str:
            return await asked("a", q)

        @lead.tool_plain
        async def ask_b(q: str) -> str:
            return await asked("b", q)

        for agent in agents.values():
            _look(agent)
        return (await lead.run("go")).output


def _look(agent: Agent) -> None:
    @agent.tool_plain
    async def look(q: str) -> str:
        return f"nothing about {q} was found"


def _model(client: Any, guard: Any) -> Any:
    model = OpenAIChatModel("local", provider=OpenAIProvider(openai_client=client))
    return model if guard is None else GuardedModel(model, guard)


PROGRAMS = {"boss": boss, "gathered": gathered, "threads": threads, "swallowed": swallowed}
