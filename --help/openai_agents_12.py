import asyncio

from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool
from openai import AsyncOpenAI

import monitor
from monitor.integrations.openai_agents import GuardedModel, Stopped
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import call, finish


@function_tool
def look(place: str) -> str:
    return f"Nothing was found in {place}."


async def main() -> None:
    again = [call("look", {"place": "the archive"}), finish("tool_calls")]
    with LocalOpenAI([again]) as server:
        async with AsyncOpenAI(api_key="none", base_url=server.base_url) as client, monitor.Guard() as guard:
            model = GuardedModel(OpenAIChatCompletionsModel("local", client), guard)
            config = RunConfig(model=model, tracing_disabled=True)
            try:
                result = await Runner.run(Agent(name="one", tools=[look]), "Find it.", run_config=config)
                print(result.final_output)
            except Stopped as stopped:  # also an AgentsException, with its run_data
                print(stopped)
    print(guard.outcome.reason, guard.outcome.turns)


asyncio.run(main())
