"""Strands Agents: `stream_async` of an agent with the plugin."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from strands import Agent
from strands.models.openai import OpenAIModel

from bench.frameworks.base import OPENAI_WIRE, Ended, Framework, openai_client
from monitor.guard.guard import Guard
from monitor.integrations.strands import GuardPlugin, Stopped


async def ask(client: Any, prompt: str, guard: Guard | None) -> Ended:
    """One run."""
    plugins = [] if guard is None else [GuardPlugin(guard, exit_behavior="error")]
    agent = Agent(OpenAIModel(client=client, model_id="local"), plugins=plugins, callback_handler=None)
    ended = Ended("", 0)
    async with guard or nullcontext():
        try:
            async for event in agent.stream_async(prompt):
                if "data" in event:
                    ended.items += 1
                    ended.text += event["data"]
        except Stopped as stopped:
            ended.reason = stopped.stop.reason.value
    return ended


FRAMEWORK = Framework("Strands", packages=("strands-agents", "openai"), wire=OPENAI_WIRE, client=openai_client, ask=ask)
