import asyncio
from collections.abc import AsyncIterator

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel

import monitor
from monitor.integrations.pydantic_ai import GuardedModel, Stopped


async def chant(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    while True:
        yield "Let me check the file again. "


async def main() -> None:
    model = FunctionModel(stream_function=chant)  # or the model of a provider
    agent = Agent(model)
    async with monitor.Guard(stop_when=monitor.MaxTurns(30) | monitor.Timeout(600)) as guard:
        try:
            result = await agent.run("Is it done?", model=GuardedModel(model, guard))
            print(result.output)
        except Stopped as stopped:  # also an AgentRunError
            print(stopped)
    print(guard.outcome.reason, guard.outcome.usage)


asyncio.run(main())
