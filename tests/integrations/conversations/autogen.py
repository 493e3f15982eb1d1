"""AutoGen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_core.tools import FunctionTool

from tests.integrations.drivers import Tool
from tests.integrations.transparent.autogen import client_of


async def batch(url: str, guard: Any, questions: Sequence[str]) -> list[str]:
    client = client_of(url, guard)
    try:
        return [await _asked(AssistantAgent("one", client), question) for question in questions]
    finally:
        await client.close()


async def chat(url: str, guard: Any, questions: Sequence[str]) -> list[str]:
    client = client_of(url, guard)
    try:
        agent = AssistantAgent("one", client)
        return [await _asked(agent, question) for question in questions]
    finally:
        await client.close()


async def _asked(agent: Any, question: str | None) -> str:
    return str((await agent.run(task=question)).messages[-1].to_text())


async def resume(url: str, guard: Any, tool: Tool) -> str:
    """Each run carries out one turn's calls, and a new agent goes on with its state."""
    client = client_of(url, guard)
    tools: Any = [FunctionTool(tool, description="Looks.", name="look")]
    state: Any = None
    try:
        while True:
            agent = AssistantAgent("one", client, tools=tools, max_tool_iterations=1)
            if state is not None:
                await agent.load_state(state)
            result = await agent.run(task=None if state else "go")
            state = await agent.save_state()
            if type(result.messages[-1]).__name__ == "TextMessage":
                return str(result.messages[-1].to_text())
    finally:
        await client.close()


PROGRAMS: dict[str, Any] = {"batch": batch, "chat": chat, "resume": resume}
