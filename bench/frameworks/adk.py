"""Google ADK: `run_async` of a runner with the plugin, in its streaming mode."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from google import genai
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.models import Gemini
from google.adk.runners import InMemoryRunner
from google.genai import types

from bench._close_sdks import GOOGLE
from bench.frameworks.base import Ended, Framework
from monitor.guard.guard import Guard
from monitor.integrations.adk import GuardPlugin, Stopped
from monitor.testing.local_server import LocalServer


def prompt_of(body: Any) -> str:
    """The prompt of a request: the first text of the user."""
    return str(body["contents"][0]["parts"][0]["text"])


@contextlib.asynccontextmanager
async def client(server: LocalServer) -> AsyncIterator[Any]:
    """The model of ADK, with a client that is closed."""
    made = genai.Client(api_key="local", http_options=types.HttpOptions(base_url=server.base_url))
    async with made.aio:
        yield Gemini(model="gemini-2.5-flash", client=made)


async def ask(client: Any, prompt: str, guard: Guard | None) -> Ended:
    """One run."""
    plugins = [] if guard is None else [GuardPlugin(guard)]
    runner = InMemoryRunner(app=App(name="app", root_agent=LlmAgent(name="one", model=client), plugins=plugins))
    session = await runner.session_service.create_session(app_name="app", user_id="user")
    said = types.Content(role="user", parts=[types.Part(text=prompt)])
    mode = RunConfig(streaming_mode=StreamingMode.SSE)
    ended = Ended("", 0)
    async with guard or nullcontext():
        try:
            async for event in runner.run_async(
                user_id="user", session_id=session.id, new_message=said, run_config=mode
            ):
                if event.partial and event.content is not None:
                    ended.items += 1
                    ended.text += "".join(part.text or "" for part in event.content.parts or ())
        except Stopped as stopped:
            ended.reason = stopped.stop.reason.value
    await runner.close()
    return ended


FRAMEWORK = Framework(
    "Google ADK",
    packages=("google-adk", "google-genai"),
    wire=replace(GOOGLE, prompt=prompt_of),
    client=client,
    ask=ask,
)
