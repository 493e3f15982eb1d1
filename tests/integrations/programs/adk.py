"""Google ADK."""

from __future__ import annotations

from typing import Any

from google import genai
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.models import Gemini
from google.adk.runners import InMemoryRunner
from google.adk.tools import FunctionTool
from google.genai import types
from pydantic import PrivateAttr

from monitor.guard.guard import Guard
from monitor.integrations.adk import GuardedModel, GuardPlugin
from monitor.outcome import StoppedByGuard
from tests.integrations.drivers import Ending, Tool, stopped

GO = types.Content(role="user", parts=[types.Part(text="go")])


async def run(base_url: str, guard: Guard, tool: Tool) -> Ending:
    return await _run(base_url, guard, tool, StreamingMode.NONE)


async def streamed(base_url: str, guard: Guard, tool: Tool) -> Ending:
    return await _run(base_url, guard, tool, StreamingMode.SSE)


async def model(base_url: str, guard: Guard, tool: Tool) -> Ending:
    return await _run(base_url, guard, tool, StreamingMode.SSE, plugin=False)


async def _run(base_url: str, guard: Guard, tool: Tool, mode: StreamingMode, *, plugin: bool = True) -> Ending:
    events: list[Any] = []
    client = client_of(base_url)
    async with client.aio:
        runner = runner_of(client, guard, tool, plugin=plugin)
        async with guard:
            session = await runner.session_service.create_session(app_name="app", user_id="user")
            options: Any = {"user_id": "user", "session_id": session.id, "new_message": GO}
            try:
                events += [one async for one in runner.run_async(**options, run_config=RunConfig(streaming_mode=mode))]
            except StoppedByGuard as error:
                return stopped(error)
            finally:
                await runner.close()
    return _ending(events)


def run_sync(base_url: str, guard: Guard, tool: Tool) -> Ending:
    with client_of(base_url) as client, guard:
        runner = runner_of(client, guard, tool)
        session = runner.session_service.create_session_sync(app_name="app", user_id="user")
        try:
            events = list(runner.run(user_id="user", session_id=session.id, new_message=GO))
        except StoppedByGuard as error:
            return stopped(error)
    return _ending(events)


def client_of(base_url: str) -> genai.Client:
    return genai.Client(api_key="none", http_options=types.HttpOptions(base_url=base_url))


def runner_of(client: genai.Client, guard: Guard, tool: Tool, *, plugin: bool = True) -> InMemoryRunner:
    tool.__name__ = "look"
    gemini = Local(model="gemini-2.5-flash")
    gemini._client = client
    model = gemini if plugin else GuardedModel(gemini, guard)
    agent = LlmAgent(name="one", model=model, tools=[FunctionTool(tool)])
    app = App(name="app", root_agent=agent, plugins=[GuardPlugin(guard)] if plugin else [])
    return InMemoryRunner(app=app)


class Local(Gemini):
    """Gemini, with the client of a test."""

    _client: genai.Client = PrivateAttr()

    @property
    def api_client(self) -> genai.Client:
        return self._client


def _ending(events: list[Any]) -> Ending:
    whole = [event for event in events if not event.partial]
    used = [event.usage_metadata.total_token_count for event in whole if event.usage_metadata is not None]
    text = "".join(part.text or "" for part in whole[-1].content.parts)
    return Ending(text, total_tokens=sum(used))
