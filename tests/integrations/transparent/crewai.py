"""CrewAI."""

from __future__ import annotations

import asyncio
from typing import Any

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from pydantic import BaseModel

import monitor
from monitor.integrations.crewai import guarded_llm
from tests.integrations.transparent.scenes import Scene, behind, raised, seen


class Report(BaseModel):
    """A declared output."""

    summary: str
    risk: float


@tool("look")
def look(q: str) -> str:
    """Looks."""
    return f"nothing about {q}"


@tool("look")
def failing(q: str) -> str:
    """Looks."""
    raise ValueError(f"no archive has {q}")


def llm_of(url: str, guard: Any, **options: Any) -> Any:
    llm = LLM(model="openai/local", base_url=url, api_key="none", max_retries=0, **options)
    return behind(guard, guarded_llm, llm)


def crew_of(llm: Any, tools: Any = (), *, stream: bool = False, **options: Any) -> Crew:
    agent = Agent(role="one", goal="g", backstory="b", llm=llm, tools=[*tools], max_iter=5, max_retry_limit=0)
    task = Task(name="t", description="go {number}", expected_output="x", agent=agent, **options)
    return Crew(agents=[agent], tasks=[task], stream=stream)


def results(result: Any) -> Any:
    return seen(result.raw, result.json_dict, result.pydantic, result.token_usage)


async def plain(url: str, guard: Any, tools: Any = (), **options: Any) -> Any:
    return results(await crew_of(llm_of(url, guard), tools, **options).akickoff({"number": 0}))


async def model_alone(url: str, guard: Any) -> Any:
    llm = llm_of(url, guard)
    answer = await llm.acall([{"role": "user", "content": "go"}])
    return seen(answer, llm.get_token_usage_summary())


async def streaming(url: str, guard: Any) -> Any:
    stream: Any = await crew_of(llm_of(url, guard, stream=True), stream=True).akickoff({"number": 0})
    told = [(chunk.content, chunk.chunk_type, chunk.agent_role, chunk.task_name) async for chunk in stream]
    return seen(told), results(stream.result)


async def structured(url: str, guard: Any) -> Any:
    return await plain(url, guard, output_pydantic=Report)


async def tools(url: str, guard: Any) -> Any:
    return await plain(url, guard, [look])


async def failing_tool(url: str, guard: Any) -> Any:
    return await plain(url, guard, [failing])


async def failing_service(url: str, guard: Any) -> Any:
    return await raised(plain(url, guard))


async def early_break(url: str, guard: Any) -> Any:
    stream: Any = await crew_of(llm_of(url, guard, stream=True), stream=True).akickoff({"number": 0})
    async for chunk in stream:
        await stream.aclose()
        return seen(chunk.content)
    raise AssertionError


async def kept(url: str, guard: Any) -> Any:
    guarding = None if guard is None else monitor.guard.guarding()
    llm = llm_of(url, guarding)

    async def one(number: int) -> Any:
        crew = crew_of(llm)
        if guarding is None:
            return seen((await crew.akickoff({"number": number})).raw)
        async with guarding():
            return seen((await crew.akickoff({"number": number})).raw)

    return await asyncio.gather(*map(one, range(4)))


SCENES: dict[str, Scene] = {
    "plain": plain,
    "model alone": model_alone,
    "streaming": streaming,
    "structured": structured,
    "tools": tools,
    "kept agent, four runs at once": kept,
    "early break": early_break,
    "failing tool": failing_tool,
    "failing service": failing_service,
}
