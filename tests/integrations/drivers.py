"""One program for each framework: an agent with a tool, run under a guard against a local server.

Each driver returns how the run ended as the framework's user sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeAlias

import openai
from pydantic import SecretStr

from monitor.harness.guard import Guard
from monitor.integrations.stopped import StoppedByGuard

Tool: TypeAlias = Callable[[str], str]


@dataclass(frozen=True)
class Ending:
    """What the framework's user gets."""

    text: str
    reason: str | None = None
    """`None`: the framework says that the run has ended well."""
    total_tokens: int | None = None
    """The framework's own count."""
    raised: StoppedByGuard | None = None


Driver: TypeAlias = Callable[[str, Guard, Tool], Coroutine[Any, Any, Ending]]


def client_of(base_url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key="none", base_url=base_url, max_retries=0)


def stopped(error: StoppedByGuard) -> Ending:
    return Ending(error.turn.text if error.turn is not None else "", error.stop.reason.value, raised=error)


# --- Pydantic AI


async def pydantic_ai(base_url: str, guard: Guard, tool: Tool) -> Ending:
    from pydantic_ai.exceptions import AgentRunError

    async with client_of(base_url) as client, guard:
        agent, model = _pydantic_agent(client, guard, tool)
        try:
            result = await agent.run("go", model=model)
        except AgentRunError as error:
            if not isinstance(error, StoppedByGuard):
                raise
            return stopped(error)
        return Ending(result.output, total_tokens=result.usage.total_tokens)


async def pydantic_ai_streamed(base_url: str, guard: Guard, tool: Tool) -> Ending:
    async with client_of(base_url) as client, guard:
        agent, model = _pydantic_agent(client, guard, tool)
        try:
            async with agent.run_stream("go", model=model) as result:
                text = "".join([piece async for piece in result.stream_text(delta=True, debounce_by=None)])
                return Ending(text, total_tokens=result.usage.total_tokens)
        except StoppedByGuard as error:
            return stopped(error)


def _pydantic_agent(client: openai.AsyncOpenAI, guard: Guard, tool: Tool) -> tuple[Any, Any]:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from monitor.integrations.pydantic_ai import GuardedModel

    model = OpenAIChatModel("local", provider=OpenAIProvider(openai_client=client))
    agent = Agent(model)
    agent.tool_plain(name="look")(tool)
    return agent, GuardedModel(model, guard)


# --- OpenAI Agents SDK


async def openai_agents(base_url: str, guard: Guard, tool: Tool) -> Ending:
    from agents import AgentsException, Runner

    async with client_of(base_url) as client, guard:
        agent, config = _agents_agent(client, guard, tool)
        try:
            result = await Runner.run(agent, "go", run_config=config)
        except AgentsException as error:
            if not isinstance(error, StoppedByGuard) or error.run_data is None:  # the SDK's own account
                raise
            return stopped(error)
        return Ending(result.final_output, total_tokens=result.context_wrapper.usage.total_tokens)


async def openai_agents_streamed(base_url: str, guard: Guard, tool: Tool) -> Ending:
    from agents import AgentsException, Runner

    async with client_of(base_url) as client, guard:
        agent, config = _agents_agent(client, guard, tool)
        result = Runner.run_streamed(agent, "go", run_config=config)
        try:
            async for _ in result.stream_events():
                pass
        except AgentsException as error:
            if not isinstance(error, StoppedByGuard):
                raise
            return stopped(error)
        return Ending(result.final_output, total_tokens=result.context_wrapper.usage.total_tokens)


def _agents_agent(client: openai.AsyncOpenAI, guard: Guard, tool: Tool) -> tuple[Any, Any]:
    from agents import Agent, OpenAIChatCompletionsModel, RunConfig, function_tool

    from monitor.integrations.openai_agents import GuardedModel

    model = GuardedModel(OpenAIChatCompletionsModel("local", client), guard)
    look = function_tool(tool, name_override="look")
    return Agent(name="one", tools=[look]), RunConfig(model=model, tracing_disabled=True)


# --- LangChain


async def langchain(base_url: str, guard: Guard, tool: Tool) -> Ending:
    async with client_of(base_url) as client, guard:
        agent = _langchain_agent(client, guard, tool)
        state = await agent.ainvoke({"messages": [("user", "go")]})
        return _langchain_ending(state["messages"])


async def langchain_streamed(base_url: str, guard: Guard, tool: Tool) -> Ending:
    async with client_of(base_url) as client, guard:
        agent = _langchain_agent(client, guard, tool)
        state: Any = None
        async for mode, part in agent.astream({"messages": [("user", "go")]}, stream_mode=["messages", "values"]):
            state = part if mode == "values" else state
        return _langchain_ending(state["messages"])


async def langchain_raising(base_url: str, guard: Guard, tool: Tool) -> Ending:
    async with client_of(base_url) as client, guard:
        agent = _langchain_agent(client, guard, tool, exit_behavior="error")
        try:
            state = await agent.ainvoke({"messages": [("user", "go")]})
        except StoppedByGuard as error:
            return stopped(error)
        return _langchain_ending(state["messages"])


def _langchain_agent(client: openai.AsyncOpenAI, guard: Guard, tool: Tool, **options: Any) -> Any:
    from langchain.agents import create_agent
    from langchain_core.tools import StructuredTool
    from langchain_openai import ChatOpenAI

    from monitor.integrations.langchain import GuardMiddleware

    key = SecretStr("none")
    model = ChatOpenAI(model="local", async_client=client.chat.completions, api_key=key, max_retries=0)
    look = StructuredTool.from_function(tool, name="look", description="Looks.")
    return create_agent(model, [look], middleware=[GuardMiddleware(guard, **options)])


def _langchain_ending(messages: list[Any]) -> Ending:
    last = messages[-1]
    said = last.response_metadata.get("agent_monitor", {})
    totals = [one.usage_metadata["total_tokens"] for one in messages if one.type == "ai" and one.usage_metadata]
    return Ending(last.text, said.get("reason"), sum(totals))


DRIVERS: dict[str, tuple[tuple[str, ...], Driver]] = {
    "pydantic-ai": (("pydantic_ai",), pydantic_ai),
    "pydantic-ai-streamed": (("pydantic_ai",), pydantic_ai_streamed),
    "openai-agents": (("agents",), openai_agents),
    "openai-agents-streamed": (("agents",), openai_agents_streamed),
    "langchain": (("langchain", "langchain_openai"), langchain),
    "langchain-streamed": (("langchain", "langchain_openai"), langchain_streamed),
    "langchain-raising": (("langchain", "langchain_openai"), langchain_raising),
}
"""The packages that a driver needs, and the driver."""
