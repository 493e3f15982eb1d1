"""The OpenAI Agents SDK."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents import Agent, MaxTurnsExceeded, Runner, SQLiteSession, function_tool

from tests.integrations.drivers import Tool
from tests.integrations.programs.openai_client import client_of
from tests.integrations.transparent.openai_agents import config_of


async def batch(url: str, guard: Any, questions: Sequence[str]) -> list[str]:
    async with client_of(url) as client:
        config, agent = config_of(client, guard), Agent(name="one")
        return [(await Runner.run(agent, question, run_config=config)).final_output for question in questions]


async def chat(url: str, guard: Any, questions: Sequence[str]) -> list[str]:
    session = SQLiteSession("chat")
    async with client_of(url) as client:
        config, agent = config_of(client, guard), Agent(name="one")
        answers = [
            (await Runner.run(agent, question, run_config=config, session=session)).final_output
            for question in questions
        ]
    session.close()
    return answers


async def approval(url: str, guard: Any, tool: Tool) -> str:
    async with client_of(url) as client:
        agent = Agent(name="one", tools=[function_tool(tool, name_override="look", needs_approval=True)])
        result = await Runner.run(agent, "go", run_config=config_of(client, guard))
        while result.interruptions:
            state = result.to_state()
            for question in result.interruptions:
                state.approve(question)
            result = await Runner.run(agent, state, run_config=config_of(client, guard))
        return str(result.final_output)


async def resume(url: str, guard: Any, tool: Tool) -> str:
    """Each run may make one turn, and the next one goes on with its items."""
    async with client_of(url) as client:
        agent = Agent(name="one", tools=[function_tool(tool, name_override="look")])
        said: Any = "go"
        while True:
            try:
                result = await Runner.run(agent, said, run_config=config_of(client, guard), max_turns=1)
            except MaxTurnsExceeded as cut:
                data: Any = cut.run_data
                before = [{"role": "user", "content": said}] if isinstance(said, str) else said
                said = [*before, *[item.to_input_item() for item in data.new_items]]
                continue
            return str(result.final_output)


PROGRAMS: dict[str, Any] = {"batch": batch, "chat": chat, "approval": approval, "resume": resume}
