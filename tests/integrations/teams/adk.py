"""Programs of Google ADK."""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent, ParallelAgent, SequentialAgent
from google.adk.apps import App
from google.adk.runners import InMemoryRunner
from google.adk.tools import AgentTool

from monitor.integrations.adk import GuardPlugin
from tests.integrations.programs.adk import GO, Local, client_of


async def look(q: str) -> str:
    """Looks."""
    return f"nothing about {q} was found"


async def boss(url: str, guard: Any) -> str:
    """Two agents as tools of a third."""
    return await _run(url, guard, lambda make: make("boss", tools=[AgentTool(make("ask_a")), AgentTool(make("ask_b"))]))


async def parallel(url: str, guard: Any) -> str:
    return await _run(url, guard, lambda make: ParallelAgent(name="all", sub_agents=[make("a"), make("b")]))


async def sequential(url: str, guard: Any) -> str:
    return await _run(url, guard, lambda make: SequentialAgent(name="all", sub_agents=[make("a"), make("b")]))


async def transfer(url: str, guard: Any) -> str:
    return await _run(url, guard, lambda make: make("lead", sub_agents=[make("a")]))


async def _run(url: str, guard: Any, build: Any) -> str:
    client = client_of(url)
    async with client.aio:
        model = Local(model="gemini-2.5-flash")
        model._client = client

        def make(name: str, **options: Any) -> LlmAgent:
            who = name.removeprefix("ask_")
            given: Any = {"tools": [look], **options} if not options.get("sub_agents") else options
            return LlmAgent(name=name, description=name, instruction=f"AGENT:{who}", model=model, **given)

        plugins = [] if guard is None else [GuardPlugin(guard)]
        runner = InMemoryRunner(app=App(name="app", root_agent=build(make), plugins=plugins))
        session = await runner.session_service.create_session(app_name="app", user_id="user")
        said: list[str] = []
        try:
            async for event in runner.run_async(user_id="user", session_id=session.id, new_message=GO):
                parts = (event.content.parts or []) if event.content is not None and not event.partial else []
                said += [f"{event.author}: {part.text}" for part in parts if part.text]
        finally:
            await runner.close()
        return ", ".join(sorted(said))


PROGRAMS = {"boss": boss, "parallel": parallel, "sequential": sequential, "transfer": transfer}
