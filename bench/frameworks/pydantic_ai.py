"""Pydantic AI: `run_stream` with a guarded model."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from bench.frameworks.base import OPENAI_WIRE, Ended, Framework, openai_client
from monitor.guard.guard import Guard
from monitor.integrations.pydantic_ai import GuardedModel, Stopped


async def ask(client: Any, prompt: str, guard: Guard | None) -> Ended:
    """One run."""
    model = OpenAIChatModel("local", provider=OpenAIProvider(openai_client=client))
    ended = Ended("", 0)
    async with guard or nullcontext():
        used = model if guard is None else GuardedModel(model, guard)
        try:
            async with Agent(model).run_stream(prompt, model=used) as result:
                async for piece in result.stream_text(delta=True, debounce_by=None):
                    ended.text += piece
                    ended.items += 1
        except Stopped as stopped:
            ended.reason = stopped.stop.reason.value
    return ended


FRAMEWORK = Framework(
    "Pydantic AI", packages=("pydantic-ai-slim", "openai"), wire=OPENAI_WIRE, client=openai_client, ask=ask
)
