import asyncio

from agent_framework import Agent
from agent_framework.openai import OpenAIChatCompletionClient

import monitor
from monitor.integrations.agent_framework import GuardMiddleware, Stopped
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import Repeat, text


async def main() -> None:
    with LocalOpenAI([[Repeat(text("Let me check the file again. "), 1000)]]) as server:
        client = OpenAIChatCompletionClient(model="local", api_key="none", base_url=server.base_url)
        async with monitor.Guard(stop_when=monitor.MaxTurns(30)) as guard:
            agent = Agent(client=client, middleware=[GuardMiddleware(guard)])
            try:
                print(await agent.run("Is it done?"))
            except Stopped as stopped:
                print(stopped)
    print(guard.outcome.reason, guard.outcome.turns)


asyncio.run(main())
