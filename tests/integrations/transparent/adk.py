"""Google ADK."""

from __future__ import annotations

import asyncio
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.runners import InMemoryRunner
from google.adk.tools import FunctionTool
from google.genai import types
from pydantic import BaseModel

import monitor
from monitor.integrations.adk import GuardPlugin
from tests.integrations.programs.adk import Local, client_of
from tests.integrations.transparent.scenes import Scene, guards, raised, seen


class Report(BaseModel):
    """A declared output."""

    summary: str
    risk: float


def look(q: str) -> str:
    """Looks."""
    return f"nothing about {q}"


def failing(q: str) -> str:
    """Looks."""
    raise ValueError(f"no archive has {q}")


failing.__name__ = "look"


def _plugins(given: Any) -> list[GuardPlugin]:
    return [GuardPlugin(guard, name=f"guard_{at}") for at, guard in enumerate(guards(given))]


def runner_of(client: Any, guard: Any, tools: Any = (), **options: Any) -> InMemoryRunner:
    gemini = Local(model="gemini-2.5-flash")
    gemini._client = client
    agent = LlmAgent(name="one", model=gemini, tools=[FunctionTool(tool) for tool in tools], **options)
    return InMemoryRunner(app=App(name="app", root_agent=agent, plugins=_plugins(guard)))


async def events_of(runner: InMemoryRunner, task: str = "go", mode: Any = StreamingMode.NONE) -> Any:
    session = await runner.session_service.create_session(app_name="app", user_id="user")
    message = types.Content(role="user", parts=[types.Part(text=task)])
    config = RunConfig(streaming_mode=mode)
    stream = runner.run_async(user_id="user", session_id=session.id, new_message=message, run_config=config)
    return [_without_ids(event.model_dump(mode="json", exclude_none=True)) async for event in stream]


def _without_ids(value: Any) -> Any:
    if isinstance(value, list):
        return _joined([_without_ids(one) for one in value])
    if isinstance(value, dict):
        return {name: _without_ids(one) for name, one in value.items() if name not in {"id", "timestamp"}}
    return value


def _joined(parts: list[Any]) -> list[Any]:
    """Neighbouring texts as one: the local service gives a whole answer in pieces."""
    made: list[Any] = []
    for one in parts:
        text = one.get("text") if isinstance(one, dict) and set(one) == {"text"} else None
        if text is not None and made and set(made[-1]) == {"text"}:
            made[-1] = {"text": made[-1]["text"] + text}
        else:
            made.append(one)
    return made


async def plain(url: str, guard: Any, tools: Any = (), mode: Any = StreamingMode.NONE, **options: Any) -> Any:
    client = client_of(url)
    async with client.aio:
        runner = runner_of(client, guard, tools, **options)
        try:
            return seen(await events_of(runner, mode=mode))
        finally:
            await runner.close()


async def streaming(url: str, guard: Any) -> Any:
    return await plain(url, guard, mode=StreamingMode.SSE)


async def structured(url: str, guard: Any) -> Any:
    return await plain(url, guard, output_schema=Report)


async def tools(url: str, guard: Any) -> Any:
    return await plain(url, guard, [look])


async def failing_tool(url: str, guard: Any) -> Any:
    return await raised(plain(url, guard, [failing]))


async def failing_service(url: str, guard: Any) -> Any:
    return await raised(plain(url, guard))


async def early_break(url: str, guard: Any) -> Any:
    client = client_of(url)
    async with client.aio:
        runner = runner_of(client, guard)
        session = await runner.session_service.create_session(app_name="app", user_id="user")
        message = types.Content(role="user", parts=[types.Part(text="go")])
        config = RunConfig(streaming_mode=StreamingMode.SSE)
        stream = runner.run_async(user_id="user", session_id=session.id, new_message=message, run_config=config)
        try:
            async for event in stream:
                return seen(_without_ids(event.model_dump(mode="json", exclude_none=True)))
        finally:
            await stream.aclose()
            await runner.close()
    raise AssertionError


async def kept(url: str, guard: Any) -> Any:
    guarding = None if guard is None else monitor.guard.guarding()
    client = client_of(url)
    async with client.aio:
        runner = runner_of(client, guarding)

        async def one(number: int) -> Any:
            if guarding is None:
                return seen(await events_of(runner, f"go {number}"))
            async with guarding():
                return seen(await events_of(runner, f"go {number}"))

        try:
            return await asyncio.gather(*map(one, range(4)))
        finally:
            await runner.close()


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
