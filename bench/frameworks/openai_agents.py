"""OpenAI Agents SDK: `Runner.run_streamed` with a guarded model."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner

from bench.frameworks.base import OPENAI_WIRE, Ended, Framework, openai_client
from monitor.guard.guard import Guard
from monitor.integrations.openai_agents import GuardedModel, Stopped


async def ask(client: Any, prompt: str, guard: Guard | None) -> Ended:
    """One run."""
    model = OpenAIChatCompletionsModel("local", client)
    ended = Ended("", 0)
    async with guard or nullcontext():
        used = model if guard is None else GuardedModel(model, guard)
        result = Runner.run_streamed(Agent(name="one"), prompt, run_config=RunConfig(model=used, tracing_disabled=True))
        try:
            async for event in result.stream_events():
                ended.items += 1
                if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                    ended.text += event.data.delta
        except Stopped as stopped:
            ended.reason = stopped.stop.reason.value
    return ended


FRAMEWORK = Framework(
    "OpenAI Agents SDK", packages=("openai-agents", "openai"), wire=OPENAI_WIRE, client=openai_client, ask=ask
)
