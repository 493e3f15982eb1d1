"""AutoGen: the stream of an agent with a guarded client."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import ModelClientStreamingChunkEvent
from autogen_core.models import ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient

from bench.frameworks.base import OPENAI_WIRE, Ended, Framework
from monitor.guard.guard import Guard
from monitor.integrations.autogen import GuardedClient, Stopped
from monitor.testing.local_server import LocalServer

INFO = ModelInfo(vision=False, function_calling=True, json_output=True, family="unknown", structured_output=False)


@contextlib.asynccontextmanager
async def client(server: LocalServer) -> AsyncIterator[Any]:
    """AutoGen's own client of OpenAI."""
    made = OpenAIChatCompletionClient(
        model="local", api_key="local", base_url=server.base_url, max_retries=0, model_info=INFO
    )
    yield made
    await made.close()


async def ask(client: Any, prompt: str, guard: Guard | None) -> Ended:
    """One run."""
    ended = Ended("", 0)
    async with guard or nullcontext():
        used = client if guard is None else GuardedClient(client, guard)
        try:
            async for item in AssistantAgent("one", used, model_client_stream=True).run_stream(task=prompt):
                if isinstance(item, ModelClientStreamingChunkEvent):
                    ended.items += 1
                    ended.text += item.content
        except Stopped as stopped:
            ended.reason = stopped.stop.reason.value
    return ended


FRAMEWORK = Framework(
    "AutoGen",
    packages=("autogen-agentchat", "autogen-ext", "openai"),
    wire=OPENAI_WIRE,
    client=client,
    ask=ask,
)
