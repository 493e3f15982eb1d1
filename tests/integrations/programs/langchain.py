"""LangChain."""

from __future__ import annotations

from typing import Any

import openai
from langchain.agents import create_agent
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from monitor.guard.guard import Guard
from monitor.integrations.langchain import GuardMiddleware
from monitor.outcome import StoppedByGuard
from tests.integrations.drivers import Ending, Tool, stopped
from tests.integrations.programs.openai_client import client_of

GO = {"messages": [("user", "go")]}


async def run(base_url: str, guard: Guard, tool: Tool) -> Ending:
    async with client_of(base_url) as client, guard:
        state = await agent_of(client, guard, tool).ainvoke(GO)
        return _ending(state["messages"])


async def streamed(base_url: str, guard: Guard, tool: Tool) -> Ending:
    async with client_of(base_url) as client, guard:
        state: Any = None
        async for mode, part in agent_of(client, guard, tool).astream(GO, stream_mode=["messages", "values"]):
            state = part if mode == "values" else state
        return _ending(state["messages"])


async def raising(base_url: str, guard: Guard, tool: Tool) -> Ending:
    async with client_of(base_url) as client, guard:
        try:
            state = await agent_of(client, guard, tool, exit_behavior="error").ainvoke(GO)
        except StoppedByGuard as error:
            return stopped(error)
        return _ending(state["messages"])


def agent_of(client: openai.AsyncOpenAI, guard: Guard, tool: Tool, **options: Any) -> Any:
    key = SecretStr("none")
    model = ChatOpenAI(model="local", async_client=client.chat.completions, api_key=key, max_retries=0)
    look = StructuredTool.from_function(tool, name="look", description="Looks.")
    return create_agent(model, [look], middleware=[GuardMiddleware(guard, **options)])


def _ending(messages: list[Any]) -> Ending:
    last = messages[-1]
    said = last.response_metadata.get("agent_monitor", {})
    totals = [one.usage_metadata["total_tokens"] for one in messages if one.type == "ai" and one.usage_metadata]
    return Ending(last.text, said.get("reason"), sum(totals))
