"""Microsoft Agent Framework."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_framework import Message
from agent_framework import tool as made

from tests.integrations.drivers import Tool
from tests.integrations.programs.openai_client import client_of
from tests.integrations.transparent.agent_framework import agent_of


async def batch(url: str, guard: Any, questions: Sequence[str]) -> list[str]:
    async with client_of(url) as client:
        agent = agent_of(client, guard)
        return [(await agent.run(question)).text for question in questions]


async def chat(url: str, guard: Any, questions: Sequence[str]) -> list[str]:
    async with client_of(url) as client:
        agent = agent_of(client, guard)
        session = agent.create_session()
        return [(await agent.run(question, session=session)).text for question in questions]


async def approval(url: str, guard: Any, tool: Tool) -> str:
    async with client_of(url) as client:
        look = made(tool, name="look", description="Looks.", approval_mode="always_require")
        agent = agent_of(client, guard, [look])
        session = agent.create_session()
        result = await agent.run("go", session=session)
        while result.user_input_requests:
            yes = [one.to_function_approval_response(approved=True) for one in result.user_input_requests]
            result = await agent.run(Message("user", yes), session=session)
        return str(result.text)


PROGRAMS: dict[str, Any] = {"batch": batch, "chat": chat, "approval": approval}
