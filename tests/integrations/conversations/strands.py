"""Strands Agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import strands
from strands.hooks import BeforeToolCallEvent

from monitor.integrations.strands import GuardPlugin
from tests.integrations.drivers import Tool
from tests.integrations.programs.strands import openai_model


def agent_of(url: str, guard: Any, *tools: Tool) -> Any:
    made = [strands.tool(name="look", description="Looks.")(tool) for tool in tools]
    plugins = [GuardPlugin(guard, exit_behavior="error")]
    return strands.Agent(openai_model(url), tools=[*made], plugins=plugins, callback_handler=None, retry_strategy=None)


async def batch(url: str, guard: Any, questions: Sequence[str]) -> list[str]:
    return [await _asked(agent_of(url, guard), question) for question in questions]


async def chat(url: str, guard: Any, questions: Sequence[str]) -> list[str]:
    agent = agent_of(url, guard)
    return [await _asked(agent, question) for question in questions]


async def _asked(agent: Any, question: str) -> str:
    return str(await agent.invoke_async(question)).strip()


async def approval(url: str, guard: Any, tool: Tool) -> str:
    agent = agent_of(url, guard, tool)

    def ask(event: BeforeToolCallEvent) -> None:
        event.interrupt("may it look", reason=event.tool_use["toolUseId"])

    agent.hooks.add_callback(BeforeToolCallEvent, ask)
    result = await agent.invoke_async("go")
    while result.stop_reason == "interrupt":
        yes = [{"interruptResponse": {"interruptId": one.id, "response": "yes"}} for one in result.interrupts]
        result = await agent.invoke_async(yes)
    return str(result).strip()


PROGRAMS: dict[str, Any] = {"batch": batch, "chat": chat, "approval": approval}
