import asyncio

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

import monitor
from monitor.integrations.pydantic_ai import GuardedModel

guarded = monitor.guard.guarding(stop_when=monitor.MaxTurns(30))
agent = Agent(GuardedModel(TestModel(custom_output_text="It is done."), guarded))


async def serve(question: str) -> monitor.Outcome:
    async with guarded() as guard:
        await agent.run(question)
    return guard.outcome


async def main() -> None:
    outcomes = await asyncio.gather(*[serve(f"question {number}") for number in range(4)])
    print([outcome.turns for outcome in outcomes])
    assert all(outcome.ok for outcome in outcomes)


asyncio.run(main())
