"""The OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
from typing import Any

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, RunConfig, RunHooks, Runner, function_tool
from pydantic import BaseModel

import monitor
from monitor.integrations.openai_agents import GuardedModel
from tests.integrations.programs.openai_client import client_of
from tests.integrations.transparent.scenes import Scene, behind, raised, seen


class Report(BaseModel):
    """A declared output."""

    summary: str
    risk: float


class Heard(RunHooks[Any]):
    """Notes which hooks are called."""

    def __init__(self) -> None:
        self.words: list[str] = []

    async def on_agent_start(self, *_: Any) -> None:
        self.words.append("agent starts")

    async def on_agent_end(self, *_: Any) -> None:
        self.words.append("agent ends")

    async def on_llm_start(self, *_: Any) -> None:
        self.words.append("model starts")

    async def on_llm_end(self, *_: Any) -> None:
        self.words.append("model ends")

    async def on_tool_start(self, *_: Any) -> None:
        self.words.append("tool starts")

    async def on_tool_end(self, *_: Any) -> None:
        self.words.append("tool ends")

    async def on_handoff(self, *_: Any, **__: Any) -> None:
        self.words.append("hand-off")


def config_of(client: Any, guard: Any) -> RunConfig:
    model = OpenAIChatCompletionsModel("local", client)
    settings = ModelSettings(include_usage=True)
    guarded = behind(guard, GuardedModel, model)
    return RunConfig(model=guarded, model_settings=settings, tracing_disabled=True)


def results(result: Any) -> Any:
    raw = [(one.output, one.usage, one.response_id) for one in result.raw_responses]
    return seen(result.final_output, raw, result.to_input_list(), result.last_agent.name)


async def plain(url: str, guard: Any, **options: Any) -> Any:
    heard = Heard()
    async with client_of(url) as client:
        agent = Agent(name="one", **options)
        result = await Runner.run(agent, "go", run_config=config_of(client, guard), hooks=heard)
        return _without_ids(results(result)), heard.words


def _without_ids(value: Any) -> Any:
    """The SDK gives an item of a stream another made-up id than one of a whole response."""
    if isinstance(value, list):
        return [_without_ids(one) for one in value]
    if isinstance(value, dict):
        ids = {"id", "provider_data", "logprobs"}
        return {name: _without_ids(one) for name, one in value.items() if name not in ids}
    return value


async def streaming(url: str, guard: Any, agent: Any = None) -> Any:
    heard, events = Heard(), list[Any]()
    async with client_of(url) as client:
        result = Runner.run_streamed(agent or Agent(name="one"), "go", run_config=config_of(client, guard), hooks=heard)
        async for event in result.stream_events():
            events.append((event.type, seen(event.data) if event.type == "raw_response_event" else None))
        return results(result), heard.words, events


async def structured(url: str, guard: Any) -> Any:
    return await plain(url, guard, output_type=Report)


async def tools(url: str, guard: Any) -> Any:
    @function_tool
    def look(q: str) -> str:
        return f"nothing about {q}"

    return await plain(url, guard, tools=[look])


async def failing_tool(url: str, guard: Any) -> Any:
    @function_tool(failure_error_function=None)
    def look(q: str) -> str:
        raise ValueError(f"no archive has {q}")

    return await raised(plain(url, guard, tools=[look]))


async def failing_service(url: str, guard: Any) -> Any:
    return await raised(streaming(url, guard))


async def handed_over(url: str, guard: Any) -> Any:
    second = Agent(name="second", instructions="AGENT:second")
    agent = Agent(name="one", instructions="AGENT:one", handoffs=[second])
    return await streaming(url, guard, agent)


async def early_break(url: str, guard: Any) -> Any:
    async with client_of(url) as client:
        result = Runner.run_streamed(Agent(name="one"), "go", run_config=config_of(client, guard))
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                result.cancel()
                return seen(event.data)
    raise AssertionError


async def kept(url: str, guard: Any) -> Any:
    guarding = None if guard is None else monitor.guard.guarding()
    async with client_of(url) as client:
        config, agent = config_of(client, guarding), Agent(name="one")

        async def one(number: int) -> Any:
            if guarding is None:
                return results(await Runner.run(agent, f"go {number}", run_config=config))
            async with guarding():
                return results(await Runner.run(agent, f"go {number}", run_config=config))

        return _without_ids(await asyncio.gather(*map(one, range(4))))


SCENES: dict[str, Scene] = {
    "plain": plain,
    "streaming": streaming,
    "structured": structured,
    "tools": tools,
    "hand-off": handed_over,
    "kept agent, four runs at once": kept,
    "early break": early_break,
    "cancellation": plain,
    "failing tool": failing_tool,
    "failing service": failing_service,
}
