import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient

import monitor
from monitor.integrations.autogen import GuardedClient, GuardTermination
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import call, finish

INFO = ModelInfo(vision=False, function_calling=True, json_output=True, family="unknown", structured_output=False)


def look(place: str) -> str:
    """Look somewhere."""
    return f"Nothing was found in {place}."


async def main() -> None:
    again = [call("look", {"place": "the archive"}), finish("tool_calls")]
    with LocalOpenAI([again]) as server:
        model = OpenAIChatCompletionClient(model="local", api_key="none", base_url=server.base_url, model_info=INFO)
        async with monitor.Guard(stop_when=monitor.MaxTurns(30)) as guard:
            client = GuardedClient(model, guard)
            ends = GuardTermination(client) | MaxMessageTermination(100)
            agent = AssistantAgent("one", client, tools=[look])
            result = await RoundRobinGroupChat([agent], termination_condition=ends).run(task="Find it.")
            await client.close()
    print(result.stop_reason)
    print(guard.outcome.reason, guard.outcome.turns, guard.outcome.usage)


asyncio.run(main())
