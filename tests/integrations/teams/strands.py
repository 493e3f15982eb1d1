"""Programs of Strands Agents."""

from __future__ import annotations

import asyncio
from typing import Any

import strands
from strands.multiagent import GraphBuilder

from monitor.integrations.strands import GuardPlugin
from tests.integrations.programs.strands import openai_model


@strands.tool
async def look(q: str) -> str:
    """Looks."""
    return f"nothing about {q} was found"


async def boss(url: str, guard: Any) -> str:
    """Two agents behind tools of a third."""
    make = _maker(url, guard)

    @strands.tool
    async def ask_a(q: str) -> str:
        """Asks a."""
        return str(await make("a").invoke_async(q))

    @strands.tool
    async def ask_b(q: str) -> str:
        """Asks b."""
        return str(await make("b").invoke_async(q))

    return str(await make("boss", ask_a, ask_b).invoke_async("go"))


async def threaded(url: str, guard: Any) -> str:
    """The same, with tools that run in threads."""
    make = _maker(url, guard)

    @strands.tool
    def ask_a(q: str) -> str:
        """Asks a."""
        return str(make("a")(q))

    @strands.tool
    def ask_b(q: str) -> str:
        """Asks b."""
        return str(make("b")(q))

    return str(await make("boss", ask_a, ask_b).invoke_async("go"))


async def as_tool(url: str, guard: Any) -> str:
    make = _maker(url, guard)
    tools = [make(name).as_tool(name=f"ask_{name}", description=name) for name in "ab"]
    return str(await make("boss", *tools).invoke_async("go"))


async def gathered(url: str, guard: Any) -> str:
    make = _maker(url, guard)
    return ", ".join(map(str, await asyncio.gather(*[make(name).invoke_async("go") for name in "ab"])))


async def graph(url: str, guard: Any) -> str:
    make, made = _maker(url, guard), GraphBuilder()
    for name in "ab":
        made.add_node(make(name), name)
        made.set_entry_point(name)
    result = await made.build().invoke_async("go")
    return ", ".join(f"{name}: {result.results[name].result}" for name in "ab")


def _maker(url: str, guard: Any) -> Any:
    model, plugin = openai_model(url), [] if guard is None else [GuardPlugin(guard, exit_behavior="error")]

    def make(name: str, *tools: Any) -> strands.Agent:
        return strands.Agent(
            model,
            name=name,
            system_prompt=f"AGENT:{name}",
            tools=list(tools or (look,)),
            plugins=[*plugin],
            callback_handler=None,
        )

    return make


PROGRAMS = {"boss": boss, "threaded": threaded, "as_tool": as_tool, "gathered": gathered, "graph": graph}
