"""smolagents. It is synchronous: an asynchronous test runs it in a thread."""

from __future__ import annotations

import asyncio
from typing import Any

from smolagents import OpenAIModel, ToolCallingAgent
from smolagents import Tool as BaseTool
from smolagents.monitoring import LogLevel
from smolagents.utils import AgentGenerationError

from monitor.guard.guard import Guard
from monitor.integrations.smolagents import GuardedModel
from monitor.outcome import StoppedByGuard
from tests.integrations.drivers import Ending, Tool, stopped


class Look(BaseTool):  # type: ignore[misc] # the framework is not installed where types are checked
    """The tool of the tests."""

    name = "look"
    description = "Looks."
    inputs = {"q": {"type": "string", "description": "What."}}  # noqa: RUF012 - as the framework has it
    output_type = "string"

    def __init__(self, function: Tool) -> None:
        super().__init__()
        self.function = function

    def forward(self, q: str) -> str:
        return self.function(q)


def run_sync(base_url: str, guard: Guard, tool: Tool, *, stream: bool = False) -> Ending:
    model = model_of(base_url)
    try:
        with guard:
            agent = agent_of(GuardedModel(model, guard), [Look(tool)], stream_outputs=stream)
            result = agent.run("go", return_full_result=True)
    except AgentGenerationError as error:
        if isinstance(error.__cause__, StoppedByGuard):
            return stopped(error.__cause__)
        raise
    finally:
        model.client.close()
    return Ending(str(result.output), total_tokens=result.token_usage.total_tokens)


def agent_of(model: Any, tools: Any = (), **options: Any) -> Any:
    return ToolCallingAgent(
        tools=[*tools], model=model, verbosity_level=LogLevel.OFF, max_steps=30, max_tool_threads=1, **options
    )


def model_of(base_url: str) -> Any:
    return OpenAIModel("local", api_base=base_url, api_key="none", client_kwargs={"max_retries": 0})


async def run(base_url: str, guard: Guard, tool: Tool) -> Ending:
    return await asyncio.to_thread(run_sync, base_url, guard, tool)
