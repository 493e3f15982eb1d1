"""LangChain: an agent of `create_agent` with the middleware, streamed by its messages."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from bench.frameworks.base import OPENAI_WIRE, Ended, Framework, openai_client
from monitor.guard.guard import Guard
from monitor.integrations.langchain import GuardMiddleware, Stopped


async def ask(client: Any, prompt: str, guard: Guard | None) -> Ended:
    """One run."""
    key = SecretStr("local")
    model = ChatOpenAI(model="local", async_client=client.chat.completions, api_key=key, max_retries=0)
    middleware = [] if guard is None else [GuardMiddleware(guard, exit_behavior="error")]
    agent: Any = create_agent(model, [], middleware=middleware)
    ended = Ended("", 0)
    async with guard or nullcontext():
        try:
            async for chunk, _ in agent.astream({"messages": [("user", prompt)]}, stream_mode="messages"):
                ended.items += 1
                ended.text += chunk.text
        except Stopped as stopped:
            ended.reason = stopped.stop.reason.value
    return ended


FRAMEWORK = Framework(
    "LangChain",
    packages=("langchain", "langchain-openai", "openai"),
    wire=OPENAI_WIRE,
    client=openai_client,
    ask=ask,
)
