"""Pydantic AI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults

from tests.integrations.drivers import Tool
from tests.integrations.programs.openai_client import client_of
from tests.integrations.transparent.pydantic_ai import model_of


async def batch(url: str, guard: Any, questions: Sequence[str]) -> list[str]:
    async with client_of(url) as client:
        agent = Agent(model_of(client, guard))
        return [(await agent.run(question)).output for question in questions]


async def chat(url: str, guard: Any, questions: Sequence[str]) -> list[str]:
    said: list[Any] = []
    answers: list[str] = []
    async with client_of(url) as client:
        agent = Agent(model_of(client, guard))
        for question in questions:
            result = await agent.run(question, message_history=said)
            said, answers = result.all_messages(), [*answers, result.output]
    return answers


async def approval(url: str, guard: Any, tool: Tool) -> str:
    async with client_of(url) as client:
        agent = Agent(model_of(client, guard), output_type=[str, DeferredToolRequests])
        agent.tool_plain(name="look", requires_approval=True)(tool)
        result: Any = await agent.run("go")
        while isinstance(result.output, DeferredToolRequests):
            given = DeferredToolResults(approvals={call.tool_call_id: True for call in result.output.approvals})
            result = await agent.run(message_history=result.all_messages(), deferred_tool_results=given)
        return str(result.output)


async def resume(url: str, guard: Any, tool: Tool) -> str:
    """Each run is left behind its tools, and the next one goes on with its messages."""
    said: list[Any] = []
    async with client_of(url) as client:
        agent = Agent(model_of(client, guard))
        agent.tool_plain(name="look")(tool)
        while True:
            async with agent.iter(None if said else "go", message_history=said) as run:
                node: Any = run.next_node
                answered = False
                while not Agent.is_end_node(node) and not (answered and Agent.is_model_request_node(node)):
                    answered = answered or Agent.is_call_tools_node(node)
                    node = await run.next(node)
                if Agent.is_end_node(node):
                    return str(node.data.output)
                said = [*run.all_messages(), node.request]


PROGRAMS: dict[str, Any] = {"batch": batch, "chat": chat, "approval": approval, "resume": resume}
