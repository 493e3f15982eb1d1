"""LangChain and LangGraph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from monitor.integrations.langchain import GuardedChatModel, GuardMiddleware
from tests.integrations.drivers import Tool
from tests.integrations.programs.openai_client import client_of
from tests.integrations.transparent.langchain import model_of

CHAT: Any = {"configurable": {"thread_id": "chat"}}


def agent_of(client: Any, guard: Any, *tools: Tool, more: Any = (), **options: Any) -> Any:
    made = [StructuredTool.from_function(tool, name="look", description="Looks.") for tool in tools]
    middleware = [*more, GuardMiddleware(guard, exit_behavior="error")]
    return create_agent(model_of(client), made, middleware=middleware, checkpointer=InMemorySaver(), **options)


async def batch(url: str, guard: Any, questions: Sequence[str]) -> list[str]:
    async with client_of(url) as client:
        model: Any = GuardedChatModel(model_of(client), guard)
        return [(await model.ainvoke(question)).text for question in questions]


async def chat(url: str, guard: Any, questions: Sequence[str]) -> list[str]:
    async with client_of(url) as client:
        agent = agent_of(client, guard)
        states = [await agent.ainvoke({"messages": [("user", question)]}, CHAT) for question in questions]
        return [state["messages"][-1].text for state in states]


async def approval(url: str, guard: Any, tool: Tool) -> str:
    async with client_of(url) as client:
        agent = agent_of(client, guard, tool, more=[HumanInTheLoopMiddleware({"look": True})])
        state = await agent.ainvoke({"messages": [("user", "go")]}, CHAT)
        while "__interrupt__" in state:
            state = await agent.ainvoke(Command(resume={"decisions": [{"type": "approve"}]}), CHAT)
        return str(state["messages"][-1].text)


async def resume(url: str, guard: Any, tool: Tool) -> str:
    """Each run ends behind its tools, and the next one goes on from the checkpoint."""
    async with client_of(url) as client:
        agent = agent_of(client, guard, tool, interrupt_after=["tools"])
        state = await agent.ainvoke({"messages": [("user", "go")]}, CHAT)
        while (await agent.aget_state(CHAT)).next:
            state = await agent.ainvoke(None, CHAT)
        return str(state["messages"][-1].text)


PROGRAMS: dict[str, Any] = {"batch": batch, "chat": chat, "approval": approval, "resume": resume}
